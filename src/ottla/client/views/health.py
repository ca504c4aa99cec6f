"""Health of a cluster: its brokers, and the partitions that lack replicas or a leader, with the cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import PartitionInfo, QuorumInfo, TopicInfo
from ottla.common.durations import duration_text
from ottla.common.errors import KafkaError


class LeaderlessPartition(NamedTuple):
    """A partition that can't be read or written, and a sentence with the cause and the remedy."""

    topic: str
    partition: int
    cause: str


class FencedBroker(NamedTuple):
    """A broker that does not serve, and when the controller last heard of it."""

    node_id: int
    last_seen_ms: int | None
    """Milliseconds since the epoch; None if the controller does not know it."""
    ago_ms: int | None

    @property
    def age_text(self) -> str:
        """`2m5s ago`, or `unknown`."""
        return "unknown" if self.ago_ms is None else f"{duration_text(self.ago_ms)} ago"

    @property
    def text(self) -> str:
        """`last seen 2m5s ago`, or that the time is unknown."""
        return "last seen at an unknown time" if self.ago_ms is None else f"last seen {self.age_text}"


class ClusterHealth(NamedTuple):
    """Counts of a whole cluster, in the order in which they are shown."""

    cluster_id: str | None
    controller: int
    brokers: int
    fenced_brokers: list[int]
    topics: int
    partitions: int
    under_replicated: int
    without_leader: int
    not_preferred_leader: int


class BrokerLoad(NamedTuple):
    """A registered broker and its number of partitions."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool
    leads: int
    replicas: int
    in_sync: int
    version: str | None
    """None for a broker that does not answer or is not Ottla's."""
    last_seen: FencedBroker | None
    """None for a live broker."""


def cluster_health(cluster: Cluster) -> tuple[ClusterHealth, list[LeaderlessPartition], list[FencedBroker]]:
    """The health of the cluster, all partitions without a leader, and all fenced brokers."""
    info = cluster.describe()
    brokers = cluster.brokers.all()
    topics = cluster.topics.all().values()
    quorum = cluster.quorum.describe()
    partitions = [partition for topic in topics for partition in topic.partitions]
    live = {broker.node_id for broker in brokers if not broker.fenced}
    leaderless = leaderless_partitions(topics, live)
    health = ClusterHealth(
        cluster_id=info.cluster_id,
        controller=quorum.leader_id,
        brokers=len(brokers),
        fenced_brokers=[broker.node_id for broker in brokers if broker.fenced],
        topics=len(topics),
        partitions=len(partitions),
        under_replicated=sum(len(partition.isr) < len(partition.replicas) for partition in partitions),
        without_leader=len(leaderless),
        not_preferred_leader=sum(
            partition.leader >= 0 and partition.leader != partition.replicas[0] for partition in partitions
        ),
    )
    return health, leaderless, fenced_brokers(health.fenced_brokers, quorum)


def fenced_brokers(broker_ids: Iterable[int], quorum: QuorumInfo | None) -> list[FencedBroker]:
    """These brokers with their last fetches of the metadata log; unknown without a quorum."""
    found = []
    for broker_id in broker_ids:
        seen_ms = None if quorum is None else quorum.last_fetch_ms(broker_id)
        now_ms = None if quorum is None else quorum.now_ms
        ago_ms = None if seen_ms is None or now_ms is None else max(0, now_ms - seen_ms)
        found.append(FencedBroker(broker_id, seen_ms, ago_ms))
    return found


def leaderless_partitions(topics: Iterable[TopicInfo], live: set[int]) -> list[LeaderlessPartition]:
    """All partitions of these topics without a leader; `live` are the ids of brokers that are not fenced."""
    return [
        LeaderlessPartition(topic.name, partition.index, _cause(topic.name, partition, live))
        for topic in topics
        for partition in topic.partitions
        if not partition.is_led
    ]


def broker_loads(cluster: Cluster) -> list[BrokerLoad]:
    """All registered brokers."""
    partitions = [partition for topic in cluster.topics.all().values() for partition in topic.partitions]
    versions = cluster.brokers.versions()
    brokers = cluster.brokers.all()
    fenced = {each.node_id: each for each in _fenced(cluster, [each.node_id for each in brokers if each.fenced])}
    return [
        BrokerLoad(
            broker.node_id,
            broker.host,
            broker.port,
            broker.rack,
            broker.fenced,
            leads=sum(partition.leader == broker.node_id for partition in partitions),
            replicas=sum(broker.node_id in partition.replicas for partition in partitions),
            in_sync=sum(broker.node_id in partition.isr for partition in partitions),
            version=versions.get(broker.node_id),
            last_seen=fenced.get(broker.node_id),
        )
        for broker in brokers
    ]


def _fenced(cluster: Cluster, broker_ids: Sequence[int]) -> list[FencedBroker]:
    """These brokers; the quorum is only asked if there are any."""
    if not broker_ids:
        return []
    try:
        quorum = cluster.quorum.describe()
    except KafkaError:  # not permitted
        return fenced_brokers(broker_ids, None)
    return fenced_brokers(broker_ids, quorum)


def _cause(topic: str, partition: PartitionInfo, live: set[int]) -> str:
    """The reason why a partition has no leader, with a remedy for the operator."""
    if partition.leader >= 0:
        return f"the data directory of its leader, broker {partition.leader}, is offline: restore it"
    usable = [broker_id for broker_id in partition.replicas if broker_id in live]
    missing = [broker_id for broker_id in partition.replicas if broker_id not in live]
    if not usable:
        return f"no replica is live: start broker {_ids(missing)}"
    remedy = f"start broker {_ids(missing)}, or " if missing else ""
    return (
        f"no live replica is known to contain all committed records: {remedy}run 'ottla cluster elect "
        f"{topic}:{partition.index} --unclean', which loses the records that the elected replica lacks"
    )


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
