"""IncrementalAlterConfigs, AlterConfigs and DescribeConfigs, for topics, brokers, groups and client metrics.

Checks, codes and messages are those of Apache Kafka 4.x in KRaft mode. Kafka splits them between broker (dynamic
settings of this broker) and controller (the rest); here they are one step. A resource changes as a whole or not at all;
an invalid resource does not affect the others.

Left out: loggers as resources; they are rejected by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from ottla.common.config.broker_configs import BrokerConfig, validate_dynamic
from ottla.common.config.client_metrics_configs import describe_client_metrics, validate_client_metrics
from ottla.common.config.config_def import ConfigEntry, ConfigKey, ConfigResourceType, ConfigType, render
from ottla.common.config.config_keys_bounds import MAX_CLIENT_METRICS, MAX_GROUP_CONFIGS
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.group_configs import GROUP_CONFIGS
from ottla.common.config.lockouts import check_reachable
from ottla.common.config.topic_configs import TOPIC_CONFIGS, validate_topic_configs
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.replication import cleared_elr
from ottla.controller.result import MIN_ISR, ControllerContext, ControllerResult, check_record_count, elr_enabled
from ottla.metadata.bounds import check_count, check_name, check_settings
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metadata.topic_names import validate_topic_name
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.metadata_records import ConfigRecord

R = TypeVar("R", IncrementalAlterConfigsResponse, AlterConfigsResponse)


class ConfigOperation(IntEnum):
    """Operations of IncrementalAlterConfigs on one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# -- altering ----------------------------------------------------------------------------------------------------------


