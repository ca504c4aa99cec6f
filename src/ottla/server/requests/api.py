"""API declarations for the dispatcher, beside their handlers.

Messages and versions are declared with the messages (`protocol.registry`), and so are the error codes in a response
(`protocol.error_codes`). Each handler package has a table of its APIs (`handlers/*/apis.py`); `server.wiring.apis`
selects those that a listener serves. A handler gets the context of its package, the type parameter of its API.
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

A handler with a large response returns a generator that builds it in short steps (`server.requests.stepped`)."""

ErrorResponse = Callable[[Any, ErrorCode, str], "object | None"]
"""Builds the response of a request that failed as a whole, from its message, the code and a text, possibly empty.

None when the response can't carry it; then the connection closes.
"""

Guard = Callable[[ContextT_contra, Request, Any], "object | None"]
"""Gets the request message before the handler, if there is an authorizer; see `server.requests.authorization`.

Returns the response if nothing is left to handle. Raises KafkaError.
"""

BrokerPrevalidate = Callable[[ContextT_contra, Request, Any], "object | None"]
"""Gets the request message on the receiving broker, before the controller decides, and removes refused items.

Returns the response if nothing is left.
"""

CacheInputs = Callable[[ContextT_contra], tuple[object, ...]]
"""Objects that responses depend on besides the request; all immutable."""


class Api(Generic[ContextT_contra]):
    """One API. See `RawApi` and `SchemaApi`.

    `needs` is the permission for the request as a whole, `item_needs` those that single items may need.
    `throttled` is False for requests between nodes, which quotas must not delay.
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
    """An API with a hand-written codec: the handler parses, encodes and counts errors itself."""

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
    """An API with declared messages: the handler gets and returns messages.

    `forwarded`: the active controller serves it; other brokers forward the request. A `BrokerPrevalidate` instead of
    True also forwards, and checks the request first. With `cache_inputs`, responses without an error are cached
    (`response_cache`). With a `division`, a request that names many items is answered part by part (`stepped`).
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
        """The API for one listener: others of the same node do not have it."""
        row = copy.copy(self)
        row.only_on = listener_name
        return row


class ApiBinding(NamedTuple):
    """An API with the context that its handler gets."""

    api: Api[Any]
    context: Any


def served_on(listener: Listeners, rows: Iterable[Api[ContextT_contra]], context: ContextT_contra) -> list[ApiBinding]:
    """The APIs that a kind of listener serves."""
    return [ApiBinding(row, context) for row in rows if listener in row.listeners]


def bare_error(response: Callable[..., object]) -> ErrorResponse:
    """For responses with only an error code."""
    return lambda message, code, text: response(error_code=code)


def error_with_message(response: Callable[..., object]) -> ErrorResponse:
    """For responses with an error code and a message."""
    return lambda message, code, text: response(error_code=code, error_message=text or None)
