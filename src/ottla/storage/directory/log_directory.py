"""Logs of one data directory: lock, identity, opening, creation and deletion.

Periodic work is offered as steps of its parts (`retention`, `flushes`, `checkpoints`, `deleted`) that the server
schedules through `log_manager`; nothing here starts a timer.

Invariants:
- The directory is locked from `lock` to `shutdown`, and belongs to one node of one cluster (`meta.properties`).
- The clean marker `.kafka_cleanshutdown` confirms that every log was closed durably: it is removed before the first of
  them is opened and written after the last one was closed. The metadata log, opened earlier, is checked at each start.

Disk errors are in `directory_health`, offsets on disk in `directory_checkpoints`. The placement of new partitions is in
`log_manager`. The metadata log is in one of the directories, and the quorum opens it before the topics are known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ottla.common.errors import DataDirectoryError, ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import Uuid, uuid_from_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import Clock, Rng
from ottla.common.platform.disk import Disk, FileLock
from ottla.common.runbooks import DISK_FULL
from ottla.storage.directory.deleted_files import DeletedFiles
from ottla.storage.directory.directory_checkpoints import DirectoryCheckpoints, StoredOffsets
from ottla.storage.directory.directory_health import DirectoryHealth
from ottla.storage.directory.directory_retention import DirectoryRetention
from ottla.storage.directory.due_flushes import DueFlushes
from ottla.storage.directory.held_logs import HeldLogs
from ottla.storage.directory.incarnation_notes import IncarnationNotes
from ottla.storage.directory.log_events import DirectoryEvents
from ottla.storage.files import meta_properties, names
from ottla.storage.files.checkpoints import NO_GAPS_ABOVE, format_partition_metadata, write_unsynced
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.files.directories import make_durably, partition_directories, reason_of
from ottla.storage.files.log_config import MAX_LONG, LogConfig
from ottla.storage.files.meta_properties import MetaProperties
from ottla.storage.log.log import Log
from ottla.storage.recovery.loader import LoadOptions, load_log

logger = logging.getLogger(__name__)
DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000


@dataclass(slots=True)
class LogDefaults:
    """Settings common to all logs of a node; shared by its directories, and changed at run time."""

    config: LogConfig
    """Settings of topics without overrides."""
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    verification_enabled: bool = True


class LogDirectory:
    """Logs of one directory. Owned by the loop's thread."""

    def __init__(
        self,
        path: str,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        descriptors: Descriptors,
        defaults: LogDefaults,
        on_offline: Callable[[LogDirectory, OSError], None],
    ) -> None:
        """`path` is absolute; `descriptors` and `defaults` are those of the node.

        `on_offline` is called once, on the loop, after an error that stops all appends to a log until a restart.
        """
        self.path = path
        self.defaults = defaults
        self.meta: MetaProperties | None = None
        """Identity of the directory, once it is read."""
        self._directory_id: Uuid | None = None
        self.is_cordoned = False
        """Whether the directory is cordoned: new logs are placed in another one, if available (KIP-1066)."""
        self._disk = disk
        self._rng = rng
        self._clock = clock
        self._descriptors = descriptors
        self._lock: FileLock | None = None
        self._held = held = HeldLogs()
        self.logs = held.logs
        """In order of opening; only methods change it."""
        self.futures = held.futures
        """Copies that move here from other directories of the node (`future_logs`)."""
        self.compacted_logs = held.compacted
        self.logs_with_key_filters = held.with_key_filters
        self.health = DirectoryHealth(path, clock, partial(on_offline, self))
        self.notes = IncarnationNotes(disk, path)
        self.checkpoints = DirectoryCheckpoints(disk, path, held, self.health, self.notes)
        self.flushes = DueFlushes(clock, held)
        self.retention = DirectoryRetention(held.logs)
        self.deleted = DeletedFiles(disk, clock, self.health)
        self._events = DirectoryEvents(self.flushes, self.checkpoints, self.notes, self.health, self.deleted, held)

    # -- start and stop ------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Create the directory if needed and lock it. Raises OperatorError if another broker uses it, and OSError."""
        make_durably(self._disk, self.path)
        self._disk.listdir(self.path)
        try:
            self._lock = self._disk.lock(self._join(names.LOCK_FILE))
        except BlockingIOError as error:
            raise DataDirectoryError(
                f"the data directory {self.path} is in use by another broker: stop that one or set log.dirs "
                "(--data-dir) to a directory of its own"
            ) from error

    def is_formatted(self) -> bool:
        """Return whether the directory has an identity. Raises OSError."""
        try:
            return bool(self._disk.read_bytes(self._join(names.META_PROPERTIES)))
        except FileNotFoundError:
            return False

    def identify(self, *, node_id: int, cluster_id: str | None, version: int) -> MetaProperties:
        """Read `meta.properties`, or write it in an unused directory. Raises OperatorError."""
        self.meta = meta_properties.load_or_create(
            self._disk, self._rng, self.path, node_id=node_id, cluster_id=cluster_id, version=version
        )
        self._directory_id = uuid_from_string(self.meta.directory_id)
        return self.meta

    @property
    def directory_id(self) -> Uuid:
        """The `directory.id` by which the cluster identifies it. Raises InvariantError before `identify`."""
        if self._directory_id is None:
            raise InvariantError(f"{self.path} was not opened")
        return self._directory_id

    def partition_names(self) -> list[str]:
        """Names of the partition directories on the disk. Raises OSError."""
        return partition_directories(self._disk, self.path)

    def load_logs(self, config_of: Callable[[str], LogConfig] | None = None) -> None:
        """Open every partition directory, `config_of(topic)` giving its configuration.

        After an unclean stop this scans all records that were not durable. Raises OSError if the directory is
        unreadable, and OperatorError for foreign entries.
        """
        self.notes.take()
        # Without a clean stop the names of directories may not be durable yet, and no later flush would sync them.
        self._disk.fsync_dir(self.path)
        stored = self.checkpoints.read()
        for name in self._disk.listdir(self.path):
            self._load_directory(name, config_of, stored)
        self.checkpoints.loaded(stored)

    def _load_directory(self, name: str, config_of: Callable[[str], LogConfig] | None, stored: StoredOffsets) -> None:
        if name.endswith(names.DELETE_DIR_SUFFIX) and self._disk.is_dir(self._join(name)):
            self.deleted.add_directory(self._join(name))
            return
        future = names.parse_future_dir(name)
        key = future or names.parse_partition_dir(name)
        if key is None or key[0] == names.METADATA_TOPIC or not self._disk.is_dir(self._join(name)):
            return
        if future is not None and key in self.futures:
            logger.warning("%s/%s is a second copy of the same log, removing it", self.path, name)
            self.deleted.add_directory(self._join(name))
            return
        recovery_points, checkpoints = stored.recovery_points, self.checkpoints
        options = LoadOptions(
            config=config_of(key[0]) if config_of is not None else self.defaults.config,
            clean=self.notes.had_clean_shutdown,
            log_start_offset=max(stored.start_offsets.get(key, 0), 0),
            recovery_point=max(recovery_points.get(key, 0), 0),
            gaps_end=recovery_points.get(key) if NO_GAPS_ABOVE in recovery_points else MAX_LONG,
            high_watermark=checkpoints.initial_high_watermark(key) or 0,
            was_cleaned=future is not None or checkpoints.cleaner.get(key) is not None,
            is_copy=future is not None,
            producer_expiration_ms=self.defaults.producer_expiration_ms,
            aborted_counts=stored.aborted.get(key, {}),
        )
        table = self.logs if future is None else self.futures
        if future is None:
            checkpoints.begin_high_watermark(key)
        log = table[key] = self._load(name, key, options)
        if log.recovery_point < log.active_segment.base_offset:
            # The roll with that knowledge happened in an earlier process, and volatile records are not cleaned.
            self.flushes.add(key)

    def _load(self, name: str, key: TopicPartition, options: LoadOptions) -> Log:
        folder = Folder(self._descriptors, self._join(name))
        log = load_log(folder, key, options, clock=self._clock, rng=self._rng, events=self._events)
        log.producers.verification_enabled = self.defaults.verification_enabled
        log.offsets.changes = log.segments.changes = changes = self.checkpoints.changes
        changes.pending = True
        return log

    def shutdown(self, broker_epoch: int) -> None:
        """Close all logs durably, write checkpoints and the clean marker, release the lock.

        The marker gets the `broker_epoch` of the incarnation that lost nothing, for the next start.

        No flush may be in flight. If a log cannot be closed, the error is logged and no marker is written, so that the
        next start checks everything.
        """
        clean = self.health.offline is None
        for log in self._held.in_order():
            try:
                log.close()
                clean = clean and not log.failed
            except (KafkaError, InvariantError) as error:
                logger.error("%s", error)
                clean = False
        try:
            self.checkpoints.write(stopping=clean)
            if clean:
                self.notes.note_clean_shutdown(broker_epoch)
        except (OSError, KafkaError) as error:
            logger.error("the clean shutdown of %s could not be recorded: %s", self.path, error)
        self._held.clear()
        self.release()

    def release(self) -> None:
        """Release the lock of the directory."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _join(self, name: str) -> str:
        return f"{self.path}/{name}"

    # -- logs ----------------------------------------------------------------------------------------------------------

    def create_log(self, key: TopicPartition, config: LogConfig | None, topic_id: Uuid | None) -> Log:
        """Create the log of a partition without one. Raises OSError, and then leaves nothing behind."""
        options = LoadOptions(
            config=config or self.defaults.config,
            clean=True,
            producer_expiration_ms=self.defaults.producer_expiration_ms,
        )
        name = names.partition_dir(*key)
        try:
            log = self._make(name, key, options, topic_id)
        except OSError as error:
            self.health.note_error(error, f"creating {name}")
            raise
        self.logs[key] = log
        self.checkpoints.log_created()
        return log

    def _make(self, name: str, key: TopicPartition, options: LoadOptions, topic_id: Uuid | None) -> Log:
        path = self._join(name)
        is_new = not self._disk.is_dir(path)
        try:
            if is_new:
                self.checkpoints.forget_durably(key)
            self._disk.makedirs(path)
            if is_new and topic_id is not None:
                write_unsynced(self._disk, f"{path}/{names.PARTITION_METADATA}", format_partition_metadata(topic_id))
            log = self._load(name, key, options)
            log.directory_was_made()
        except OSError:
            if is_new:  # another directory may be used
                with suppress(OSError):
                    self._disk.rmtree(path)
            raise
        return log

    def create_future(self, key: TopicPartition, config: LogConfig, topic_id: Uuid | None) -> Log:
        """Create an empty copy of a log in another directory, to be filled from there. Raises OSError."""
        # The source may have been compacted, so offsets may be missing.
        options = LoadOptions(
            config,
            clean=True,
            was_cleaned=True,
            is_copy=True,
            producer_expiration_ms=self.defaults.producer_expiration_ms,
        )
        name = names.future_partition_dir(*key, self._rng.random_bytes(16))
        try:
            log = self._make(name, key, options, topic_id)
        except OSError as error:
            self.health.note_error(error, f"creating {name}")
            raise
        self.futures[key] = log
        return log

    def adopt_future(self, key: TopicPartition) -> bool:
        """Make the copy in this directory the partition's log, and rename its directory accordingly.

        Returns whether the name is durable: if not, no records may be appended. Raises OSError without a change.
        """
        log = self.futures[key]
        path = self._join(names.partition_dir(*key))
        try:
            self._disk.rename(log.directory, path)
        except OSError as error:
            self.health.note_error(error, f"renaming {log.directory}")
            raise
        log.moved_to(path)
        self.logs[key] = self.futures.pop(key)
        self.checkpoints.changes.pending = True
        try:
            self._disk.fsync_dir(self.path)
        except OSError as error:
            log.fail(error, "a move")
            return False
        return True

    def delete_log(self, topic: str, partition: int, *, future: bool = False) -> None:
        """Remove the log from use; its directory is renamed now and removed after `file.delete.delay.ms`.

        `future`: the copy that is moving here. Reads in progress still get their bytes. Raises KafkaError
        KAFKA_STORAGE_ERROR; unknown logs are ignored.
        """
        log = self._take_out(topic, partition, names.DELETE_DIR_SUFFIX, future=future)
        if log is not None:
            self.deleted.add_directory(log.directory, log.config.file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int, *, future: bool = False) -> str | None:
        """Rename a log of an unknown topic to `-stray`, as Apache Kafka; returns the new name. Raises KafkaError."""
        log = self._take_out(topic, partition, names.STRAY_DIR_SUFFIX, future=future)
        return None if log is None else log.directory

    def _take_out(self, topic: str, partition: int, suffix: str, *, future: bool) -> Log | None:
        log = (self.futures if future else self.logs).pop((topic, partition), None)
        if log is None:
            return None
        for part in (self.flushes, self.retention, self.checkpoints, self._held):
            part.forget((topic, partition))
        target = self._join(names.retired_partition_dir(topic, partition, self._rng.random_bytes(16), suffix))
        log.close(clean=suffix == names.STRAY_DIR_SUFFIX)  # a restored log must be complete
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            self.health.note_error(error, f"renaming {log.name}")
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"renaming {log.name} failed: {error.strerror or error}"
            ) from error
        log.moved_to(target)
        return log

    # -- failure -------------------------------------------------------------------------------------------------------

    def take_offline(self, error: OSError, action: str) -> None:
        """Mark it unusable at the start; the other directories of the node are served."""
        logger.error(
            "the data directory %s is offline, %s failed: %s; repair its disk and restart the node, or remove it from "
            "log.dirs. See %s.",
            self.path,
            action,
            reason_of(error, self.path),
            DISK_FULL,
        )
        self.health.offline = error
        self.abandon()

    def abandon(self) -> None:
        """Close all logs without further writes: no file of this directory is touched until the next start."""
        self.health.is_served = False
        for log in self._held.in_order():
            with suppress(OSError):
                log.close(clean=False)
        self._held.clear()
        self.flushes.clear()
        self.retention.clear()
        self.checkpoints.forget_all()
