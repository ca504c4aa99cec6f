"""Token buckets of partition creations and deletions (KIP-599)."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.quota.groups import MAX_GROUPS
from ottla.quota.mutations import UNCHARGED, MutationQuotas
from ottla.quota.windows import Windows

QUOTAS = {(("user", "ann"),): {"controller_mutation_rate": 2.0}}


@pytest.fixture
def mutations():
    return MutationQuotas(Windows())


def begin(mutations, clock, quotas=QUOTAS, principal="User:ann", *, strict=True, client_id="app"):
    return mutations.begin(quotas, principal, client_id, clock.now_s, strict=strict)


def test_overdrawn_bucket_refuses_until_the_debt_is_paid(mutations, clock):
    first = begin(mutations, clock)
    first.charge(20)
    first.charge(10)
    assert first.throttle_ms == 0, "an admitted client is not throttled"
    second = begin(mutations, clock)
    with pytest.raises(KafkaError) as refused:
        second.charge(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle_ms == 4000
    clock.advance(3.9)
    with pytest.raises(KafkaError):
        begin(mutations, clock).charge(1)
    clock.advance(0.1)
    begin(mutations, clock).charge(1)


def test_old_version_is_served_and_throttled(mutations, clock):
    old = begin(mutations, clock, strict=False)
    old.charge(30)
    assert old.throttle_ms == 4000


def test_other_groups_and_unlimited_clients_are_unaffected(mutations, clock):
    begin(mutations, clock).charge(1000)
    other = begin(mutations, clock, principal="User:bob")
    for _ in range(3):
        other.charge(1000)
    assert other.throttle_ms == 0
    UNCHARGED.charge(1000)


def test_changed_rate_applies_at_once(mutations, clock):
    begin(mutations, clock).charge(42)
    raised = {(("user", "ann"),): {"controller_mutation_rate": 20.0}}
    mutation = begin(mutations, clock, raised)
    with pytest.raises(KafkaError):
        mutation.charge(1)
    assert mutation.throttle_ms == 1000, "a debt of 20 at 20 a second"


def test_a_flood_of_names_takes_bounded_memory(mutations, clock):
    quotas = {(("client-id", None),): {"controller_mutation_rate": 1.0}}
    for number in range(MAX_GROUPS + 20):
        begin(mutations, clock, quotas, client_id=f"app-{number}").charge(5)
    assert len(mutations) == MAX_GROUPS
    clock.advance(60)
    begin(mutations, clock, quotas, client_id="another")
    assert len(mutations) == MAX_GROUPS - 1
