"""Settings of logs by topic: the overrides in the metadata over the defaults of this broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.common.kafka.ids import Uuid
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.topic_names import TopicKey
from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.append_rules import inspects

TopicProperties = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns a topic's effective settings for its overrides (`BrokerConfig.topic_properties`)."""


class TopicLogConfigs:
    """Log settings of the topics of one broker."""

    __slots__ = ("_default", "_newest", "_topic_properties", "inspected_topics")

    def __init__(self, topic_properties: TopicProperties) -> None:
        self._topic_properties = topic_properties
        self._default: LogConfig | None = None
        """Settings of all topics without overrides, which share them."""
        self._newest: tuple[MetadataImage, Uuid, LogConfig] | None = None
        self.inspected_topics: dict[TopicKey, None] = {}
        """Topics, by name and by id, with settings that may make an append decompress or compress."""

    def use_topic_properties(self, topic_properties: TopicProperties) -> None:
        """Change the broker settings, which are the defaults of topics."""
        self._topic_properties = topic_properties
        self._default = self._newest = None

    def read(self, image: MetadataImage, topic: str) -> LogConfig:
        """Return the settings of a topic in `image`."""
        overrides = image.topic_configs(topic)
        if overrides:
            return LogConfig.from_properties(self._topic_properties(overrides))
        if self._default is None:
            self._default = LogConfig.from_properties(self._topic_properties(overrides))
        return self._default

    def read_once(self, image: MetadataImage, topic: TopicImage) -> LogConfig:
        """Return the same, read once for partitions of one topic that are opened one after the other."""
        newest = self._newest
        if newest is not None and newest[0] is image and newest[1] == topic.topic_id:
            return newest[2]
        config = self.read(image, topic.name)
        self._newest = (image, topic.topic_id, config)
        return config

    def forget_newest(self) -> None:
        """Release the image of `read_once`."""
        self._newest = None

    def note_inspection(self, topic: TopicImage, config: LogConfig) -> None:
        """Update `inspected_topics` for a topic with these settings."""
        keys = (topic.name, topic.topic_id)
        if inspects(config):
            self.inspected_topics.update(dict.fromkeys(keys))
        elif self.inspected_topics:
            for key in keys:
                self.inspected_topics.pop(key, None)
