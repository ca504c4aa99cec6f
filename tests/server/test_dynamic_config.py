"""Effective settings of a running broker: static settings overridden by dynamic ones in the metadata."""

from __future__ import annotations

import pytest

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.server.metadata.dynamic_config import DynamicBrokerConfig


def test_setting_without_effect_warns_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    config = DynamicBrokerConfig(BrokerConfig.parse({"node.id": "1"})[0])
    changed = {"num.io.threads": "9", "log.cleaner.threads": "2"}
    image = MetadataImage(offset=1, configs={ConfigResource(ConfigResourceType.BROKER, "1"): changed})
    for _ in range(2):
        config.use(image)
    (record,) = caplog.records
    assert record.getMessage() == (
        "num.io.threads has no effect: one event loop serves all requests, without thread pools"
    )


def test_unknown_dynamic_setting_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    config = DynamicBrokerConfig(BrokerConfig.parse({"node.id": "1"})[0])
    prefix = "listener.name.client.ssl.keystore"
    own = {f"{prefix}.location": "a", "log.retention.ms": "9", "log.cleaner.threads": "2", f"{prefix}.locatoin": "b"}
    image = MetadataImage(
        offset=1,
        configs={
            ConfigResource(ConfigResourceType.BROKER, ""): {"log.retention.mss": "1"},
            ConfigResource(ConfigResourceType.BROKER, "1"): own,
            ConfigResource(ConfigResourceType.BROKER, "2"): {"of.another": "1"},
        },
    )
    for _ in range(2):
        config.use(image)
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        f"{prefix}.locatoin",
        "log.retention.mss",
    ]
