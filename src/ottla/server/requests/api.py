"""API declarations for the dispatcher, beside their handlers.

Messages and versions are declared with the messages (`protocol.registry`), and so are the error codes in a response
(`protocol.error_codes`). Each handler package has a table of its APIs (`handlers/*/apis.py`); `server.wiring.apis`
selects those that a listener serves. A row of a table names the module of its API, which is imported for the first
request: a broker loads the handlers and messages that its clients use. A handler gets the context of its package, the
type parameter of its API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Flag, auto
from importlib import import_module
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.common.errors import ErrorCode
from ottla.common.platform.channel import Part
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

ContextT_contra = TypeVar("ContextT_contra", contravariant=True)


class Listeners(Flag):
    """The kinds of listeners that serve an API."""

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER


class RawHandler(Protocol[ContextT_contra]):
    """Handler that parses and encodes by itself.

    Implementations: `serve` in `server.handlers.data.produce`, `server.handlers.data.fetch` and
    `server.handlers.quorum.on_zookeeper`.
    """

    def __call__(
        self, context: ContextT_contra, request: Request, buffer: bytearray, body_start: int, end: int, /
    ) -> list[Part] | None:
        """Return the response to the request in the receive buffer, None when it parked the request."""


class MessageHandler(Protocol[ContextT_contra]):
    """Handler of a declared request.

    Implementations: `handle` in the module of the API, in `server.handlers.admin`, `server.handlers.data`,
    `server.handlers.groups`, `server.handlers.quorum` and `server.handlers.transactions`. If that module has none,
    `server.requests.controller_requests.controller_api`, `server.handlers.admin.token_requests.token_api`,
    `server.handlers.groups.group_requests.coordinated`, `server.handlers.share.state_requests.state_api` or
    `server.handlers.transactions.transaction_requests.coordinated` creates it.
    """

    def __call__(self, context: ContextT_contra, request: Request, message: Any, /) -> object | None:
        """Return the response message, None when it parked the request.

        A handler with a large response returns a generator that builds it in short steps (`server.requests.stepped`).
        """


class ErrorResponse(Protocol):
    """Builds the response of a request that failed as a whole.

    Implementations: `error_response` in the module of the API, or made by `server.requests.api.bare_error`,
    `server.requests.api.error_with_message`, `server.requests.api.partition_errors` or
    `server.requests.api.resource_errors`.
    """

    def __call__(self, message: Any, code: ErrorCode, text: str, /) -> object | None:
        """Return the response; `text` may be empty. None when it can't carry the code; then the connection closes."""


class Guard(Protocol[ContextT_contra]):
    """Checks the permissions for single items before the handler, if there is an authorizer.

    Implementations: `guard` in the module of the API, usually by `server.requests.guards.guard_items`; see
    `server.requests.authorization`.
    """

    def __call__(self, context: ContextT_contra, request: Request, message: Any, /) -> object | None:
        """Return the response if nothing is left to handle. Raises KafkaError."""


class BrokerPrevalidate(Protocol[ContextT_contra]):
    """Checks a request on the receiving broker, before the controller decides.

    Implementations: in `server.handlers.admin.reconfiguration.alter_api`.
    """

    def __call__(self, context: ContextT_contra, request: Request, message: Any, /) -> object | None:
        """Remove refused items from the message; returns the response if nothing is left."""


class CacheInputs(Protocol[ContextT_contra]):
    """Names the objects that cached responses depend on.

    Implementations: in `server.handlers.admin.api_versions` and `server.handlers.admin.metadata.cache_inputs`.
    """

    def __call__(self, context: ContextT_contra, /) -> tuple[object, ...]:
        """Return the objects besides the request, all immutable."""


class CacheHit(Protocol[ContextT_contra]):
    """Notes a request that is answered from the cache, without its handler.

    Implementation: `server.handlers.admin.api_versions.note_cached`.
    """

    def __call__(self, context: ContextT_contra, request: Request, body: bytes, /) -> None:
        """Note the request with this body."""


Explained = Callable[[BaseException | None], None]
"""Called with the error of a request that did not reach a controller."""


class Explanation(Protocol[ContextT_contra]):
    """Finds the reason why no controller was reached.

    Implementation: `server.handlers.quorum.describe_quorum.explain`.
    """

    def __call__(
        self, context: ContextT_contra, request: Request, error: BaseException | None, done: Explained, /
    ) -> None:
        """Call `done` with `error`, or with one that names the reason to a client that may know it."""


class Api(Generic[ContextT_contra]):
    """One API. See `RawApi` and `SchemaApi`.

    `needs` is the permission for the request as a whole, `item_needs` those that single items may need.
    """

    __slots__ = ("item_needs", "key", "needs")

    def __init__(
        self, key: ApiKey, *, needs: RequiredPermission | None, item_needs: tuple[RequiredPermission, ...]
    ) -> None:
        self.key = key
        self.needs = needs
        self.item_needs = item_needs


class RawApi(Api[ContextT_contra]):
    """An API with a hand-written codec: the handler parses, encodes and counts errors itself."""

    __slots__ = ("serve",)

    def __init__(
        self,
        key: ApiKey,
        serve: RawHandler[ContextT_contra],
        *,
        item_needs: tuple[RequiredPermission, ...] = (),
    ) -> None:
        super().__init__(key, needs=None, item_needs=item_needs)
        self.serve = serve


