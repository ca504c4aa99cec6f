"""Dispatcher: passes each request frame to the handler of its API, and returns the encoded response.

By the API declarations (`server.requests.api`) it checks header and version, authorizes, counts, and turns errors into
responses. Handlers with a schema get a decoded, authorized request. It also forwards requests to the active
controller, caches responses, and handles large requests in short steps.

Invariants:
- Only ProtocolError, which closes the connection, and InvariantError, which ends the broker, leave `handle`.
- Every accepted request is answered exactly once, except a produce with acks=0 or on a closed connection.
- An API or version that is not in the table never reaches a handler.

Not here: the semantics of requests (`server.handlers`), the order of requests of one connection, which the connection
preserves, and quotas (`server.requests.throttling`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from operator import is_
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.kafka.acl import CLUSTER_NAME
from ottla.common.platform.channel import Channel, Part
from ottla.common.platform.clock import Clock
from ottla.common.platform.shares import FairQueue, finish
from ottla.protocol.codec import read_in_steps, read_message
from ottla.protocol.error_codes import compile_error_codes, compile_stepped_error_codes
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.header import (
    REQUEST_FIELDS,
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_steps,
)
from ottla.protocol.hot import read_client_id
from ottla.protocol.registry import API, ApiKey, api_name
from ottla.replica.purgatory import DelayedOperation, Purgatory
from ottla.security.authorizer import StandardAuthorizer
from ottla.server.requests.api import ApiBinding, RawApi, SchemaApi
from ottla.server.requests.authorization import DENIED, DENIED_TEXT
from ottla.server.requests.failures import Failures
from ottla.server.requests.forwarding import EXPLAINED_TIMEOUT_S, ControllerChannel
from ottla.server.requests.request import Request
from ottla.server.requests.request_limits import RequestLimits
from ottla.server.requests.response_cache import Key, ResponseCache
from ottla.server.requests.statistics import LONG_REQUEST_MS, ApiStatistics, BrokerStatistics
from ottla.server.requests.stepped import PartRequest, SteppedAnswer, Steps, divide

_SIZE = struct.Struct(">i")

LARGE_BODY_BYTES = 16 * 1024
"""Larger requests are also parsed in steps."""


class _Entry:
    """One API of the table, with its counters; created for its first request, which loads handler and messages."""

    __slots__ = (
        "cache",
        "context",
        "declared",
        "error_codes",
        "flexible_from",
        "forwarded",
        "highest",
        "lowest",
        "name",
        "only_on",
        "serve",
        "spec",
        "statistics",
        "stepped_error_codes",
    )

    def __init__(self, served: ApiBinding, statistics: ApiStatistics) -> None:
        row, self.context = served
        api = row.api
        self.spec = API[row.key]
        self.name = self.spec.name
        self.lowest = self.spec.min_version
        self.highest = self.spec.max_version
        self.flexible_from = self.spec.flexible_from
        self.statistics = statistics
        self.only_on = row.only_on
        self.serve = api.serve if isinstance(api, RawApi) else None
        self.declared = api if isinstance(api, SchemaApi) else None
        self.forwarded = self.declared is not None and self.declared.forwarded
        self.cache = ResponseCache()
        self.stepped_error_codes: Callable[[Any], Generator[None, None, list[int]]] | None = None
        """The parser in short steps, created on first use."""
        self.error_codes: Callable[[Any], list[int]] = self._compile_error_codes
        """Extracts the error codes from a response of a declared API, at any level."""

    def _compile_error_codes(self, response: object) -> list[int]:
        """Placeholder of `error_codes` until the first response."""
        self.error_codes = compile_error_codes(self.spec.response)
        return self.error_codes(response)

    def failed(self, request: Request, code: ErrorCode, text: str) -> object | None:
        """Count a request that failed as a whole; returns the error response, None if there is none."""
        self.statistics.failed(code)
        request.errors = (code,)
        if self.declared is None or request.message is None:
            return None
        return self.declared.error_response(request.message, code, text)


class DispatcherContext(NamedTuple):
    """Dependencies of a dispatcher on its node."""

    clock: Clock
    purgatory: Purgatory
    limits: RequestLimits
    controller: ControllerChannel
    """Forwards requests that only the active controller serves."""
    statistics: BrokerStatistics
    failures: Failures
    fair_queue: FairQueue | None = None
    """Queue of responses built in steps; None: each is built at once."""
    closed_listeners: Sequence[Callable[[Channel], None]] = ()
    """Called with each closed connection, after its parked operation was cancelled."""


class RequestDispatcher:
    """Implements `ottla.common.platform.channel.Dispatcher` for one broker."""

    __slots__ = (
        "_context",
        "_element_limit",
        "_entries",
        "_monotonic",
        "_parked",
        "_served",
        "_stepped",
        "_stopped",
        "authorizer",
        "serves_controller",
    )

    def __init__(
        self,
        context: DispatcherContext,
        apis: Iterable[ApiBinding],
        *,
        serves_controller: bool = False,
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        self._context = context
        self.serves_controller = serves_controller
        """Whether this is a controller's listener, which forwards nothing."""
        self.authorizer = authorizer
        """Authorizes requests; None allows everything."""
        self._monotonic = context.clock.monotonic
        self._element_limit = context.limits.element_limit
        self._served: dict[int, ApiBinding] = {served.row.key: served for served in apis}
        self._entries: dict[int, _Entry] = {}
        """APIs that were requested."""
        for key, served in self._served.items():
            context.statistics.add_api(key, api_name(served.row.key))
        self._parked: dict[int, DelayedOperation] = {}
        self._stepped: dict[int, SteppedAnswer] = {}
        """Responses being built, by connection."""
        self._stopped = False

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """Serve one request; see `ottla.common.platform.channel.Dispatcher`."""
        if end - start < REQUEST_FIELDS.size:
            raise ProtocolError(f"a request of {end - start} bytes has no header")
        api_key, api_version, correlation_id, size = REQUEST_FIELDS.unpack_from(buffer, start)
        entry = self._entries.get(api_key) or self._entry(api_key)
        if entry is None:
            raise ProtocolError(f"API key {api_key} is not known here")
        if self._stopped:
            raise ProtocolError("the broker is stopping")
        if not entry.lowest <= api_version <= entry.highest:
            return self._unsupported_version(entry, api_version, correlation_id)
        started_s = self._monotonic()
        client_id, body_start = read_client_id(buffer, start, end, size, api_version >= entry.flexible_from)
        request = Request(self, channel, api_key, api_version, correlation_id, client_id, started_s)
        statistics = entry.statistics
        statistics.requests.value += 1
        try:
            if entry.serve is not None:
                parts = entry.serve(entry.context, request, buffer, body_start, end)
            else:
                parts = self._serve_declared(entry, request, buffer, start, body_start, end)
        except ProtocolError:
            self._context.statistics.protocol_errors.value += 1
            raise
        except InvariantError:
            raise
        except Exception as error:
            self._context.failures(entry.name, error)
            raise ProtocolError(f"{entry.name} v{api_version} failed: internal error") from None
        if parts is not None:
            elapsed_ms = (self._monotonic() - started_s) * 1000
            statistics.latency_ms.observe(elapsed_ms)
            if elapsed_ms >= LONG_REQUEST_MS:
                self._context.statistics.longest_request.note(entry.name, elapsed_ms)
        elif statistics.parked is not None:
            statistics.parked.local.observe((self._monotonic() - started_s) * 1000)
        return parts

    def connection_closed(self, channel: Channel) -> None:
        """Cancel the parked operation of a closed connection."""
        stepped = self._stepped.pop(channel.id, None)
        if stepped is not None:
            stepped.close()
        operation = self._parked.pop(channel.id, None)
        if operation is not None:
            self._context.purgatory.cancel(operation)
        for listener in self._context.closed_listeners:
            listener(channel)

    def stop(self) -> None:
        """Refuse new requests from now on; parked ones are still answered."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether no long work may start any more."""
        return self._stopped

    def may_be_forwarded(self, data: bytearray) -> bool:
        """Whether the request in `data` is one that brokers forward to the controller."""
        if len(data) < REQUEST_FIELDS.size:
            return False
        entry = self._entry(REQUEST_FIELDS.unpack_from(data)[0])
        return entry is not None and entry.forwarded

    def unthrottled(self) -> frozenset[int]:
        """API keys that quotas must not delay."""
        return frozenset(key for key, served in self._served.items() if not served.row.throttled)

    def apis(self, listener_name: str) -> list[int]:
        """The keys of all APIs of a listener, in order."""
        return sorted(key for key, served in self._served.items() if served.row.only_on in (None, listener_name))

    # --- for Request -----------------------------------------------------------------------------------------------

    def parked(self, request: Request, operation: DelayedOperation) -> None:
        """Remember which operation to cancel when the connection of `request` closes."""
        self._parked[request.channel.id] = operation

    def answer_parked(self, request: Request, build: Callable[[], object]) -> None:
        """Complete a parked request of a declared API."""
        if request.channel.closed:
            return
        entry = self._entries[request.api_key]
        try:
            parts = self._build(entry, request, build)
        except ProtocolError as error:
            request.channel.close(str(error))
            return
        except InvariantError:
            raise
        except Exception as error:
            self._context.failures(entry.name, error)
            request.channel.close(f"{entry.name} failed: internal error")
            return
        if parts is not None:
            self.finish_parked(request, list(parts))

    def finish_parked(self, request: Request, parts: list[Part]) -> None:
        """Send the response of a parked request."""
        self._parked.pop(request.channel.id, None)
        elapsed_ms = (self._monotonic() - request.started_s) * 1000
        statistics = self._entries[request.api_key].statistics
        statistics.latency_ms.observe(elapsed_ms)
        if statistics.parked is not None:
            statistics.parked.total.observe(elapsed_ms)
        request.channel.respond(parts)

    def count_error(self, request: Request, error_code: int) -> None:
        """Count an error code in a response."""
        self._entries[request.api_key].statistics.failed(error_code)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _entry(self, api_key: int) -> _Entry | None:
        """The entry of an API, None if it is not served here; the first call for an API creates it."""
        entry = self._entries.get(api_key)
        if entry is None:
            served = self._served.get(api_key)
            if served is None:
                return None
            statistics = self._context.statistics.apis[api_key]
            try:
                entry = self._entries[api_key] = _Entry(served, statistics)
            except Exception as error:
                self._context.failures(statistics.name, error)
                raise ProtocolError(f"{statistics.name} failed: internal error") from None
        return entry

    def _serve_declared(
        self, entry: _Entry, request: Request, buffer: bytearray, start: int, body_start: int, end: int
    ) -> list[Part] | None:
        api = entry.declared
        if api is None:
            raise InvariantError(f"{entry.name} has no handler")
        if entry.only_on is not None and request.listener_name != entry.only_on:
            raise ProtocolError(f"{entry.name} is served only on listener {entry.only_on}")
        cached: Key | None = None
        if api.cache_inputs is not None and self.authorizer is None:
            cached = (request.api_version, request.listener_name, bytes(buffer[body_start:end]))
            found = entry.cache.find(api.cache_inputs(entry.context), cached, request.correlation_id)
            if found is not None:
                if api.cache_hit is not None:
                    api.cache_hit(entry.context, request, cached[2])
                if entry.cache.errors:
                    for code in entry.cache.errors.get(cached, ()):
                        entry.statistics.failed(code)
                return found
        if cached is not None and api.cache_inputs is not None:
            request.remember = _remembering(entry, cached, api.cache_inputs)
        if end - body_start > LARGE_BODY_BYTES:
            with memoryview(buffer) as view:
                body = bytes(view[body_start:end])
                # A frame may be a hundred MB: it is copied as a whole only if it may be forwarded unchanged.
                frame = bytes(view[start:end]) if entry.forwarded and not self.serves_controller else b""
            return self._begin_steps(entry, request, self._read_and_serve(entry, api, request, body, frame))
        limit = self._element_limit()
        request.message, _ = read_message(entry.spec.request, request.api_version, buffer, body_start, end, limit)
        if entry.forwarded and not self.serves_controller:
            if api.broker_prevalidate is not None:
                refusal = api.broker_prevalidate(entry.context, request, request.message)
                if refusal is not None:
                    return self._build(entry, request, lambda: refusal)
            if not self._context.controller.local:
                self._forward(entry, api, request, bytes(buffer[start:end]))
                return None

        return self._build(entry, request, lambda: self._serve_steps(entry, api, request)) or None

    def _forward(self, entry: _Entry, api: SchemaApi[Any], request: Request, data: bytes) -> None:
        """Forward a request to the active controller; its response goes to the client unchanged.

        After a prevalidation only the remaining items are forwarded, and the refused ones are added to the response.
        """
        key, version = request.api_key, request.api_version
        if request.amend is not None:
            data = encode_request(key, version, request.correlation_id, request.client_id, request.message)[SIZE_BYTES:]

        def answered(response: bytes | None, error: BaseException | None) -> None:
            if response is None:
                self.answer_parked(request, lambda: _raise(error))
            elif request.amend is not None:
                self.answer_parked(request, lambda: decode_response(key, version, response)[1])
            elif not request.channel.closed:
                self.finish_parked(request, [_SIZE.pack(len(response)), response])

        controller, explanation = self._context.controller, api.explanation
        if explanation is None:
            controller.forward(data, request.principal, request.channel.client_host, answered)
            return

        def explained(response: bytes | None, error: BaseException | None) -> None:
            if response is not None:
                answered(response, None)
            else:
                explanation(entry.context, request, error, lambda reason: answered(None, reason))

        controller.forward(data, request.principal, request.channel.client_host, explained, EXPLAINED_TIMEOUT_S)

    def _serve_steps(self, entry: _Entry, api: SchemaApi[Any], request: Request) -> object | None:
        """Run guard and handler; returns a generator if the request is large."""

        def serve(asked: Request) -> object | None:
            if self.authorizer is not None:
                answer = _guarded(entry, api, asked)
                if isinstance(answer, Generator):
                    return _handle_after(answer, entry, api, asked)
                if answer is not None:
                    return answer
            return api.handle(entry.context, asked, asked.message)

        for division in api.divisions:
            parts = division.parts(request.message)
            if parts is not None:
                return divide(request, division, parts, serve, partial(_refuse_part, api))
        return serve(request)

    def _read_and_serve(self, entry: _Entry, api: SchemaApi[Any], request: Request, body: bytes, frame: bytes) -> Steps:
        """The complete work on a large request; None if it is parked elsewhere."""
        limit = self._element_limit()
        request.message = yield from read_in_steps(entry.spec.request, request.api_version, body, limit)
        del body
        if entry.forwarded and not self.serves_controller:
            refusal = (
                None
                if api.broker_prevalidate is None
                else api.broker_prevalidate(entry.context, request, request.message)
            )
            if refusal is not None:
                return refusal
            if not self._context.controller.local:
                self._forward(entry, api, request, frame)
                return None
        response = self._serve_steps(entry, api, request)
        if isinstance(response, Generator):
            response = yield from response
        return response

    def _build(self, entry: _Entry, request: Request, build: Callable[[], object | None]) -> list[Part] | None:
        """Run `build` and encode; an error becomes the error response of the API, else ProtocolError.

        Returns an empty list if `build` parked the request, None if the response is still being built in steps.
        """
        try:
            response = build()
            if response is None:
                return []
            if isinstance(response, Generator):
                return self._begin_steps(entry, request, response)
            if request.amend is not None:
                response = request.amended(response)
                if isinstance(response, Generator):
                    return self._begin_steps(entry, request, response)
            self._count_errors(entry, request, entry.error_codes(response))
        except (ProtocolError, InvariantError):
            raise
        except Exception as error:
            response = self._refusal(entry, request, error)
        if response is None:
            raise ProtocolError(f"{entry.name} failed, and its response can't carry the error")
        frame = encode_response(request.api_key, request.api_version, request.correlation_id, response)
        if request.remember is not None:
            request.remember(frame, request.errors)
        return [frame]

    def _refusal(self, entry: _Entry, request: Request, error: Exception) -> object | None:
        """The error response."""
        if not isinstance(error, KafkaError):
            self._context.failures(entry.name, error)
            return entry.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        response = entry.failed(request, error.code, error.message)
        if request.amend is None or response is None:
            return response
        amended = request.amended(response)
        return finish(amended) if isinstance(amended, Generator) else amended

    def _count_errors(self, entry: _Entry, request: Request, errors: list[int]) -> None:
        if errors:
            request.errors = errors
            for code in errors:
                entry.statistics.failed(code)

    # --- answers in steps ------------------------------------------------------------------------------------------

    def _begin_steps(self, entry: _Entry, request: Request, response: Steps) -> list[Part] | None:
        """The response if its first slice completes it, else None: then it follows like that of a parked request."""
        steps = self._encoded(entry, request, response)
        channel_id = request.channel.id

        def forget() -> None:
            # By connection: a closure over its own response would keep a large request until a garbage collection.
            self._stepped.pop(channel_id, None)

        def ended(parts: list[Part], spent_s: float) -> None:
            forget()
            if parts:
                worked = getattr(request.channel, "worked", None)
                if worked is not None:
                    worked(spent_s)
                self.finish_parked(request, parts)

        def failed(error: Exception) -> None:
            forget()
            if isinstance(error, ProtocolError):
                self._context.statistics.protocol_errors.value += 1
                request.channel.close(str(error))
                return
            self._context.failures(entry.name, error)
            request.channel.close(f"{entry.name} failed: internal error")

        answer = SteppedAnswer(steps, self._monotonic, self._context.fair_queue, ended, failed)
        self._stepped[channel_id] = answer
        try:
            parts: list[Part] | None = answer.begin()
        except BaseException:
            forget()
            raise
        if parts is not None:
            forget()
        return parts or None

    def _encoded(self, entry: _Entry, request: Request, steps: Steps) -> Steps:
        """`_build` and the encoding for a response that is built in steps."""
        try:
            response = yield from steps
            if response is None:
                return []
            if request.amend is not None:
                response = request.amended(response)
                if isinstance(response, Generator):
                    response = yield from response
            if entry.stepped_error_codes is None:
                entry.stepped_error_codes = compile_stepped_error_codes(entry.spec.response)
            self._count_errors(entry, request, (yield from entry.stepped_error_codes(response)))
        except (ProtocolError, InvariantError):
            raise
        except Exception as error:
            response = self._refusal(entry, request, error)
        if response is None:
            raise ProtocolError(f"{entry.name} failed, and its response can't carry the error")
        frame = yield from encode_response_in_steps(
            request.api_key, request.api_version, request.correlation_id, response
        )
        if request.remember is not None:
            request.remember(frame, request.errors)
        return [frame]

    def _unsupported_version(self, entry: _Entry, api_version: int, correlation_id: int) -> list[Part]:
        """ApiVersions answers error 35 in its version 0 with its version range (KIP-511); other APIs close."""
        from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse  # imported here: rare

        api_key = entry.spec.key
        if api_key != ApiKey.API_VERSIONS:
            raise ProtocolError(f"{entry.name} version {api_version} is not served ({entry.lowest} to {entry.highest})")
        entry.statistics.requests.value += 1
        entry.statistics.failed(ErrorCode.UNSUPPORTED_VERSION)
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=api_key, min_version=entry.lowest, max_version=entry.highest)],
        )
        return [encode_response(api_key, 0, correlation_id, response)]


