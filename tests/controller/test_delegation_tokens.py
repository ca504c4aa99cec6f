"""Delegation tokens in the controller (KIP-48): create, renew, expire, describe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.delegation_tokens import (
    describe_delegation_tokens,
    handle_create_delegation_token,
    handle_expire_delegation_token,
    handle_renew_delegation_token,
    remove_expired_tokens,
)
from ottla.controller.result import ControllerContext
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.security.sasl.tokens import TokenIndex, hmac_of

ANN, BOB, EVE = "User:ann", "User:bob", "User:eve"
SECRET = "of-all-nodes"
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


class Cluster:
    """An image that grows by each decision, at a time that the test controls."""

    def __init__(self, context: ControllerContext) -> None:
        self.image: MetadataImage = replace(EMPTY_IMAGE, features={"metadata.version": 25})
        self.context = context._replace(tokens=TokenIndex(SECRET), time_ms=NOW_MS)

    def decide(self, handle: Callable[..., Any], *asked: object) -> Any:
        result = handle(self.image, *asked, self.context)
        delta = MetadataDelta(self.image)
        for record in result.records:
            delta.replay(record.message)
        self.image = delta.apply(self.image.offset + 1, 1)[0]
        return result.response

    def create(
        self, requester: str = ANN, max_lifetime_ms: int = -1, renewers: tuple[str, ...] = (), **owner: str
    ) -> Any:
        request = CreateDelegationTokenRequest(
            max_lifetime_ms=max_lifetime_ms,
            renewers=[
                CreatableRenewers(principal_type=p.split(":")[0], principal_name=p.split(":")[1]) for p in renewers
            ],
            **owner,
        )
        return self.decide(handle_create_delegation_token, request, requester)

    def renew(self, hmac: bytes, principal: str = ANN, period_ms: int = -1) -> int:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        found: int = self.decide(handle_renew_delegation_token, request, principal).expiry_timestamp_ms
        return found

    def expire(self, hmac: bytes, principal: str = ANN, period_ms: int = -1) -> int:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        found: int = self.decide(handle_expire_delegation_token, request, principal).expiry_timestamp_ms
        return found

    def pass_ms(self, time_ms: int) -> None:
        self.context = self.context._replace(time_ms=self.context.time_ms + time_ms)


@pytest.fixture
def cluster(make_context: Callable[..., ControllerContext]) -> Cluster:
    return Cluster(make_context())


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


def test_a_token_lasts_a_day_and_is_renewed_for_a_week(cluster: Cluster) -> None:
    made = cluster.create()
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "ann", "ann")
    assert made.hmac == hmac_of(SECRET, made.token_id)
    assert len(made.hmac) == 64
    times = (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms)
    assert times == (NOW_MS, NOW_MS + DAY_MS, NOW_MS + 7 * DAY_MS)
    assert cluster.renew(made.hmac, period_ms=5000) == NOW_MS + 5000
    assert cluster.renew(made.hmac, period_ms=2 * DAY_MS) == NOW_MS + DAY_MS, "no longer than the setting"
    for day in range(1, 7):
        cluster.pass_ms(DAY_MS)
        assert cluster.renew(made.hmac) == NOW_MS + (day + 1) * DAY_MS
    cluster.pass_ms(DAY_MS - 1)
    assert cluster.renew(made.hmac) == NOW_MS + 7 * DAY_MS
    cluster.pass_ms(2)
    assert refusal(lambda: cluster.renew(made.hmac)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refusal(lambda: cluster.expire(made.hmac, period_ms=9)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    cluster.expire(made.hmac)
    assert not cluster.image.delegation_tokens


def test_request_may_shorten_the_lifetime(cluster: Cluster) -> None:
    made = cluster.create(max_lifetime_ms=1000)
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == NOW_MS + 1000
    assert cluster.create(max_lifetime_ms=8 * DAY_MS).max_timestamp_ms == NOW_MS + 7 * DAY_MS


def test_only_owner_requester_and_renewers_use_a_token(cluster: Cluster) -> None:
    made = cluster.create(EVE, renewers=(BOB,), owner_principal_type="User", owner_principal_name="ann")
    assert (made.principal_name, made.token_requester_principal_name) == ("ann", "eve")
    for principal in (ANN, BOB, EVE):
        assert cluster.renew(made.hmac, principal, 5000) == NOW_MS + 5000
        assert cluster.expire(made.hmac, principal, 7000) == NOW_MS + 7000
    assert refusal(lambda: cluster.renew(made.hmac, "User:mallory")) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(lambda: cluster.expire(made.hmac, "User:mallory")) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(lambda: cluster.renew(b"x" * 64)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert cluster.expire(made.hmac, BOB) == NOW_MS
    assert refusal(lambda: cluster.expire(made.hmac)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(
    "asked", [{"renewers": ("Group:g",)}, {"owner_principal_type": "Group", "owner_principal_name": "g"}]
)
def test_tokens_are_of_users(cluster: Cluster, asked: dict[str, Any]) -> None:
    assert cluster.create(**asked).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not cluster.image.delegation_tokens


def test_tokens_require_secret_and_metadata_level(cluster: Cluster) -> None:
    made = cluster.create()
    cluster.image = replace(cluster.image, features={"metadata.version": 13})
    assert cluster.create().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert refusal(lambda: cluster.renew(made.hmac)) is ErrorCode.UNSUPPORTED_VERSION
    cluster.context = cluster.context._replace(tokens=TokenIndex(""))
    refused = cluster.create()
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (refused.hmac, refused.issue_timestamp_ms) == (b"", -1)
    assert refusal(lambda: cluster.expire(made.hmac)) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_expired_tokens_are_removed_in_slices(cluster: Cluster) -> None:
    kept = cluster.create().token_id
    for _ in range(5):
        cluster.create(max_lifetime_ms=1000)
    assert not remove_expired_tokens(cluster.image, cluster.context, 2).records
    cluster.pass_ms(1001)
    again = []
    for _ in range(3):
        result = remove_expired_tokens(cluster.image, cluster.context, 2)
        again.append((len(result.records), result.again))
        cluster.decide(lambda image, context: remove_expired_tokens(image, context, 2))
    assert again == [(2, True), (2, True), (1, False)]
    assert list(cluster.image.delegation_tokens) == [kept]


def test_tokens_are_visible_to_owner_and_authorized(cluster: Cluster) -> None:
    made = cluster.create(renewers=(BOB,))
    other = cluster.create(EVE)

    def seen(owners: list[str] | None, *, all_of: str = "") -> list[str]:
        visible = (lambda token: token.belongs_to(all_of)) if all_of else (lambda token: True)
        return [each.token_id for each in describe_delegation_tokens(cluster.image, owners, visible, SECRET).tokens]

    assert seen(None) == [made.token_id, other.token_id]
    assert seen([BOB]) == [made.token_id]
    assert seen([]) == []
    assert seen(None, all_of=EVE) == [other.token_id]
    (described,) = describe_delegation_tokens(cluster.image, [ANN], lambda token: True, SECRET).tokens
    assert (described.hmac, described.principal_name, described.max_timestamp) == (
        made.hmac,
        "ann",
        made.max_timestamp_ms,
    )
    assert [(each.principal_type, each.principal_name) for each in described.renewers] == [("User", "bob")]
