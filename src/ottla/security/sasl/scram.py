"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84): authentication without sending the password.

Invariants:
- An unknown user gets the same responses as a known one until the last step, with a salt that is constant for a name:
  after a restart, and on each node with the same `salt_key`.
- The client computes at most `MAX_ITERATIONS` and at least `MIN_ITERATIONS`, whatever the server requests; the server
  stores no credential outside of these bounds either.
- Comparisons take constant time.

A client that sends the extension `tokenauth=true` presents a delegation token (KIP-48): its name is the token's id,
and it authenticates as the owner of the token.

Not supported: channel binding, which Kafka clients lack.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable

from ottla.common.platform.clock import Rng
from ottla.security.sasl.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    keyed,
    salted_password,
)
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.tokens import TokenLogin

NONCE_BYTES = 18
FindCredential = Callable[[str], ScramCredential | None]
FindToken = Callable[[str], TokenLogin | None]
TOKEN_EXTENSION = "tokenauth"

_NAME = r"((?:[^=,\x00]|=2C|=3D)+)"
_PRINTABLE = r"([\x21-\x2b\x2d-\x7e]+)"
_CLIENT_FIRST = re.compile(rf"(n,(?:a={_NAME})?,)(n={_NAME},r={_PRINTABLE}((?:,[A-Za-z]+=[^,\x00]+)*))")
_SERVER_FIRST = re.compile(rf"r={_PRINTABLE},s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{{0,9}})(?:,.*)?")
_CLIENT_FINAL = re.compile(rf"(c=([A-Za-z0-9+/=]*),r={_PRINTABLE}(?:,[A-Za-z]+=[^,\x00]+)*),p=([A-Za-z0-9+/=]+)")
_SERVER_FINAL = re.compile(r"v=([A-Za-z0-9+/=]+)(?:,.*)?")


class ScramServer:
    """One exchange on the server. Implements `ServerMechanism`."""

    def __init__(
        self, mechanism: ScramMechanism, find: FindCredential, find_token: FindToken, rng: Rng, salt_key: bytes
    ) -> None:
        """`find` returns the credential of a name, `find_token` the login of a token's id; `salt_key` is the
        key of the HMAC that is the salt of an unknown name."""
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._token: TokenLogin | None = None
        self._rng = rng
        self._salt_key = salt_key
        self._credential: ScramCredential | None = None
        self._known = False
        self._header = ""
        self._nonce = ""
        self._messages = ""
        self._asked = ""
        self.name = ""
        self.complete = False
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, response: bytes) -> bytes:
        """See `ServerMechanism`."""
        text = _text(response)
        return (self._first(text) if self._credential is None else self._final(text)).encode()

    def _first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("the first message is not a SCRAM message")
        self._header, authorization, bare, name, nonce, extensions = match.groups()
        self._asked = _unescaped(name)
        if authorization not in (None, name):
            raise AuthenticationFailed("the client requested another user's authorization id")
        self.by_token = _shows_token(extensions)
        made_up = self._made_up()  # also for a known user, so that the response time does not depend on the name
        if self.by_token:
            self._token = self._find_token(self._asked)
            found = None if self._token is None else self._token.credential
        else:
            found = self._find(self._asked)
        # A credential with other bounds, written by another program, is treated as missing: clients would reject it.
        self._known = found is not None and MIN_ITERATIONS <= found.iterations <= MAX_ITERATIONS
        credential = found if found is not None and self._known else made_up
        self._credential = credential
        self._nonce = nonce + b64encode(self._rng.random_bytes(NONCE_BYTES)).decode()
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._messages = f"{bare},{answer}"
        return answer

    def _made_up(self) -> ScramCredential:
        salt = hmac.digest(self._salt_key, self._asked.encode(), "sha256")[:SALT_BYTES]
        size = hashlib.new(self._mechanism.value).digest_size
        return ScramCredential(salt, bytes(size), bytes(size), MIN_ITERATIONS)

    def _final(self, text: str) -> str:
        match = _CLIENT_FINAL.fullmatch(text)
        credential = self._credential
        if match is None or credential is None or self.complete:
            raise AuthenticationFailed("the last message is not a SCRAM message")
        without_proof, header, nonce, proof_text = match.groups()
        if _decoded(header) != self._header.encode():
            raise AuthenticationFailed("the last message has another channel binding")
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise AuthenticationFailed("the last message has another nonce")
        messages = f"{self._messages},{without_proof}".encode()
        signature = keyed(self._mechanism, credential.stored_key, messages)
        client_key = _xor(_decoded(proof_text), signature)
        proven = hmac.compare_digest(hashlib.new(self._mechanism.value, client_key).digest(), credential.stored_key)
        if not proven or not self._known:
            raise AuthenticationFailed("unknown name or wrong password")
        self.name, self.complete = self._asked, True
        if self._token is not None:
            self.name, self.expires_ms = self._token.owner, self._token.expires_ms
        return f"v={b64encode(keyed(self._mechanism, credential.server_key, messages)).decode()}"


class ScramClient:
    """One exchange on the client. Implements `ClientMechanism`."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        random_bytes: Callable[[int], bytes],
        *,
        by_token: bool = False,
    ) -> None:
        """`by_token`: name and password are the id and the HMAC, in base64, of a delegation token."""
        self.mechanism = mechanism.mechanism_name
        self._hash = mechanism
        self._password = password
        self._nonce = b64encode(random_bytes(NONCE_BYTES)).decode()
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        if by_token:
            self._bare += f",{TOKEN_EXTENSION}=true"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        """See `ClientMechanism`."""
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """See `ClientMechanism`."""
        text = _text(challenge)
        if self._server_signature is None:
            return self._final(text)
        match = _SERVER_FINAL.fullmatch(text)
        if match is None or not hmac.compare_digest(_decoded(match.group(1)), self._server_signature):
            raise AuthenticationFailed("the server's signature is wrong: it does not know this user's credential")
        return None

    def _final(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("the server's first message is not a SCRAM message")
        nonce, salt, iterations = match.group(1), _decoded(match.group(2)), int(match.group(3))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the server's nonce does not extend the client's")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationFailed(
                f"the server requests {iterations} iterations, outside of {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        salted = salted_password(self._hash, self._password, salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        messages = f"{self._bare},{text},{without_proof}".encode()
        client_key = keyed(self._hash, salted, b"Client Key")
        stored_key = hashlib.new(self._hash.value, client_key).digest()
        proof = _xor(client_key, keyed(self._hash, stored_key, messages))
        self._server_signature = keyed(self._hash, keyed(self._hash, salted, b"Server Key"), messages)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


def _shows_token(extensions: str) -> bool:
    """Whether the extensions of the first message, each after a comma, announce a delegation token."""
    named = dict(each.split("=", 1) for each in extensions.split(",")[1:])
    return named.get(TOKEN_EXTENSION, "").lower() == "true"


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a SCRAM message is not valid UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise AuthenticationFailed("a SCRAM message contains invalid base64") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise AuthenticationFailed("the proof has the wrong length")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
