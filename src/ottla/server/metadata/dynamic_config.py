"""Effective settings of this node: its static settings overridden by dynamic ones in the metadata (KIP-226)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig, unknown_settings
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.unsupported_configs import STORED_CONFIGS
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

ConfigFollower = Callable[[BrokerConfig], None]


class DynamicBrokerConfig:
    """Owner of the effective settings; notifies followers of changes."""

    __slots__ = ("_followers", "_static", "_unknown", "effective")

    def __init__(self, static: BrokerConfig) -> None:
        """`static`: the settings parsed at the start."""
        self._static = static
        self._followers: list[ConfigFollower] = []
        self._unknown: set[str] = set()
        self.effective = static

    def follow(self, follower: ConfigFollower) -> None:
        """Call `follower` with the effective settings now and after each change, after earlier followers."""
        self._followers.append(follower)
        follower(self.effective)

    def under(self, image: MetadataImage) -> BrokerConfig:
        """The effective settings according to `image`."""
        return self._static.with_dynamic(image.default_broker_configs(), image.broker_configs(self._static.node_id))

    def use(self, image: MetadataImage) -> None:
        """Apply the settings in `image`."""
        before, self.effective = self.effective, self.under(image)
        for name in sorted(STORED_CONFIGS.keys() & BROKER_CONFIGS.keys()):
            if self.effective.get(name) != before.get(name):
                logger.warning("%s has no effect: %s", name, STORED_CONFIGS[name])
        unknown = unknown_settings({*image.default_broker_configs(), *image.broker_configs(self._static.node_id)})
        for name in sorted(unknown - self._unknown):
            logger.warning("%s is not a known setting and has no effect", name)
        self._unknown = unknown
        for follower in self._followers:
            follower(self.effective)

    def image_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Apply the settings in `image` if they changed."""
        if any(resource.type is ConfigResourceType.BROKER for resource in changes.changed_configs):
            self.use(image)
