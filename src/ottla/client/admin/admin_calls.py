"""Cluster administration requests: one exchange each, on a given connection.

They do not retry, and raise KafkaError with the broker's message. Kafka reports errors per resource in a response
without an error code of its own. Each function handles one resource (`delete_topics`: several) and raises its error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import error_words, raise_all, raise_for, response_error
from ottla.client.wire.model import (
    CONFIG_SOURCES,
    ConfigEntry,
    ConfigOperation,
    LogDirectory,
    Position,
    ResourceType,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import by_topic
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey

DEFAULT_CONFIG_SOURCE = 5


def create_topic(
    connection: Connection,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    timeout_ms: int,
    *,
    validate_only: bool,
) -> None:
    """CreateTopics for one topic; -1 selects the broker's default for count and factor (KIP-464)."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)
    response: CreateTopicsResponse = connection.request(
        ApiKey.CREATE_TOPICS, request, timeout_s=_request_timeout_s(timeout_ms)
    )
    for result in response.topics:
        raise_for(result.error_code, f"topic {name!r}", result.error_message)


def delete_topics(connection: Connection, names: Sequence[str], timeout_ms: int) -> None:
    """DeleteTopics by name; the exception contains every topic that failed."""
    if connection.version_for(ApiKey.DELETE_TOPICS) >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    response: DeleteTopicsResponse = connection.request(
        ApiKey.DELETE_TOPICS, request, timeout_s=_request_timeout_s(timeout_ms)
    )
    failures = [
        response_error(result.error_code, f"topic {result.name!r}", result.error_message)
        for result in response.responses
        if result.error_code != ErrorCode.NONE
    ]
    raise_all(failures)


def create_partitions(connection: Connection, name: str, total_count: int, timeout_ms: int) -> None:
    """CreatePartitions: the new total of one topic."""
    topic = CreatePartitionsTopic(name=name, count=total_count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)
    response: CreatePartitionsResponse = connection.request(
        ApiKey.CREATE_PARTITIONS, request, timeout_s=_request_timeout_s(timeout_ms)
    )
    for result in response.results:
        raise_for(result.error_code, f"topic {name!r}", result.error_message)


def describe_configs(
    connection: Connection, resource_type: ResourceType, name: str, keys: Sequence[str] | None
) -> list[ConfigEntry]:
    """DescribeConfigs of one resource, sorted by name."""
    resource = DescribeConfigsResource(
        resource_type=int(resource_type),
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=True)
    response: DescribeConfigsResponse = connection.request(ApiKey.DESCRIBE_CONFIGS, request)
    entries: list[ConfigEntry] = []
    for result in response.results:
        raise_for(result.error_code, _resource_words(resource_type, name), result.error_message)
        entries.extend(
            ConfigEntry(
                config.name,
                config.value,
                CONFIG_SOURCES.get(config.config_source, "unknown"),
                config.config_source == DEFAULT_CONFIG_SOURCE,
                config.read_only,
                config.is_sensitive,
                config.documentation,
            )
            for config in result.configs
        )
    return sorted(entries, key=lambda entry: entry.name)


def alter_configs(
    connection: Connection,
    resource_type: ResourceType,
    name: str,
    changes: Sequence[tuple[str, ConfigOperation, str | None]],
    *,
    validate_only: bool,
) -> None:
    """IncrementalAlterConfigs of one resource (KIP-339)."""
    resource = AlterConfigsResource(
        resource_type=int(resource_type),
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=int(operation), value=value) for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response: IncrementalAlterConfigsResponse = connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    for result in response.responses:
        raise_for(result.error_code, _resource_words(resource_type, name), result.error_message)


def log_directories(
    connection: Connection, node_id: int, topics: Mapping[str, Sequence[int]] | None = None
) -> list[LogDirectory]:
    """DescribeLogDirs: the directories of the connected broker `node_id`, with all replicas or some."""
    described = None
    if topics is not None:
        described = [DescribableLogDirTopic(topic=name, partitions=list(found)) for name, found in topics.items()]
    response: DescribeLogDirsResponse = connection.request(
        ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=described)
    )
    raise_for(response.error_code, f"log directories of {connection.address}")
    return [
        LogDirectory(
            node_id,
            result.log_dir,
            error_words(result.error_code) if result.error_code else None,
            None if result.total_bytes < 0 else result.total_bytes,
            None if result.usable_bytes < 0 else result.usable_bytes,
            {
                (topic.name, partition.partition_index): partition.partition_size
                for topic in result.topics
                for partition in topic.partitions
                if not partition.is_future_key
            },
        )
        for result in response.results
    ]


def move_to_directory(connection: Connection, path: str, positions: Sequence[Position]) -> None:
    """AlterReplicaLogDirs: start moving replicas of the connected broker to another of its directories.

    Raises KafkaError that lists each rejected partition.
    """
    topics = [AlterReplicaLogDirTopic(name=name, partitions=found) for name, found in by_topic(positions).items()]
    response: AlterReplicaLogDirsResponse = connection.request(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]),
    )
    failures = [
        response_error(item.error_code, f"{topic.topic_name}-{item.partition_index}")
        for topic in response.results
        for item in topic.partitions
        if item.error_code
    ]
    raise_all(failures)


_UNDELETED: Mapping[int, str] = {
    ErrorCode.POLICY_VIOLATION: "records are deleted only where cleanup.policy has delete in it: add it for as long as "
    "that takes",
}
"""Reasons for records that were not deleted: the response has no messages."""


def delete_records(connection: Connection, offsets: Mapping[Position, int], timeout_ms: int) -> dict[Position, int]:
    """DeleteRecords below these offsets (-1: the high watermark), for partitions that this broker leads.

    Returns the new log start offsets. Raises KafkaError that lists each failed partition.
    """
    wanted: dict[str, list[DeleteRecordsPartition]] = {}
    for (name, index), offset in offsets.items():
        wanted.setdefault(name, []).append(DeleteRecordsPartition(partition_index=index, offset=offset))
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=found) for name, found in wanted.items()],
        timeout_ms=timeout_ms,
    )
    response: DeleteRecordsResponse = connection.request(
        ApiKey.DELETE_RECORDS, request, timeout_s=_request_timeout_s(timeout_ms)
    )
    starts: dict[Position, int] = {}
    failures: list[KafkaError] = []
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code:
                why, place = _UNDELETED.get(result.error_code), f"{topic.name}-{result.partition_index}"
                failures.append(response_error(result.error_code, place, why))
            starts[topic.name, result.partition_index] = result.low_watermark
    raise_all(failures)
    return starts


def _resource_words(resource_type: ResourceType, name: str) -> str:
    return f"configs of {resource_type.name.lower()} {name!r}"


def _request_timeout_s(timeout_ms: int) -> float:
    """Longer than the broker's timeout, so that the broker responds with the reason."""
    return timeout_ms / 1000 + 5.0
