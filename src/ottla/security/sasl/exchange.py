"""The client's side of SASL on one connection, as requests and responses, without the connection (KIP-152, KIP-368)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.sasl.mechanism import AuthenticationFailed, ClientMechanism

REFRESH_SHARE = 0.85
"""Of a session's time: after so much of it a client authenticates again."""
SOONEST_S = 1.1
"""But not before: a broker refuses what comes within a second of the last time (KIP-368), as where a token is nearly
over. A session that ends sooner is closed, and another begins."""


class SaslExchange:
    """From the handshake to the end: each response gives the next request, until there is none."""

    __slots__ = ("_mechanism", "lifetime_ms")

    def __init__(self, mechanism: ClientMechanism) -> None:
        self._mechanism = mechanism
        self.lifetime_ms = 0
        """How long the session counts; 0 for ever."""

    @property
    def again_after_s(self) -> float | None:
        """In how many seconds to authenticate again, once authenticated; None: never."""
        return max(self.lifetime_ms / 1000 * REFRESH_SHARE, SOONEST_S) if self.lifetime_ms else None

    def first(self) -> SaslHandshakeRequest:
        """The handshake, for version 1."""
        return SaslHandshakeRequest(mechanism=self._mechanism.mechanism)

    def answered(self, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """The next request; None: authenticated. May compute for milliseconds. Raises AuthenticationFailed."""
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                raise AuthenticationFailed(
                    f"{self._mechanism.mechanism} is not enabled there, but {', '.join(response.mechanisms)}"
                    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                    else f"the handshake was refused (error {response.error_code})"
                )
            return SaslAuthenticateRequest(auth_bytes=self._mechanism.first())
        if response.error_code:
            raise AuthenticationFailed(response.error_message or f"error {response.error_code}")
        self.lifetime_ms = response.session_lifetime_ms
        token = self._mechanism.evaluate(bytes(response.auth_bytes))
        return None if token is None else SaslAuthenticateRequest(auth_bytes=token)
