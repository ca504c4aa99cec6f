"""Whether the consumer protocol of KIP-848 is on: by group.version and by group.coordinator.rebalance.protocols."""

from __future__ import annotations

from ottla.common.config.feature_levels import GROUP_VERSION
from ottla.server.handlers.groups.context import GroupContext

CONSUMER_PROTOCOL_DISABLED = "The consumer protocol is not enabled on this cluster."


def consumer_protocol_enabled(context: GroupContext) -> bool:
    """Level 1 of group.version brought it (KIP-1022)."""
    return context.metadata.image.features.get(GROUP_VERSION, 0) >= 1 and "consumer" in context.config.get_list(
        "group.coordinator.rebalance.protocols"
    )