def handle_incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, context: ControllerContext
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    """Change single settings; `validate_only` returns the same results without records."""

    def change(
        item: incremental_alter_configs.AlterConfigsResource, resource: ConfigResource, old: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        _check_operations(item.configs)
        return altered(old, item.configs, resource, context.config), [config.name for config in item.configs]

    new_result = incremental_alter_configs.AlterConfigsResourceResponse
    return _alter_each(image, request, context, IncrementalAlterConfigsResponse(), new_result, change)


def handle_alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, context: ControllerContext
) -> ControllerResult[AlterConfigsResponse]:
    """Replace all settings of the resources; settings that are not named return to their defaults."""

    def change(
        item: alter_configs.AlterConfigsResource, resource: ConfigResource, old: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        _check_distinct(config.name for config in item.configs)
        _check_no_nulls([config.name for config in item.configs if config.value is None])
        new = {config.name: config.value for config in item.configs if config.value is not None}
        return new, [*new, *old]

    new_result = alter_configs.AlterConfigsResourceResponse
    return _alter_each(image, request, context, AlterConfigsResponse(), new_result, change)


def _alter_each(
    image: MetadataImage,
    request: Any,
    context: ControllerContext,
    response: R,
    new_result: Callable[..., Any],
    change: Callable[[Any, ConfigResource, Mapping[str, str]], tuple[Mapping[str, str], Sequence[str]]],
) -> ControllerResult[R]:
    """Alter each resource; `change` returns its new settings and the names of those to compare."""
    records: list[ApiMessageAndVersion] = []
    results: list[Any] = response.responses
    counts = Counter((item.resource_type, item.resource_name) for item in request.resources)
    added: set[ConfigResource] = set()
    for item in request.resources:
        result = new_result(resource_type=item.resource_type, resource_name=item.resource_name)
        try:
            if counts[(item.resource_type, item.resource_name)] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            resource = _alterable_resource(image, item.resource_type, item.resource_name, context)
            old = image.configs.get(resource, {})
            new, names = change(item, resource, old)
            check_settings(old, new)
            if resource.type in _COUNTED and not old and new and resource not in added:
                _check_resource_count(image, resource.type, added, context)
                added.add(resource)
            new_records = _change_records(image, resource, old, new, names, context)
            check_record_count(len(records) + len(new_records))
            records += new_records
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerResult([] if request.validate_only else records, response)


_COUNTED: Mapping[ConfigResourceType, tuple[str, str]] = {
    ConfigResourceType.CLIENT_METRICS: (MAX_CLIENT_METRICS, "client metrics subscriptions"),
    ConfigResourceType.GROUP: (MAX_GROUP_CONFIGS, "groups with settings"),
}
"""Resources that exist by their settings: the setting with their maximum number, and their noun."""


def _check_resource_count(
    image: MetadataImage, kind: ConfigResourceType, added: set[ConfigResource], context: ControllerContext
) -> None:
    """Raise KafkaError POLICY_VIOLATION when one more resource with settings exceeds the limit of its type."""
    setting, things = _COUNTED[kind]
    count = sum(resource.type is kind for each in (image.configs, added) for resource in each)
    check_count(count, context.config.get_int(setting), things, setting)


def _alterable_resource(
    image: MetadataImage, resource_type: int, name: str, context: ControllerContext
) -> ConfigResource:
    if resource_type == ConfigResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        validate_topic_name(name)
        return ConfigResource(ConfigResourceType.TOPIC, name)
    if resource_type == ConfigResourceType.BROKER:
        if name and name not in map(str, image.brokers):
            _check_broker_name(name, context.config.node_id, allow_default=False)
        return ConfigResource(ConfigResourceType.BROKER, name)
    if resource_type == ConfigResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        check_name(name, "group id")
        return ConfigResource(ConfigResourceType.GROUP, name)
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        check_name(name, "name of a client metrics subscription")
        return ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _check_broker_name(name: str, node_id: int, *, allow_default: bool) -> None:
    if not re.fullmatch("[+-]?[0-9]{1,10}", name):
        role = "Broker" if allow_default else "Node"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{role} id must be an integer, but it is: {name}")
    if int(name) != node_id:
        expected = f"{node_id} or empty string" if allow_default else str(node_id)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {name}")


def _check_distinct(names: Iterable[str]) -> None:
    if any(count > 1 for count in Counter(names).values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _check_no_nulls(names: Sequence[str]) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(names)}")


def _check_operations(configs: Sequence[AlterableConfig]) -> None:
    _check_distinct(config.name for config in configs)
    _check_no_nulls(
        [
            config.name
            for config in configs
            if config.value is None and config.config_operation != ConfigOperation.DELETE
        ]
    )
    for config in configs:
        if config.config_operation not in ConfigOperation.__members__.values():
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation} for {config.name}"
            )


_TABLES: Mapping[ConfigResourceType, Mapping[str, ConfigKey]] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    ConfigResourceType.BROKER: BROKER_CONFIGS,
    ConfigResourceType.GROUP: GROUP_CONFIGS,
    # Apache Kafka refuses APPEND and SUBTRACT for client metrics.
    ConfigResourceType.CLIENT_METRICS: {},
}


def altered(
    old: Mapping[str, str], configs: Iterable[AlterableConfig], resource: ConfigResource, broker: BrokerConfig
) -> dict[str, str]:
    """Return the settings of a resource after `configs` are applied to `old`. Raises KafkaError."""
    new = dict(old)
    for config in configs:
        _apply_operation(new, config, resource, broker)
    return new


def _apply_operation(
    values: dict[str, str], config: AlterableConfig, resource: ConfigResource, broker: BrokerConfig
) -> None:
    operation = ConfigOperation(config.config_operation)
    if operation is ConfigOperation.DELETE:
        values.pop(config.name, None)
        return
    text = config.value or ""
    if operation is not ConfigOperation.SET:
        key = _TABLES[resource.type].get(config.name)
        if key is None or key.type is not ConfigType.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {operation.name} to key {config.name} because its type is not LIST.",
            )
        current = values.get(config.name)
        if current is None:
            current = _default_text(config.name, resource, broker)
        parts = [part for part in current.split(",") if part]
        named = [part.strip() for part in text.split(",")]
        text = ",".join(_appended(parts, named) if operation is ConfigOperation.APPEND else _subtracted(parts, named))
    values[config.name] = text


