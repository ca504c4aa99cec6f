"""A node and its metadata log: what the one is made from, and what the node gets of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.peer import PeerNetwork, Peers
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.log import MetadataLog
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.quorum.driver import QuorumDriver

if TYPE_CHECKING:
    from ottla.protocol.znodes.session import ZooKeeperSession
    from ottla.zookeeper.log import ZooKeeperLog
    from ottla.zookeeper.migrating import MigratingLog
    from ottla.zookeeper.offsets import ConsumerOffsets


class MetadataLogContext(NamedTuple):
    """What a metadata log needs of the node that takes part in it."""

    config: BrokerConfig
    cluster_id: str
    directory_id: Uuid
    """Of the data directory (`meta.properties`)."""
    machine: NodeRuntime
    peers: Peers | None
    """The ways to other nodes; None where the cluster is this node."""
    publisher: MetadataPublisher
    """Takes the committed images."""
    on_failure: Callable[[BaseException], None]
    """Told when this node can take no more part."""
    zookeeper: ZooKeeperSession | None = None
    """Where ZooKeeper keeps the cluster."""


class NodeMetadataLog(NamedTuple):
    """One node's part in the metadata log, and what comes with its kind."""

    log: MetadataLog
    quorum: QuorumDriver | None
    """KRaft's, for who asks it and who administers it; None where there is no quorum."""
    register_gauges: Callable[[MetricsRegistry], None]
    controllers: PeerNetwork | None = None
    """The way to the active controller; None where that is always this node."""
    zookeeper: ZooKeeperLog | None = None
    """ZooKeeper's, for who follows its tree; None where a quorum keeps the cluster."""
    offsets: ConsumerOffsets | None = None
    """Of groups that keep theirs in that tree."""
    migrating: MigratingLog | None = None
    """The same as `log`, where the broker is on its way from ZooKeeper to a quorum."""

    def names_directories(self) -> bool:
        """Whether the metadata that this node follows says in which directories replicas lie."""
        return self.zookeeper is None if self.migrating is None else self.migrating.quorum_rules
