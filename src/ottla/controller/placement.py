"""Placement of the replicas of new partitions on brokers.

Spreads leaders and replicas evenly, starting after the existing partitions, without randomness: the same image and
request give the same placement. If brokers have racks, the replicas of a partition are spread over as many racks as
possible, and consecutive leaders are in different racks (KIP-36).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.metadata.image import BrokerImage, MetadataImage


def place_replicas(image: MetadataImage, first: int, count: int, replication_factor: int) -> list[tuple[int, ...]]:
    """Return the replicas of `count` partitions, preferred leader first; `first` shifts the start of the round-robin.

    Leaders are live brokers. Followers are live if enough brokers are, since a fenced broker may never return. Brokers
    with only cordoned directories get no replicas (KIP-1066). Raises KafkaError INVALID_REPLICATION_FACTOR when there
    are too few brokers.
    """
    usable = [image.brokers[broker_id] for broker_id in sorted(image.brokers)]
    usable = [broker for broker in usable if not broker.all_cordoned]
    live = [broker for broker in usable if broker.active]
    if not live:
        problem = "All brokers are currently fenced, or have all their log directories cordoned."
    elif replication_factor > len(usable):
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    else:
        others = [broker for broker in usable if not broker.active]
        ring = _alternating_racks(live)
        spare = _alternating_racks(others)
        racks = {broker.broker_id: broker.rack for broker in image.brokers.values()}
        period = max(len(ring) * (len(ring) - 1), 1)  # of `_round`
        placed: dict[int, tuple[int, ...]] = {}
        for phase in range(first, first + min(count, period)):
            placed[phase % period] = _placed(ring, spare, racks, phase, replication_factor)
        return [placed[number % period] for number in range(first, first + count)]
    raise KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {problem}",
    )


def _alternating_racks(brokers: Sequence[BrokerImage]) -> list[int]:
    """Return ids such that neighbours are in different racks as long as possible."""
    racks: dict[str | None, list[int]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker.broker_id)
    ordered = [racks[name] for name in sorted(racks, key=lambda name: name or "")]
    longest = max((len(ids) for ids in ordered), default=0)
    return [ids[place] for place in range(longest) for ids in ordered if place < len(ids)]


def _placed(
    ring: Sequence[int], spare: Sequence[int], racks: dict[int, str | None], partition: int, count: int
) -> tuple[int, ...]:
    """Choose the leader round-robin; followers in unused racks first, then other live brokers, then the others."""
    candidates = [*_round(ring, partition), *spare]
    chosen = [candidates.pop(0)]
    used = {racks[chosen[0]]}
    for wanted_new_rack in (True, False):
        for broker_id in list(candidates):
            if len(chosen) == count:
                break
            if wanted_new_rack and (racks[broker_id] in used or broker_id in spare):
                continue
            chosen.append(broker_id)
            candidates.remove(broker_id)
            used.add(racks[broker_id])
    return tuple(chosen)


def _round(ring: Sequence[int], partition: int) -> list[int]:
    """Return all of the ring, the leader first.

    The shift of followers grows by one after each round of leaders, which spreads a broker's load over the others.
    """
    size = len(ring)
    leader = partition % size
    if size == 1:
        return [ring[0]]
    shift = (partition // size) % (size - 1)
    return [ring[leader], *(ring[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1))]


def validate_manual_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT, in Apache Kafka's words, for an invalid assignment."""
    problem = None
    if not replicas:
        problem = "includes an empty replica list."
    seen: set[int] = set()
    for broker_id in sorted(replicas):
        if problem is None and broker_id not in image.brokers:
            problem = f"includes broker {broker_id}, but no such broker is registered."
        if problem is None and image.brokers[broker_id].all_cordoned:
            problem = f"includes broker {broker_id}, but all its log directories are cordoned."
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
