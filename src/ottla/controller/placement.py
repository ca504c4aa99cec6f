"""Which brokers get the replicas of new partitions.

Spreads leaders and replicas evenly, starting behind the partitions that are there, with no randomness: the same image
and request give the same placement. Racks are not considered yet (feature R4 of a later issue).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage


def place_replicas(
    image: MetadataImage, first_partition: int, count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """The replicas of `count` partitions, preferred leader first.

    Raises KafkaError INVALID_REPLICATION_FACTOR when there are too few brokers.
    """
    brokers = [broker.broker_id for broker in image.active_brokers()]
    if not brokers:
        problem = "All brokers are currently fenced."
    elif replication_factor > len(brokers):
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered."
        )
    else:
        return [_rotated(brokers, first_partition + index, replication_factor) for index in range(count)]
    raise KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {problem}",
    )


def _rotated(brokers: Sequence[int], partition: int, count: int) -> tuple[int, ...]:
    """Followers shift by one more each time the leaders went round, so that a broker's load spreads over the others."""
    size = len(brokers)
    leader = partition % size
    if size == 1:
        return (brokers[0],)
    shift = (partition // size) % (size - 1)
    followers = [brokers[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(count - 1)]
    return (brokers[leader], *followers)


def validate_manual_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT, in Apache Kafka's words, for replicas that can't be."""
    problem = None
    if not replicas:
        problem = "includes an empty replica list."
    seen: set[int] = set()
    for broker_id in sorted(replicas):
        if problem is None and broker_id not in image.brokers:
            problem = f"includes broker {broker_id}, but no such broker is registered."
        if problem is None and broker_id in seen:
            problem = f"includes the broker {broker_id} more than once."
        seen.add(broker_id)
    if problem is None and replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {problem}")
