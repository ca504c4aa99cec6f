"""Parsing and validation of settings with Kafka's messages, and defaults of topics from the broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigKey, ConfigSource, ConfigType, ConfigValue, markdown, render
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.topic_configs import TOPIC_CONFIGS, parse_topic_configs, validate_topic_configs
from ottla.common.errors import ErrorCode, KafkaError


def config(**properties: str) -> BrokerConfig:
    return BrokerConfig.parse({name.replace("_", "."): text for name, text in properties.items()})[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "1_0", "Not a number of type LONG"),
        ("segment.bytes", "9999999999", "Not a number of type INT"),
        ("segment.bytes", "14", "Value must be at least 1048576"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("cleanup.policy", "delete,shred", "String must be one of: compact, delete"),
        ("compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("leader.replication.throttled.replicas", "1-2", "Must be the literal '*'"),
        ("retention.bytes", "1" * 40000, "longer than"),
        ("retention.bites", "1", "Unknown topic config name: retention.bites"),
    ],
)
def test_bad_value(name: str, text: str, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        parse_topic_configs({name: text})
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("preallocate", " TRUE ", True),
        ("retention.ms", "-1", -1),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("leader.replication.throttled.replicas", "0:1,2:3", ("0:1", "2:3")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
    ],
)
def test_good_value(name: str, text: str, value: ConfigValue) -> None:
    assert parse_topic_configs({name: text}) == {name: value}


@pytest.mark.parametrize("table", [TOPIC_CONFIGS, BROKER_CONFIGS])
def test_every_default_is_valid_and_every_key_is_documented(table: dict[str, ConfigKey]) -> None:
    for key in table.values():
        assert key.doc.endswith(".")
        text = render(key.default)
        if text is not None:
            assert key.parse(text) == key.default
    assert markdown(table).count("\n") == 2 + sum(not key.internal for key in table.values())


@given(st.sampled_from(sorted(TOPIC_CONFIGS)), st.text(max_size=30))
def test_any_text_raises_at_most_invalid_config(name: str, text: str) -> None:
    key = TOPIC_CONFIGS[name]
    try:
        value = key.parse(text)
    except KafkaError:
        return
    rendered = render(value)
    if rendered is not None and key.type is not ConfigType.DOUBLE:
        assert key.parse(rendered) == value


def test_contradictions_between_settings() -> None:
    defaults = config().topic_defaults
    with pytest.raises(KafkaError, match="conflict topic config setting"):
        validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, defaults)
    with pytest.raises(KafkaError, match="Tiered Storage"):
        validate_topic_configs({"remote.storage.enable": "true"}, defaults)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, 604800000),
        ({"log.retention.hours": "2"}, 7200000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_takes_the_most_specific_broker_setting(properties: dict[str, str], expected: int) -> None:
    assert BrokerConfig.parse(properties)[0].topic_defaults["retention.ms"] == expected


def test_effective_properties_are_complete_text() -> None:
    broker = config(log_cleanup_policy="compact", message_max_bytes="5")
    properties = broker.topic_properties({"segment.ms": "7", "internal.segment.bytes": "100"})
    assert properties["cleanup.policy"] == "compact"
    assert properties["max.message.bytes"] == "5"
    assert properties["segment.ms"] == "7"
    assert properties["segment.bytes"] == "100"
    assert properties["preallocate"] == "false"
    assert "internal.segment.bytes" not in properties


def test_description_names_every_source() -> None:
    static = config(log_retention_hours="24", log_segment_bytes="2000000")
    broker = static.with_dynamic({"log.segment.bytes": "3000000"}, {"log.segment.bytes": "4000000", "node.id": "9"})
    entries = {entry.name: entry for entry in broker.describe_topic({"segment.bytes": "5000000"})}
    assert [(item.name, item.value, item.source) for item in entries["segment.bytes"].synonyms] == [
        ("segment.bytes", "5000000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "4000000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.segment.bytes", "3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.segment.bytes", "2000000", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("86400000", ConfigSource.STATIC_BROKER_CONFIG)
    assert entries["cleanup.policy"].source is ConfigSource.DEFAULT_CONFIG
    assert "internal.segment.bytes" not in entries
    brokers = {entry.name: entry for entry in broker.describe()}
    assert brokers["log.segment.bytes"].value == "4000000"
    assert not brokers["log.segment.bytes"].read_only
    assert brokers["node.id"].read_only
    assert brokers["log.retention.hours"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert [(entry.name, entry.value) for entry in broker.describe_cluster_default()] == [
        ("log.segment.bytes", "3000000")
    ]
