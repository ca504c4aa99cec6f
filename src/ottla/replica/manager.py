"""All partitions of this broker, kept consistent with the metadata image.

The manager owns the set. `apply` is called with the changes of each published image; it creates and removes logs and
updates the leaders of partitions. A lookup for produce or fetch is two dictionary reads, by name or by id. A partition
starts with the high watermark of `replication-offset-checkpoint`, which the log manager reads and writes.

Opening a log creates files, so a metadata update with many partitions is processed over several ticks of the loop, in
the order of the metadata and with the state of the newest image. Until then a partition returns
NOT_LEADER_OR_FOLLOWER, which clients retry; the creator of a topic waits with `when_opened`. Partitions of deleted
topics are removed the same way, before others are opened, which may have the same names.

This broker serves the partitions that it leads. Followed partitions go to `replica.fetchers`; partitions with a replica
that moved away are removed. `replica.replica_repair` isolates and repairs damaged replicas; `replica.moves` copies a
replica to another directory.

Image contents and publication are in `metadata`; logs are in `storage`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.common.config.feature_levels import DIRECTORY_ASSIGNMENT
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import LOST_UUID, OFFLINE_UUID, ZERO_UUID, Uuid, uuid_to_string
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import BlockingPool, Clock, Scheduler, TimerHandle
from ottla.common.platform.peer import Address
from ottla.common.runbooks import DAMAGED_DATA, STRAY_PARTITIONS
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage, metadata_level
from ottla.metadata.topic_names import TopicKey, unknown_topic
from ottla.replica.directory_assignments import DirectoryAssignments
from ottla.replica.fetcher import FetcherContext, FetcherSettings
from ottla.replica.fetchers import ReplicaFetchers
from ottla.replica.isr_changes import IsrChanges
from ottla.replica.leadership import IsrChange
from ottla.replica.membership import Membership
from ottla.replica.moves import MovesContext, ReplicaMoves
from ottla.replica.partition import HighWatermarkListener, LeaderContext, Partition, PartitionState
from ottla.replica.purgatory import Purgatory
from ottla.replica.read_replica import NO_REPLICA, Candidate, ReplicaSelector
from ottla.replica.replica_repair import RepairContext, ReplicaRepair
from ottla.replica.statistics import ReplicationStatistics
from ottla.replica.throttle import UNLIMITED, ReplicationQuota, names_replica
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.damage import Damage
from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.append_rules import inspects

logger = logging.getLogger(__name__)

OPENING_SLICE_S = 0.005
"""Time that one tick of the loop may spend on removing and opening logs, except for the last of them."""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_THROTTLED = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"

TopicProperties = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns a topic's effective settings for its overrides (`BrokerConfig.topic_properties`)."""


class ReplicationSettings(NamedTuple):
    """Broker settings of replication, with Kafka's defaults."""

    max_lag_s: float = 30.0
    listener_name: str = "PLAINTEXT"
    """Addresses of the brokers' inter-broker listeners (`inter.broker.listener.name`)."""
    fetcher: FetcherSettings = FetcherSettings()
    selector: ReplicaSelector | None = None
    """`replica.selector.class`; None lets consumers read from leaders only."""


