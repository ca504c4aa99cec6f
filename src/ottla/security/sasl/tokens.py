"""Delegation tokens (KIP-48): credentials with a limited lifetime that a user gives to a program.

A token is a record in the metadata log, without its password: that is the HMAC of the token's id with a secret
shared by all nodes (`delegation.token.secret.key`). A client that presents it by SCRAM, with the extension
`tokenauth=true` and the token's id as the name, authenticates as the owner of the token.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.common.kafka.acl import principal_name
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.common.platform.disk import Buffer
from ottla.security.sasl.credentials import (
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of,
    keyed,
    salted_password,
)

MAX_CREDENTIALS = 1000
"""Maximum of cached credentials: each takes milliseconds to compute."""


def hmac_of(secret: str, token_id: str) -> bytes:
    """The token's HMAC: its password in base64, and its identifier in requests."""
    return keyed(ScramMechanism.SHA_512, secret.encode(), token_id.encode())


class TokenIndex:
    """Tokens by their HMAC, which identifies them in requests; each HMAC is computed once."""

    __slots__ = ("_hmacs", "_ids", "_secret", "_tokens")

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._tokens: Mapping[str, DelegationToken] = {}
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    @property
    def enabled(self) -> bool:
        """Whether a secret for tokens is configured."""
        return bool(self._secret)

    def hmac_of(self, token_id: str) -> bytes:
        """See `hmac_of`."""
        return hmac_of(self._secret, token_id)

    def find(self, tokens: Mapping[str, DelegationToken], token_hmac: Buffer) -> DelegationToken | None:
        """The token with this HMAC among `tokens`, those of an image."""
        if tokens is not self._tokens:
            self._hmacs = {token_id: self._hmacs.get(token_id) or self.hmac_of(token_id) for token_id in tokens}
            self._ids = {known: token_id for token_id, known in self._hmacs.items()}
            self._tokens = tokens
        token_id = self._ids.get(bytes(token_hmac))
        return None if token_id is None else tokens[token_id]


class TokenLogin(NamedTuple):
    """A delegation token as the SCRAM server needs it."""

    credential: ScramCredential
    owner: str
    """The name of the user, without its kind."""
    expires_ms: int


class TokenLogins:
    """Logins by tokens: credentials as if their passwords had been set, created on the first login.

    Creating one takes the loop some milliseconds, once per token and mechanism; a client needs the id of an existing
    token to cause it.
    """

    __slots__ = ("_credentials", "_find", "_get_salt_key", "_salt_key", "_secret")

    def __init__(
        self, secret: str, find: Callable[[str], DelegationToken | None], salt_key: Callable[[], bytes]
    ) -> None:
        """`find` gives the token of an id, `salt_key` the key of the salts of unknown names (`ScramServer`)."""
        self._secret = secret
        self._find = find
        self._get_salt_key = salt_key
        self._salt_key = b""
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    def find(self, token_id: str, mechanism: ScramMechanism, now_ms: int) -> TokenLogin | None:
        """The login of an unexpired token; None if there is none."""
        token = self._find(token_id) if self._secret else None
        if token is None or token.is_over(now_ms):
            return None
        salt_key = self._get_salt_key()
        if salt_key != self._salt_key:  # another salt than that of unknown names would reveal the token
            self._salt_key = salt_key
            self._credentials.clear()
        credential = self._credentials.get((token_id, mechanism))
        if credential is None:
            credential = self._made(token_id, mechanism)
            if len(self._credentials) >= MAX_CREDENTIALS:
                del self._credentials[next(iter(self._credentials))]
            self._credentials[token_id, mechanism] = credential
        return TokenLogin(credential, principal_name(token.owner), token.expiry_ms)

    def _made(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        salt = keyed(ScramMechanism.SHA_256, self._salt_key, token_id.encode())[:SALT_BYTES]
        password = b64encode(hmac_of(self._secret, token_id)).decode()
        return credential_of(
            mechanism, salted_password(mechanism, password, salt, MIN_ITERATIONS), salt, MIN_ITERATIONS
        )
