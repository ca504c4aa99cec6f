"""Contents of znodes about topics: assignments, partition states, requests.

Requests: partition reassignments and preferred leader elections. Pure codecs: paths are in `paths` (a topic deletion is
a path without data), and reads and writes of the tree are in `ottla.zookeeper` and `controller.znode_requests`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid, uuid_from_string, uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.znodes.fields import MAX_INT32, NONE, Fields, encode


class Assignment(NamedTuple):
    """Brokers of a partition; `adding` and `removing` are those of a reassignment (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicAssignment(NamedTuple):
    """A topic's id and its partitions by number, ascending. The id is None for topics that predate ids (KIP-516)."""

    topic_id: Uuid | None
    partitions: Mapping[int, Assignment]


def encode_topic(topic: TopicAssignment) -> bytes:
    """Encode version 3."""
    partitions = topic.partitions.items()
    content = {
        "partitions": {str(number): each.replicas for number, each in partitions},
        "topic_id": topic.topic_id and uuid_to_string(topic.topic_id),
        "adding_replicas": {str(number): each.adding for number, each in partitions if each.adding},
        "removing_replicas": {str(number): each.removing for number, each in partitions if each.removing},
        "version": 3,
    }
    return encode(content)


def decode_topic(path: str, data: bytes) -> TopicAssignment:
    """Decode versions 1 to 3: adding and removing replicas since 2, the id since 3.

    Raises ProtocolError, also if partitions are not numbered from 0 without gaps, have no replica, or if adding or
    removing replicas are not in the assignment.
    """
    fields = Fields.parsed(path, data, range(1, 4))
    topic_id = None
    if fields.has("topic_id"):
        try:
            topic_id = uuid_from_string(fields.text("topic_id"))
        except ValueError as error:
            raise fields.wrong("topic_id") from error
    named = fields.inner("partitions")
    moves = [fields.inner(key) if fields.has(key) else None for key in ("adding_replicas", "removing_replicas")]
    numbers = named.partitions()
    if numbers != list(range(len(numbers))):
        raise fields.wrong("partitions")
    partitions = {}
    for number in numbers:
        key = str(number)
        replicas = named.broker_ids(key)
        adding, removing = (move.broker_ids(key) if move and move.has(key) else () for move in moves)
        if not replicas or not {*adding, *removing} <= set(replicas):
            raise named.wrong(key)
        partitions[number] = Assignment(replicas, adding, removing)
    return TopicAssignment(topic_id, partitions)


class PartitionState(NamedTuple):
    """Leader and ISR, and the epoch of the controller that wrote them. The partition epoch is the version of the
    znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovery_state: int = 0
    """1 after an unclean election, until the leader has recovered (KIP-704)."""


def encode_state(state: PartitionState) -> bytes:
    """Encode version 1; the recovery state is left out if it is 0."""
    content = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.recovery_state:
        content["leader_recovery_state"] = state.recovery_state
    return encode(content)


def decode_state(path: str, data: bytes) -> PartitionState:
    """Inverse of `encode_state`; raises ProtocolError, also for a leader that is not in the ISR."""
    fields = Fields.parsed(path, data, range(1, 2))
    recovery = "leader_recovery_state"
    state = PartitionState(
        leader=fields.number("leader", NONE),
        leader_epoch=fields.number("leader_epoch"),
        isr=fields.broker_ids("isr"),
        controller_epoch=fields.number("controller_epoch"),
        recovery_state=fields.number(recovery, 0, 1) if fields.has(recovery) else 0,
    )
    if state.leader != NONE and state.leader not in state.isr:
        raise fields.wrong("leader")
    return state


def decode_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Decode the requested replicas of partitions, as old tools write them to `/admin/reassign_partitions`.

    Raises ProtocolError, also for a duplicate partition.
    """
    fields = Fields.parsed(path, data, range(1, 2))
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    for row in fields.inners("partitions"):
        key, replicas = _partition(row), row.broker_ids("replicas")
        if not replicas or key in moves:
            raise fields.wrong("partitions")
        moves[key] = replicas
    return moves


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """Decode partitions for a preferred election, or with a changed ISR, without duplicates; raises ProtocolError."""
    fields = Fields.parsed(path, data, range(1, 2))
    return list(dict.fromkeys(map(_partition, fields.inners("partitions"))))


def _partition(row: Fields) -> TopicPartition:
    return row.text("topic"), row.number("partition", 0, MAX_INT32)