class SchemaApi(Api[ContextT_contra]):
    """An API with declared messages: the handler gets and returns messages.

    `forwarded`: the active controller serves it; other brokers forward the request. A `BrokerPrevalidate` instead of
    True also forwards, and checks the request first. With `cache_inputs`, responses without an error are cached
    (`response_cache`), and `cache_hit` notes the requests that get them. With a `division`, a request that names many
    items is answered part by part (`stepped`). With an `explanation`, the request waits only for `EXPLAINED_TIMEOUT_S`
    for a controller, and its error then names the reason.
    """

    __slots__ = (
        "broker_prevalidate",
        "cache_hit",
        "cache_inputs",
        "divisions",
        "error_response",
        "explanation",
        "forwarded",
        "guard",
        "handle",
    )

    def __init__(
        self,
        key: ApiKey,
        handle: MessageHandler[ContextT_contra],
        error_response: ErrorResponse,
        *,
        needs: RequiredPermission | None = None,
        item_needs: tuple[RequiredPermission, ...] = (),
        guard: Guard[ContextT_contra] | None = None,
        forwarded: bool | BrokerPrevalidate[ContextT_contra] = False,
        cache_inputs: CacheInputs[ContextT_contra] | None = None,
        cache_hit: CacheHit[ContextT_contra] | None = None,
    ) -> None:
        super().__init__(key, needs=needs, item_needs=item_needs)
        self.handle = handle
        self.error_response = error_response
        self.forwarded = forwarded is not False
        self.broker_prevalidate = None if isinstance(forwarded, bool) else forwarded
        self.guard = guard
        self.cache_inputs = cache_inputs
        self.cache_hit = cache_hit
        self.divisions: tuple[Division, ...] = ()
        self.explanation: Explanation[ContextT_contra] | None = None

    def explained(self, explanation: Explanation[ContextT_contra]) -> SchemaApi[ContextT_contra]:
        """The row with an explanation for requests that reach no controller."""
        self.explanation = explanation
        return self

    def divided(self, *divisions: Division) -> SchemaApi[ContextT_contra]:
        """The row with divisions; the first that fits a request is used."""
        self.divisions = divisions
        return self


class ApiRow(Generic[ContextT_contra]):
    """One row of a table of APIs: the facts that a broker needs before the first request.

    `module` defines the API, as a constant with the module's name in upper case. `throttled` is False for requests
    between nodes, which quotas must not delay.
    """

    __slots__ = ("_api", "key", "listeners", "module", "only_on", "throttled")

    def __init__(
        self, key: ApiKey, module: str, listeners: Listeners = Listeners.BROKER, *, throttled: bool = True
    ) -> None:
        self.key = key
        self.module = module
        self.listeners = listeners
        self.throttled = throttled
        self.only_on: str | None = None
        """The listener that serves it; None for each of its kind."""
        self._api: Api[ContextT_contra] | None = None

    @property
    def api(self) -> Api[ContextT_contra]:
        """The API; the first call imports its module."""
        if self._api is None:
            self._api = getattr(import_module(self.module), self.module.rpartition(".")[2].upper())
        return self._api

    def changed(self, api: Api[ContextT_contra]) -> ApiRow[ContextT_contra]:
        """The row with another API."""
        row: ApiRow[ContextT_contra] = ApiRow(self.key, self.module, self.listeners, throttled=self.throttled)
        row._api = api
        return row

    def served_only_on(self, listener_name: str) -> ApiRow[ContextT_contra]:
        """The row for one listener: others of the same node do not have it."""
        row = self.changed(self.api)
        row.only_on = listener_name
        return row


class ApiBinding(NamedTuple):
    """A row with the context that its handler gets."""

    row: ApiRow[Any]
    context: Any


def served_on(
    listener: Listeners, rows: Iterable[ApiRow[ContextT_contra]], context: ContextT_contra
) -> list[ApiBinding]:
    """The APIs that a kind of listener serves."""
    return [ApiBinding(row, context) for row in rows if listener in row.listeners]


def bare_error(response: Callable[..., object]) -> ErrorResponse:
    """For responses with only an error code."""
    return lambda message, code, text: response(error_code=code)


def error_with_message(response: Callable[..., object]) -> ErrorResponse:
    """For responses with an error code and a message."""
    return lambda message, code, text: response(error_code=code, error_message=text or None)


def partition_errors(
    response: Callable[..., object],
    topic: Callable[..., Any],
    partition: Callable[..., object],
    *,
    by_id: bool = False,
) -> ErrorResponse:
    """For responses with only an error code for every partition; with `by_id`, topics have ids beside their names."""

    def error_response(message: Any, code: ErrorCode, text: str) -> object:
        topics = [
            topic(
                name=each.name,
                partitions=[partition(partition_index=one.partition_index, error_code=code) for one in each.partitions],
            )
            for each in message.topics
        ]
        if by_id:
            for answer, each in zip(topics, message.topics, strict=True):
                answer.topic_id = each.topic_id
        return response(topics=topics)

    return error_response


def resource_errors(response: Callable[..., object], answers: str, answer: Callable[..., object]) -> ErrorResponse:
    """For responses with an error for every resource with configs, in the list `answers`."""

    def error_response(message: Any, code: ErrorCode, text: str) -> object:
        rows = [
            answer(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in message.resources
        ]
        return response(**{answers: rows})

    return error_response
