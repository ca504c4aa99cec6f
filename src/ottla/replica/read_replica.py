"""Selection of the replica that a consumer reads from (KIP-392), by `replica.selector.class`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

NO_REPLICA = -1


class Candidate(NamedTuple):
    """A follower that has the consumer's offset."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    last_caught_up_s: float


class ReplicaSelector(Protocol):
    """Selects the replica that a consumer reads from (KIP-392).

    Implementation: `replica.read_replica.select_by_rack`, by name in `replica.read_replica.SELECTORS`.
    """

    def __call__(self, rack: str, leader_rack: str | None, followers: Sequence[Candidate], /) -> int:
        """Return the broker id; -1 for the leader."""


def select_by_rack(rack: str, leader_rack: str | None, followers: Sequence[Candidate]) -> int:
    """Kafka's RackAwareReplicaSelector: the furthest replica in the consumer's rack, or the leader if there is none."""
    if leader_rack == rack:
        return NO_REPLICA
    near = [follower for follower in followers if follower.rack == rack]
    if not near:
        return NO_REPLICA
    return max(near, key=lambda each: (each.log_end_offset, each.last_caught_up_s, -each.broker_id)).broker_id


SELECTORS: dict[str, ReplicaSelector] = {
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": select_by_rack,
}
"""Selectors by the class names of Kafka's configuration."""
