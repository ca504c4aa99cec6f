"""Context of the share group handlers: the share coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.metadata.image import share_groups_enabled
from ottla.server.metadata.metadata_cache import MetadataCache

if TYPE_CHECKING:
    from ottla.server.coordination.share_state import ShareStateCoordination


class ShareServices(Protocol):
    """Share groups of this broker; the first use of an attribute loads it.

    Implementation: `server.wiring.share_groups`.
    """

    @property
    def coordination(self) -> ShareStateCoordination:
        """The host of the share coordinator."""
        ...


class ShareContext(NamedTuple):
    """Dependencies of the share group handlers."""

    metadata: MetadataCache
    groups: ShareServices

    @property
    def enabled(self) -> bool:
        """Whether share.version is at least 1; below, all APIs of share groups answer UNSUPPORTED_VERSION."""
        return share_groups_enabled(self.metadata.image)
