"""`Admin`: topics, configs and groups of a cluster.

    with Admin("localhost:9092") as admin:
        admin.create_topic("views", partitions=6, configs={"retention.ms": 86_400_000})

Built on Ottla's own client; a change is never sent twice if the outcome of the first attempt is unknown. Thread-safe:
calls are serialized. Results are immutable values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.api.settings import Config
from ottla.api.tool_client import ToolClient
from ottla.client.wire.model import (
    ClusterInfo,
    CommittedOffset,
    ConfigEntry,
    ConfigOperation,
    GroupDescription,
    GroupListing,
    ResourceType,
    TopicInfo,
)
from ottla.common.config.properties import value_text
from ottla.common.kafka.topic_partition import TopicPartition


class Admin(ToolClient):
    """See the module. A context manager that closes its connections. Every method raises KafkaError."""

    what = "admin client"

    def __init__(self, bootstrap_servers: str, config: Config | None = None) -> None:
        """Connects later. Raises KafkaError INVALID_CONFIG."""
        super().__init__(bootstrap_servers, config)

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic and wait until every partition has a leader; None selects the broker's default.

        Errors include TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION and INVALID_CONFIG.
        """
        with self._asking() as cluster:
            cluster.topics.create(
                name,
                -1 if partitions is None else partitions,
                -1 if replication_factor is None else replication_factor,
                {key: "" if value is None else value_text(value) for key, value in (configs or {}).items()},
                validate_only=validate_only,
            )

    def delete_topics(self, names: str | Iterable[str]) -> None:
        """Delete one topic or several; every one is tried, and the error lists each failure."""
        with self._asking() as cluster:
            cluster.topics.delete([names] if isinstance(names, str) else list(names))

    def topics(self) -> dict[str, TopicInfo]:
        """All topics by name."""
        with self._asking() as cluster:
            return cluster.topics.all()

    def topic(self, name: str) -> TopicInfo:
        """One topic: its id, partitions, leaders, replicas. UNKNOWN_TOPIC_OR_PARTITION."""
        with self._asking() as cluster:
            return cluster.topics.get(name)

    def create_partitions(self, name: str, total_count: int) -> None:
        """Increase the number of partitions of a topic. INVALID_PARTITIONS for a number that is not larger."""
        with self._asking() as cluster:
            cluster.topics.create_partitions(name, total_count)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below these offsets (-1: all committed ones); returns the new log start offsets."""
        with self._asking() as cluster:
            return cluster.records.delete(offsets)

    # Configs

    def topic_configs(self, name: str) -> dict[str, ConfigEntry]:
        """The configs of a topic by name, with their sources."""
        return self._configs(ResourceType.TOPIC, name)

    def broker_configs(self, node_id: int | None = None) -> dict[str, ConfigEntry]:
        """The configs of a broker, or with None the cluster-wide broker defaults."""
        return self._configs(ResourceType.BROKER, "" if node_id is None else str(node_id))

    def alter_topic_configs(self, name: str, changes: Mapping[str, object | None]) -> None:
        """Set these configs and leave the others unchanged; None resets one to its default. All or none."""
        self._alter(ResourceType.TOPIC, name, changes)

    def alter_broker_configs(self, node_id: int | None, changes: Mapping[str, object | None]) -> None:
        """The same for a broker, or with None for all brokers of the cluster."""
        self._alter(ResourceType.BROKER, "" if node_id is None else str(node_id), changes)

    def _configs(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        with self._asking() as cluster:
            return {entry.name: entry for entry in cluster.configs.describe(kind, name)}

    def _alter(self, kind: ResourceType, name: str, changes: Mapping[str, object | None]) -> None:
        with self._asking() as cluster:
            cluster.configs.alter(
                kind,
                name,
                [
                    (key, ConfigOperation.DELETE, "")
                    if value is None
                    else (key, ConfigOperation.SET, value_text(value))
                    for key, value in changes.items()
                ],
            )

    # Groups

    def groups(self) -> list[GroupListing]:
        """All groups, sorted by id."""
        with self._asking() as cluster:
            return cluster.groups.find()

    def group(self, group_id: str) -> GroupDescription:
        """State, members and their assignments. GROUP_ID_NOT_FOUND."""
        with self._asking() as cluster:
            return cluster.groups.describe(group_id)

    def group_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All committed offsets of a group; empty for one that does not exist."""
        with self._asking() as cluster:
            return cluster.groups.offsets(group_id)

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets of a group without members. UNKNOWN_MEMBER_ID while it has members."""
        with self._asking() as cluster:
            cluster.groups.commit_offsets(group_id, offsets)

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets. GROUP_SUBSCRIBED_TO_TOPIC, GROUP_ID_NOT_FOUND."""
        with self._asking() as cluster:
            cluster.groups.delete_offsets(group_id, partitions)

    def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets. NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        with self._asking() as cluster:
            cluster.groups.delete(group_id)

    # The cluster

    def cluster(self) -> ClusterInfo:
        """Cluster id, controller and live brokers."""
        with self._asking() as cluster:
            return cluster.describe()
