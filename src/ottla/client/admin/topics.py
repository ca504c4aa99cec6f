"""Topics: requests, and the service `Cluster.topics`.

The functions of the modules of this package make one exchange each, on a given connection. They do not retry, and raise
KafkaError with the broker's message. Kafka reports errors per resource in a response without an error code of its own.
Each function handles one resource (`delete_topics`: several) and raises its error. The services find the broker that a
request needs, and retry (`client.admin.router`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.client.admin.router import ClusterService, request_timeout_s
from ottla.client.wire import metadata_requests
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import TopicNotFound, raise_all, raise_for, response_error
from ottla.client.wire.model import TopicInfo
from ottla.common.errors import ErrorCode
from ottla.protocol.registry import ApiKey

if TYPE_CHECKING:
    from ottla.protocol.messages.create_partitions import CreatePartitionsResponse
    from ottla.protocol.messages.create_topics import CreateTopicsResponse
    from ottla.protocol.messages.delete_topics import DeleteTopicsResponse


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
    from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)
    response: CreateTopicsResponse = connection.request(
        ApiKey.CREATE_TOPICS, request, timeout_s=request_timeout_s(timeout_ms)
    )
    for result in response.topics:
        raise_for(result.error_code, f"topic {name!r}", result.error_message)


def delete_topics(connection: Connection, names: Sequence[str], timeout_ms: int) -> None:
    """DeleteTopics by name; the exception contains every topic that failed."""
    from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    if connection.version_for(ApiKey.DELETE_TOPICS) >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    response: DeleteTopicsResponse = connection.request(
        ApiKey.DELETE_TOPICS, request, timeout_s=request_timeout_s(timeout_ms)
    )
    failures = [
        response_error(result.error_code, f"topic {result.name!r}", result.error_message)
        for result in response.responses
        if result.error_code != ErrorCode.NONE
    ]
    raise_all(failures)


def create_partitions(connection: Connection, name: str, total_count: int, timeout_ms: int) -> None:
    """CreatePartitions: the new total of one topic."""
    from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    topic = CreatePartitionsTopic(name=name, count=total_count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)
    response: CreatePartitionsResponse = connection.request(
        ApiKey.CREATE_PARTITIONS, request, timeout_s=request_timeout_s(timeout_ms)
    )
    for result in response.results:
        raise_for(result.error_code, f"topic {name!r}", result.error_message)


class TopicService(ClusterService):
    """Topics of a cluster and their partitions."""

    def all(self) -> dict[str, TopicInfo]:
        """All topics of the cluster by name, sorted."""

        def attempt() -> dict[str, TopicInfo]:
            self._router.refresh(None)
            return {name: self._router.topics[name] for name in sorted(self._router.topics)}

        return self._router.retry(attempt)

    def get(self, name: str) -> TopicInfo:
        """One topic, never auto-created. Raises TopicNotFound."""

        def attempt() -> TopicInfo:
            self._router.refresh([name])
            return self._router.topics[name]

        try:
            return self._router.retry(attempt)
        except TopicNotFound as error:
            raise metadata_requests.topic_not_found(self._router.any_connection(), name) from error

    def operations(self, names: Sequence[str]) -> dict[str, frozenset[int]]:
        """The `AclOperation`s that this user may perform on topics, by name; without topics that the user may not
        describe."""
        if not names:
            return {}
        return self._router.retry(lambda: metadata_requests.topic_operations(self._router.any_connection(), names))

    def find(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """Those of these topics that exist, and that this user may see, by name."""

        def attempt() -> dict[str, TopicInfo]:
            for name in names:
                self._router.topics.pop(name, None)
            self._router.refresh(names, only_existing=True)
            return {name: self._router.topics[name] for name in names if name in self._router.topics}

        return self._router.retry(attempt)

    def forget(self) -> None:
        """Drop cached topic metadata, in case that topics were deleted and created again in the meantime."""
        self._router.topics.clear()

    def create(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Create a topic (-1: the broker's default) and wait until every partition has a leader.

        Raises KafkaError with the broker's message, for example TOPIC_ALREADY_EXISTS.
        """
        timeout_ms = self._router.timeout_ms()
        deadline = self._router.deadline()
        self._router.change(
            lambda connection: create_topic(
                connection,
                name,
                partitions,
                replication_factor,
                configs or {},
                timeout_ms,
                validate_only=validate_only,
            ),
            deadline=deadline,
        )
        if not validate_only:
            self._router.retry(lambda: self._require_leaders(name), deadline=deadline)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics; every one is tried. Raises KafkaError that lists each failed one."""
        timeout_ms = self._router.timeout_ms()
        self._router.change(lambda connection: delete_topics(connection, names, timeout_ms))
        for name in names:
            self._router.topics.pop(name, None)

    def create_partitions(self, name: str, total_count: int) -> None:
        """Increase the number of partitions to `total_count`, and wait until every partition has a leader."""
        timeout_ms = self._router.timeout_ms()
        deadline = self._router.deadline()
        self._router.change(
            lambda connection: create_partitions(connection, name, total_count, timeout_ms),
            deadline=deadline,
        )
        self._router.retry(lambda: self._require_leaders(name, total_count), deadline=deadline)

    def _require_leaders(self, topic: str, count: int = 1) -> None:
        self._router.topics.clear()
        try:
            self._router.refresh([topic])
        except TopicNotFound as error:  # not yet: this broker may lag behind the controller
            raise response_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r}") from error
        partitions = self._router.topics[topic].partitions
        if len(partitions) < count or any(partition.leader < 0 for partition in partitions):
            raise response_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r}")
