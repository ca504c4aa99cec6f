"""SASL client exchange of one connection: requests and responses, without I/O (KIP-152, KIP-368)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.sasl.mechanism import AuthenticationFailed, ClientMechanism

REFRESH_SHARE = 0.85
"""Share of a session's lifetime after which a client authenticates again."""
SOONEST_S = 1.1
"""Minimum wait before re-authentication: a broker refuses it within a second of the last one (KIP-368), for example
near the end of a token. A shorter session is closed, and a new connection replaces it."""


class SaslExchange:
    """The exchange from the handshake to its end: each response returns the next request, None at the end."""

    __slots__ = ("_mechanism", "lifetime_ms")

    def __init__(self, mechanism: ClientMechanism) -> None:
        self._mechanism = mechanism
        self.lifetime_ms = 0
        """Lifetime of the session; 0 for unlimited."""

    @property
    def again_after_s(self) -> float | None:
        """Seconds until re-authentication, once authenticated; None: never."""
        return max(self.lifetime_ms / 1000 * REFRESH_SHARE, SOONEST_S) if self.lifetime_ms else None

    def first(self) -> SaslHandshakeRequest:
        """The handshake request, for version 1."""
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
