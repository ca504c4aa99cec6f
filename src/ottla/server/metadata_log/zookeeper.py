"""ZooKeeper: there is no common log, the tree is the truth, and whoever has its claim is the controller."""

from __future__ import annotations

from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.znodes.session import ZooKeeperSession
from ottla.server.metadata_log.node import MetadataLogContext, NodeMetadataLog
from ottla.zookeeper.log import ZooKeeperLog
from ottla.zookeeper.offsets import ConsumerOffsets


def zookeeper(context: MetadataLogContext, session: ZooKeeperSession) -> NodeMetadataLog:
    """This node's part, by a session that begins with the start of the log."""
    log = ZooKeeperLog(
        session=session,
        broker_id=context.config.node_id,
        cluster_id=context.cluster_id,
        listener_name=context.config.inter_broker_listener,
        peers=context.peers,
        publisher=context.publisher,
        machine=context.machine,
        on_failure=context.on_failure,
    )
    return NodeMetadataLog(log, None, _register_nothing, log, ConsumerOffsets(session))


def _register_nothing(_registry: MetricsRegistry) -> None:
    """What there is to count is the controller's."""
