"""Results of the client: immutable values, independent of protocol versions.

They are named tuples: 25 dataclasses would take a fifth of the CPU time of a short command.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Buffer
from ottla.common.platform.endpoint import Endpoint

EARLIEST_TIMESTAMP = -2
"""ListOffsets: the log start offset."""
LATEST_TIMESTAMP = -1
"""ListOffsets: the high watermark, or the last stable offset under read_committed."""
MAX_TIMESTAMP = -3
"""ListOffsets: the offset of the record with the largest timestamp (KIP-734)."""
NO_OFFSET = -1
FULL_BYTES = 1 << 20
"""A directory with fewer usable bytes is full: batches may have this size."""

GONE_MS = 10_000
"""A replica of the metadata log that is silent for longer is shown as gone: others fetch several times a second."""

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class ResourceType(IntEnum):
    """Type of a resource with configs (DescribeConfigs)."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class UpgradeType(IntEnum):
    """Permitted kind of a feature level change (UpdateFeatures)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "static broker",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
"""DescribeConfigs: names of the source of a value; others are 'unknown'."""


class BrokerInfo(NamedTuple):
    """A live broker in Metadata."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterBroker(NamedTuple):
    """A registered broker in DescribeCluster; a fenced one does not serve requests."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


class QuorumReplicaInfo(NamedTuple):
    """A voter or observer of the metadata log; times in milliseconds since the epoch, -1 where unknown."""

    node_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumInfo(NamedTuple):
    """The quorum of the metadata log as its leader sees it; `listeners` are those of the voters by node id.

    `listeners` is empty before DescribeQuorum version 2.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaInfo, ...]
    observers: tuple[QuorumReplicaInfo, ...]
    listeners: Mapping[int, tuple[Endpoint, ...]] = MappingProxyType({})

    def is_gone(self, replica: QuorumReplicaInfo) -> bool | None:
        """True if the replica has not fetched from the leader for `GONE_MS`; None if the times are unknown."""
        now_ms = self.now_ms
        return None if now_ms is None else now_ms - replica.last_fetch_ms > GONE_MS

    @property
    def now_ms(self) -> int | None:
        """When the leader answered, by its own clock; None if it does not name times."""
        return self.last_fetch_ms(self.leader_id)

    def last_fetch_ms(self, node_id: int) -> int | None:
        """When a node last fetched the metadata log, by the leader's clock; None if the leader does not know it.

        Every node fetches at least twice a second. A leader only knows fetches since its election, and forgets a
        broker that does not vote five minutes after its last one.
        """
        replicas = (*self.voters, *self.observers)
        newest = max((each.last_fetch_ms for each in replicas if each.node_id == node_id), default=-1)
        return None if newest < 0 else newest


class OngoingReassignment(NamedTuple):
    """An ongoing reassignment: all current replicas, those being added and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionInfo(NamedTuple):
    """A partition; `leader` is -1 if it is unknown."""

    index: int  # type: ignore[assignment]  # hides the method of tuples
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]

    @property
    def is_led(self) -> bool:
        """True if the partition has a leader with an online data directory."""
        return self.leader >= 0 and self.leader not in self.offline_replicas


class TopicInfo(NamedTuple):
    """A topic with its partitions, sorted by index."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class ClusterInfo(NamedTuple):
    """The cluster in Metadata; the id is None before Metadata v2."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerInfo, ...]


class OffsetInfo(NamedTuple):
    """A result of ListOffsets; offset NO_OFFSET if no record has the timestamp or a later one."""

    offset: int
    timestamp: int
    leader_epoch: int


class LogDirectory(NamedTuple):
    """A data directory of a broker (DescribeLogDirs); bytes of its file system are None if they are not reported.

    `sizes` are the bytes on disk of each replica in it, without replicas that are being moved there.
    """

    node_id: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    sizes: Mapping[TopicPartition, int]

    @property
    def is_full(self) -> bool:
        """Whether it takes no more records; false for one that does not report its free space."""
        return self.error is None and self.usable_bytes is not None and self.usable_bytes < FULL_BYTES

    @property
    def state(self) -> str:
        """`ok`, `full`, or the error of one that is offline."""
        return self.error or ("full" if self.is_full else "ok")


class KeyFreeRange(NamedTuple):
    """Offsets from `start` to before `end` in which no record has one of the keys, with the number of records and their
    smallest and largest timestamp, by the headers of batches."""

    start: int
    end: int
    records: int
    oldest_ms: int
    newest_ms: int


class KeyFreeRanges(NamedTuple):
    """The ranges of a partition up to `searched_end`, in order."""

    ranges: tuple[KeyFreeRange, ...]
    searched_end: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction: records of `producer_id` from `first_offset` to the next abort marker are invisible."""

    producer_id: int
    first_offset: int


class FetchResult(NamedTuple):
    """Record batches as stored, from the one with the requested offset; the last one may be truncated.

    `aborted` is empty under read_uncommitted.
    """

    records: Buffer
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    aborted: tuple[AbortedTransaction, ...]


class ClientQuota(NamedTuple):
    """Quotas of one entity: names by kind ("user", "client-id", "ip"), None for a default; values by their keys."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class ConfigEntry(NamedTuple):
    """One config of a resource; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    is_sensitive: bool
    documentation: str | None


class GroupListing(NamedTuple):
    """A group in ListGroups; state and type are None for brokers that do not report them."""

    group_id: str
    protocol_type: str
    state: str | None
    group_type: str | None


class GroupMember(NamedTuple):
    """A member and the partitions it owns, by topic.

    `protocol` is "classic", "consumer" or "share". The epoch is None in a classic group, and the target assignment in
    all but a consumer group.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    protocol: str
    member_epoch: int | None
    assignment: Mapping[str, tuple[int, ...]]
    target_assignment: Mapping[str, tuple[int, ...]] | None


class GroupDescription(NamedTuple):
    """A group with its members; the epochs are None in a classic group."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    assignor: str | None
    group_epoch: int | None
    assignment_epoch: int | None
    coordinator: BrokerInfo
    members: tuple[GroupMember, ...]


class CommittedOffset(NamedTuple):
    """A committed offset; the leader epoch is -1 if the committer did not send one."""

    offset: int
    leader_epoch: int
    metadata: str


class ShareOffset(NamedTuple):
    """Progress of a share group in a partition."""

    start_offset: int
    """Offset of the first record that is not finished."""
    lag: int | None
    """Records that are not finished; None if the broker did not send it (KIP-1226)."""


class TransactionFilters(NamedTuple):
    """Filters of ListTransactions, all of which must match; an empty filter matches everything.

    `min_duration_ms` selects transactions that have been open for longer, `id_pattern` is a regular expression.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    min_duration_ms: int | None = None
    id_pattern: str | None = None


class FeatureInfo(NamedTuple):
    """A feature of the cluster; `level` is the finalized one, 0 without one.

    Both ends of the range that the connected broker supports are 0 for a feature that it does not know.
    """

    level: int
    supported_min: int
    supported_max: int


class FeatureUpdate(NamedTuple):
    """The new level of a feature."""

    feature: str
    level: int
    upgrade_type: UpgradeType


class TransactionListing(NamedTuple):
    """A transactional id in the list of its coordinator."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionDescription(NamedTuple):
    """A transactional id and its latest transaction; milliseconds since the epoch, None before the first one.

    `partitions` are those of the transaction that is open or being completed.
    """

    transactional_id: str
    state: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """The state of a producer in a partition; `transaction_start_offset` is None without an open transaction.

    `coordinator_epoch` is that of its latest marker, None before the first one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None
