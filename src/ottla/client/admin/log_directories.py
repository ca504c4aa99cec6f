"""Data directories of brokers: requests, and the service `Cluster.log_directories`. See `client.admin.topics`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import error_words, raise_all, raise_for, response_error
from ottla.client.wire.model import LogDirectory
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.registry import ApiKey


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


def move_to_directory(connection: Connection, path: str, positions: Sequence[TopicPartition]) -> None:
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


class LogDirectoryService(ClusterService):
    """Data directories of the brokers and the replicas in them."""

    def all(self) -> list[LogDirectory]:
        """All data directories of the live brokers with the size of each replica, by broker and path."""
        return self._router.ask_brokers(log_directories, lambda each: (each.node_id, each.path))

    def without_replicas(self) -> list[LogDirectory]:
        """The same directories without replicas, whose list may be long."""
        return self._router.ask_brokers(
            lambda connection, node_id: log_directories(connection, node_id, {}), lambda each: (each.node_id, each.path)
        )

    def move(self, node_id: int, path: str, positions: Sequence[TopicPartition]) -> None:
        """Start moving replicas of a broker to another of its data directories; safe to repeat.

        Raises KafkaError that lists each rejected partition.
        """
        self._router.change(
            lambda connection: move_to_directory(connection, path, positions),
            to=lambda: self._router.connection(node_id),
        )

    def partition_sizes(self, topic: str) -> dict[int, int]:
        """Bytes on disk of each partition's leader; a partition without a leader is omitted."""
        return self.sizes_of([topic])[topic]

    def sizes_of(self, topics: Sequence[str]) -> dict[str, dict[int, int]]:
        """The same of several topics, with one request to each leader. Raises TopicNotFound, KafkaError."""

        def attempt() -> dict[str, dict[int, int]]:
            self._router.refresh(topics)
            by_leader: dict[int, dict[str, list[int]]] = {}
            for topic in topics:
                for partition in self._router.topics[topic].partitions:
                    if partition.is_led:
                        by_leader.setdefault(partition.leader, {}).setdefault(topic, []).append(partition.index)
            sizes: dict[str, dict[int, int]] = {topic: {} for topic in topics}
            for leader, wanted in by_leader.items():
                for directory in log_directories(self._router.connection(leader), leader, wanted):
                    for (topic, index), size in directory.sizes.items():
                        sizes[topic][index] = size
            return sizes

        return self._router.retry(attempt)
