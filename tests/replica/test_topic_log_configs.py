"""Settings of logs by topic."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.config.config_def import ConfigResourceType
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.replica.topic_log_configs import TopicLogConfigs


def test_topics_without_overrides_share_settings() -> None:
    """Fifty thousand topics would otherwise read and store the same settings fifty thousand times."""
    image = MetadataImage(configs={ConfigResource(ConfigResourceType.TOPIC, "other"): {"retention.ms": "5"}})

    def properties(overrides: Mapping[str, str]) -> Mapping[str, str]:
        return {"retention.ms": "1", "retention.bytes": "2", **overrides}

    configs = TopicLogConfigs(properties)
    default = configs.read(image, "t")
    assert configs.read(image, "u") is default
    assert (default.retention_ms, default.retention_bytes) == (1, 2)
    assert configs.read(image, "other") == default._replace(retention_ms=5)
    configs.use_topic_properties(lambda overrides: {"retention.ms": "3", **overrides})
    assert configs.read(image, "t").retention_ms == 3
