"""SASL authentication before the dispatcher, on one listener (KIP-43, KIP-368).

Each connection has a gate, which accepts only three requests until its client is authenticated: ApiVersions,
SaslHandshake and SaslAuthenticate. `ottla.security.sasl.session` defines their order. Afterwards the gate is removed,
unless the session expires: then it stays to handle re-authentication or to close the connection.

Invariants: an unauthenticated request is smaller than `max_request_bytes`, and reaches no handler; a failed client is
answered only after a delay, and its connection is not read meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from struct import Struct
from typing import cast

from ottla.common.errors import ProtocolError
from ottla.common.kafka.acl import USER, TokenPrincipal, principal_of
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.channel import Dispatcher, IdentifiedChannel, Part
from ottla.common.platform.clock import BlockingPool, Clock, Scheduler
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.codec import read_message
from ottla.protocol.header import REQUEST_FIELDS, encode_response
from ottla.protocol.hot import read_client_id
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import API, ApiKey
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.session import MechanismOffer, Phase, SaslSession, Step

logger = logging.getLogger(__name__)

MAX_ELEMENTS = 16
"""Maximum length of a list in a request before authentication; valid requests have none."""
_SIZE = Struct(">i")


class AuthenticationMetrics:
    """Counters of all listeners, with Kafka's names."""

    __slots__ = ("again", "expired", "failed", "succeeded")

    def __init__(self, registry: MetricsRegistry) -> None:
        prefix = "kafka_server_socket_server_metrics_"
        self.succeeded = registry.counter(prefix + "successful_authentication_total", "Successful authentications")
        self.failed = registry.counter(
            prefix + "failed_authentication_total", "Connections that failed authentication or the TLS handshake"
        )
        self.again = registry.counter(prefix + "successful_reauthentication_total", "Successful re-authentications")
        self.expired = registry.counter(
            "ottla_network_expired_sessions_closed_total", "Connections closed because their session expired"
        )


class ListenerAuthentication:
    """Shared state of the connections of one listener."""

    def __init__(
        self,
        offers: Mapping[str, MechanismOffer],
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        scheduler: Scheduler,
        pool: BlockingPool,
        metrics: AuthenticationMetrics,
        failure_delay_ms: int,
        max_request_bytes: int,
    ) -> None:
        """`dispatcher` serves authenticated clients; blocking steps run in `pool`; the last two are settings."""
        self.offers = offers
        self.dispatcher = dispatcher
        self.clock = clock
        self.scheduler = scheduler
        self.pool = pool
        self.metrics = metrics
        self.failure_delay_ms = failure_delay_ms
        self.max_request_bytes = max_request_bytes

    def gate(self) -> AuthenticationGate:
        """The gate of a new connection."""
        return AuthenticationGate(self)


class AuthenticationGate:
    """The gate of one connection. Implements `ottla.common.platform.channel.Gate`."""

    __slots__ = ("_listener", "_session")

    def __init__(self, listener: ListenerAuthentication) -> None:
        self._listener = listener
        self._session = SaslSession(listener.offers, listener.clock)

    @property
    def max_request_bytes(self) -> int | None:
        """See `Gate`."""
        return None if self._session.name else self._listener.max_request_bytes

    @property
    def open(self) -> bool:
        """See `Gate`."""
        session = self._session
        return session.phase is Phase.AUTHENTICATED and not session.expires

    def handle(self, channel: IdentifiedChannel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """See `Dispatcher`."""
        session = self._session
        begins = _api_key(buffer, start, end) == ApiKey.SASL_HANDSHAKE and not session.authenticating
        if not session.authenticating and not (begins and session.begin_again()):
            if session.expired:
                self._listener.metrics.expired.value += 1
                raise ProtocolError("the session expired without re-authentication")
            return self._listener.dispatcher.handle(channel, buffer, start, end)
        if session.phase is Phase.BARE_TOKENS:
            token = bytes(buffer[start:end])

            def bare(taken: Step | None) -> list[Part]:
                answer = session.bare_token(token, taken)
                return [] if answer is None else [_SIZE.pack(len(answer)) + answer]

            return self._take(channel, token, bare)
        return self._request(channel, buffer, start, end)

    def _request(self, channel: IdentifiedChannel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        if end - start < REQUEST_FIELDS.size:
            raise ProtocolError(f"a request of {end - start} bytes has no header")
        key, version, correlation_id, size = REQUEST_FIELDS.unpack_from(buffer, start)
        session = self._session
        if key == ApiKey.API_VERSIONS:
            session.versions_requested()
            parts = self._listener.dispatcher.handle(channel, buffer, start, end)
            if API[key].supports(version):
                session.versions_known()
            return parts
        if key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            raise ProtocolError(f"a request with API key {key} before authentication")
        spec = API[key]
        if not spec.supports(version):
            raise ProtocolError(f"{spec.name} version {version} is not served")
        _, body_start = read_client_id(buffer, start, end, size, version >= spec.flexible_from)
        message: object
        message, _ = read_message(spec.request, version, buffer, body_start, end, MAX_ELEMENTS)
        if isinstance(message, SaslHandshakeRequest):
            response = session.handshake(version, message.mechanism)
            return self._after(channel, [encode_response(key, version, correlation_id, response)])
        token = bytes(cast(SaslAuthenticateRequest, message).auth_bytes)

        def framed(taken: Step | None) -> list[Part]:
            return [encode_response(key, version, correlation_id, session.authenticate(token, taken))]

        return self._take(channel, token, framed)

    def _take(
        self, channel: IdentifiedChannel, token: bytes, answer: Callable[[Step | None], list[Part]]
    ) -> list[Part] | None:
        """Process a token, off the loop if that blocks; `answer` builds the response from the result."""
        step = self._session.blocking_step(token)
        if step is None:
            return self._after(channel, answer(None))

        def done(result: bytes | None, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, AuthenticationFailed):
                channel.close("internal error")
                raise error

            def taken() -> bytes:
                if error is not None:
                    raise error
                return cast(bytes, result)

            parts = self._after(channel, answer(taken))
            if parts is not None:
                channel.respond(parts)

        self._listener.pool.submit(step, done)
        return None

    def _after(self, channel: IdentifiedChannel, parts: list[Part]) -> list[Part] | None:
        """Complete a step; returns the response, None if it is delayed because of a failure."""
        session, metrics = self._session, self._listener.metrics
        if session.phase is Phase.FAILED:
            metrics.failed.value += 1
            logger.info("%r: failed authentication: %s", channel, session.failure, extra=RATE_LIMITED)
            self._listener.scheduler.call_later(self._listener.failure_delay_ms / 1000, _refuse, channel, parts)
            return None
        if session.phase is Phase.AUTHENTICATED:
            (metrics.again if session.again else metrics.succeeded).value += 1
            principal = principal_of(USER, session.name)
            channel.identified(TokenPrincipal(principal) if session.by_token else principal)
        return parts


def _refuse(channel: IdentifiedChannel, parts: list[Part]) -> None:
    channel.respond(parts)
    channel.close("authentication failed")


def _api_key(buffer: bytearray, start: int, end: int) -> int | None:
    return REQUEST_FIELDS.unpack_from(buffer, start)[0] if end - start >= REQUEST_FIELDS.size else None
