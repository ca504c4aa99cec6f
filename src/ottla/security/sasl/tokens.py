"""Delegation tokens (KIP-48): what a user gives to a program in place of his password, for a while.

A token is a line in the metadata log, and its password is not in it: that is the HMAC of the token's id by a secret
that all nodes have (`delegation.token.secret.key`). Whoever shows it by SCRAM, with the extension `tokenauth=true` and
the token's id as the name, comes in as the owner of the token.
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
"""How many are kept: each takes milliseconds to make."""


def hmac_of(secret: str, token_id: str) -> bytes:
    """What a token's password is in base64, and what its requests name it by."""
    return keyed(ScramMechanism.SHA_512, secret.encode(), token_id.encode())


class TokenIndex:
    """Tokens by their HMAC, which requests name them by: that of each is computed once."""

    __slots__ = ("_hmacs", "_ids", "_secret", "_tokens")

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._tokens: Mapping[str, DelegationToken] = {}
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    @property
    def enabled(self) -> bool:
        """Whether there is a secret to make tokens with."""
        return bool(self._secret)

    def hmac_of(self, token_id: str) -> bytes:
        """See `hmac_of`."""
        return hmac_of(self._secret, token_id)

    def find(self, tokens: Mapping[str, DelegationToken], token_hmac: Buffer) -> DelegationToken | None:
        """The token among `tokens`, of an image, that has this HMAC."""
        if tokens is not self._tokens:
            self._hmacs = {token_id: self._hmacs.get(token_id) or self.hmac_of(token_id) for token_id in tokens}
            self._ids = {known: token_id for token_id, known in self._hmacs.items()}
            self._tokens = tokens
        token_id = self._ids.get(bytes(token_hmac))
        return None if token_id is None else tokens[token_id]


class TokenLogin(NamedTuple):
    """What the server's side of SCRAM needs of a token."""

    credential: ScramCredential
    owner: str
    """The name of the user, without its kind."""
    expires_ms: int


class TokenLogins:
    """Logins by tokens: credentials as if their passwords had been set, made when somebody comes with one.

    To make one takes the loop some milliseconds, once for a token and mechanism; only who knows the id of a token that
    there is can cause it.
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
        """The login of a token that is not over; None where there is none."""
        token = self._find(token_id) if self._secret else None
        if token is None or token.is_over(now_ms):
            return None
        salt_key = self._get_salt_key()
        if salt_key != self._salt_key:  # what has another salt than an unknown name would be known by it
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
