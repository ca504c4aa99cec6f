"""All logs of a node, in one or several data directories (`log.dirs`, JBOD), each a `LogDirectory`.

A new log is created in the directory with the fewest logs, as in Apache Kafka. The metadata log is in one of them
(`metadata.log.dir`, the first by default) or in a separate directory without partitions.

Invariants:
- All directories belong to the same node of the same cluster, each under its own `directory.id`, and a partition is in
  one of them only. Otherwise the start is refused before a log changes. There are two exceptions: a move that a crash
  interrupted is completed first, and of two logs of a partition, one without records is removed
  (`duplicate_partitions`).
- One of several directories that is unusable at the start is offline from then on, and the others are served; the
  directory of the metadata log, if any, must be usable.
- If an incarnation may have lost records in one directory, it does not count as lossless.

The effects of a failed directory on partitions are in `replica.manager`, on the node in `server.broker`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ottla.common.errors import DataDirectoryError, ErrorCode, InvariantError, KafkaError, OperatorError
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import BlockingPool, Clock, Rng
from ottla.common.platform.disk import Disk
from ottla.storage.directory.duplicate_partitions import resolve_duplicates
from ottla.storage.directory.future_logs import FutureLogs
from ottla.storage.directory.log_directory import (
    DEFAULT_PRODUCER_EXPIRATION_MS,
    LogDefaults,
    LogDirectory,
)
from ottla.storage.files import log_dir_ids, names
from ottla.storage.files.cleaner_checkpoint import CleanerCheckpoints
from ottla.storage.files.descriptors import Descriptors
from ottla.storage.files.directories import reason_of, unformatted_metadata_directory
from ottla.storage.files.log_config import LogConfig
from ottla.storage.files.meta_properties import (
    QUORUM,
    ZOOKEEPER,
    MetaProperties,
    is_of_zookeeper,
    write_meta_properties,
)
from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)
DEFAULT_OPEN_FILES = 16_384
EVERY_DIRECTORY = "*"
"""Wildcard of `cordoned.log.dirs`."""


class LogManager:
    """Logs of one node. Owned by the loop's thread."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        data_dirs: Sequence[str],
        *,
        metadata_dir: str | None = None,
        has_metadata_log: bool = True,
        default_config: LogConfig | None = None,
        max_open_files: int = DEFAULT_OPEN_FILES,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        on_offline: Callable[[LogDirectory, OSError], None] = lambda directory, error: None,
    ) -> None:
        """`data_dirs` are absolute paths; `default_config` serves topics without overrides.

        Without `has_metadata_log` the metadata is in ZooKeeper only, and all directories are equal.

        `on_offline` is called once for each directory, on the loop, after an error that stops all appends to a log
        until a restart.
        """
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._defaults = LogDefaults(default_config or LogConfig(), producer_expiration_ms)
        self._descriptors = Descriptors(disk, max_open_files)

        def directory(path: str) -> LogDirectory:
            return LogDirectory(path, disk, clock, rng, self._descriptors, self._defaults, on_offline)

        self.directories = tuple(directory(path) for path in data_dirs)
        """Directories with partitions, in the order of the configuration."""
        self.futures = FutureLogs(self.directories, disk)
        """Copies that move from one directory to another."""
        apart = metadata_dir is not None and metadata_dir not in data_dirs
        self._all = (*self.directories, *([directory(metadata_dir)] if apart and metadata_dir is not None else []))
        metadata_path = metadata_dir or data_dirs[0]
        self.metadata_directory = (
            next(each for each in self._all if each.path == metadata_path) if has_metadata_log else None
        )
        self._meta: MetaProperties | None = None
        self.missing: list[str] = []
        """`directory.id` of former directories that are missing now."""
        self.cleaner_checkpoint = CleanerCheckpoints(
            [each.checkpoints.cleaner for each in self.directories],
            lambda key: self._checkpoint_holder(key).checkpoints.cleaner,
        )
        self.last_broker_epoch = -1
        """Broker epoch of the last incarnation if no directory lost anything; -1 if unknown (KIP-966)."""
        self._waiting_incarnation: Uuid | None = None

    # -- start and stop ------------------------------------------------------------------------------------------------

    def open(self, *, node_id: int, cluster_id: str | None = None, version: int = QUORUM) -> MetaProperties:
        """Create and lock the directories, read or write their `meta.properties`; see `meta_properties`.

        `version` is that of the file, by metadata store (`meta_properties`). A new directory next to others of the
        cluster is added. So is a ZooKeeper broker's directory that was missing when the others were migrated to the
        quorum. Raises OperatorError.
        """
        try:
            for directory in self._all:
                self._lock(directory)
            self._identify(node_id, cluster_id, version)
            self._know_siblings()
        except OperatorError:
            self._release()
            raise
        return self.meta_properties

    def _lock(self, directory: LogDirectory) -> None:
        try:
            directory.lock()
        except OSError as error:
            self._go_without(directory, error)

    def _go_without(self, directory: LogDirectory, error: OSError, doing: str = "opening") -> None:
        """Raises OperatorError for a directory that the node cannot serve without."""
        if self._is_needed(directory):
            raise DataDirectoryError(
                f"the data directory {directory.path} can't be used: {reason_of(error, directory.path)}; set "
                f"{self._setting(directory)} to a directory that the broker may read and write"
            ) from error
        directory.take_offline(error, doing)

    def _is_needed(self, directory: LogDirectory) -> bool:
        """Return whether the node cannot serve anything without it."""
        return directory is self.metadata_directory or all(
            each.health.offline is not None for each in self.directories if each is not directory
        )

    def _setting(self, directory: LogDirectory) -> str:
        return "log.dirs (--data-dir)" if directory in self.directories else "metadata.log.dir"

    def _identify(self, node_id: int, cluster_id: str | None, version: int) -> None:
        """Identify directories with an identity first: a new one joins the same cluster."""
        there = [each for each in self._all if each.health.offline is None]
        formatted = [each for each in there if self._is_formatted(each)]
        metadata = self.metadata_directory
        if version == QUORUM and metadata is not None and formatted and metadata not in formatted:
            raise unformatted_metadata_directory(metadata.path, formatted[0].path)
        found: dict[str, LogDirectory] = {}
        # The directory of the metadata log is first: the others must match it.
        for directory in sorted(there, key=lambda each: (each is not metadata, each not in formatted)):
            left = version == QUORUM and directory is not metadata and is_of_zookeeper(self._disk, directory.path)
            meta = directory.identify(node_id=node_id, cluster_id=cluster_id, version=ZOOKEEPER if left else version)
            if left:
                write_meta_properties(self._disk, directory.path, meta)
            cluster_id = meta.cluster_id
            self._meta = self._meta or meta
            other = found.setdefault(meta.directory_id, directory)
            if other is not directory:
                raise DataDirectoryError(
                    f"the data directories {other.path} and {directory.path} have the same directory.id "
                    f"{meta.directory_id}, so one is a copy of the other: take the copy out of log.dirs"
                )

    def _know_siblings(self) -> None:
        """Compare with the directories recorded earlier (`log_dir_ids`), and record all of them in each."""
        here = {each.meta.directory_id for each in self.directories if each.meta is not None}
        known: dict[LogDirectory, set[str]] = {}
        for directory in self._online():
            try:
                known[directory] = log_dir_ids.remembered(self._disk, directory.path)
            except OSError as error:
                self._go_without(directory, error)
        everything = here.union(*known.values())
        self.missing = sorted(everything - here)
        for directory, before in known.items():
            if len(everything) > 1 and before != everything:
                try:
                    log_dir_ids.remember(self._disk, directory.path, everything)
                except OSError as error:
                    logger.warning("%s can't record the ids of the other directories: %s", directory.path, error)
        if self.missing:
            logger.warning(
                "log directories that this broker used earlier failed or are not in log.dirs: %s (directory.id in "
                "meta.properties); restore them and restart; replicas that are only there stay offline until then",
                ", ".join(self.missing),
            )

    def become_quorums(self) -> None:
        """Finalize the migration from ZooKeeper in all directories. Raises OperatorError.

        The directory of the metadata log decides for all: the next start migrates those that a crash left behind.
        """
        for directory in sorted(self._all, key=lambda each: each is not self.metadata_directory):
            if directory.health.offline is None and directory.meta is not None:
                write_meta_properties(self._disk, directory.path, directory.meta)

    def _is_formatted(self, directory: LogDirectory) -> bool:
        try:
            return directory.is_formatted()
        except OSError as error:
            self._go_without(directory, error)
            return False

    def _release(self) -> None:
        for directory in self._all:
            directory.release()

    @property
    def meta_properties(self) -> MetaProperties:
        """Identity from the directory of the metadata log; without one, from the first usable directory."""
        if self._meta is None:
            raise InvariantError("the log manager was not opened")
        return self._meta

    def load_logs(self, config_of: Callable[[str], LogConfig] | None = None) -> int:
        """Open every partition directory, `config_of(topic)` giving its configuration; returns the number of logs.

        After an unclean stop this scans all records that were not durable. Raises OperatorError if a directory is
        unreadable, unless others are readable, and if a partition is in two of them.
        """
        if len(self.directories) > 1:
            resolve_duplicates(self._disk, self._rng, self._online())
        for directory in self._online():
            try:
                directory.load_logs(config_of)
            except OSError as error:
                self._go_without(directory, error, "opening its logs")
        epochs = {each.notes.running.broker_epoch if each.health.offline is None else -1 for each in self.directories}
        self.last_broker_epoch = epochs.pop() if len(epochs) == 1 else -1
        waiting = [
            each.notes.running.incarnation_id
            for each in self._online()
            if each.notes.running.incarnation_id is not None
        ]
        self._waiting_incarnation = waiting[0] if waiting else None
        return len(self)

    def _online(self) -> list[LogDirectory]:
        return [each for each in self.directories if each.health.offline is None]

    @property
    def had_clean_shutdown(self) -> bool:
        """Return whether the logs of all directories were closed durably before this start."""
        return all(each.notes.had_clean_shutdown for each in self.directories)

    @property
    def offline_directories(self) -> list[LogDirectory]:
        """Directories that failed, at the start or later."""
        return [each for each in self._all if each.health.offline is not None]

    def directory_ids(self) -> list[Uuid]:
        """Ids of the usable directories, for the cluster."""
        return [each.directory_id for each in self._online() if each.meta is not None]

    def offline_directory_ids(self) -> list[Uuid]:
        """Ids of the failed directories, as far as they are known."""
        return [
            each.directory_id for each in self.directories if each.health.offline is not None and each.meta is not None
        ]

    def begin_incarnation(self, incarnation_id: Uuid) -> Uuid:
        """Record and return the incarnation id for registration, so that a start knows it if the process ends before.

        Also used when a running broker registers again because its cluster forgot the last incarnation.

        It is the id that an earlier process recorded and did not use. If that one was registered meanwhile, a new id
        would count as a successor without knowledge of it, and so as one that may have lost records.
        """
        if self._waiting_incarnation is None:
            self._waiting_incarnation = incarnation_id
            for directory in self._online():
                directory.notes.note_waiting(incarnation_id)
        return self._waiting_incarnation

    def note_running(self, broker_epoch: int) -> None:
        """Record the running incarnation in each directory before its first append. Raises OperatorError."""
        for directory in self._online():
            directory.notes.note_running(broker_epoch)
        self.last_broker_epoch = broker_epoch
        self._waiting_incarnation = None

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Close all logs durably, write checkpoints and the clean markers, release the locks.

        `broker_epoch` of this incarnation goes into the markers; if it was never registered (-1), that of the one
        before, which has lost nothing since. No flush may be in flight.
        """
        epoch = self.last_broker_epoch if broker_epoch < 0 else broker_epoch
        for directory in self._all:
            if directory.health.is_served:
                directory.shutdown(epoch)
        self._release()

    # -- logs ----------------------------------------------------------------------------------------------------------

    def directory_of(self, key: TopicPartition) -> LogDirectory | None:
        """Directory of the partition's log; None without a log."""
        for directory in self.directories:
            if key in directory.logs:
                return directory
        return None

    def _checkpoint_holder(self, key: TopicPartition) -> LogDirectory:
        return self.directory_of(key) or self.directories[0]

    def get_log(self, topic: str, partition: int) -> Log | None:
        """Return the log of a partition, or None."""
        directory = self.directory_of((topic, partition))
        return None if directory is None else directory.logs[topic, partition]

    def cordon(self, paths: Sequence[str]) -> None:
        """Cordon these directories: new logs go to others; `*` means all (KIP-1066)."""
        for directory in self.directories:
            directory.is_cordoned = directory.path in paths or EVERY_DIRECTORY in paths
        unknown = sorted({*paths} - {each.path for each in self.directories} - {EVERY_DIRECTORY})
        if unknown:
            logger.warning("cordoned.log.dirs names %s, which is not in log.dirs", ", ".join(unknown))

    def cordoned_ids(self) -> list[Uuid]:
        """Ids of the usable cordoned directories, for the cluster."""
        return [each.directory_id for each in self._online() if each.meta is not None and each.is_cordoned]

    def use_producer_expiration(self, expiration_ms: int) -> None:
        """Set the expiration time of producers in all logs."""
        self._defaults.producer_expiration_ms = expiration_ms
        for log in self.all_logs():
            log.producer_expiration_ms = expiration_ms

    def use_transaction_verification(self, *, enabled: bool) -> None:
        """Set whether transactions in all logs begin only with a verification guard (KIP-890)."""
        self._defaults.verification_enabled = enabled
        for log in self.all_logs():
            log.producers.verification_enabled = enabled

    def logs(self) -> Iterator[Log]:
        """All logs, by directory and in order of opening."""
        return iter([log for directory in self.directories for log in directory.logs.values()])

    def all_logs(self) -> Iterator[Log]:
        """All logs, including copies that move to another directory."""
        return chain(self.logs(), self.futures.logs())

    def __len__(self) -> int:
        return sum(len(directory.logs) for directory in self.directories)

    @property
    def open_file_count(self) -> int:
        """Number of open descriptors of segments and indexes."""
        return len(self._descriptors)

    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None = None,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
        directory_id: Uuid = ZERO_UUID,
    ) -> Log:
        """Return the log of the partition, created if missing: in the directory with that id, if it is on this node.

        A log that is not new may be in an offline directory, and is not created while there is one.

        Raises KafkaError: INCONSISTENT_TOPIC_ID if it exists for another topic id, KAFKA_STORAGE_ERROR.
        """
        log = self.get_log(topic, partition)
        if log is None:
            log = self._make_log((topic, partition), topic_id, config, directory_id, is_new=is_new)
        elif config is not None and config != log.config:
            log.config = config
        if topic_id is not None and log.topic_id is None:
            log.assign_topic_id(topic_id)
        if topic_id is not None and log.topic_id != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.name} on disk belongs to another topic id")
        return log

    def _make_log(
        self,
        key: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig | None,
        directory_id: Uuid,
        *,
        is_new: bool,
    ) -> Log:
        """Create the log in the directory with the fewest logs that has space; ties follow the configured order.

        The requested directory comes first, and cordoned ones come last.
        """
        name = names.partition_dir(*key)
        take_target_dir = self.futures.take_target_dir(key)
        online = self._online()
        named = [each for each in online if each.meta is not None and each.directory_id == directory_id]
        if named:
            online = named
        elif not online or (not is_new and len(online) < len(self.directories)):
            refusals = "; ".join(each.health.refusal for each in self.directories if each.health.offline is not None)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"creating {name} failed: {refusals}")
        failure: OSError | None = None
        for directory in sorted(
            online, key=lambda each: (each.path != take_target_dir, each.is_cordoned, len(each.logs))
        ):
            try:
                return directory.create_log(key, config, topic_id)
            except OSError as error:
                failure = error
                if directory.health.offline is not None and not is_new:  # it may be there
                    break
        if failure is None:
            raise InvariantError("no directory was asked for a new log")
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"creating {name} failed: {failure.strerror or failure}"
        ) from failure

    def before_gaps(self, key: TopicPartition, end_offset: int) -> Callable[[], object] | None:
        """See `DirectoryCheckpoints`."""
        directory = self.directory_of(key)
        return None if directory is None else directory.checkpoints.before_gaps(key, end_offset)

    def delete_log(self, topic: str, partition: int) -> None:
        """Remove the log from use; its directory is renamed now and removed after `file.delete.delay.ms`.

        Reads in progress still get their bytes. Raises KafkaError KAFKA_STORAGE_ERROR; unknown logs are ignored.
        """
        self.futures.remove((topic, partition))
        directory = self.directory_of((topic, partition))
        if directory is not None:
            directory.delete_log(topic, partition)

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Take a log of a topic unknown to the cluster out of use without deleting it; returns the new directory name.

        The name ends with `-stray`, as Apache Kafka's. The broker never opens or removes it; `ottla log restore`
        restores it. Raises KafkaError.
        """
        directory = self.directory_of((topic, partition))
        return None if directory is None else directory.set_aside(topic, partition)

    def checkpointed_high_watermark(self, topic: str, partition: int) -> int | None:
        """High watermark of `replication-offset-checkpoint` at the start, the initial one of the replica."""
        directory = self.directory_of((topic, partition))
        return None if directory is None else directory.checkpoints.initial_high_watermark((topic, partition))

    # -- periodic steps: see the parts of `LogDirectory` --------------------------------------------------------------

    def _served(self) -> list[LogDirectory]:
        return [each for each in self.directories if each.health.is_served]

    def retention_steps(self) -> Iterator[int]:
        """Delete expired segments in steps: each yields the number of segments taken out of use."""
        now_ms = self._clock.time_ms()
        for directory in self._served():
            yield from directory.retention.steps(now_ms)

    def flush_due(self, pool: BlockingPool) -> int:
        """Start flushes of logs that need one or are past `flush.ms`; returns the number. Checkpoints follow."""
        return sum(directory.flushes.start(pool) for directory in self._served())
