"""PLAIN (RFC 4616): name and password as they are, so for listeners with TLS or networks that are trusted."""

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
            raise AuthenticationFailed("name or password is no UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed(f"{len(parts)} parts where three were expected")
        authorization, name, password = parts
        if not name or not password:
            raise AuthenticationFailed("name or password is empty")
        if not _equal(self._users.get(name), password):
            raise AuthenticationFailed("unknown name or wrong password")
        if authorization not in ("", name):
            raise AuthenticationFailed("the client wants to act for another user")
        self.name, self.complete = name, True
        return b""


def _equal(expected: str | None, given: str) -> bool:
    """In a time that depends neither on where they differ, nor on whether there is such a user."""
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
