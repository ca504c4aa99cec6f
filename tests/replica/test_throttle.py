"""The throttle of replication: its rate over time, its sources, and the replicas that it applies to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.common.config.config_def import ConfigResourceType
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.replica.cluster import ClusterMetadata
from ottla.replica.throttle import UNLIMITED, ReplicationQuota, names_replica
from ottla.replica.throttles import FOLLOWER_RATE, LEADER_RATE, MOVE_RATE, ReplicationThrottles


def quota(bytes_per_s: int) -> ReplicationQuota:
    made = ReplicationQuota()
    made.bytes_per_s = bytes_per_s
    return made


def test_rate_of_zero_stops_replication() -> None:
    assert quota(0).limited
    assert quota(0).exceeded(1_000.0)


def test_excess_is_waited_for() -> None:
    made = quota(100)
    made.record(350, 10.0)
    assert made.exceeded(12.25)
    assert not made.exceeded(12.5)


def test_unused_capacity_is_retained_for_a_second() -> None:
    made = quota(100)
    made.record(100, 50.0)
    assert not made.exceeded(50.0), "one second's worth is left of fifty"
    made.record(1, 50.0)
    assert made.exceeded(50.0)


@pytest.mark.parametrize(
    ("text", "expected"), [("*", True), (" * ", True), ("0:1, 2:7", True), ("2:17", False), ("7:2", False), ("", False)]
)
def test_throttled_replicas_are_pairs_or_all(text: str, expected: bool) -> None:
    assert names_replica(text, 2, 7) == expected


def test_rates_of_the_broker_precede_the_default() -> None:
    image = MetadataImage(
        configs={
            ConfigResource(ConfigResourceType.BROKER, "7"): {LEADER_RATE: "0"},
            ConfigResource(ConfigResourceType.BROKER, ""): {LEADER_RATE: "50", FOLLOWER_RATE: "60"},
        }
    )
    throttles = ReplicationThrottles(cast(ClusterMetadata, SimpleNamespace(node_id=7)))
    throttles.use_rates(image)
    rates: list[Any] = [each.bytes_per_s for each in (throttles.leader, throttles.follower, throttles.moves)]
    assert rates == [0, 60, UNLIMITED]
    assert not throttles.moves.limited
    throttles.use_rates(MetadataImage(configs={ConfigResource(ConfigResourceType.BROKER, "7"): {MOVE_RATE: "9"}}))
    assert (throttles.leader.limited, throttles.moves.bytes_per_s) == (False, 9)