def _appended(parts: list[str], named: list[str]) -> list[str]:
    present = set(parts)
    return parts + [part for part in dict.fromkeys(named) if part not in present]


def _subtracted(parts: list[str], named: list[str]) -> list[str]:
    """Each name removes one equal part."""
    left = Counter(named)
    kept = []
    for part in parts:
        if left[part]:
            left[part] -= 1
        else:
            kept.append(part)
    return kept


def _default_text(name: str, resource: ConfigResource, broker: BrokerConfig) -> str:
    if resource.type is ConfigResourceType.TOPIC:
        return render(broker.topic_defaults[name]) or ""
    return render(BROKER_CONFIGS[name].default) or ""


def _change_records(
    image: MetadataImage,
    resource: ConfigResource,
    old: Mapping[str, str],
    new: Mapping[str, str],
    named: Sequence[str],
    context: ControllerContext,
) -> list[ApiMessageAndVersion]:
    """Return records for the settings of `named` that differ, after validating the new settings as a whole.

    Broker settings are always written: a keystore of the same name is read again (KAFKA-14136).
    """
    if resource.type is ConfigResourceType.TOPIC:
        validate_topic_configs(new, context.config.topic_defaults)
        if resource.name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    elif resource.type is ConfigResourceType.GROUP:
        context.config.validate_group(new)
    elif resource.type is ConfigResourceType.CLIENT_METRICS:
        validate_client_metrics(resource.name, new)
    else:
        # Existing values were valid when they were written; obsolete settings must stay removable.
        changes = {name: text for name, text in new.items() if old.get(name) != text}
        validate_dynamic(changes, cluster_default=not resource.name)
        check_reachable([name for name in {**old, **new} if old.get(name) != new.get(name)], new)
        if elr_enabled(image) and MIN_ISR in named:
            _check_min_isr(resource, new)
    of_broker = resource.type is ConfigResourceType.BROKER
    changed = [name for name in dict.fromkeys(named) if old.get(name) != new.get(name) or (of_broker and name in new)]
    records = [
        versioned(
            ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=new.get(name))
        )
        for name in changed
    ]
    if MIN_ISR in changed:
        only_one = resource.type is ConfigResourceType.TOPIC
        records += cleared_elr(image, [image.topics[resource.name]] if only_one else list(image.topics.values()))
    return records


def _check_min_isr(resource: ConfigResource, new: Mapping[str, str]) -> None:
    """Eligible leader replicas require one minimum for the whole cluster; see `features.elr_safety_records`."""
    if resource.name:
        text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    elif MIN_ISR not in new:
        text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    else:
        return
    raise KafkaError(ErrorCode.INVALID_CONFIG, text)


# -- describing --------------------------------------------------------------------------------------------------------


def handle_describe_configs(
    image: MetadataImage, request: DescribeConfigsRequest, config: BrokerConfig
) -> DescribeConfigsResponse:
    """Describe settings, with their sources, of topics and of the broker with this `config` (KIP-226, KIP-569)."""
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            entries = _describe(image, resource, config)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            wanted = resource.configuration_keys
            # An empty list selects all, like null: old clients send it.
            names = frozenset(wanted) if wanted else None
            result.error_message = ""
            result.configs = [_described(entry, request) for entry in entries if names is None or entry.name in names]
        response.results.append(result)
    return response


def _describe(image: MetadataImage, resource: DescribeConfigsResource, config: BrokerConfig) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        validate_topic_name(name)
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return config.describe_topic(image.topic_configs(name))
    if resource.resource_type == ConfigResourceType.BROKER:
        if not name:
            return config.describe_cluster_default()
        _check_broker_name(name, config.node_id, allow_default=True)
        return config.describe()
    if resource.resource_type == ConfigResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return config.describe_group(image.group_configs(name))
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(image.client_metrics_configs(name))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(name=item.name, value=item.value, source=item.source) for item in synonyms],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
