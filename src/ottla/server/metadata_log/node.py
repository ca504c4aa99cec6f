"""Interface between a node and its metadata log: the inputs of a metadata log, and its services."""

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
    """Dependencies of a metadata log on its node."""

    config: BrokerConfig
    cluster_id: str
    directory_id: Uuid
    """Id of the data directory (`meta.properties`)."""
    runtime: NodeRuntime
    peers: Peers | None
    """Connections to other nodes; None in a cluster of one node."""
    publisher: MetadataPublisher
    """Receives the committed images."""
    on_failure: Callable[[BaseException], None]
    """Called when this node can no longer participate."""
    zookeeper: ZooKeeperSession | None = None
    """Session of a cluster on ZooKeeper."""


class NodeMetadataLog(NamedTuple):
    """A node's metadata log and the services of its kind."""

    log: MetadataLog
    quorum: QuorumDriver | None
    """KRaft's handler context, for nodes and administrators; None without a quorum."""
    register_gauges: Callable[[MetricsRegistry], None]
    controllers: PeerNetwork | None = None
    """Channel to the active controller; None if that is always this node."""
    zookeeper: ZooKeeperLog | None = None
    """ZooKeeper's handler context, for followers of its tree; None with a quorum."""
    offsets: ConsumerOffsets | None = None
    """Committed offsets of groups that ZooKeeper stores."""
    migrating: MigratingLog | None = None
    """Equal to `log` on a broker that migrates from ZooKeeper to a quorum."""

    def names_directories(self) -> bool:
        """Whether the metadata of this node names the directories of replicas."""
        return self.zookeeper is None if self.migrating is None else self.migrating.quorum_is_owner
