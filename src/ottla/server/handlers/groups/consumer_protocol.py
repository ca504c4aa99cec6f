"""Check whether KIP-848's consumer protocol is enabled: group.version and group.coordinator.rebalance.protocols."""

from __future__ import annotations

from ottla.common.config.feature_levels import GROUP_VERSION
from ottla.server.handlers.groups.context import GroupContext

CONSUMER_PROTOCOL_DISABLED = "The consumer protocol is not enabled on this cluster."


def consumer_protocol_enabled(context: GroupContext) -> bool:
    """Whether group.version is at least 1 (KIP-1022) and the setting includes the protocol."""
    return context.metadata.image.features.get(GROUP_VERSION, 0) >= 1 and "consumer" in context.config.get_list(
        "group.coordinator.rebalance.protocols"
    )
