"""An API as a row: what the dispatcher has to know of it, declared once, beside its handler.

Messages and versions are declared with the messages (`protocol.registry`), and so are the error codes in a response
(`protocol.error_codes`). Rows lie in the tables of their rooms (`handlers/*/apis.py`), of which `server.wiring.apis`
makes what a listener serves. A handler gets the context of its room, which is the type that its row is generic in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from enum import Flag, auto
from typing import Any, Generic, NamedTuple, TypeVar

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


Serve = Callable[[ContextT_contra, Request, bytearray, int, int], "list[Part] | None"]
"""Gets the receive buffer with the positions of body and end; returns the response, None when it parked the request."""

Handle = Callable[[ContextT_contra, Request, Any], "object | None"]
"""Gets the request message; returns the response message, None when it parked the request.

One whose answer may be large returns a generator that makes it in short steps (`server.requests.stepped`)."""

ErrorResponse = Callable[[Any, ErrorCode, str], "object | None"]
"""The response for a request that failed as a whole, from its message, the code and words that may be empty.

None when the response has no place for it; then the connection closes.
"""

Guard = Callable[[ContextT_contra, Request, Any], "object | None"]
"""Gets the request message before the handler, where there is an authorizer; see `server.requests.authorization`.

Returns the response where nothing is left to handle. Raises KafkaError.
"""

BrokerPrevalidate = Callable[[ContextT_contra, Request, Any], "object | None"]
"""Gets the request message on the broker that was asked, before the controller decides, and takes out what it refuses.

Returns the response where nothing is left.
"""

CacheInputs = Callable[[ContextT_contra], tuple[object, ...]]
"""The objects that responses depend on beside the request; all immutable."""


class Api(Generic[ContextT_contra]):
    """One row. See `RawApi` and `SchemaApi`.

    `needs` is what the request as a whole has to be allowed, `item_needs` what single things in it may need.
    `throttled` is False for what nodes ask of one another and no quota may slow down.
    """

    __slots__ = ("item_needs", "key", "listeners", "needs", "throttled")

    def __init__(
        self,
        key: ApiKey,
        *,
        listeners: Listeners,
        needs: RequiredPermission | None,
        item_needs: tuple[RequiredPermission, ...],
        throttled: bool,
    ) -> None:
        self.key = key
        self.listeners = listeners
        self.needs = needs
        self.item_needs = item_needs
        self.throttled = throttled


class RawApi(Api[ContextT_contra]):
    """An API with a hand-written codec: the handler parses, encodes and counts errors by itself."""

    __slots__ = ("serve",)

    def __init__(
        self,
        key: ApiKey,
        serve: Serve[ContextT_contra],
        *,
        listeners: Listeners = Listeners.BROKER,
        item_needs: tuple[RequiredPermission, ...] = (),
    ) -> None:
        super().__init__(key, listeners=listeners, needs=None, item_needs=item_needs, throttled=True)
        self.serve = serve


class SchemaApi(Api[ContextT_contra]):
    """An API whose messages are declared: the handler sees them alone.

    `forwarded`: the active controller serves it, wherever that is; a broker that is not it hands the request on. A
    `BrokerPrevalidate` in its place says the same, and sees the request before. With a `cache_inputs`, responses
    without an error are remembered (`response_cache`). With a `division`, a request that names many things is answered
    part by part (`stepped`).
    """

    __slots__ = (
        "broker_prevalidate",
        "cache_inputs",
        "divisions",
        "error_response",
        "forwarded",
        "guard",
        "handle",
        "only_on",
    )

    def __init__(
        self,
        key: ApiKey,
        handle: Handle[ContextT_contra],
        error_response: ErrorResponse,
        *,
        listeners: Listeners = Listeners.BROKER,
        needs: RequiredPermission | None = None,
        item_needs: tuple[RequiredPermission, ...] = (),
        guard: Guard[ContextT_contra] | None = None,
        throttled: bool = True,
        forwarded: bool | BrokerPrevalidate[ContextT_contra] = False,
        cache_inputs: CacheInputs[ContextT_contra] | None = None,
    ) -> None:
        super().__init__(key, listeners=listeners, needs=needs, item_needs=item_needs, throttled=throttled)
        self.handle = handle
        self.error_response = error_response
        self.forwarded = forwarded is not False
        self.broker_prevalidate = None if isinstance(forwarded, bool) else forwarded
        self.guard = guard
        self.cache_inputs = cache_inputs
        self.divisions: tuple[Division, ...] = ()
        self.only_on: str | None = None
        """The listener that serves it; None for each of its kind."""

    def divided(self, *divisions: Division) -> SchemaApi[ContextT_contra]:
        """The row with divisions; the first that fits a request is used."""
        self.divisions = divisions
        return self

    def served_only_on(self, listener_name: str) -> SchemaApi[ContextT_contra]:
        """The row for one listener: on others of the same node there is no such API."""
        row = copy.copy(self)
        row.only_on = listener_name
        return row


class ApiBinding(NamedTuple):
    """A row with the context that its handler gets."""

    api: Api[Any]
    context: Any


def served_on(listener: Listeners, rows: Iterable[Api[ContextT_contra]], context: ContextT_contra) -> list[ApiBinding]:
    """The rows that a kind of listener serves."""
    return [ApiBinding(row, context) for row in rows if listener in row.listeners]


def bare_error(response: Callable[..., object]) -> ErrorResponse:
    """For responses that tell of a failure the code alone."""
    return lambda message, code, text: response(error_code=code)


def error_with_message(response: Callable[..., object]) -> ErrorResponse:
    """For responses that tell code and words of a failure."""
    return lambda message, code, text: response(error_code=code, error_message=text or None)
