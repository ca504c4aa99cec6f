"""What mechanisms have in common: a server's side and a client's side, each a few steps of bytes in and bytes out."""

from __future__ import annotations

from typing import Protocol

GSSAPI = "GSSAPI"
"""Kerberos; Apache Kafka's default."""


class AuthenticationFailed(Exception):
    """The other side did not prove who it is; the words are for this side's log and hold nothing secret."""


class ServerMechanism(Protocol):
    """The server's side of one exchange."""

    name: str
    """Of the user, once `complete`."""
    complete: bool
    expires_ms: int | None
    """When what the client showed ends, in milliseconds since the Unix epoch; None where it doesn't."""

    by_token: bool
    """Whether that was a delegation token (KIP-48)."""

    def evaluate(self, response: bytes) -> bytes:
        """The answer to what the client sent; raises AuthenticationFailed, and nothing may follow then."""
        ...


class ClientMechanism(Protocol):
    """The client's side of one exchange; a new one for each."""

    mechanism: str
    """Its name in the handshake."""

    def first(self) -> bytes:
        """What the client sends first."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """What to send next, None at the end; may compute for milliseconds.

        Raises AuthenticationFailed where the server does not prove that it knows the user, or asks for what it may not.
        """
        ...
