"""SASL server session of one connection: message order and session lifetime (KIP-152, KIP-368).

    begin -> (ApiVersions) -> SaslHandshake -> tokens -> authenticated -> SaslHandshake -> ...

Tokens arrive in SaslAuthenticate requests or, after a handshake of version 0, as bare frames. Any other request before
the end of the exchange, or out of this order, closes the connection.

Invariants:
- A failed session is never authenticated.
- Re-authentication uses the same mechanism and the same user, at most once a second.
- The client learns only that authentication failed, and for which mechanism, not the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from ottla.common.errors import ErrorCode, ProtocolError
from ottla.common.platform.clock import Clock
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse
from ottla.security.sasl.mechanism import AuthenticationFailed, ServerMechanism

MIN_SECONDS_BETWEEN = 1.0

Step = Callable[[], bytes]
"""The response to a token; raises AuthenticationFailed."""


class Phase(Enum):
    """Phase of a session."""

    BEGIN = auto()
    VERSIONS_KNOWN = auto()
    """ApiVersions was answered: the handshake comes next."""
    TOKENS = auto()
    BARE_TOKENS = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class MechanismOffer(NamedTuple):
    """A mechanism that a listener offers."""

    begin: Callable[[], ServerMechanism]
    max_reauth_ms: int
    """Maximum session lifetime, `connections.max.reauth.ms`; 0 for unlimited."""
    blocks: bool = False
    """Whether one of its steps may block on files."""


class SaslSession:
    """SASL state of one connection."""

    __slots__ = (
        "_began_s",
        "_clock",
        "_exchange",
        "_expires_s",
        "_mechanism",
        "_offers",
        "_wrong_mechanism",
        "again",
        "by_token",
        "failure",
        "name",
        "phase",
    )

    def __init__(self, offers: Mapping[str, MechanismOffer], clock: Clock) -> None:
        """`offers`: by mechanism name."""
        self._offers = offers
        self._clock = clock
        self._mechanism = ""
        self._exchange: ServerMechanism | None = None
        self._expires_s: float | None = None
        self._began_s: float | None = None
        self.again = False
        """Whether the current or last exchange is a re-authentication."""
        self._wrong_mechanism = False
        self.phase = Phase.BEGIN
        self.name = ""
        """Name of the user, once authenticated."""
        self.by_token = False
        """Whether the user authenticated with a delegation token."""
        self.failure = ""
        """Reason of the failure, for the local log."""

    @property
    def authenticating(self) -> bool:
        """Whether only the next step of the exchange is allowed."""
        return self.phase is not Phase.AUTHENTICATED

    @property
    def expires(self) -> bool:
        """Whether the session expires without re-authentication."""
        return self._expires_s is not None

    @property
    def expired(self) -> bool:
        """Whether the session has expired."""
        return self._expires_s is not None and self._clock.monotonic() >= self._expires_s

    def versions_requested(self) -> None:
        """ApiVersions was requested and answered. Raises ProtocolError if it is not allowed now."""
        if self.phase is not Phase.BEGIN:
            raise ProtocolError("ApiVersions is allowed once before authentication")

    def versions_known(self) -> None:
        """The response contained the versions, so that the client will not send another request."""
        self.phase = Phase.VERSIONS_KNOWN

    def begin_again(self) -> bool:
        """Whether a handshake of an authenticated client starts a re-authentication; if not, it is not allowed."""
        now_s = self._clock.monotonic()
        if not self.expires or (self._began_s is not None and now_s - self._began_s < MIN_SECONDS_BETWEEN):
            return False
        self._began_s = now_s
        self.again = True
        self.phase = Phase.BEGIN
        return True

    def handshake(self, version: int, mechanism: str) -> SaslHandshakeResponse:
        """Process the client's choice. Raises ProtocolError if a handshake is not allowed now."""
        if self.phase not in (Phase.BEGIN, Phase.VERSIONS_KNOWN):
            raise ProtocolError("SaslHandshake during an authentication")
        names = list(self._offers)
        offer = self._offers.get(mechanism)
        if offer is None:
            self._fail("the client chose a mechanism that is not enabled")
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
        self._wrong_mechanism = self.again and mechanism != self._mechanism
        if not self._wrong_mechanism:
            self._mechanism = mechanism
            self._exchange = offer.begin()
        self.phase = Phase.TOKENS if version else Phase.BARE_TOKENS
        return SaslHandshakeResponse(mechanisms=names)

    def blocking_step(self, token: bytes) -> Step | None:
        """A step that processes `token` and may block on files, to run in another thread; None if it doesn't block.

        Pass its result, a response or AuthenticationFailed, to `authenticate` or `bare_token` as `taken`.
        """
        exchange = self._exchange
        if exchange is None or self._wrong_mechanism or not self._offers[self._mechanism].blocks:
            return None
        return partial(exchange.evaluate, token)

    def authenticate(self, token: bytes, taken: Step | None = None) -> SaslAuthenticateResponse:
        """Process the token of a SaslAuthenticate request. Raises ProtocolError if it is not allowed now."""
        if self.phase is not Phase.TOKENS:
            raise ProtocolError("SaslAuthenticate without a handshake")
        answer = self._step(token, taken)
        if answer is None:
            again = "re-authentication" if self.again else "authentication"
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}",
            )
        return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=self._lifetime_ms())

    def bare_token(self, token: bytes, taken: Step | None = None) -> bytes | None:
        """Process a token in a bare frame; the response is a bare frame too, None after a failure."""
        return self._step(token, taken)

    def _step(self, token: bytes, taken: Step | None) -> bytes | None:
        exchange = self._exchange
        if exchange is None or self._wrong_mechanism:
            self._fail("the client requested re-authentication with another mechanism")
            return None
        try:
            answer = exchange.evaluate(token) if taken is None else taken()
        except AuthenticationFailed as error:
            self._fail(str(error))
            return None
        if exchange.complete:
            if self.again and exchange.name != self.name:
                self._fail("the client requested re-authentication as another user")
                return None
            self.name, self.by_token = exchange.name, exchange.by_token
            self.phase = Phase.AUTHENTICATED
            self._set_end(exchange)
            self._exchange = None
        return answer

    def _fail(self, reason: str) -> None:
        self.phase = Phase.FAILED
        self.failure = reason
        self._exchange = None

    def _set_end(self, exchange: ServerMechanism) -> None:
        ends_ms: list[int] = []
        max_ms = self._offers[self._mechanism].max_reauth_ms
        if max_ms > 0:
            ends_ms.append(max_ms)
        if exchange.expires_ms is not None:
            ends_ms.append(max(0, exchange.expires_ms - self._clock.time_ms()))
        self._expires_s = self._clock.monotonic() + min(ends_ms) / 1000 if ends_ms else None

    def _lifetime_ms(self) -> int:
        if self.phase is not Phase.AUTHENTICATED or self._expires_s is None:
            return 0
        return max(1, round((self._expires_s - self._clock.monotonic()) * 1000))