def _guarded(entry: _Entry, api: SchemaApi[Any], request: Request) -> object | None:
    """Remove unauthorized items from the request; returns the response if nothing is left.

    Raises KafkaError if the request as a whole is not authorized.
    """
    needs = api.needs
    if needs is not None:
        name = getattr(request.message, needs.attribute) if needs.attribute else CLUSTER_NAME
        if not request.allowed(needs.operation, needs.resource_type, name):
            raise KafkaError(DENIED[needs.resource_type], DENIED_TEXT)
    return None if api.guard is None else api.guard(entry.context, request, request.message)


def _refuse_part(api: SchemaApi[Any], part: PartRequest, error: KafkaError) -> object:
    response = api.error_response(part.message, error.code, error.message)
    if response is None:
        raise error
    return response


def _handle_after(guarding: Steps, entry: _Entry, api: SchemaApi[Any], request: Request) -> Steps:
    """A guard in steps and then the handler; returns None where the handler parked the request."""
    response = yield from guarding
    if response is None:
        response = api.handle(entry.context, request, request.message)
        if isinstance(response, Generator):
            response = yield from response
    return response


def _remembering(entry: _Entry, key: Key, cache_inputs: Callable[[Any], Any]) -> Callable[[bytes, Sequence[int]], None]:
    """A function that caches a response and its errors, if its inputs are unchanged since the request."""
    before = cache_inputs(entry.context)

    def remember(frame: bytes, errors: Sequence[int]) -> None:
        if all(map(is_, before, cache_inputs(entry.context))):
            entry.cache.add(key, frame, errors)

    return remember


def _raise(error: BaseException | None) -> object:
    raise error or InvariantError("a forwarded request has no outcome")
