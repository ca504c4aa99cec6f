"""The settings of this node as they are now: those of its start under the dynamic ones of the metadata (KIP-226)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.unsupported_configs import STORED_CONFIGS
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

ConfigFollower = Callable[[BrokerConfig], None]


class DynamicBrokerConfig:
    """Owner of the effective settings; who works by them follows."""

    __slots__ = ("_followers", "_static", "effective")

    def __init__(self, static: BrokerConfig) -> None:
        """`static` as parsed at the start."""
        self._static = static
        self._followers: list[ConfigFollower] = []
        self.effective = static

    def follow(self, follower: ConfigFollower) -> None:
        """Call `follower` with the effective settings now and after each change, after those that came before it."""
        self._followers.append(follower)
        follower(self.effective)

    def under(self, image: MetadataImage) -> BrokerConfig:
        """What the settings would be by `image`."""
        return self._static.with_dynamic(image.default_broker_configs(), image.broker_configs(self._static.node_id))

    def use(self, image: MetadataImage) -> None:
        """Go on with the settings that `image` has."""
        before, self.effective = self.effective, self.under(image)
        for name in sorted(STORED_CONFIGS.keys() & BROKER_CONFIGS.keys()):
            if self.effective.get(name) != before.get(name):
                logger.warning("%s has no effect: %s", name, STORED_CONFIGS[name])
        for follower in self._followers:
            follower(self.effective)

    def image_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """The same where they changed."""
        if any(resource.type is ConfigResourceType.BROKER for resource in changes.changed_configs):
            self.use(image)
