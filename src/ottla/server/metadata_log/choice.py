"""Selects a metadata log by a node's settings: each kind has a module beside this one and a line in it."""

from __future__ import annotations

from ottla.server.metadata_log.kraft import kraft
from ottla.server.metadata_log.node import MetadataLogContext, NodeMetadataLog


def make_metadata_log(context: MetadataLogContext) -> NodeMetadataLog:
    """KRaft's, or ZooKeeper's where the node has a session there."""
    if context.zookeeper is None:
        return kraft(context)
    from ottla.server.metadata_log.zookeeper import zookeeper  # imported here, since a quorum's node needs none

    return zookeeper(context, context.zookeeper)
