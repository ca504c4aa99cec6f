"""PLAIN (RFC 4616): name and password in clear text, for listeners with TLS or trusted networks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from ottla.security.sasl.mechanism import AuthenticationFailed

MECHANISM = "PLAIN"


class PlainServer:
    """One exchange on the server. Implements `ServerMechanism`."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users`: password by name."""
        self._users = users
        self.name = ""
        self.complete = False
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, response: bytes) -> bytes:
        """See `ServerMechanism`."""
        try:
            parts = response.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("name or password is not valid UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed(f"the message has {len(parts)} parts, expected 3")
        authorization, name, password = parts
        if not name or not password:
            raise AuthenticationFailed("name or password is empty")
        if not _equal(self._users.get(name), password):
            raise AuthenticationFailed("unknown name or wrong password")
        if authorization not in ("", name):
            raise AuthenticationFailed("the client requested another user's authorization id")
        self.name, self.complete = name, True
        return b""


def _equal(expected: str | None, given: str) -> bool:
    """Compare in constant time, whether or not the user exists."""
    wanted = hashlib.sha256((expected or "").encode()).digest()
    same = hmac.compare_digest(wanted, hashlib.sha256(given.encode()).digest())
    return same and expected is not None


class PlainClient:
    """One exchange on the client. Implements `ClientMechanism`."""

    mechanism = MECHANISM

    def __init__(self, name: str, password: str) -> None:
        self._message = f"\0{name}\0{password}".encode()

    def first(self) -> bytes:
        """See `ClientMechanism`."""
        return self._message

    def evaluate(self, challenge: bytes) -> bytes | None:
        """See `ClientMechanism`."""
        return None
