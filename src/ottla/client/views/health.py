"""Health of a cluster: its brokers, and the partitions that lack replicas or a leader, with the cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import PartitionInfo, TopicInfo


class LeaderlessPartition(NamedTuple):
    """A partition that can't be read or written, and a sentence with the cause and the remedy."""

    topic: str
    partition: int
    cause: str


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


def cluster_health(cluster: Cluster) -> tuple[ClusterHealth, list[LeaderlessPartition]]:
    """The health of the cluster, and all partitions without a leader."""
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
    return health, leaderless


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
        )
        for broker in cluster.brokers.all()
    ]


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
