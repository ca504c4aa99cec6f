"""Delegation tokens (KIP-48): requests, and the service `Cluster.tokens`.

See `client.admin.topics`. The HMAC of a token is sufficient to authenticate.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.common.kafka.acl import parted, principal_of
from ottla.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.registry import ApiKey

LEFT_TO_BROKER = -1
"""Leave the time to the broker's settings."""
NOW = -1


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token. Principals as "User:name", times in milliseconds since the Unix epoch, HMAC in base64."""

    token_id: str
    hmac: str
    owner: str
    requester: str
    renewers: list[str]
    issue_ms: int
    expiry_ms: int
    max_ms: int


def create_token(connection: Connection, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int) -> Token:
    """CreateDelegationToken for `owner`, or for the authenticated user."""
    kind, name = (None, None) if owner is None else parted(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(parted, renewers)],
        max_lifetime_ms=max_lifetime_ms,
    )
    made: CreateDelegationTokenResponse = connection.request(ApiKey.CREATE_DELEGATION_TOKEN, request)
    raise_for(made.error_code, "the new token", None)
    return Token(
        made.token_id,
        b64encode(made.hmac).decode(),
        principal_of(made.principal_type, made.principal_name),
        principal_of(made.token_requester_principal_type, made.token_requester_principal_name),
        list(renewers),
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )


def renew_token(connection: Connection, token: Token, period_ms: int) -> int:
    """RenewDelegationToken: the new expiry time, at most `period_ms` from now."""
    request = RenewDelegationTokenRequest(hmac=b64decode(token.hmac), renew_period_ms=period_ms)
    renewed: RenewDelegationTokenResponse = connection.request(ApiKey.RENEW_DELEGATION_TOKEN, request)
    raise_for(renewed.error_code, f"token {token.token_id}", None)
    return renewed.expiry_timestamp_ms


def expire_token(connection: Connection, token: Token, period_ms: int) -> int:
    """ExpireDelegationToken: the new expiry time, `period_ms` from now, or `NOW`."""
    request = ExpireDelegationTokenRequest(hmac=b64decode(token.hmac), expiry_time_period_ms=period_ms)
    expired: ExpireDelegationTokenResponse = connection.request(ApiKey.EXPIRE_DELEGATION_TOKEN, request)
    raise_for(expired.error_code, f"token {token.token_id}", None)
    return expired.expiry_timestamp_ms


def describe_tokens(connection: Connection, owners: Sequence[str] | None) -> list[Token]:
    """DescribeDelegationToken: the visible tokens of `owners`, or of all users; the oldest first."""
    named = None
    if owners is not None:
        named = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(parted, owners)
        ]
    request = DescribeDelegationTokenRequest(owners=named)
    found: DescribeDelegationTokenResponse = connection.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, request)
    raise_for(found.error_code, "tokens", None)
    tokens = [
        Token(
            each.token_id,
            b64encode(each.hmac).decode(),
            principal_of(each.principal_type, each.principal_name),
            principal_of(each.token_requester_principal_type, each.token_requester_principal_name),
            [principal_of(renewer.principal_type, renewer.principal_name) for renewer in each.renewers],
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
        )
        for each in found.tokens
    ]
    return sorted(tokens, key=lambda token: (token.issue_ms, token.token_id))


class TokenService(ClusterService):
    """Delegation tokens."""

    def find(self, owners: Sequence[str] | None = None) -> list[Token]:
        """The visible tokens of `owners`, or of all users; the oldest first."""
        return self._router.retry(lambda: describe_tokens(self._router.any_connection(), owners))

    def create(self, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int = LEFT_TO_BROKER) -> Token:
        """Create a token for `owner`, or for the authenticated user."""
        return self._router.change(lambda connection: create_token(connection, owner, renewers, max_lifetime_ms))

    def renew(self, token: Token, period_ms: int) -> int:
        """Renew a token; returns the new expiry time, at most `period_ms` from now."""
        return self._router.change(lambda connection: renew_token(connection, token, period_ms))

    def expire(self, token: Token, period_ms: int = NOW) -> int:
        """Expire a token in `period_ms` from now, or `NOW`; returns the new expiry time."""
        return self._router.change(lambda connection: expire_token(connection, token, period_ms))
