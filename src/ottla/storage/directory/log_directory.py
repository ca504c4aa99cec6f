"""Logs of one data directory: lock, identity, opening, creation and deletion, checkpoints, retention and flushing.

Periodic work is offered as steps (`run_retention`, `flush_due`, `write_checkpoints`, `purge_deleted`) that the server
schedules through `log_manager`; nothing here starts a timer.

Invariants:
- The directory is locked from `lock` to `shutdown`, and belongs to one node of one cluster (`meta.properties`).
- The clean marker `.kafka_cleanshutdown` confirms that every log was closed durably: it is removed before the first of
  them is opened and written after the last one was closed. The metadata log, opened earlier, is checked at each start.
- A recovery point on disk is never higher than the durable end, and is rewritten before a truncated log grows again.
- If the recovery points on disk are marked (`NO_GAPS_ABOVE`), an offset missing above them between segments is a loss:
  rolls are at the log end, and cleaned segments are below. Apache Kafka writes that file without the mark.
- A disk error other than lack of space takes the directory offline: `offline` has the reason, appends fail with
  KAFKA_STORAGE_ERROR, reads continue as far as the disk permits.

The placement of new partitions is in `log_manager`. The metadata log is in one of the directories, and the quorum opens
it before the topics are known.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ottla.common.errors import DataDirectoryError, ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import Uuid, uuid_from_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import BlockingPool, Clock, Rng
from ottla.common.platform.disk import Disk, FileLock
from ottla.common.runbooks import DISK_FULL
from ottla.storage.files import meta_properties, names
from ottla.storage.files.checkpoints import (
    NO_GAPS_ABOVE,
    CheckpointCorruption,
    LastIncarnation,
    aborted_counts,
    aborted_entry,
    format_clean_shutdown,
    format_partition_metadata,
    format_running,
    parse_clean_shutdown,
    parse_running,
    write_unsynced,
)
from ottla.storage.files.cleaner_checkpoint import CleanerCheckpoint
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.files.directories import make_durably, partition_directories, reason_of
from ottla.storage.files.log_config import MAX_LONG, LogConfig
from ottla.storage.files.meta_properties import MetaProperties
from ottla.storage.files.offset_files import NOT_NAMED, OFFSET_CHECKPOINTS, OffsetContent, OffsetFiles
from ottla.storage.log.log import Log
from ottla.storage.log.log_segments import NO_HIGH_WATERMARK
from ottla.storage.recovery.loader import LoadOptions, load_log
from ottla.storage.segment.health import TRANSIENT_ERRORS

logger = logging.getLogger(__name__)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ERROR_LOG_INTERVAL_MS = 10_000
DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000


SEGMENTS_A_STEP = 32
"""Segments that retention deletes in one step: each costs up to four renames, together a few milliseconds."""


@dataclass(slots=True)
class LogDefaults:
    """Settings common to all logs of a node; shared by its directories, and changed at run time."""

    config: LogConfig
    """Settings of topics without overrides."""
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    verification_enabled: bool = True


class Removals(NamedTuple):
    """Paths that are past their `file.delete.delay.ms`."""

    files: list[str]
    directories: list[str]


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
        self.had_clean_shutdown = False
        self.running = LastIncarnation()
        """The last incarnation, ended or not, if it lost nothing; without an epoch if unknown (KIP-966).

        A clean stop loses nothing, and neither does the end of the process alone, since the page cache survives it.
        So the same boot of the machine is sufficient here, where Apache Kafka requires the marker of a clean stop.
        """
        self.meta: MetaProperties | None = None
        """Identity of the directory, once it is read."""
        self.offline: OSError | None = None
        self.is_cordoned = False
        """Whether the directory is cordoned: new logs are placed in another one, if available (KIP-1066)."""
        self._on_offline = on_offline
        self._abandoned = False
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self.cleaner_checkpoint = CleanerCheckpoint(disk, self._join(names.CLEANER_OFFSET_CHECKPOINT))
        self._descriptors = descriptors
        self.logs: dict[TopicPartition, Log] = {}
        """In order of opening; only methods change it."""
        self.futures: dict[TopicPartition, Log] = {}
        """Copies that move here from other directories of the node (`future_logs`); `logs` has none of their
        partitions.
        """
        self._lock: FileLock | None = None
        self._to_flush: dict[TopicPartition, None] = {}
        self._flushed_by_time: dict[TopicPartition, None] = {}
        """Logs with a `flush.ms`: a step that runs each second must not scan all logs for the few."""
        self._unlinks: list[tuple[int, str]] = []
        self._removals: list[tuple[int, str]] = []
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._files = OffsetFiles(disk, path)
        self._has_new_logs = False
        self._sizes_at_last_pass: dict[TopicPartition, int] = {}
        self._last_error_log_ms = 0
        self._unlogged_errors = 0

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
        return self.meta

    @property
    def directory_id(self) -> Uuid:
        """The `directory.id` by which the cluster identifies it. Raises InvariantError before `identify`."""
        if self.meta is None:
            raise InvariantError(f"{self.path} was not opened")
        return uuid_from_string(self.meta.directory_id)

    def partition_names(self) -> list[str]:
        """Names of the partition directories on the disk. Raises OSError."""
        return partition_directories(self._disk, self.path)

    def load_logs(self, config_of: Callable[[str], LogConfig] | None = None) -> None:
        """Open every partition directory, `config_of(topic)` giving its configuration.

        After an unclean stop this scans all records that were not durable. Raises OSError if the directory is
        unreadable, and OperatorError for foreign entries.
        """
        marker = self._join(names.CLEAN_SHUTDOWN_FILE)
        self.had_clean_shutdown = self._disk.exists(marker)
        self.running = self._surviving()
        if self.had_clean_shutdown:
            self.running = self.running._replace(broker_epoch=parse_clean_shutdown(self._disk.read_bytes(marker)))
            self._disk.unlink(marker)
        # Without a clean stop the names of directories may not be durable yet, and no later flush would sync them.
        self._disk.fsync_dir(self.path)
        recovery_points = self._read_checkpoint(names.RECOVERY_POINT_CHECKPOINT)
        self.cleaner_checkpoint.read()
        start_offsets = self._read_checkpoint(names.LOG_START_OFFSET_CHECKPOINT)
        self._high_watermarks = self._read_checkpoint(names.HIGH_WATERMARK_CHECKPOINT)
        aborted = aborted_counts(recovery_points)
        for name in self._disk.listdir(self.path):
            self._load_directory(name, config_of, recovery_points, start_offsets, aborted)
        held = self.futures | self.logs
        self.cleaner_checkpoint.keep_only(held.keys())
        if any(log.recovery_point < recovery_points.get(key, 0) for key, log in held.items()):
            try:
                self.write_recovery_points()  # the next start has no information about lost records
            except OSError as error:
                self._note_error(error, "writing checkpoints")

    def _load_directory(
        self,
        name: str,
        config_of: Callable[[str], LogConfig] | None,
        recovery_points: Mapping[TopicPartition, int],
        start_offsets: Mapping[TopicPartition, int],
        aborted: Mapping[TopicPartition, Mapping[int, int]],
    ) -> None:
        if name.endswith(names.DELETE_DIR_SUFFIX) and self._disk.is_dir(self._join(name)):
            self._removals.append((self._clock.time_ms(), self._join(name)))
            return
        future = names.parse_future_dir(name)
        key = future or names.parse_partition_dir(name)
        if key is None or key[0] == names.METADATA_TOPIC or not self._disk.is_dir(self._join(name)):
            return
        if future is not None and key in self.futures:
            logger.warning("%s/%s is a second copy of the same log, removing it", self.path, name)
            self._removals.append((self._clock.time_ms(), self._join(name)))
            return
        options = LoadOptions(
            config=config_of(key[0]) if config_of is not None else self.defaults.config,
            clean=self.had_clean_shutdown,
            log_start_offset=max(start_offsets.get(key, 0), 0),
            recovery_point=max(recovery_points.get(key, 0), 0),
            gaps_end=recovery_points.get(key) if NO_GAPS_ABOVE in recovery_points else MAX_LONG,
            high_watermark=self._high_watermarks.get(key, 0),
            was_cleaned=future is not None or self.cleaner_checkpoint.get(key) is not None,
            is_copy=future is not None,
            producer_expiration_ms=self.defaults.producer_expiration_ms,
            aborted_counts=aborted.get(key, {}),
        )
        table = self.logs if future is None else self.futures
        if future is None:
            self._high_watermarks.setdefault(key, 0)
        log = table[key] = self._load(name, key, options)
        if log.recovery_point < log.active_segment.base_offset:
            # The roll with that knowledge happened in an earlier process, and volatile records are not cleaned.
            self.flush_needed(key)

    def _load(self, name: str, key: TopicPartition, options: LoadOptions) -> Log:
        folder = Folder(self._descriptors, self._join(name))
        log = load_log(folder, key, options, clock=self._clock, rng=self._rng, events=self)
        log.producers.verification_enabled = self.defaults.verification_enabled
        return log

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return self._files.read(name)
        except CheckpointCorruption as error:
            logger.warning("%s; rebuilding it", error)
            self.had_clean_shutdown = False
            self._disown_running()
            return {}

    def _disown_running(self) -> None:
        """Remove the proof that the last incarnation lost nothing, before this start registers or fails.

        Raises OSError.
        """
        self.running = LastIncarnation()
        path = self._join(names.RUNNING_FILE)
        if self._disk.exists(path):
            self._disk.unlink(path)
            self._disk.fsync_dir(self.path)

    def _surviving(self) -> LastIncarnation:
        path = self._join(names.RUNNING_FILE)
        if not self._disk.exists(path):
            return LastIncarnation()
        return parse_running(self._disk.read_bytes(path), self._disk.boot_id())

    def note_waiting(self, incarnation_id: Uuid) -> None:
        """Record an incarnation before its registration, so that it is known if the process ends before it serves."""
        self.running = self.running._replace(incarnation_id=incarnation_id)
        self._note(self.running)

    def note_running(self, broker_epoch: int) -> None:
        """Record the running incarnation before its first append. Raises OperatorError.

        If the disk even rejects overwriting the note, the next start cannot prove that nothing was lost.
        """
        if not self._note(LastIncarnation(broker_epoch)):
            path = self._join(names.RUNNING_FILE)
            try:
                self._disk.unlink(path)  # it must no longer confirm that this incarnation has appended nothing
            except OSError as error:
                raise DataDirectoryError(f"{path} can't be removed: {error.strerror}; repair its disk") from error
        self.running = LastIncarnation(broker_epoch)

    def _note(self, running: LastIncarnation) -> bool:
        path, data = self._join(names.RUNNING_FILE), format_running(running, self._disk.boot_id())
        try:
            self._disk.write_atomic(path, data)
        except OSError as error:
            if error.errno in _FULL and self._overwritten(path, data):
                return True
            logger.warning("%s can't be written: %s", path, error.strerror)
            return False
        return True

    def _overwritten(self, path: str, data: bytes) -> bool:
        """Overwrite without space for a new file: a process end tears nothing, a machine restart invalidates the
        note.
        """
        try:
            self._disk.overwrite(path, data)
        except OSError:
            return False
        return True

    def shutdown(self, broker_epoch: int) -> None:
        """Close all logs durably, write checkpoints and the clean marker, release the lock.

        The marker gets the `broker_epoch` of the incarnation that lost nothing, for the next start.

        No flush may be in flight. If a log cannot be closed, the error is logged and no marker is written, so that the
        next start checks everything.
        """
        clean = self.offline is None
        for log in self._held():
            try:
                log.close()
                clean = clean and not log.failed
            except (KafkaError, InvariantError) as error:
                logger.error("%s", error)
                clean = False
        try:
            self.write_checkpoints(stopping=clean)
            if clean:
                self._disk.write_atomic(self._join(names.CLEAN_SHUTDOWN_FILE), format_clean_shutdown(broker_epoch))
        except (OSError, KafkaError) as error:
            logger.error("the clean shutdown of %s could not be recorded: %s", self.path, error)
        self.logs.clear()
        self.futures.clear()
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
            self._note_error(error, f"creating {name}")
            raise
        self.logs[key] = log
        self._has_new_logs = True
        return log

    def _make(self, name: str, key: TopicPartition, options: LoadOptions, topic_id: Uuid | None) -> Log:
        path = self._join(name)
        is_new = not self._disk.is_dir(path)
        try:
            if is_new:
                self._forget_offsets(key)
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

    def _forget_offsets(self, key: TopicPartition) -> None:
        """Remove the checkpoint entries of a deleted log before a new one gets its name. Raises OSError.

        A start would drop the records of a log that ends before its start offset, and not check records below its
        recovery point.
        """
        if any(self._files.highest(file, key) != NOT_NAMED for file in OFFSET_CHECKPOINTS):
            for content in (self._recovery_points(), *self._offsets()):
                self._files.write(content)
        cleaned = self.cleaner_checkpoint.due()
        if cleaned is not None:
            self.cleaner_checkpoint.write(cleaned)

    def only_began(self, name: str) -> bool:
        """Return whether a partition directory contains at most the files of a new log. Raises OSError."""
        segments = [each for each in self._disk.listdir(self._join(name)) if names.LOG_SUFFIX in each]
        first = names.offset_name(0, names.LOG_SUFFIX)
        return all(each == first and not self._disk.size(f"{self._join(name)}/{each}") for each in segments)

    def discard(self, name: str) -> None:
        """Remove a partition directory that is not a log here; before any is opened. Raises OSError."""
        key = names.parse_partition_dir(name)
        if key is None:
            raise InvariantError(f"{name} is not a partition directory")
        retired = names.retired_partition_dir(*key, self._rng.random_bytes(16), names.DELETE_DIR_SUFFIX)
        self._disk.rename(self._join(name), self._join(retired))

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
            self._note_error(error, f"creating {name}")
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
            self._note_error(error, f"renaming {log.directory}")
            raise
        log.moved_to(path)
        self.logs[key] = self.futures.pop(key)
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
            self._removals.append((self._clock.time_ms() + log.config.file_delete_delay_ms, log.directory))

    def set_aside(self, topic: str, partition: int, *, future: bool = False) -> str | None:
        """Rename a log of an unknown topic to `-stray`, as Apache Kafka; returns the new name. Raises KafkaError."""
        log = self._take_out(topic, partition, names.STRAY_DIR_SUFFIX, future=future)
        return None if log is None else log.directory

    def _take_out(self, topic: str, partition: int, suffix: str, *, future: bool) -> Log | None:
        log = (self.futures if future else self.logs).pop((topic, partition), None)
        if log is None:
            return None
        self._to_flush.pop((topic, partition), None)
        self._flushed_by_time.pop((topic, partition), None)
        self._high_watermarks.pop((topic, partition), None)
        self._sizes_at_last_pass.pop((topic, partition), None)
        self.cleaner_checkpoint.forget((topic, partition))
        target = self._join(names.retired_partition_dir(topic, partition, self._rng.random_bytes(16), suffix))
        log.close(clean=suffix == names.STRAY_DIR_SUFFIX)  # a restored log must be complete
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            self._note_error(error, f"renaming {log.name}")
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"renaming {log.name} failed: {error.strerror or error}"
            ) from error
        log.moved_to(target)
        return log

    def _held(self) -> list[Log]:
        """All partitions with files here."""
        return [*self.logs.values(), *self.futures.values()]

    def _log_of(self, key: TopicPartition) -> Log | None:
        return self.logs.get(key) or self.futures.get(key)

    def checkpointed_high_watermark(self, partition: TopicPartition) -> int | None:
        """High watermark of `replication-offset-checkpoint` at the start, the initial one of the replica."""
        return self._high_watermarks.get(partition)

    # -- failure -------------------------------------------------------------------------------------------------------

    @property
    def refusal(self) -> str:
        """Reason why it accepts no new log, for an error message."""
        return "" if self.offline is None else f"{self.path} is offline: {self.offline.strerror or self.offline}"

    @property
    def is_served(self) -> bool:
        """Return whether its logs are in use: after an error too, until other brokers lead them (see `abandon`)."""
        return not self._abandoned

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
        self.offline = error
        self.abandon()

    def abandon(self) -> None:
        """Close all logs without further writes: no file of this directory is touched until the next start."""
        self._abandoned = True
        for log in self._held():
            with suppress(OSError):
                log.close(clean=False)
        self.logs.clear()
        self.futures.clear()
        self._to_flush.clear()
        self._flushed_by_time.clear()
        self._high_watermarks.clear()
        self._sizes_at_last_pass.clear()

    # -- periodic steps ------------------------------------------------------------------------------------------------

    def run_retention(self, now_ms: int | None = None) -> int:
        """Delete expired segments and producers, release idle reservations, purge deleted files.

        Returns the number of segments. Failures are logged and do not affect other logs.
        """
        now = self._clock.time_ms() if now_ms is None else now_ms
        count = sum(self.retention_steps(now))
        self.purge_deleted(now)
        return count

    def retention_steps(self, now: int) -> Iterator[int]:
        """Run retention at `now` without the purge, in steps: each yields the number of segments taken out of use.

        Logs may be added, removed and changed between steps.
        """
        for key, log in list(self.logs.items()):
            gone = SEGMENTS_A_STEP
            while gone == SEGMENTS_A_STEP and self.logs.get(key) is log:
                try:
                    gone = log.delete_old_segments(now, SEGMENTS_A_STEP)
                except KafkaError as error:
                    logger.error("%s", error)
                    gone = 0
                yield gone
            if self.logs.get(key) is not log:
                continue
            log.remove_expired_producers(now)
            size = log.log_end_offset
            if self._sizes_at_last_pass.get(key) == size:
                log.release_idle_reserve()
            self._sizes_at_last_pass[key] = size

    def purge_deleted(self, now_ms: int | None = None) -> None:
        """Remove renamed files and directories after their delay; blocks."""
        due = self.removals_due(now_ms)
        if due is None:
            return
        try:
            self.remove(due)
        except OSError as error:
            self.removed(due, error)

    def removals_due(self, now_ms: int | None = None) -> Removals | None:
        """Return the paths for `remove`, or None. They are not due a second time."""
        now = self._clock.time_ms() if now_ms is None else now_ms
        due = Removals(
            [path for when, path in self._unlinks if when <= now],
            [path for when, path in self._removals if when <= now],
        )
        if not due.files and not due.directories:
            return None
        self._unlinks = [entry for entry in self._unlinks if entry[0] > now]
        self._removals = [entry for entry in self._removals if entry[0] > now]
        return due

    def remove(self, due: Removals) -> None:
        """Remove the paths, in a pool thread: deleting a large file or directory takes long. Raises OSError."""
        for path in due.files:
            self._disk.unlink(path)
        for path in due.directories:
            self._disk.rmtree(path)

    def removed(self, due: Removals, error: BaseException | None) -> None:
        """Handle the outcome of `remove`, on the loop. The next start removes the rest."""
        if isinstance(error, OSError):
            self._note_error(error, "removing deleted files")

    def flush_due(self, pool: BlockingPool, now_ms: int | None = None) -> int:
        """Start flushes of logs that need one or are past `flush.ms`; returns the number. Then `write_checkpoints`."""
        now = self._clock.time_ms() if now_ms is None else now_ms
        due = {key: log for key in self._to_flush if (log := self._log_of(key)) is not None}
        self._to_flush.clear()
        for key in self._flushed_by_time:
            log = self._log_of(key)
            if (
                log is not None
                and log.recovery_point < log.log_end_offset
                and now - log.last_flush_ms >= log.config.flush_ms
            ):
                due[key] = log
        for log in due.values():
            if not log.failed:
                log.request_flush(pool, _ignore_outcome)
        return len(due)

    def write_checkpoints(self, *, stopping: bool = False) -> None:
        """Write changed recovery points, log start offsets and high watermarks. Blocks on the disk.

        `stopping`: see `write_recovery_points`. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        try:
            self.write_recovery_points(stopping=stopping)
            self.write_files(self.offset_checkpoints_due())
        except OSError as error:
            self._note_error(error, "writing checkpoints")
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"writing checkpoints in {self.path} failed: {error.strerror}"
            ) from error

    def offset_checkpoints_due(self) -> list[OffsetContent]:
        """Return the changed files of log start offsets and high watermarks.

        `write_files` may write them off the loop, since a value that is a few seconds old is harmless; then
        `checkpoints_written` must follow.
        """
        return [] if self._abandoned else [each for each in self._offsets() if not self._files.is_written(each)]

    def _offsets(self) -> list[OffsetContent]:
        content = self._files.content
        return [
            content(names.LOG_START_OFFSET_CHECKPOINT, self._start_offsets()),
            content(names.HIGH_WATERMARK_CHECKPOINT, self._committed_ends()),
        ]

    def _committed_ends(self) -> dict[TopicPartition, int]:
        ends = {key: log.offsets.committed_end for key, log in (self.futures | self.logs).items()}
        for key, log in self.logs.items():
            if log.offsets.high_watermark == NO_HIGH_WATERMARK:  # its replica is not open yet
                ends[key] = min(ends[key], self._high_watermarks.get(key, ends[key]))
        return ends

    def _start_offsets(self) -> dict[TopicPartition, int]:
        return {
            key: log.log_start_offset
            for key, log in (self.futures | self.logs).items()
            if log.log_start_offset and log.log_start_offset > log.segments[0].base_offset
        }

    def write_files(self, files: Sequence[OffsetContent]) -> None:
        """Write the files of `offset_checkpoints_due`; blocks. Raises OSError."""
        for content in files:
            self._files.write(content)

    def checkpoints_written(self, _: object, error: BaseException | None) -> None:
        """Handle the outcome of `write_files` or `write_off_loop`, on the loop: failures are logged and retried
        later.
        """
        if isinstance(error, OSError):
            self._note_error(error, "writing checkpoints")

    def write_recovery_points(self, *, stopping: bool = False) -> None:
        """Write their checkpoint if it changed; blocks. Raises OSError.

        `stopping`: no more appends follow, and the number of entries in each index of aborted transactions is included.
        """
        due = self._recovery_points()
        if stopping:
            for key, log in (self.futures | self.logs).items():
                due.offsets.update({aborted_entry(key, base): count for base, count in log.aborted.counts()})
        self._files.write(due)

    def recovery_points_due(self) -> OffsetContent | None:
        """Return the recovery points to write, or None without a change. `write_off_loop` may write them off the
        loop.
        """
        due = self._recovery_points()
        return None if self._abandoned or self._files.is_written(due) else due

    def points_of_new_logs_due(self) -> OffsetContent | None:
        """Return the same, or None if the file already has an entry for each log."""
        if not self._has_new_logs:
            return None
        self._has_new_logs = False
        return self.recovery_points_due()

    def write_off_loop(self, due: OffsetContent) -> bool:
        """Write the result of `recovery_points_due`, in the pool; blocks. Raises OSError.

        Returns False, and writes nothing, if newer points are on disk already, maybe those of a truncation: these
        points could exceed the log.
        """
        return self._files.write(due)

    def before_gaps(self, key: TopicPartition, end_offset: int) -> Callable[[], object] | None:
        """Return the work that must precede gaps between segments of the log that begin up to `end_offset`, after which
        no start takes them for a loss. It runs in the pool and raises OSError. None if nothing is needed.
        """
        log = self.logs.get(key)
        if log is None or self._files.written(names.RECOVERY_POINT_CHECKPOINT, key) >= end_offset:
            return None
        if log.recovery_point < end_offset:
            log.offsets.gap_end = max(log.offsets.gap_end, end_offset)
        due = self._recovery_points()
        return lambda: self.write_off_loop(due)

    def _recovery_points(self) -> OffsetContent:
        held = (self.futures | self.logs).items()
        points = {key: log.recovery_point for key, log in held}
        if all(log.offsets.gap_end <= log.recovery_point for _, log in held):
            points[NO_GAPS_ABOVE] = 0
        return self._files.content(names.RECOVERY_POINT_CHECKPOINT, points)

    # -- events of logs (`LogEvents`)
    # -----------------------------------------------------------------------------------

    def log_configured(self, partition: TopicPartition, config: LogConfig) -> None:
        if config.flush_ms == MAX_LONG:
            self._flushed_by_time.pop(partition, None)
        else:
            self._flushed_by_time[partition] = None

    def flush_needed(self, partition: TopicPartition) -> None:
        self._to_flush[partition] = None

    def log_truncated(self, partition: TopicPartition, offset: int) -> None:
        self.cleaner_checkpoint.cut(partition, offset)
        self.write_recovery_points()
        for name, current in (
            (names.LOG_START_OFFSET_CHECKPOINT, self._start_offsets),
            (names.HIGH_WATERMARK_CHECKPOINT, self._committed_ends),
        ):
            if self._files.highest(name, partition) > offset:
                offsets = current()
                offsets.pop(partition, None)
                self._files.write(self._files.content(name, offsets))

    def records_lost(self, partition: TopicPartition, *, proved: bool) -> None:
        self._disown_running()

    def log_failed(self, partition: TopicPartition, error: OSError, action: str, *, lasting: bool) -> None:
        topic, index = partition
        self._note_error(error, f"{action} of {topic}-{index}", lasting=lasting)

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        when = self._clock.time_ms() + delay_ms
        self._unlinks += [(when, path) for path in paths]

    def _note_error(self, error: OSError, action: str, *, lasting: bool = False) -> None:
        """Log an error, rate-limited, and go offline unless only space or descriptors are lacking."""
        lasting = lasting or error.errno not in TRANSIENT_ERRORS
        now = self._clock.time_ms()
        if (lasting and self.offline is None) or now - self._last_error_log_ms >= _ERROR_LOG_INTERVAL_MS:
            logger.error(
                "%s failed in %s: %s%s%s%s",
                action,
                self.path,
                error.strerror or error,
                "; free space there, and appends resume automatically" if error.errno in _FULL and not lasting else "",
                f" ({error.filename})" if error.filename else "",
                f" (and {self._unlogged_errors} more errors)" if self._unlogged_errors else "",
            )
            self._last_error_log_ms = now
            self._unlogged_errors = 0
        else:
            self._unlogged_errors += 1
        if lasting and self.offline is None:
            self.offline = error
            self._on_offline(self, error)


def _ignore_outcome(error: BaseException | None) -> None:
    """Ignore a failed flush: the log itself has handled it."""
