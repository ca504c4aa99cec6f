"""Altering and describing settings of topics, brokers and groups."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.topic_configs import TOPIC_CONFIGS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.configs import (
    altered,
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
)
from ottla.controller.features import activation_records
from ottla.controller.result import MIN_ISR, ControllerContext
from ottla.controller.topics import handle_create_topics
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from .world import CountedText

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]


@pytest.fixture
def with_topic(image: MetadataImage, context: ControllerContext, apply: Any) -> MetadataImage:
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    return apply(image, handle_create_topics(image, CreateTopicsRequest(topics=[wanted]), context).records)


def incremental(
    image: MetadataImage, context: ControllerContext, kind: int, name: str, *changes: Change, validate: bool = False
) -> Any:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate)
    return handle_incremental_alter_configs(image, request, context)


def test_set_append_subtract_delete(with_topic: MetadataImage, context: ControllerContext, apply: Any) -> None:
    image = with_topic
    steps: list[tuple[Change, dict[str, str]]] = [
        (("retention.ms", SET, "5"), {"retention.ms": "5"}),
        (("cleanup.policy", APPEND, "compact"), {"retention.ms": "5", "cleanup.policy": "delete,compact"}),
        (("cleanup.policy", APPEND, "compact"), {"retention.ms": "5", "cleanup.policy": "delete,compact"}),
        (("cleanup.policy", SUBTRACT, "delete"), {"retention.ms": "5", "cleanup.policy": "compact"}),
        (("retention.ms", DELETE, None), {"cleanup.policy": "compact"}),
        (("segment.ms", DELETE, None), {"cleanup.policy": "compact"}),
    ]
    for change, expected in steps:
        result = incremental(image, context, TOPIC, "t", change)
        assert result.response.responses[0].error_code == 0
        image = apply(image, result.records)
        assert image.topic_configs("t") == expected


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (TOPIC, "nope", [("retention.ms", SET, "5")], 3, "The topic 'nope' does not exist."),
        (TOPIC, "", [("retention.ms", SET, "5")], 42, "Default topic resources are not allowed."),
        (TOPIC, "a/b", [("retention.ms", SET, "5")], 17, "Topic name is invalid"),
        (TOPIC, "t", [("retention.ms", SET, "x")], 40, "Not a number of type LONG"),
        (TOPIC, "t", [("what", SET, "x")], 40, "Unknown topic config name: what"),
        (TOPIC, "t", [("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], 42, "duplicate config keys"),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], 40, "Can't APPEND to key retention.ms because its type is not"),
        (TOPIC, "t", [("retention.ms", 9, "1")], 42, "Unknown operations type 9"),
        (BROKER, "2", [("log.retention.ms", SET, "1")], 42, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "x", [("log.retention.ms", SET, "1")], 42, "Node id must be an integer, but it is: x"),
        (
            BROKER,
            "9" * 5000,
            [("log.retention.ms", SET, "1")],
            42,
            "Node id must be an integer, but it is: " + "9" * 5000,
        ),
        (BROKER, "1", [("log.dirs", SET, "/x")], 42, "Cannot update these configs dynamically: [log.dirs]"),
        (BROKER, "", [("log.retention.ms", SET, "x")], 42, "Not a number of type LONG"),
        (8, "x", [("a", SET, "b")], 42, "Unknown resource type 8"),
        (BROKER, "", [("max.connections", SET, "0")], 40, "max.connections: no client could connect"),
        (BROKER, "1", [("max.connections", SET, " +00 ")], 40, "max.connections: no client could connect"),
        (BROKER, "", [("max.connections.per.ip", SET, "0")], 40, "max.connections.per.ip: no client could connect"),
        (BROKER, "", [("max.connection.creation.rate", SET, "0")], 40, "no client could connect"),
        (BROKER, "", [("log.cleanup.policy", SET, "delete\n")], 42, "must not contain control characters"),
    ],
)
def test_refused(
    with_topic: MetadataImage,
    context: ControllerContext,
    kind: int,
    name: str,
    changes: list[Change],
    code: int,
    message: str,
) -> None:
    result = incremental(with_topic, context, kind, name, *changes)
    assert result.records == []
    answer = result.response.responses[0]
    assert answer.error_code == code
    assert message in answer.error_message
    assert (answer.resource_type, answer.resource_name) == (kind, name)


def test_validation_only(with_topic: MetadataImage, context: ControllerContext) -> None:
    result = incremental(with_topic, context, TOPIC, "t", ("retention.ms", SET, "5"), validate=True)
    assert (result.records, result.response.responses[0].error_code) == ([], 0)


def test_resource_named_twice(with_topic: MetadataImage, context: ControllerContext) -> None:
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource, resource])
    result = handle_incremental_alter_configs(with_topic, request, context)
    assert [item.error_code for item in result.response.responses] == [42, 42]


def test_broker_settings_are_layers(with_topic: MetadataImage, context: ControllerContext, apply: Any) -> None:
    image = apply(with_topic, incremental(with_topic, context, BROKER, "", ("log.retention.ms", SET, "10")).records)
    image = apply(image, incremental(image, context, BROKER, "1", ("log.retention.ms", SET, "20")).records)
    assert image.default_broker_configs() == {"log.retention.ms": "10"}
    assert image.broker_configs(1) == {"log.retention.ms": "20"}
    config = context.config.with_dynamic(image.default_broker_configs(), image.broker_configs(1))
    assert config.topic_defaults["retention.ms"] == 20


@pytest.mark.parametrize(
    ("name", "operation", "value", "message"),
    [
        ("1", 0, "2", "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ("", 1, None, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
        ("", 0, "2", None),
    ],
)
def test_the_minimum_of_in_sync_replicas_is_the_clusters(
    image: MetadataImage,
    context: ControllerContext,
    apply: Any,
    name: str,
    operation: int,
    value: str | None,
    message: str | None,
) -> None:
    image = apply(image, activation_records(image, 1))
    result = incremental(image, context, BROKER, name, (MIN_ISR, operation, value))
    [answer] = result.response.responses
    assert answer.error_message == message
    assert answer.error_code == (ErrorCode.INVALID_CONFIG if message else 0)
    assert bool(result.records) == (message is None)


def test_legacy_alter_replaces_all(with_topic: MetadataImage, context: ControllerContext, apply: Any) -> None:
    changes: list[Change] = [("retention.ms", SET, "5"), ("segment.ms", SET, "6")]
    image = apply(with_topic, incremental(with_topic, context, TOPIC, "t", *changes).records)

    def alter(**configs: str | None) -> Any:
        resource = alter_configs.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[
                alter_configs.AlterableConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        return handle_alter_configs(image, alter_configs.AlterConfigsRequest(resources=[resource]), context)

    result = alter(segment_ms="6", flush_ms="7")
    assert apply(image, result.records).topic_configs("t") == {"segment.ms": "6", "flush.ms": "7"}
    assert len(result.records) == 2
    assert alter(segment_ms=None).response.responses[0].error_code == 42
    assert alter(segment_ms="0").response.responses[0].error_code == 40


def describe(image: MetadataImage, context: ControllerContext, kind: int, name: str, **options: Any) -> Any:
    keys = options.pop("keys", None)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], **options)
    (result,) = handle_describe_configs(image, request, context.config).results
    return result


def test_description(with_topic: MetadataImage, context: ControllerContext, apply: Any) -> None:
    image = apply(with_topic, incremental(with_topic, context, TOPIC, "t", ("retention.ms", SET, "5")).records)
    result = describe(image, context, TOPIC, "t", include_synonyms=True, include_documentation=True)
    configs = {config.name: config for config in result.configs}
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type, retention.read_only) == ("5", 1, 5, False)
    assert [(item.name, item.source) for item in retention.synonyms] == [
        ("retention.ms", 1),
        ("log.retention.hours", 5),
    ]
    assert retention.documentation
    assert configs.keys() == TOPIC_CONFIGS.keys() - {"internal.segment.bytes"}
    terse = describe(image, context, TOPIC, "t", keys=["segment.ms", "nonsense"])
    assert [(config.name, config.synonyms, config.documentation) for config in terse.configs] == [
        ("segment.ms", [], None)
    ]
    broker = describe(image, context, BROKER, "1")
    assert {"node.id", "log.retention.ms"} <= {config.name for config in broker.configs}
    assert describe(image, context, BROKER, "").configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"), [(TOPIC, "nope", 3), (TOPIC, "", 17), (BROKER, "2", 42), (BROKER, "x", 42), (8, "1", 42)]
)
def test_description_refused(
    with_topic: MetadataImage, context: ControllerContext, kind: int, name: str, code: int
) -> None:
    assert describe(with_topic, context, kind, name).error_code == code


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        (
            {"consumer.session.timeout.ms": "abc"},
            "Invalid value abc for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
        (
            {"consumer.session.timeout.ms": "0"},
            "Invalid value 0 for configuration consumer.session.timeout.ms: Value must be at least 1",
        ),
        (
            {"consumer.session.timeout.ms": "44999"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "15001"},
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"consumer.assignment.interval.ms": "15001"},
            "consumer.assignment.interval.ms must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
        (
            {"share.record.lock.duration.ms": "14999"},
            "share.record.lock.duration.ms must be greater than or equal to group.share.min.record.lock.duration.ms",
        ),
        (
            {"share.delivery.count.limit": "11"},
            "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit",
        ),
        (
            {"share.isolation.level": "none"},
            "Invalid value none for configuration share.isolation.level: String must be one of: read_committed, "
            "read_uncommitted",
        ),
    ],
)
def test_settings_of_a_group_lie_between_bounds(
    image: MetadataImage, context: ControllerContext, changes: dict[str, str], message: str
) -> None:
    """Messages of Apache Kafka 4.3.1."""
    result = incremental(image, context, GROUP, "g", *((name, SET, value) for name, value in changes.items()))
    (answer,) = result.response.responses
    assert (answer.error_code, answer.error_message) == (40, message)
    assert not result.records


def test_a_session_is_longer_than_a_heartbeat_interval() -> None:
    config, _ = BrokerConfig.parse(
        {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "100"}
    )
    config.validate_group({"consumer.session.timeout.ms": "5001"})
    config.validate_group({"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "999"})
    for changes in ({"consumer.session.timeout.ms": "5000"}, {"consumer.session.timeout.ms": "1000"}):
        with pytest.raises(KafkaError) as error:
            config.validate_group(changes)
        assert error.value.message == "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("latest", True),
        ("earliest", True),
        ("by_duration:PT1H", True),
        ("by_duration:P3DT3H4M0.5S", True),
        ("none", False),
        ("by_duration:", False),
        ("by_duration:P", False),
        ("by_duration:PT", False),
        ("by_duration:-PT1S", False),
    ],
)
def test_start_offset_of_share_groups_has_a_format(value: str, valid: bool) -> None:
    config, _ = BrokerConfig.parse({})
    overrides = {"share.auto.offset.reset": value, "share.renew.acknowledge.enable": "false"}
    if valid:
        config.validate_group(overrides)
        return
    with pytest.raises(KafkaError) as error:
        config.validate_group(overrides)
    assert error.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "valid", "invalid"),
    [
        ("ottla.share.retry.backoff.ms", "86400000", "86400001"),
        ("ottla.share.retry.backoff.multiplier", "1", "0.9"),
        ("ottla.share.retry.backoff.max.ms", "1", "0"),
        ("ottla.share.max.records.per.second", "-1", "0"),
    ],
)
def test_delays_of_share_groups_have_bounds(name: str, valid: str, invalid: str) -> None:
    config, _ = BrokerConfig.parse({})
    config.validate_group({name: valid})
    with pytest.raises(KafkaError) as error:
        config.validate_group({name: invalid})
    assert error.value.code is ErrorCode.INVALID_CONFIG


def test_settings_of_a_group_need_no_group(image: MetadataImage, context: ControllerContext, apply: Any) -> None:
    result = incremental(image, context, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    image = apply(image, result.records)
    assert image.group_configs("g") == {"consumer.session.timeout.ms": "50000"}
    described = describe(image, context, GROUP, "g", include_synonyms=True)
    of_consumers = [each for each in described.configs if each.name.startswith("consumer.")]
    assert [(each.name, each.value, each.config_source) for each in of_consumers] == [
        ("consumer.assignment.interval.ms", "1000", 5),
        ("consumer.heartbeat.interval.ms", "5000", 5),
        ("consumer.session.timeout.ms", "50000", 8),
    ]
    assert {each.name.partition(".")[0] for each in described.configs} == {"consumer", "errors", "ottla", "share"}
    assert [(each.name, each.value, each.source) for each in described.configs[2].synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    image = apply(image, incremental(image, context, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)).records)
    assert not image.group_configs("g")
    (answer,) = incremental(image, context, GROUP, "", ("consumer.session.timeout.ms", DELETE, None)).response.responses
    assert (answer.error_code, answer.error_message) == (42, "Default group resources are not allowed.")
    assert describe(image, context, GROUP, "").error_code == 42


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"nope": "1"}, 42, "Unknown client metrics configuration: nope"),
        (
            {"interval.ms": "99"},
            42,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval.ms": "3600001"},
            42,
            "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ({"interval.ms": "x"}, 40, "Invalid value x for configuration interval.ms: Not a number of type INT"),
        ({"metrics": "a,,b"}, 40, "Configuration 'metrics' values must not be empty."),
        ({"match": "client_id=a,"}, 40, "Configuration 'match' values must not be empty."),
        ({"match": "client_id"}, 40, "Illegal client matching pattern: client_id"),
        ({"match": "client_id="}, 40, "Illegal client matching pattern: client_id="),
        ({"match": "=b"}, 40, "Illegal client matching pattern: =b"),
        ({"match": "client_id=a=b"}, 40, "Illegal client matching pattern: client_id=a=b"),
        ({"match": "CLIENT_ID=a"}, 40, "Illegal client matching pattern: CLIENT_ID=a"),
        ({"match": "client_id=["}, 40, "Illegal client matching pattern: client_id=["),
        ({"match": "client_id=(a)\\1"}, 40, "Illegal client matching pattern: client_id=(a)\\1"),
        ({"interval.ms": "100", "metrics": "*", "match": " client_id = a.* ,client_source_port=9="}, 0, None),
        ({"metrics": "", "match": ""}, 0, None),
    ],
)
def test_client_metrics_settings_are_checked_as_in_kafka(
    image: MetadataImage, context: ControllerContext, changes: dict[str, str], code: int, text: str | None
) -> None:
    """Each row is the result of Apache Kafka 4.4, except for backreferences, which RE2 rejects."""
    result = incremental(image, context, CLIENT_METRICS, "s", *((key, SET, value) for key, value in changes.items()))
    (answer,) = result.response.responses
    assert (answer.error_code, answer.error_message) == (code, text)


def test_client_metrics_subscription_exists_by_its_settings(
    image: MetadataImage, context: ControllerContext, apply: Any
) -> None:
    result = incremental(image, context, CLIENT_METRICS, "s", ("metrics", SET, "a.,b."), ("interval.ms", SET, "500"))
    image = apply(image, result.records)
    for operation in (APPEND, SUBTRACT):
        result = incremental(image, context, CLIENT_METRICS, "s", ("metrics", operation, "a."))
        assert result.response.responses[0].error_code == ErrorCode.INVALID_CONFIG, "as in Apache Kafka"
    assert image.client_metrics_configs("s") == {"metrics": "a.,b.", "interval.ms": "500"}
    described = describe(image, context, CLIENT_METRICS, "s", include_synonyms=True)
    assert [(each.name, each.value, each.config_source, len(each.synonyms)) for each in described.configs] == [
        ("interval.ms", "500", 7, 1),
        ("match", "", 5, 0),
        ("metrics", "a.,b.", 7, 1),
    ]
    for name, text in (("", "Subscription name can't be empty"), ("n" * 1025, "is longer than 1024 bytes.")):
        (answer,) = incremental(image, context, CLIENT_METRICS, name, ("metrics", SET, "a")).response.responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message.endswith(text)
    image = apply(
        image,
        incremental(
            image, context, CLIENT_METRICS, "s", ("metrics", DELETE, None), ("interval.ms", DELETE, None)
        ).records,
    )
    assert not image.configs


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_long_list_of_a_setting_is_changed_in_linear_time(operation: int) -> None:
    name, count = "follower.replication.throttled.replicas", 3_000
    old = {name: CountedText(",".join(f"{number}:1" for number in range(count)))}
    text = CountedText(",".join(f"{number}:1" for number in range(count // 2, 2 * count)))
    change = incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=text)
    CountedText.compared = 0
    new = altered(old, [change], ConfigResource(ConfigResourceType.TOPIC, "t"), BrokerConfig.parse({})[0])
    left = range(2 * count) if operation == APPEND else range(count // 2)
    assert new == {name: ",".join(f"{number}:1" for number in left)}
    assert CountedText.compared < 10 * count
