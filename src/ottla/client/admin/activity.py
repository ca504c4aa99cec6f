"""Offsets, sizes and groups of all brokers, read in one pass: the service `Cluster.activity`.

A pass asks every live broker for the offsets of the partitions that it leads, the sizes of its replicas and the groups
that it coordinates. Ordinary requests only, so it works with every Kafka.

Invariants: a broker that does not respond is reported in `problems` and does not prevent the results of the others. An
API that a broker lacks or denies leaves its part out. A pass reads the offsets of at most `MAX_GROUPS` groups; `turn`
selects which, so that consecutive passes cover all of them.

Left out: rates and lag, which need two passes (`client.views.activity`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.client.admin.brokers import describe_brokers
from ottla.client.admin.groups import fetch_offsets, list_groups
from ottla.client.admin.log_directories import log_directories
from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import BrokerUnreachable, Connection
from ottla.client.wire.model import LATEST_TIMESTAMP, ClusterBroker, GroupListing, TopicInfo
from ottla.client.wire.record_requests import list_offsets
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.common.platform.endpoint import format_address

T = TypeVar("T")

MAX_GROUPS = 200
"""Groups whose offsets a pass reads: one request each."""
READ_UNCOMMITTED = 0
UNANSWERED = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""Errors of a broker that did not respond."""


class BrokerProblem(NamedTuple):
    """A live broker that did not respond."""

    node_id: int
    address: str
    reason: str


class GroupReading(NamedTuple):
    """A group; `offsets` is None if this pass did not read them."""

    listing: GroupListing
    offsets: Mapping[TopicPartition, int] | None


class ActivityReading(NamedTuple):
    """The results of one pass."""

    cluster_id: str | None
    controller_id: int
    brokers: list[ClusterBroker]
    """Registered brokers, or the live ones where only these are known."""
    topics: dict[str, TopicInfo]
    ends: dict[TopicPartition, int]
    """High watermarks."""
    sizes: dict[int, Mapping[TopicPartition, int]]
    """Bytes of the replicas by broker."""
    groups: list[GroupReading]
    problems: list[BrokerProblem]


class PartitionReading(NamedTuple):
    """Offsets and sizes of partitions, as their leaders report them; both lack those of a leader in `problems`."""

    ends: dict[TopicPartition, int]
    """High watermarks."""
    sizes: dict[TopicPartition, int]
    """Bytes of the leaders; empty where the user may not see them."""
    problems: list[BrokerProblem]


