"""Access to share groups (KIP-932), if the feature `share.version` is finalized at 1 or above."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.image import share_groups_enabled
from ottla.server.handlers.groups.context import GroupContext

if TYPE_CHECKING:
    from ottla.server.coordination.share_groups import ShareGroupService


def share_groups(context: GroupContext) -> ShareGroupService | None:
    """Return the share groups of this broker, None if they are not enabled."""
    return context.share_groups if share_groups_enabled(context.metadata.image) else None
