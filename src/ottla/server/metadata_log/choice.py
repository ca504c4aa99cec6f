"""The choice of a metadata log by a node's settings: each kind has a module beside this one and a line in it."""

from __future__ import annotations

from ottla.server.metadata_log.kraft import kraft
from ottla.server.metadata_log.node import MetadataLogContext, NodeMetadataLog


def make_metadata_log(context: MetadataLogContext) -> NodeMetadataLog:
    """The one that the settings name: KRaft, the only one so far."""
    return kraft(context)
