"""Embedded protocol of classic consumers: subscriptions, assignments, and the assignors of the leader.

Two assignors: stateless ranges, and a sticky one for members that keep their partitions while they join (KIP-429). The
sticky one never assigns a partition while another member claims it: a partition that has to move is withheld until its
owner has joined again without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from ottla.protocol.messages.join_group import JoinGroupResponseMember

NO_GENERATION = -1
EAGER_VERSION = 1
COOPERATIVE_VERSION = 3
_VERSION_BYTES = 2

Deal = dict[str, list[int]]
"""Partitions by member id."""


def eager_metadata(topic: str) -> bytes:
    """The subscription of a member that owns nothing while it joins."""
    return _encode(ConsumerProtocolSubscription(topics=[topic]), EAGER_VERSION)


def cooperative_metadata(topic: str, owned: Sequence[int], generation: int) -> bytes:
    """The subscription of a member that has `owned` since `generation`."""
    owned_partitions = [SubscriptionTopicPartition(topic=topic, partitions=list(owned))] if owned else []
    subscription = ConsumerProtocolSubscription(
        topics=[topic], owned_partitions=owned_partitions, generation_id=generation
    )
    return _encode(subscription, COOPERATIVE_VERSION)


def encode_assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """The assignment for one member in the leader's encoding."""
    topics = [AssignmentTopicPartition(topic=topic, partitions=list(partitions))] if partitions else []
    return _encode(ConsumerProtocolAssignment(assigned_partitions=topics), EAGER_VERSION)


def decode_assignment(data: bytes, topic: str) -> list[int]:
    """Partitions of `topic`; empty bytes are none."""
    if not data:
        return []
    assignment, _ = read_message(ConsumerProtocolAssignment, _version(data), data, _VERSION_BYTES, len(data))
    return [part for each in assignment.assigned_partitions if each.topic == topic for part in each.partitions]


def ranges(member_ids: Sequence[str], partitions: int) -> Deal:
    """Consecutive partitions for each member, in that order."""
    count = len(member_ids)
    return {
        member_id: list(range(place * partitions // count, (place + 1) * partitions // count))
        for place, member_id in enumerate(member_ids)
    }


class _Claim(NamedTuple):
    """A member's claim of a partition since a generation."""

    generation: int
    member_id: str


def claims(members: Sequence[JoinGroupResponseMember], topic: str) -> dict[int, str]:
    """The member that claims each partition. Of two claims the later generation wins (KIP-792): an absent static member
    is still listed with the claims of its last join."""
    best: dict[int, _Claim] = {}
    for member in members:
        data = member.metadata
        subscription, _ = read_message(ConsumerProtocolSubscription, _version(data), data, _VERSION_BYTES, len(data))
        claim = _Claim(subscription.generation_id, member.member_id)
        for entry in subscription.owned_partitions:
            for partition in entry.partitions if entry.topic == topic else ():
                best[partition] = max(best.get(partition, claim), claim)
    return {partition: claim.member_id for partition, claim in best.items()}


def sticky(member_ids: Sequence[str], partitions: int, owners: Mapping[int, str]) -> Deal:
    """As few moves as an equal share allows."""
    places = {member_id: partitions // len(member_ids) for member_id in member_ids}
    for member_id in member_ids[: partitions % len(member_ids)]:
        places[member_id] += 1
    dealt: Deal = {member_id: [] for member_id in member_ids}
    moving = []
    for partition in range(partitions):
        owner = owners.get(partition)
        if owner is not None and len(dealt[owner]) < places[owner]:
            dealt[owner].append(partition)
        else:
            moving.append(partition)
    for partition in moving:
        next(dealt[member_id] for member_id in member_ids if len(dealt[member_id]) < places[member_id]).append(
            partition
        )
    return dealt


def without_moves(target: Deal, owners: Mapping[int, str]) -> Deal:
    """The part of `target` that can be assigned now: no partition that another member still has."""
    return {
        member_id: [partition for partition in partitions if owners.get(partition, member_id) == member_id]
        for member_id, partitions in target.items()
    }


def _version(data: bytes) -> int:
    return int.from_bytes(data[:_VERSION_BYTES], "big")


def _encode(message: object, version: int) -> bytes:
    out = bytearray(version.to_bytes(_VERSION_BYTES, "big"))
    write_message(message, version, out)
    return bytes(out)