class ReplicaManager:
    """Partitions of one broker."""

    __slots__ = (
        "_assignments",
        "_clock",
        "_fetchers",
        "_image",
        "_isr_changes",
        "_leader_context",
        "_listeners",
        "_logs",
        "_lost",
        "_names_directories",
        "_node_id",
        "_opening",
        "_opening_config",
        "_opening_number",
        "_opening_scheduled",
        "_opening_waiters",
        "_pool",
        "_purgatory",
        "_removing",
        "_scheduler",
        "_settings",
        "_shrinking",
        "_stopped",
        "_topic_properties",
        "_topics",
        "_unopened",
        "follower_quota",
        "inspected_topics",
        "leader_quota",
        "moves",
        "repair",
        "statistics",
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
        node_id = self._node_id = membership.node_id
        self._names_directories = membership.names_directories
        self._logs = logs
        self._assignments = assignments
        self._purgatory = purgatory
        self._pool = pool
        self._clock = clock
        self._scheduler = scheduler
        self._topic_properties = topic_properties
        self._image = MetadataImage()
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        """Partitions of each topic by its name and by its id: both keys share one dictionary."""
        self._listeners: dict[str, HighWatermarkListener] = {}
        self._unopened: dict[tuple[Uuid, int], str | None] = {}
        """Partitions of this broker with a log that failed to open, in the order of the attempts."""
        self._lost: dict[tuple[Uuid, int], None] = {}
        """Partitions with a directory that failed while this broker ran."""
        self._opening: OrderedDict[tuple[Uuid, int], int] = OrderedDict()
        """Partitions of this broker with a log that is still to be opened, by rising number. The first entry is removed
        again and again, which in a dict would scan all removed entries each time.
        """
        self._opening_number = 0
        self._opening_scheduled = False
        self._opening_waiters: deque[tuple[int, Callable[[], None]]] = deque()
        """Callbacks that wait until all partitions below a number are open."""
        self._opening_config: tuple[MetadataImage, Uuid, LogConfig] | None = None
        self._removing: deque[Partition] = deque()
        """Partitions of deleted topics with logs that are still to be removed."""
        self._stopped = False
        self._settings = settings
        self._shrinking: TimerHandle | None = None
        self.leader_quota = ReplicationQuota()
        self.follower_quota = ReplicationQuota()
        self.statistics = statistics
        self._isr_changes = IsrChanges(membership, scheduler, statistics)
        self.repair = ReplicaRepair(self._repair_context(membership))
        self.moves = ReplicaMoves(self._moves_context())
        self._leader_context = LeaderContext(
            clock.monotonic, settings.max_lag_s, self._eligible, self._alive, self._propose, self.repair.suspect
        )
        self._fetchers = ReplicaFetchers(
            FetcherContext(
                membership=membership,
                scheduler=scheduler,
                monotonic=clock.monotonic,
                quota=self.follower_quota,
                throttled=lambda partition: self._throttled(partition, FOLLOWER_THROTTLED, node_id),
                settings=settings.fetcher,
                committed_truncations=statistics.committed_truncations,
            ),
            self.address_of,
        )
        self.inspected_topics: dict[TopicKey, None] = {}
        """Topics, by name and by id, with settings that may make an append decompress or compress."""

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
        known = self._image.find(topic)
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

    def listen(self, topic: str, listener: HighWatermarkListener) -> None:
        """Call `listener` for every rise of a high watermark in the topic of that name, also for later partitions."""
        self._listeners[topic] = listener
        for partition in self._topics.get(topic, {}).values():
            partition.high_watermark_listener = listener

    # --- the cluster around this broker ----------------------------------------------------------------------------

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the broker epoch in the metadata."""
        broker = self._image.brokers.get(broker_id)
        return None if broker is None else broker.broker_epoch

    def _eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a broker may join an ISR: not fenced, not shutting down, same incarnation (KIP-841,
        KIP-903).
        """
        broker = self._image.brokers.get(broker_id)
        return broker is not None and broker.active and broker.broker_epoch == broker_epoch

    def _alive(self, broker_id: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def address_of(self, broker_id: int) -> Address | None:
        """Address of a broker's inter-broker listener in the metadata."""
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._settings.listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _propose(self, partition: Partition, change: IsrChange) -> None:
        self._isr_changes.propose(partition, change)

    def throttled_as_leader(self, partition: Partition, replica_id: int) -> bool:
        """Return whether bytes sent to a follower count as throttled replication (KIP-73)."""
        return self.leader_quota.limited and self._throttled(partition, LEADER_THROTTLED, replica_id)

    def _throttled(self, partition: Partition, setting: str, replica_id: int) -> bool:
        text = self._image.topic_configs(partition.topic).get(setting)
        return text is not None and names_replica(text, partition.index, replica_id)

    def _follow_rates(self, image: MetadataImage) -> None:
        own, default = image.broker_configs(self._node_id), image.default_broker_configs()
        for quota, name in (
            (self.leader_quota, LEADER_RATE),
            (self.follower_quota, FOLLOWER_RATE),
            (self.moves.quota, MOVE_RATE),
        ):
            quota.bytes_per_s = int(own.get(name) or default.get(name) or UNLIMITED)

    def preferred_read_replica(self, partition: Partition, rack: str, fetch_offset: int) -> int:
        """Return the preferred replica of a consumer in `rack` (KIP-392); -1 for this one."""
        selector, leadership = self._settings.selector, partition.leadership
        if selector is None or leadership is None or not rack:
            return NO_REPLICA
        brokers = self._image.brokers
        candidates = [
            Candidate(follower.replica_id, broker.rack, follower.log_end_offset, follower.last_caught_up_s)
            for follower in leadership.followers.values()
            if (broker := brokers.get(follower.replica_id)) is not None
            and not broker.fenced
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and follower.log_start_offset >= 0
        ]
        own = brokers.get(self._node_id)
        return selector(rack, None if own is None else own.rack, candidates)

    def max_follower_lag(self) -> int:
        """Maximum number of records that a followed partition lags behind its leader's last known high watermark."""
        return self._fetchers.max_lag()

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
            self._fetchers.forget((partition.topic_id, partition.index))
            self.repair.advance(partition)
        else:
            self._fetchers.follow(partition)
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
        assignments = self._assignments
        return RepairContext(
            node_id=membership.node_id,
            peers=membership.peers,
            pool=self._pool,
            scheduler=self._scheduler,
            address_of=self.address_of,
            alive=self._alive,
            logs=self._logs,
            report_lost=lambda partition: assignments.report(partition.topic_id, partition.index, LOST_UUID),
            report_whole=self._report_whole,
            place=self._place,
        )

    def _moves_context(self) -> MovesContext:
        assignments = self._assignments
        return MovesContext(
            logs=self._logs,
            pool=self._pool,
            scheduler=self._scheduler,
            monotonic=self._clock.monotonic,
            held=self.repair.holds,
            known_directory=self._known_directory,
            report=lambda partition, there: assignments.report(partition.topic_id, partition.index, there),
        )

    def _known_directory(self, partition: Partition) -> Uuid | None:
        """Directory of the replica in the metadata; None if the metadata does not contain directories."""
        topic = self._image.topic_by_id(partition.topic_id)
        named = self._names_directories() and metadata_level(self._image) >= DIRECTORY_ASSIGNMENT
        if topic is None or not named:
            return None
        return topic.partitions[partition.index].directory_of(self._node_id)

    def _report_whole(self, partition: Partition) -> None:
        topic = self._image.topic_by_id(partition.topic_id)
        if topic is not None and partition.index in topic.partitions:
            known = topic.partitions[partition.index].directory_of(self._node_id)
            self._report_directory(topic, partition.index, known)

    def _check_opened(self, partition: Partition, directory_id: Uuid) -> None:
        """Check a newly opened log for damage before it may follow a leader."""
        log = partition.log
        if directory_id == LOST_UUID:
            self.repair.look_through(partition)
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
            logger.error("%s is damaged, its %s. See %s.", segment.path, damage, DAMAGED_DATA)
            log.epochs.truncate_from_end(first)  # the next leader's entry would not be added
            self.repair.found(partition, damage)

    # --- metadata --------------------------------------------------------------------------------------------------

    def quarantine_stray_logs(self, image: MetadataImage) -> None:
        """Rename logs that do not belong to this broker: of topics unknown to the cluster (a deletion that a crash
        interrupted, or foreign data), and of replicas that moved to other brokers while this one was down.

        They would conflict with a new topic of that name. They are not removed, since only the operator can decide
        that. A log with a topic id one character off is this broker's own log with a damaged id, which is corrected.
        """
        for log in self._logs.all_logs():
            topic = image.topic(log.topic)
            partition = None if topic is None else topic.partitions.get(log.partition)
            if topic is not None and log.topic_id is not None and _is_flipped(log.topic_id, topic.topic_id):
                found, right = uuid_to_string(log.topic_id), uuid_to_string(topic.topic_id)
                logger.warning("%s: partition.metadata had topic id %s, corrected to %s", log.name, found, right)
                try:
                    log.assign_topic_id(topic.topic_id)
                except KafkaError as error:
                    logger.error("%s", error)
                    continue
            if topic is None or partition is None or log.topic_id not in (None, topic.topic_id):
                reason = "belongs to no topic of this cluster"
            elif self._node_id not in partition.replicas:
                reason = "has its replicas on other brokers now"
            else:
                continue
            try:
                key = (log.topic, log.partition)
                is_copy = log is self._logs.futures.get(key)
                directory = self._logs.futures.set_aside(key) if is_copy else self._logs.set_aside(*key)
            except KafkaError as error:
                logger.error("%s", error)
                continue
            logger.warning("%s %s; its data was moved to %s. See %s.", log.name, reason, directory, STRAY_PARTITIONS)

    def apply(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Apply one metadata update; the first one contains everything.

        New partitions may open only after the return: see `when_opened`.
        """
        brokers_changed = image.brokers is not self._image.brokers
        self._image = image
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
                    self._report_whole(partition)
        for resource in changes.changed_configs:
            if resource.type == resource.type.TOPIC:
                self._reconfigure(image, resource.name)
            else:
                self._follow_rates(image)
        if brokers_changed:
            self._fetchers.addresses_changed()
        self._open_waiting()

    def when_opened(self, done: Callable[[], None]) -> None:
        """Call `done` once all partitions of the metadata so far are open or have failed to open."""
        if self._opening:
            self._opening_waiters.append((self._opening_number, done))
        else:
            done()

    def stop(self) -> None:
        """Open no more logs: the next start opens the rest. Waiting callbacks run, since the metadata is committed.

        Pending removals run now: a later start would take those logs for data without a topic, and not remove them.
        """
        self._stopped = True
        self.repair.stop()
        self.moves.stop()
        while self._removing:
            self._remove_log(self._removing.popleft())
        self._fetchers.close()
        self._isr_changes.stop()
        self._assignments.stop()
        if self._shrinking is not None:
            self._shrinking.cancel()
        self._opening.clear()
        self._release_waiters()

    def use_topic_properties(self, topic_properties: TopicProperties) -> None:
        """Apply changed broker settings, which are the defaults of topics."""
        self._topic_properties = topic_properties
        self._opening_config = None
        for topic in self._image.topics:
            self._reconfigure(self._image, topic)

    def _reconfigure(self, image: MetadataImage, topic: str) -> None:
        partitions = self._topics.get(topic)
        if partitions:
            config = self._log_config(image, topic)
            for partition in partitions.values():
                partition.log.config = config
            self._note_inspection(image.topics[topic], config)

    def _note_inspection(self, topic: TopicImage, config: LogConfig) -> None:
        for key in (topic.name, topic.topic_id):
            if inspects(config):
                self.inspected_topics[key] = None
            else:
                self.inspected_topics.pop(key, None)

    def _log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        return LogConfig.from_properties(self._topic_properties(image.topic_configs(topic)))

    def _update(self, topic: TopicImage, index: int) -> None:
        state = topic.partitions[index]
        partition = self._topics.get(topic.topic_id, {}).get(index)
        if self._node_id not in state.replicas:
            self._opening.pop((topic.topic_id, index), None)
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
                self._report_whole(partition)  # it was repaired before the metadata recorded the damage
        elif not self._stopped and (topic.topic_id, index) not in self._opening:
            self._opening[topic.topic_id, index] = self._opening_number
            self._opening_number += 1

    def _open_waiting(self) -> None:
        if (self._removing or self._opening) and not self._opening_scheduled:
            self._open_some()

    def _open_some(self) -> None:
        """Remove and open logs for one time slice, and continue in the next tick of the loop."""
        self._opening_scheduled = False
        until = self._clock.monotonic() + OPENING_SLICE_S
        while self._removing or self._opening:
            if self._removing:
                self._remove_log(self._removing.popleft())
            else:
                self._open_next()
            if self._clock.monotonic() >= until:
                break
        if self._removing or self._opening:
            self._opening_scheduled = True
            self._scheduler.call_soon(self._open_some)
        else:
            self._opening_config = None
        self._release_waiters()

    def _open_next(self) -> None:
        key = next(iter(self._opening))
        topic = self._image.topic_by_id(key[0])
        if topic is not None and self._node_id in topic.partitions[key[1]].replicas:
            self._open(topic, key[1])
        del self._opening[key]

    def _release_waiters(self) -> None:
        waiters = self._opening_waiters
        while waiters and (not self._opening or next(iter(self._opening.values())) >= waiters[0][0]):
            waiters.popleft()[1]()

    def _open(self, topic: TopicImage, index: int) -> None:
        """Open one partition, with the state and the settings of the newest image."""
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
        config = self._config_to_open(topic)
        state = topic.partitions[index]
        directory_id = state.directory_of(self._node_id)
        try:
            self._refuse_to_forget(topic, index)
            log = self._logs.create_log(
                topic.name,
                index,
                topic.topic_id,
                config,
                is_new=_is_new(state) and (topic.topic_id, index) not in self._lost,
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
            self._report_offline(topic.topic_id, index, directory_id)
            return None
        self._unopened.pop((topic.topic_id, index), None)
        if directory_id != LOST_UUID:  # which is scanned first
            self._report_directory(topic, index, directory_id)
        self._note_inspection(topic, config)
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

    def _report_directory(self, topic: TopicImage, index: int, known: Uuid) -> None:
        """Report the directory of the replica to the controller, unless it is known or the only possible one."""
        here = self._logs.directory_of((topic.name, index))
        is_named = self._names_directories()
        if known == ZERO_UUID and (len(self._logs.directories) == 1 or not is_named):
            return
        if here is not None and here.directory_id != known:
            self._assignments.report(topic.topic_id, index, here.directory_id if is_named else ZERO_UUID)

    def _report_offline(self, topic_id: Uuid, index: int, known: Uuid) -> None:
        """Report a replica in a failed directory that the controller cannot derive from the directory's id.

        A quorum that migrated the replica from ZooKeeper does not know its directory yet.
        """
        is_unreported = known == ZERO_UUID if self._names_directories() else known != OFFLINE_UUID
        if (self._logs.offline_directories or self._logs.missing) and is_unreported:
            self._assignments.report(topic_id, index, OFFLINE_UUID)

    def _refuse_to_forget(self, topic: TopicImage, index: int) -> None:
        """Raise KafkaError if this broker's replica is in a directory that is not available.

        A new log would be empty, while the metadata counts on the records of the replica.
        """
        state, node_id = topic.partitions[index], self._node_id
        directory_id = state.directory_of(node_id)
        trusted = node_id in (*state.isr, *state.eligible_leader_replicas, *state.last_known_elr)
        if not trusted or self._logs.get_log(topic.name, index) is not None:
            return
        copy = self._logs.futures.get((topic.name, index))
        if copy is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"only {copy.directory} is available, a copy that may lack records: restore the data directory of the "
                "moved replica and restart the node, or delete the topic",
            )
        unknown = (ZERO_UUID,) if self._names_directories() else (ZERO_UUID, OFFLINE_UUID)
        if directory_id not in (*unknown, *self._logs.directory_ids()):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"it is in the data directory with directory.id {uuid_to_string(directory_id)}, which failed or is not "
                "in log.dirs: restore that directory and restart the node, or delete the topic",
            )
        if self._logs.missing and not _is_new(state):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "it may be in an earlier data directory of this broker that failed or is not in log.dirs "
                f"(directory.id {', '.join(self._logs.missing)}): restore that directory and restart the node, "
                "or delete the topic",
            )

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
            known = self._image.topics_by_id[partition.topic_id].partitions[index].directory_of(self._node_id)
            self._report_offline(*key, known if self._names_directories() else ZERO_UUID)
            self.repair.forget(key)
            self._fetchers.forget(key)
            partition.mark_offline()
            partition.stop()

    def _config_to_open(self, topic: TopicImage) -> LogConfig:
        """Return the settings of a topic, read once for all of its partitions."""
        cached = self._opening_config
        if cached is not None and cached[0] is self._image and cached[1] == topic.topic_id:
            return cached[2]
        config = self._log_config(self._image, topic.name)
        self._opening_config = (self._image, topic.topic_id, config)
        return config

    def open_missing(self) -> None:
        """Retry logs that failed to open: a full disk may have space by now. Called periodically."""
        for topic_id, index in list(self._unopened):
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                del self._unopened[topic_id, index]
            else:
                self._update(topic, index)
        self._open_waiting()

    def _remove(self, topic: TopicImage) -> None:
        for index in topic.partitions:
            self._opening.pop((topic.topic_id, index), None)
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
        self._removing.extend(partitions.values())

    def _remove_log(self, partition: Partition) -> None:
        """Remove the partition: the topic is deleted, or the replica moved to another broker."""
        self._fetchers.forget((partition.topic_id, partition.index))
        partition.stop()
        try:
            self._logs.delete_log(partition.topic, partition.index)
        except KafkaError as error:
            logger.error("%s", error)


def _is_flipped(found: Uuid, topic_id: Uuid) -> bool:
    """Return whether two ids differ by one character in `partition.metadata`: random ids are never that similar."""
    pairs = zip(uuid_to_string(found), uuid_to_string(topic_id), strict=True)
    return sum(one != other for one, other in pairs) == 1


def _is_new(image: PartitionImage) -> bool:
    """Return whether the partition is new: any earlier broker session that used it would have changed its state.

    In ZooKeeper a partition without a leader has no state znode, and its epoch would be the version of that znode.
    """
    return image.partition_epoch <= 0 and image.leader_epoch == 0


def _partition_state(image: PartitionImage) -> PartitionState:
    return PartitionState(image.leader, image.leader_epoch, image.partition_epoch, image.replicas, image.isr)
