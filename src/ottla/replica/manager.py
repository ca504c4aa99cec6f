"""All partitions of this broker, kept consistent with the metadata image.

The manager owns the set. `apply` is called with the changes of each published image; it creates and removes logs and
updates the leaders of partitions. A lookup for produce or fetch is two dictionary reads, by name or by id. A partition
starts with the high watermark of `replication-offset-checkpoint`, which the log manager reads and writes.

Logs are opened and removed over several ticks of the loop (`replica.opening`), with the state of the newest image.
Until then a partition returns NOT_LEADER_OR_FOLLOWER, which clients retry.

This broker serves the partitions that it leads. Followed partitions go to `replica.fetchers`; partitions with a replica
that moved away are removed. `replica.replica_repair` isolates and repairs damaged replicas; `replica.moves` copies a
replica to another directory. `replica.cluster` answers questions about the metadata, `replica.throttles` names
throttled replicas, and `replica.topic_log_configs` has the settings of logs. `replica.directory_reports` reports
directories of replicas to the controller; `replica.stray_logs` sets logs aside that belong to no replica.

Image contents and publication are in `metadata`; logs are in `storage`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import LOST_UUID, Uuid
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import BlockingPool, Clock, Scheduler, TimerHandle
from ottla.common.runbooks import DAMAGED_DATA
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.topic_names import TopicKey, unknown_topic
from ottla.replica.cluster import ClusterMetadata
from ottla.replica.directory_assignments import DirectoryAssignments
from ottla.replica.directory_reports import DirectoryReports, is_new
from ottla.replica.fetcher_context import FetcherContext, FetcherSettings
from ottla.replica.fetchers import ReplicaFetchers
from ottla.replica.isr_changes import IsrChanges
from ottla.replica.membership import Membership
from ottla.replica.moves import MovesContext, ReplicaMoves
from ottla.replica.opening import PartitionOpening
from ottla.replica.partition import HighWatermarkListener, LeaderContext, Partition, PartitionState
from ottla.replica.purgatory import Purgatory
from ottla.replica.read_replica import ReplicaSelector
from ottla.replica.replica_repair import RepairContext, ReplicaRepair
from ottla.replica.statistics import ReplicationStatistics
from ottla.replica.throttles import ReplicationThrottles
from ottla.replica.topic_log_configs import TopicLogConfigs, TopicProperties
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.damage import Damage
from ottla.storage.files.log_config import LogConfig

logger = logging.getLogger(__name__)


class ReplicationSettings(NamedTuple):
    """Broker settings of replication, with Kafka's defaults."""

    max_lag_s: float = 30.0
    listener_name: str = "PLAINTEXT"
    """Name of the brokers' inter-broker listeners (`inter.broker.listener.name`)."""
    fetcher: FetcherSettings = FetcherSettings()
    selector: ReplicaSelector | None = None
    """`replica.selector.class`; None lets consumers read from leaders only."""


