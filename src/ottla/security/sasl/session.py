"""The server's side of SASL on one connection: what may come when, and for how long it counts (KIP-152, KIP-368).

    begin -> (ApiVersions) -> SaslHandshake -> tokens -> authenticated -> SaslHandshake -> ...

Tokens come in SaslAuthenticate requests, or, behind a handshake of version 0, as bare frames. Whatever else comes
before the end of it, or out of this order, ends the connection.

Invariants:
- A session that failed is never authenticated.
- Who authenticates again does so with the same mechanism and as the same user, at most once a second.
- The client is told of no failure but that it was one, and for which mechanism.
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
"""The answer to a token; raises AuthenticationFailed."""


class Phase(Enum):
    """Where a session stands."""

    BEGIN = auto()
    VERSIONS_KNOWN = auto()
    """ApiVersions was answered: the handshake comes next."""
    TOKENS = auto()
    BARE_TOKENS = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class MechanismOffer(NamedTuple):
    """A mechanism that a listener has."""

    begin: Callable[[], ServerMechanism]
    max_reauth_ms: int
    """How long it counts, `connections.max.reauth.ms`; 0 for ever."""
    blocks: bool = False
    """Whether a step of it may wait for files."""


class SaslSession:
    """The state of one connection."""

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
        """`offers` by the names of the mechanisms."""
        self._offers = offers
        self._clock = clock
        self._mechanism = ""
        self._exchange: ServerMechanism | None = None
        self._expires_s: float | None = None
        self._began_s: float | None = None
        self.again = False
        """Whether the client is, or was last, authenticating again."""
        self._wrong_mechanism = False
        self.phase = Phase.BEGIN
        self.name = ""
        """Of the user, once there is one."""
        self.by_token = False
        """Whether he came by a delegation token."""
        self.failure = ""
        """Why it failed, for the log of this side."""

    @property
    def authenticating(self) -> bool:
        """Whether nothing but the next step may come."""
        return self.phase is not Phase.AUTHENTICATED

    @property
    def expires(self) -> bool:
        """Whether the session has an end, unless the client authenticates again."""
        return self._expires_s is not None

    @property
    def expired(self) -> bool:
        """Whether that end has come."""
        return self._expires_s is not None and self._clock.monotonic() >= self._expires_s

    def versions_told(self) -> None:
        """ApiVersions was asked, and answered. Raises ProtocolError where it may not be asked."""
        if self.phase is not Phase.BEGIN:
            raise ProtocolError("ApiVersions may be asked once before authentication")

    def versions_known(self) -> None:
        """The answer had the versions, so that the client will not ask again."""
        self.phase = Phase.VERSIONS_KNOWN

    def begin_again(self) -> bool:
        """Whether a handshake of an authenticated client begins a new exchange; else it is one too many."""
        now_s = self._clock.monotonic()
        if not self.expires or (self._began_s is not None and now_s - self._began_s < MIN_SECONDS_BETWEEN):
            return False
        self._began_s = now_s
        self.again = True
        self.phase = Phase.BEGIN
        return True

    def handshake(self, version: int, mechanism: str) -> SaslHandshakeResponse:
        """Take the client's choice. Raises ProtocolError where none may come."""
        if self.phase not in (Phase.BEGIN, Phase.VERSIONS_KNOWN):
            raise ProtocolError("SaslHandshake came in the middle of an authentication")
        names = list(self._offers)
        offer = self._offers.get(mechanism)
        if offer is None:
            self._fail("the client asked for a mechanism that is not enabled")
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
        self._wrong_mechanism = self.again and mechanism != self._mechanism
        if not self._wrong_mechanism:
            self._mechanism = mechanism
            self._exchange = offer.begin()
        self.phase = Phase.TOKENS if version else Phase.BARE_TOKENS
        return SaslHandshakeResponse(mechanisms=names)

    def blocking_step(self, token: bytes) -> Step | None:
        """What takes `token` and may wait for files, for another thread; None where nothing waits.

        What comes of it, an answer or AuthenticationFailed, is given to `authenticate` or `bare_token` as `taken`.
        """
        exchange = self._exchange
        if exchange is None or self._wrong_mechanism or not self._offers[self._mechanism].blocks:
            return None
        return partial(exchange.evaluate, token)

    def authenticate(self, token: bytes, taken: Step | None = None) -> SaslAuthenticateResponse:
        """Take a token of a SaslAuthenticate request. Raises ProtocolError where none may come."""
        if self.phase is not Phase.TOKENS:
            raise ProtocolError("SaslAuthenticate came without a handshake")
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
        """Take a token that is a frame by itself; the answer is one too, None after a failure."""
        return self._step(token, taken)

    def _step(self, token: bytes, taken: Step | None) -> bytes | None:
        exchange = self._exchange
        if exchange is None or self._wrong_mechanism:
            self._fail("the client wants to authenticate again by another mechanism")
            return None
        try:
            answer = exchange.evaluate(token) if taken is None else taken()
        except AuthenticationFailed as error:
            self._fail(str(error))
            return None
        if exchange.complete:
            if self.again and exchange.name != self.name:
                self._fail("the client wants to authenticate again as another user")
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
