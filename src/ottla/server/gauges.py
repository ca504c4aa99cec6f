"""What the broker shows of its state, read when metrics are rendered; names as on Kafka's dashboards."""

from __future__ import annotations

from ottla.metadata.image import NO_LEADER
from ottla.metrics.registry import MetricsRegistry
from ottla.server.context import BrokerContext
from ottla.storage.log_manager import LogManager


def register_gauges(registry: MetricsRegistry, context: BrokerContext, logs: LogManager) -> None:
    """Make the gauges of one broker. Each read is cheap; those over partitions are linear in their number."""
    replicas = context.replicas
    registry.gauge(
        "kafka_server_replicamanager_partitioncount",
        "Partitions on this broker.",
        read=lambda: sum(1 for _ in replicas.partitions()),
    )
    registry.gauge(
        "kafka_server_replicamanager_leadercount",
        "Partitions that this broker leads.",
        read=lambda: sum(partition.is_leader for partition in replicas.partitions()),
    )
    registry.gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here with fewer in-sync replicas than replicas.",
        read=lambda: sum(
            partition.is_leader and len(partition.state.isr) < len(partition.state.replicas)
            for partition in replicas.partitions()
        ),
    )
    registry.gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas on this broker whose disk failed.",
        read=lambda: sum(partition.offline or partition.log.failed for partition in replicas.partitions()),
    )
    _register_controller_gauges(registry, context)
    registry.gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait: fetches for records, produces for acknowledgement.",
        read=lambda: len(context.purgatory),
    )
    registry.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions.",
        read=lambda: len(context.sessions),
    )
    registry.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions in fetch sessions.",
        read=context.sessions.partition_count,
    )
    registry.gauge(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
        "Fetch sessions that gave way to others.",
        read=lambda: context.sessions.evictions,
    )
    registry.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed.",
        read=lambda: int(logs.offline is not None),
    )
    registry.gauge("ottla_storage_open_files", "Open segment and index files.", read=lambda: logs.open_file_count)
    registry.gauge(
        "ottla_server_defects", "Unexpected errors that were contained.", read=lambda: context.failures.count
    )


def _register_controller_gauges(registry: MetricsRegistry, context: BrokerContext) -> None:
    registry.gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 where the active controller is.",
        read=lambda: int(context.controller.active),
    )
    registry.gauge(
        "kafka_controller_kafkacontroller_activebrokercount",
        "Brokers that are not fenced, as the active controller sees them.",
        read=lambda: int(context.controller.active) * sum(not item.fenced for item in context.image.brokers.values()),
    )
    registry.gauge(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        "Brokers that are registered and fenced, as the active controller sees them.",
        read=lambda: int(context.controller.active) * sum(item.fenced for item in context.image.brokers.values()),
    )
    registry.gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions without a leader, as the active controller sees them.",
        read=lambda: int(context.controller.active) * _offline_partitions(context),
    )
    registry.gauge(
        "kafka_controller_kafkacontroller_globaltopiccount", "Topics.", read=lambda: len(context.image.topics)
    )
    registry.gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "Partitions of all topics.",
        read=lambda: float(context.image.partition_count()),
    )


def _offline_partitions(context: BrokerContext) -> int:
    topics = context.image.topics.values()
    return sum(partition.leader == NO_LEADER for topic in topics for partition in topic.partitions.values())