class ActivityService(ClusterService):
    """Passes over all brokers of a cluster."""

    def read(self, turn: int = 0) -> ActivityReading:
        """One pass, without retries. Raises BrokerUnreachable or KafkaError if no broker responds."""
        self._refresh(None)
        info = self._router.info
        topics = {name: self._router.topics[name] for name in sorted(self._router.topics)}
        reading = ActivityReading(
            cluster_id=None if info is None else info.cluster_id,
            controller_id=-1 if info is None else info.controller_id,
            brokers=self._registered(),
            topics=topics,
            ends={},
            sizes={},
            groups=[],
            problems=[],
        )
        led: dict[int, list[TopicPartition]] = {}
        for topic in topics.values():
            for partition in topic.partitions:
                led.setdefault(partition.leader, []).append((topic.name, partition.index))
        coordinated: dict[str, tuple[int, GroupListing]] = {}
        for node_id in sorted(self._router.brokers):
            for listing in self._read_broker(node_id, led.get(node_id, ()), reading):
                coordinated[listing.group_id] = (node_id, listing)
        self._read_groups(coordinated, turn, reading)
        return reading

    def read_partitions(
        self, topics: Mapping[str, TopicInfo], partitions: Iterable[TopicPartition], *, with_sizes: bool
    ) -> PartitionReading:
        """End offsets and sizes of some partitions of `topics`: one or two requests to each of their leaders.

        Nothing is retried. Partitions without a leader are omitted. Raises BrokerUnreachable or KafkaError if no broker
        responds.
        """
        self._refresh([])
        led: dict[int, list[TopicPartition]] = {}
        for name, index in partitions:
            led.setdefault(topics[name].partitions[index].leader, []).append((name, index))
        reading = PartitionReading({}, {}, [])
        for node_id, keys in sorted(led.items()):
            if node_id in self._router.brokers:
                self._read_led(node_id, keys, reading, with_sizes=with_sizes)
            elif node_id >= 0:
                reading.problems.append(BrokerProblem(node_id, "no address", "it is not live"))
        return reading

    def _read_led(
        self, node_id: int, keys: Sequence[TopicPartition], reading: PartitionReading, *, with_sizes: bool
    ) -> None:
        self._ask(node_id, reading.problems, lambda connection: _read_ends(connection, keys, reading.ends))
        if not with_sizes:
            return
        wanted = by_topic(keys)
        directories = self._ask(
            node_id, reading.problems, lambda connection: log_directories(connection, node_id, wanted)
        )
        for directory in directories or ():
            reading.sizes.update(directory.sizes)

    def _refresh(self, topics: Sequence[str] | None) -> None:
        """Refresh metadata; once more if the connection was lost, since another broker may respond."""
        try:
            self._router.refresh(topics)
        except KafkaError as error:
            if error.code not in UNANSWERED:
                raise
            self._router.refresh(topics)

    def _registered(self) -> list[ClusterBroker]:
        try:
            return describe_brokers(self._router.any_connection())
        except (KafkaError, BrokerUnreachable):  # brokers before 2.8 lack the API
            return [ClusterBroker(*broker, fenced=False) for broker in self._router.brokers.values()]

    def _read_broker(
        self, node_id: int, led: Iterable[TopicPartition], reading: ActivityReading
    ) -> Iterable[GroupListing]:
        """Add ends and sizes of one broker to the reading; returns the groups that it coordinates."""
        self._ask(node_id, reading.problems, lambda connection: _read_ends(connection, led, reading.ends))
        directories = self._ask(node_id, reading.problems, lambda connection: log_directories(connection, node_id))
        if directories is not None:
            reading.sizes[node_id] = {key: size for each in directories for key, size in each.sizes.items()}
        return self._ask(node_id, reading.problems, lambda connection: list_groups(connection, (), ())) or ()

    def _read_groups(
        self, coordinated: Mapping[str, tuple[int, GroupListing]], turn: int, reading: ActivityReading
    ) -> None:
        group_ids = sorted(coordinated)
        count = len(group_ids)
        first = turn * MAX_GROUPS % max(1, count)
        chosen = {group_ids[index % count] for index in range(first, first + min(MAX_GROUPS, count))}
        for group_id in group_ids:
            node_id, listing = coordinated[group_id]
            offsets = self._offsets(node_id, group_id, reading) if group_id in chosen else None
            reading.groups.append(GroupReading(listing, offsets))

    def _offsets(self, node_id: int, group_id: str, reading: ActivityReading) -> dict[TopicPartition, int] | None:
        found = self._ask(
            node_id, reading.problems, lambda connection: fetch_offsets(connection, group_id, stable=False)
        )
        return None if found is None else {key: each.offset for key, each in found.items()}

    def _ask(self, node_id: int, problems: list[BrokerProblem], question: Callable[[Connection], T]) -> T | None:
        """The response of a broker, None after a failure. A broker that did not respond is not asked again."""
        if any(problem.node_id == node_id for problem in problems):
            return None
        try:
            return question(self._router.connection(node_id))
        except (KafkaError, BrokerUnreachable) as error:
            if isinstance(error, BrokerUnreachable) or error.code in UNANSWERED:
                broker = self._router.brokers[node_id]
                problems.append(BrokerProblem(node_id, format_address(broker.host, broker.port), str(error)))
            return None  # otherwise this part is denied, or the broker lacks the API


def _read_ends(connection: Connection, partitions: Iterable[TopicPartition], ends: dict[TopicPartition, int]) -> None:
    wanted = dict.fromkeys(partitions, LATEST_TIMESTAMP)
    if wanted:
        found, _ = list_offsets(connection, wanted, READ_UNCOMMITTED)
        ends.update((key, each.offset) for key, each in found.items())
