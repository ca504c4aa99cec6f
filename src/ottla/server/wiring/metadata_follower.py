"""Applies each metadata image to the components of a broker."""

from __future__ import annotations

from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.server.metadata.dynamic_config import DynamicBrokerConfig
from ottla.server.wiring.components import BrokerComponents


class MetadataFollower:
    """Updates the components of a broker to an image, in order."""

    __slots__ = ("_config", "_parts")

    def __init__(self, config: DynamicBrokerConfig, parts: BrokerComponents) -> None:
        self._config = config
        self._parts = parts

    def image_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Settings first, since new logs use them; then partitions, coordinators, and reporting components."""
        parts = self._parts
        self._config.image_published(image, changes)
        parts.quotas.use(image)
        if changes.acls_changed:
            parts.sessions.ask_again()
        parts.replicas.apply(image, changes)
        # A coordinator reads its log, which may open some turns later; images stay in order.
        parts.replicas.opening.when_opened(lambda: self._coordinate(image, changes))
        parts.topic_arrivals.follow(image)
        for topic in changes.deleted_topics:
            if image.topic(topic.name) is None:
                parts.statistics.forget_topic(topic.name)

    def _coordinate(self, image: MetadataImage, changes: MetadataChanges) -> None:
        self._parts.share_groups.follow(image)
        for coordination in list(self._parts.coordinations.values()):
            coordination.follow(image, changes)