class ReplicaManager:
    """Partitions of one broker."""

    __slots__ = (
        "_assignments",
        "_configs",
        "_directories",
        "_isr_changes",
        "_leader_context",
        "_listeners",
        "_logs",
        "_lost",
        "_node_id",
        "_pool",
        "_purgatory",
        "_scheduler",
        "_settings",
        "_shrinking",
        "_stopped",
        "_topics",
        "_unopened",
        "cluster",
        "fetchers",
        "inspected_topics",
        "moves",
        "opening",
        "repair",
        "statistics",
        "throttles",
    )

    def __init__(
        self,
        membership: Membership,
        logs: LogManager,
        purgatory: Purgatory,
        topic_properties: TopicProperties,
        *,
        clock: Clock,
        scheduler: Scheduler,
        pool: BlockingPool,
        settings: ReplicationSettings,
        statistics: ReplicationStatistics,
        assignments: DirectoryAssignments,
    ) -> None:
        self._node_id = membership.node_id
        self._logs = logs
        self._assignments = assignments
        self._purgatory = purgatory
        self._pool = pool
        self._scheduler = scheduler
        self.cluster = cluster = ClusterMetadata(membership, settings.listener_name, settings.selector)
        self.throttles = ReplicationThrottles(cluster)
        self._configs = TopicLogConfigs(topic_properties)
        self.inspected_topics = self._configs.inspected_topics
        self._directories = DirectoryReports(cluster, logs, assignments)
        self.opening = PartitionOpening(
            clock,
            scheduler,
            open_log=self._open,
            remove_log=self._remove_log,
            finished=self._configs.forget_newest,
        )
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        """Partitions of each topic by its name and by its id: both keys share one dictionary."""
        self._listeners: dict[str, HighWatermarkListener] = {}
        self._unopened: dict[tuple[Uuid, int], str | None] = {}
        """Partitions of this broker with a log that failed to open, in the order of the attempts."""
        self._lost: dict[tuple[Uuid, int], None] = {}
        """Partitions with a directory that failed while this broker ran."""
        self._stopped = False
        self._settings = settings
        self._shrinking: TimerHandle | None = None
        self.statistics = statistics
        self._isr_changes = IsrChanges(membership, scheduler, statistics)
        self.repair = ReplicaRepair(self._repair_context(membership))
        self.moves = ReplicaMoves(self._moves_context(clock))
        self._leader_context = LeaderContext(
            clock.monotonic,
            settings.max_lag_s,
            cluster.may_join_isr,
            cluster.is_alive,
            self._isr_changes.propose,
            self.repair.suspect,
        )
        self.fetchers = ReplicaFetchers(
            FetcherContext(
                membership=membership,
                scheduler=scheduler,
                monotonic=clock.monotonic,
                quota=self.throttles.follower,
                throttled=self.throttles.applies_as_follower,
                settings=settings.fetcher,
                committed_truncations=statistics.committed_truncations,
            ),
            cluster.address_of,
        )

    # --- lookup ----------------------------------------------------------------------------------------------------

    def find(self, topic: TopicKey, index: int) -> Partition:
        """Return the partition by topic name or id. Raises KafkaError if this broker does not have it."""
        partitions = self._topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        raise self._missing(topic, index)

    def _missing(self, topic: TopicKey, index: int) -> KafkaError:
        known = self.cluster.image.find(topic)
        if known is None:
            return KafkaError(unknown_topic(topic))
        partition = known.partitions.get(index)
        if partition is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (known.topic_id, index) in self._unopened:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def log_config(self, topic: TopicKey, index: int) -> LogConfig | None:
        """Return the settings of a log of this broker, or None."""
        partition = self._topics.get(topic, {}).get(index)
        return None if partition is None else partition.log.config

    def partitions(self) -> Iterator[Partition]:
        """Iterate over all partitions of this broker, by topic in order of creation and by number."""
        for topic, partitions in self._topics.items():
            if isinstance(topic, str):
                yield from partitions.values()

    def partition_count(self) -> int:
        """Return the number of partitions of this broker."""
        return sum(len(partitions) for topic, partitions in self._topics.items() if isinstance(topic, str))

    def listen(self, topic: str, listener: HighWatermarkListener) -> None:
        """Call `listener` for every rise of a high watermark in the topic of that name, also for later partitions."""
        self._listeners[topic] = listener
        for partition in self._topics.get(topic, {}).values():
            partition.high_watermark_listener = listener

    # --- roles -----------------------------------------------------------------------------------------------------

    def _shrink_isrs(self) -> None:
        """Check ISRs twice in `replica.lag.time.max.ms`, as long as a partition with other replicas exists."""
        self._shrinking = None
        if self._stopped:
            return
        replicated = False
        for partition in self.partitions():
            if partition.leadership is not None:
                replicated = True
                partition.maybe_shrink_isr()
        if replicated:
            self._watch_isrs()

    def _watch_isrs(self) -> None:
        if self._shrinking is None and not self._stopped:
            self._shrinking = self._scheduler.call_later(self._settings.max_lag_s / 2, self._shrink_isrs)

    def _place(self, partition: Partition) -> None:
        """Lead the partition, or fetch it from its leader, by its new state, unless it is damaged."""
        if self.repair.holds(partition):
            self.fetchers.forget((partition.topic_id, partition.index))
            self.repair.advance(partition)
        else:
            self.fetchers.follow(partition)
        if partition.leadership is not None:
            self._watch_isrs()

    # --- damage ----------------------------------------------------------------------------------------------------

    def report_damage(self, damage: Damage) -> None:
        """Pass damage in a log of this broker on to its repair; the log may be removed by now."""
        topic, index = damage.partition
        partition = self._topics.get(topic, {}).get(index)
        if partition is not None:
            self.repair.found(partition, damage)

    def _repair_context(self, membership: Membership) -> RepairContext:
        return RepairContext(
            node_id=membership.node_id,
            peers=membership.peers,
            pool=self._pool,
            scheduler=self._scheduler,
            address_of=self.cluster.address_of,
            alive=self.cluster.is_alive,
            logs=self._logs,
            report_lost=self._directories.report_lost,
            report_undamaged=self._directories.report_undamaged,
            place=self._place,
        )

    def _moves_context(self, clock: Clock) -> MovesContext:
        return MovesContext(
            logs=self._logs,
            pool=self._pool,
            scheduler=self._scheduler,
            monotonic=clock.monotonic,
            quota=self.throttles.moves,
            held=self.repair.holds,
            known_directory=self.cluster.known_directory,
            report=self._directories.report_moved,
        )

    def _check_opened(self, partition: Partition, directory_id: Uuid) -> None:
        """Check a newly opened log for damage before it may follow a leader."""
        log = partition.log
        if directory_id == LOST_UUID:
            self.repair.scan_all(partition)
        unrepaired_damage, log.unrepaired_damage = log.unrepaired_damage, ()
        for doubt in unrepaired_damage:
            self.repair.found(partition, doubt)
        if log.leader_epoch > partition.leader_epoch:
            first = next(start for epoch, start in log.epochs.entries() if epoch > partition.leader_epoch)
            segment = log.segments.holding(first)[0]
            reason = f"it contains leader epoch {log.leader_epoch}, above the current one"
            damage = Damage(
                (partition.topic, partition.index), segment.base_offset, first, log.log_end_offset - 1, reason
            )
            logger.error("%s is damaged, its %s. See %s.", segment.data.path, damage, DAMAGED_DATA)
            log.epochs.truncate_from_end(first)  # the next leader's entry would not be added
            self.repair.found(partition, damage)

    # --- metadata --------------------------------------------------------------------------------------------------

    def apply(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Apply one metadata update; the first one contains everything.

        New partitions may open only after the return: see `PartitionOpening.when_opened`.
        """
        brokers_changed = image.brokers is not self.cluster.image.brokers
        self.cluster.image = image
        for topic in changes.deleted_topics:
            self._remove(topic)
        if changes.renumbered:
            self._assignments.forget()
            for partition in self.partitions():
                partition.renumber()
        for topic, index in changes.changed_partitions:
            self._update(topic, index)
        if changes.renumbered:
            for partition in self.partitions():
                if not self.repair.holds(partition):
                    self._directories.report_undamaged(partition)
        for resource in changes.changed_configs:
            if resource.type == resource.type.TOPIC:
                self._reconfigure(image, resource.name)
            else:
                self.throttles.use_rates(image)
        if brokers_changed:
            self.fetchers.addresses_changed()
        self.opening.start()

    def stop(self) -> None:
        """Open no more logs: the next start opens the rest."""
        self._stopped = True
        self.repair.stop()
        self.moves.stop()
        self.opening.stop_adding()
        self.fetchers.close()
        self._isr_changes.stop()
        self._assignments.stop()
        if self._shrinking is not None:
            self._shrinking.cancel()
        self.opening.release_all()

    def use_topic_properties(self, topic_properties: TopicProperties) -> None:
        """Apply changed broker settings, which are the defaults of topics."""
        self._configs.use_topic_properties(topic_properties)
        image = self.cluster.image
        for topic in image.topics:
            self._reconfigure(image, topic)

    def _reconfigure(self, image: MetadataImage, topic: str) -> None:
        partitions = self._topics.get(topic)
        if partitions:
            config = self._configs.read(image, topic)
            for partition in partitions.values():
                partition.log.config = config
            self._configs.note_inspection(image.topics[topic], config)

    def _update(self, topic: TopicImage, index: int) -> None:
        state = topic.partitions[index]
        partition = self._topics.get(topic.topic_id, {}).get(index)
        if self._node_id not in state.replicas:
            self.opening.forget((topic.topic_id, index))
            self._unopened.pop((topic.topic_id, index), None)
            if partition is not None:
                del self._topics[topic.topic_id][index]
                self.repair.forget((topic.topic_id, index))
                self.moves.forget((topic.topic_id, index))
                self._remove_log(partition)
        elif partition is not None:
            partition.update_state(_partition_state(state))
            self._place(partition)
            self.moves.wake((topic.topic_id, index))
            if state.directory_of(self._node_id) == LOST_UUID and not self.repair.holds(partition):
                self._directories.report_undamaged(partition)  # it was repaired before the metadata recorded the damage
        else:
            self.opening.add((topic.topic_id, index))

    def _open(self, key: tuple[Uuid, int]) -> None:
        """Open one partition of this broker, with the state and the settings of the newest image."""
        topic_id, index = key
        topic = self.cluster.image.topic_by_id(topic_id)
        if topic is None or self._node_id not in topic.partitions[index].replicas:
            return
        partition = self._create(topic, index)
        if partition is None:
            return
        partitions = self._topics.get(topic.topic_id)
        if partitions is None:
            partitions = {}
            self._topics[topic.name] = self._topics[topic.topic_id] = partitions
        partitions[index] = partition
        state = topic.partitions[index]
        partition.update_state(_partition_state(state))
        self._check_opened(partition, state.directory_of(self._node_id))
        self._place(partition)
        self.moves.resume(partition)

    def _create(self, topic: TopicImage, index: int) -> Partition | None:
        config = self._configs.read_once(self.cluster.image, topic)
        state = topic.partitions[index]
        directory_id = state.directory_of(self._node_id)
        try:
            self._directories.refuse_to_forget(topic, index)
            log = self._logs.create_log(
                topic.name,
                index,
                topic.topic_id,
                config,
                is_new=is_new(state) and (topic.topic_id, index) not in self._lost,
                directory_id=directory_id,
            )
        except KafkaError as error:
            key, reason = (topic.topic_id, index), str(error)
            if self._unopened.get(key) != reason:
                logger.error(
                    "%s-%d: the log can't be opened, the partition is offline: %s",
                    topic.name,
                    index,
                    reason,
                    extra=RATE_LIMITED,
                )
            self._unopened[key] = reason
            self._directories.report_offline(topic.topic_id, index, directory_id)
            return None
        self._unopened.pop((topic.topic_id, index), None)
        if directory_id != LOST_UUID:  # which is scanned first
            self._directories.report(topic, index, directory_id)
        self._configs.note_inspection(topic, config)
        high_watermark = self._logs.checkpointed_high_watermark(topic.name, index) or 0
        partition = Partition(
            topic.name,
            index,
            topic.topic_id,
            log,
            self._node_id,
            self._purgatory,
            self._pool,
            high_watermark,
            self._leader_context,
        )
        partition.high_watermark_listener = self._listeners.get(topic.name)
        return partition

    def give_up(self, directory: LogDirectory) -> None:
        """Give up the partitions of a failed directory: answer waiting requests, and let other brokers lead."""
        self.moves.directory_failed(directory)
        for topic_name, index in list(directory.logs):
            partitions = self._topics.get(topic_name, {})
            partition = partitions.pop(index, None)
            if partition is None:
                continue
            key = (partition.topic_id, index)
            self._lost[key] = self._unopened[key] = None
            self._directories.report_failed(*key)
            self.repair.forget(key)
            self.fetchers.forget(key)
            partition.mark_offline()
            partition.stop()

    def open_missing(self) -> None:
        """Retry logs that failed to open: a full disk may have space by now. Called periodically."""
        for topic_id, index in list(self._unopened):
            topic = self.cluster.image.topic_by_id(topic_id)
            if topic is None:
                del self._unopened[topic_id, index]
            else:
                self._update(topic, index)
        self.opening.start()

    def _remove(self, topic: TopicImage) -> None:
        for index in topic.partitions:
            self.opening.forget((topic.topic_id, index))
            self._lost.pop((topic.topic_id, index), None)
        partitions = self._topics.pop(topic.topic_id, None)
        if partitions is None:
            return
        if self._topics.get(topic.name) is partitions:
            del self._topics[topic.name]
            self.inspected_topics.pop(topic.name, None)
        self.inspected_topics.pop(topic.topic_id, None)
        for index in partitions:
            self.repair.forget((topic.topic_id, index))
            self.moves.forget((topic.topic_id, index))
        self.opening.remove_later(partitions.values())

    def _remove_log(self, partition: Partition) -> None:
        """Remove the partition: the topic is deleted, or the replica moved to another broker."""
        self.fetchers.forget((partition.topic_id, partition.index))
        partition.stop()
        try:
            self._logs.delete_log(partition.topic, partition.index)
        except KafkaError as error:
            logger.error("%s", error)


def _partition_state(image: PartitionImage) -> PartitionState:
    return PartitionState(image.leader, image.leader_epoch, image.partition_epoch, image.replicas, image.isr)
