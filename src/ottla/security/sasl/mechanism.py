"""Interfaces of SASL mechanisms: a server side and a client side, each a few steps of bytes in and bytes out."""

from __future__ import annotations

from typing import Protocol

GSSAPI = "GSSAPI"
"""Kerberos; Apache Kafka's default."""


class AuthenticationFailed(Exception):
    """The peer failed to prove its identity; the message is for the local log and contains no secret."""


class ServerMechanism(Protocol):
    """The server's side of one exchange."""

    name: str
    """Name of the user, once `complete`."""
    complete: bool
    expires_ms: int | None
    """Expiry of the client's credential, in milliseconds since the Unix epoch; None without one."""

    by_token: bool
    """Whether the client used a delegation token (KIP-48)."""

    def evaluate(self, response: bytes) -> bytes:
        """The response to the client's bytes; raises AuthenticationFailed, after which no call may follow."""
        ...


class ClientMechanism(Protocol):
    """The client's side of one exchange; not reusable."""

    mechanism: str
    """Its name in the handshake."""

    def first(self) -> bytes:
        """The client's first message."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The next message, None at the end; may compute for milliseconds.

        Raises AuthenticationFailed if the server does not prove that it knows the user, or makes an invalid request.
        """
        ...
