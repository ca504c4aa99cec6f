"""ZooKeeper: the tree is the source of truth, without a common log, and the owner of /controller is the controller.

A migrating broker also participates in a quorum's log (`zookeeper.migrating`).
"""

from __future__ import annotations

from ottla.common.errors import InvariantError
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.znodes.session import ZooKeeperSession
from ottla.server.metadata_log.kraft import kraft
from ottla.server.metadata_log.node import MetadataLogContext, NodeMetadataLog
from ottla.zookeeper.log import ZooKeeperLog
from ottla.zookeeper.migrating import MigratingLog, ToController
from ottla.zookeeper.offsets import ConsumerOffsets


def zookeeper(context: MetadataLogContext, session: ZooKeeperSession) -> NodeMetadataLog:
    """This node's metadata log, with a session that starts with the log."""
    if context.config.migrating_broker:
        return _migrating(context, session)
    log = _tree(context, session, context.publisher)
    brokers = None if context.peers is None else context.peers.brokers
    return NodeMetadataLog(log, None, _register_nothing, brokers, log, ConsumerOffsets(session))


def _migrating(context: MetadataLogContext, session: ZooKeeperSession) -> NodeMetadataLog:
    """Both logs; requests of other nodes and administrators to the quorum are served by its controllers only."""
    if context.peers is None:
        raise InvariantError("a migrating broker needs connections to other nodes")
    tree_images, quorum_images = MetadataPublisher(), MetadataPublisher()
    tree = _tree(context, session, tree_images)
    quorum = kraft(context._replace(publisher=quorum_images))
    log = MigratingLog(tree, tree_images, quorum.log, quorum_images, context.publisher, context.on_failure)
    way = ToController(log, context.peers)
    return NodeMetadataLog(log, None, quorum.register_gauges, way, tree, ConsumerOffsets(session), log)


def _tree(context: MetadataLogContext, session: ZooKeeperSession, publisher: MetadataPublisher) -> ZooKeeperLog:
    return ZooKeeperLog(
        session=session,
        broker_id=context.config.node_id,
        cluster_id=context.cluster_id,
        listener_name=context.config.inter_broker_listener,
        peers=None if context.peers is None else context.peers.brokers,
        publisher=publisher,
        runtime=context.runtime,
        on_failure=context.on_failure,
    )


def _register_nothing(_registry: MetricsRegistry) -> None:
    """Register no gauges: the controller has them."""
