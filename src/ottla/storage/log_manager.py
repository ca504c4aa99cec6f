"""All logs of one data directory: lock, identity, opening, creation and deletion, checkpoints, retention and flushing.

Periodic work is offered as steps (`run_retention`, `flush_due`, `write_checkpoints`, `purge_deleted`) that the server
schedules; nothing here starts a timer.

Invariants:
- The directory is locked from `open` to `shutdown`, and belongs to one node of one cluster (`meta.properties`).
- The clean marker `.kafka_cleanshutdown` says that every log was closed durably: it is removed before the first of
  them is opened and written after the last one was closed. The metadata log, opened earlier, is checked at each start.
- A recovery point on disk is never higher than what is durable, and is rewritten before a truncated log grows again.
- A disk error other than lack of room takes the directory offline: `offline` says why, appends answer
  KAFKA_STORAGE_ERROR, reads go on as far as the disk lets them.

Left out: several directories, and moving logs between them; the metadata log, which lies in the same directory and is
opened by the quorum before the topics are known.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.common.clock import BlockingPool, Clock, Rng
from ottla.common.disk import Disk, FileLock
from ottla.common.errors import ErrorCode, InvariantError, KafkaError, OperatorError
from ottla.common.ids import Uuid
from ottla.common.topic_partition import TopicPartition
from ottla.storage import meta_properties, names
from ottla.storage.checkpoints import (
    CheckpointCorruption,
    Running,
    format_clean_shutdown,
    format_offsets,
    format_running,
    parse_clean_shutdown,
    parse_running,
    read_offsets,
)
from ottla.storage.descriptors import Descriptors, Folder
from ottla.storage.directories import make_durably
from ottla.storage.health import TRANSIENT_ERRORS
from ottla.storage.loader import LoadOptions, load_log
from ottla.storage.log import Log
from ottla.storage.log_config import MAX_LONG, LogConfig
from ottla.storage.meta_properties import MetaProperties

logger = logging.getLogger(__name__)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ERROR_LOG_INTERVAL_MS = 10_000
DEFAULT_OPEN_FILES = 16_384
DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000


class RecoveryPoints(NamedTuple):
    """A checkpoint's content, and how many truncations it knows of."""

    offsets: dict[TopicPartition, int]
    truncations: int


class LogManager:
    """The logs of one directory. Owned by the loop's thread."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        data_dir: str,
        *,
        default_config: LogConfig | None = None,
        max_open_files: int = DEFAULT_OPEN_FILES,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        on_offline: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        """`data_dir` is an absolute path; `default_config` serves topics without overrides.

        `on_offline` hears once, on the loop, of an error after which a log takes no more appends until a restart.
        """
        self.data_dir = data_dir
        self.default_config = default_config or LogConfig()
        self.had_clean_shutdown = False
        self.last_broker_epoch = -1
        """Of the last incarnation if it lost nothing, ended or not; -1 when it may have, or is unknown (KIP-966).

        Nothing is lost by a clean stop, nor by the end of the process alone, since the page cache outlives it: so
        where Apache Kafka asks for the marker of a clean stop, the same boot of the machine will do here.
        """
        self._waiting_incarnation: Uuid | None = None
        self.offline: OSError | None = None
        self._on_offline = on_offline
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._descriptors = Descriptors(disk, max_open_files)
        self._producer_expiration_ms = producer_expiration_ms
        self._verification_enabled = True
        self._logs: dict[TopicPartition, Log] = {}
        self._lock: FileLock | None = None
        self._meta: MetaProperties | None = None
        self._to_flush: dict[TopicPartition, None] = {}
        self._flushed_by_time: dict[TopicPartition, None] = {}
        """Those with a `flush.ms`: a step that runs each second must not walk over all logs for the few."""
        self._unlinks: list[tuple[int, str]] = []
        self._removals: list[tuple[int, str]] = []
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """What the checkpoints on disk hold, by file: comparing is a tenth of formatting."""
        self._truncations = 0
        self._recovery_lock = threading.Lock()
        """Held while recovery points are written, which happens on the loop and in the pool."""
        self._sizes_at_last_pass: dict[TopicPartition, int] = {}
        self._last_error_log_ms = 0
        self._unlogged_errors = 0

    # -- start and stop ------------------------------------------------------------------------------------------------

    def open(self, *, node_id: int, cluster_id: str | None = None) -> MetaProperties:
        """Make the directory if need be, lock it and read or write `meta.properties`. Raises OperatorError."""
        path = self.data_dir
        try:
            make_durably(self._disk, path)
            self._disk.listdir(path)
            self._lock = self._disk.lock(self._join(names.LOCK_FILE))
        except BlockingIOError as error:
            raise OperatorError(
                f"the data directory {path} is in use by another broker: stop that one or set log.dirs (--data-dir) "
                "to a directory of its own"
            ) from error
        except OSError as error:
            where = "" if error.filename in (None, path) else f" ({error.filename})"
            raise OperatorError(
                f"the data directory {path} can't be used: {error.strerror or error}{where}; set log.dirs (--data-dir) "
                "to a directory that the broker may read and write"
            ) from error
        try:
            self._meta = meta_properties.load_or_create(
                self._disk, self._rng, path, node_id=node_id, cluster_id=cluster_id
            )
        except OperatorError:
            self._release_lock()
            raise
        return self._meta

    @property
    def meta_properties(self) -> MetaProperties:
        if self._meta is None:
            raise InvariantError("the log manager was not opened")
        return self._meta

    def load_logs(self, config_of: Callable[[str], LogConfig] | None = None) -> int:
        """Open every partition directory, `config_of(topic)` giving its configuration; how many.

        After an unclean stop this walks what was not durable. Raises OperatorError when the directory can't be read.
        """
        try:
            marker = self._join(names.CLEAN_SHUTDOWN_FILE)
            self.had_clean_shutdown = self._disk.exists(marker)
            self.last_broker_epoch, self._waiting_incarnation = self._surviving()
            if self.had_clean_shutdown:
                self.last_broker_epoch = parse_clean_shutdown(self._disk.read_bytes(marker))
                self._disk.unlink(marker)
            # Without a clean stop the names of directories may not be durable yet, and no flush to come would know.
            self._disk.fsync_dir(self.data_dir)
            recovery_points = self._read_checkpoint(names.RECOVERY_POINT_CHECKPOINT)
            start_offsets = self._read_checkpoint(names.LOG_START_OFFSET_CHECKPOINT)
            self._high_watermarks = self._read_checkpoint(names.HIGH_WATERMARK_CHECKPOINT)
            for name in self._disk.listdir(self.data_dir):
                self._load_directory(name, config_of, recovery_points, start_offsets)
        except OSError as error:
            raise OperatorError(
                f"the data directory {self.data_dir} can't be read: {error.filename or ''} {error.strerror or error}"
            ) from error
        return len(self._logs)

    def _load_directory(
        self,
        name: str,
        config_of: Callable[[str], LogConfig] | None,
        recovery_points: Mapping[TopicPartition, int],
        start_offsets: Mapping[TopicPartition, int],
    ) -> None:
        if name.endswith(names.DELETE_DIR_SUFFIX) and self._disk.is_dir(self._join(name)):
            self._removals.append((self._clock.time_ms(), self._join(name)))
            return
        key = names.parse_partition_dir(name)
        if key is None or key[0] == names.METADATA_TOPIC or not self._disk.is_dir(self._join(name)):
            return
        options = LoadOptions(
            config=config_of(key[0]) if config_of is not None else self.default_config,
            clean=self.had_clean_shutdown,
            log_start_offset=max(start_offsets.get(key, 0), 0),
            recovery_point=max(recovery_points.get(key, 0), 0),
            producer_expiration_ms=self._producer_expiration_ms,
        )
        self._logs[key] = self._load(name, key, options)

    def _load(self, name: str, key: TopicPartition, options: LoadOptions) -> Log:
        folder = Folder(self._descriptors, self._join(name))
        log = load_log(folder, key, options, clock=self._clock, rng=self._rng, events=self)
        log.producers.verification_enabled = self._verification_enabled
        return log

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._disk, self._join(name))
        except CheckpointCorruption as error:
            logger.warning("%s; it is made anew", error)
            self.had_clean_shutdown = False
            self.last_broker_epoch, self._waiting_incarnation = Running()
            return {}

    def _surviving(self) -> Running:
        path = self._join(names.RUNNING_FILE)
        if not self._disk.exists(path):
            return Running()
        return parse_running(self._disk.read_bytes(path), self._disk.boot_id())

    def begin_incarnation(self, incarnation_id: Uuid) -> Uuid:
        """The incarnation that is to be registered; noted, so that it is known if the process ends before it serves.

        Also one that a broker which runs becomes, since its cluster forgot the one before.

        It is the one that a process before this one noted and did not come to use: were it registered meanwhile, a new
        one would be taken for its successor that knows nothing of it, and so for one that may have lost records.
        """
        if self._waiting_incarnation is None:
            self._waiting_incarnation = incarnation_id
            self._note(Running(self.last_broker_epoch, incarnation_id))
        return self._waiting_incarnation

    def note_running(self, broker_epoch: int) -> None:
        """Remember which incarnation runs here, before it takes anything in. Raises OperatorError.

        Where the disk refuses even to write over the note, the next start can't tell that nothing was lost.
        """
        if not self._note(Running(broker_epoch)):
            path = self._join(names.RUNNING_FILE)
            try:
                self._disk.unlink(path)  # it must not go on saying that this incarnation has taken nothing in
            except OSError as error:
                raise OperatorError(f"{path} can't be removed: {error.strerror}; mend the disk of log.dirs") from error
        self.last_broker_epoch = broker_epoch
        self._waiting_incarnation = None

    def _note(self, running: Running) -> bool:
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
        """Without room for a new file; the end of the process tears nothing, and that of the machine voids it all."""
        try:
            self._disk.overwrite(path, data)
        except OSError:
            return False
        return True

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Close all logs durably, write checkpoints and the clean marker, release the lock.

        `broker_epoch` of this incarnation goes into the marker, for the next one to tell; of one that was never
        registered (-1) that of the one before, which has lost nothing since.

        No flush may be in flight. When a log can't be closed, that is logged and no marker is written, so that the next
        start checks everything.
        """
        clean = self.offline is None
        for log in self._logs.values():
            try:
                log.close()
                clean = clean and not log.failed
            except (KafkaError, InvariantError) as error:
                logger.error("%s", error)
                clean = False
        try:
            self.write_checkpoints()
            if clean:
                epoch = self.last_broker_epoch if broker_epoch < 0 else broker_epoch
                self._disk.write_atomic(self._join(names.CLEAN_SHUTDOWN_FILE), format_clean_shutdown(epoch))
        except (OSError, KafkaError) as error:
            logger.error("the clean shutdown of %s could not be recorded: %s", self.data_dir, error)
        self._logs.clear()
        self._release_lock()

    def _release_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _join(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    # -- logs ----------------------------------------------------------------------------------------------------------

    def get_log(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def use_producer_expiration(self, expiration_ms: int) -> None:
        """Forget producers of all logs after this time from now on."""
        self._producer_expiration_ms = expiration_ms
        for log in self._logs.values():
            log.producer_expiration_ms = expiration_ms

    def use_transaction_verification(self, *, enabled: bool) -> None:
        """Whether transactions begin in all logs with the guard of a verification only (KIP-890)."""
        self._verification_enabled = enabled
        for log in self._logs.values():
            log.producers.verification_enabled = enabled

    def logs(self) -> Iterator[Log]:
        """All logs, in the order they were opened."""
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def open_file_count(self) -> int:
        return len(self._descriptors)

    def create_log(
        self, topic: str, partition: int, topic_id: Uuid | None = None, config: LogConfig | None = None
    ) -> Log:
        """The log of the partition, made when it doesn't exist.

        Raises KafkaError: INCONSISTENT_TOPIC_ID when it exists for another topic id, KAFKA_STORAGE_ERROR.
        """
        key = (topic, partition)
        log = self._logs.get(key)
        if log is None:
            self._require_online()
            options = LoadOptions(
                config=config or self.default_config,
                clean=True,
                producer_expiration_ms=self._producer_expiration_ms,
            )
            name = names.partition_dir(topic, partition)
            try:
                self._disk.makedirs(self._join(name))
                log = self._load(name, key, options)
                log.directory_was_made()
            except OSError as error:
                self._note_error(error, f"creating {name}")
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"creating {name} failed: {error.strerror or error}"
                ) from error
            self._logs[key] = log
        elif config is not None:
            log.config = config
        if topic_id is not None and log.topic_id is None:
            log.assign_topic_id(topic_id)
        if topic_id is not None and log.topic_id != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.name} on disk belongs to another topic id")
        return log

    def delete_log(self, topic: str, partition: int) -> None:
        """Take the log out of use now; its directory is renamed and goes after `file.delete.delay.ms`.

        Reads that are under way end with their bytes. Raises KafkaError KAFKA_STORAGE_ERROR; unknown logs are fine.
        """
        log = self._take_out(topic, partition, names.DELETE_DIR_SUFFIX)
        if log is not None:
            self._removals.append((self._clock.time_ms() + log.config.file_delete_delay_ms, log.directory))

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Take a log out of use that belongs to no topic of the cluster, and keep its data: the directory's new name.

        The name ends with `-stray`, as Apache Kafka's; nothing here ever opens or removes it, and `ottla log restore`
        takes it back. Raises KafkaError.
        """
        log = self._take_out(topic, partition, names.STRAY_DIR_SUFFIX)
        return None if log is None else log.directory

    def _take_out(self, topic: str, partition: int, suffix: str) -> Log | None:
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return None
        self._to_flush.pop((topic, partition), None)
        self._flushed_by_time.pop((topic, partition), None)
        self._high_watermarks.pop((topic, partition), None)
        self._sizes_at_last_pass.pop((topic, partition), None)
        target = self._join(names.retired_partition_dir(topic, partition, self._rng.random_bytes(16), suffix))
        log.close(clean=suffix == names.STRAY_DIR_SUFFIX)  # who takes it back is to find it whole
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            self._note_error(error, f"renaming {log.name}")
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"renaming {log.name} failed: {error.strerror or error}"
            ) from error
        log.moved_to(target)
        return log

    def checkpointed_high_watermark(self, topic: str, partition: int) -> int | None:
        """The high watermark that `replication-offset-checkpoint` held at start, for the replica to begin with."""
        return self._high_watermarks.get((topic, partition))

    def _require_online(self) -> None:
        if self.offline is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.data_dir} is offline: {self.offline.strerror or self.offline}"
            )

    # -- periodic steps ------------------------------------------------------------------------------------------------

    def run_retention(self, now_ms: int | None = None) -> int:
        """Delete what retention allows, forget expired producers, give idle reservations back, purge deleted files.

        How many segments went. Failures are logged and leave the other logs to be treated.
        """
        now = self._clock.time_ms() if now_ms is None else now_ms
        count = 0
        for key, log in list(self._logs.items()):
            try:
                count += log.delete_old_segments(now)
            except KafkaError as error:
                logger.error("%s", error)
            log.remove_expired_producers(now)
            size = log.log_end_offset
            if self._sizes_at_last_pass.get(key) == size:
                log.release_idle_reserve()
            self._sizes_at_last_pass[key] = size
        self.purge_deleted(now)
        return count

    def purge_deleted(self, now_ms: int | None = None) -> None:
        """Remove renamed files and directories whose delay is over."""
        now = self._clock.time_ms() if now_ms is None else now_ms
        due = [path for when, path in self._unlinks if when <= now]
        due_directories = [path for when, path in self._removals if when <= now]
        self._unlinks = [entry for entry in self._unlinks if entry[0] > now]
        self._removals = [entry for entry in self._removals if entry[0] > now]
        try:
            for path in due:
                self._disk.unlink(path)
            for path in due_directories:
                self._disk.rmtree(path)
        except OSError as error:
            self._note_error(error, "removing deleted files")

    def flush_due(self, pool: BlockingPool, now_ms: int | None = None) -> int:
        """Begin flushing logs that need it, and those whose `flush.ms` is over; how many. Then `write_checkpoints`."""
        now = self._clock.time_ms() if now_ms is None else now_ms
        due = {key: self._logs[key] for key in self._to_flush if key in self._logs}
        self._to_flush.clear()
        for key in self._flushed_by_time:
            log = self._logs[key]
            if log.recovery_point < log.log_end_offset and now - log.last_flush_ms >= log.config.flush_ms:
                due[key] = log
        for log in due.values():
            if not log.failed:
                log.request_flush(pool, _ignore_outcome)
        return len(due)

    def write_checkpoints(self) -> None:
        """Write recovery points, log start offsets and high watermarks, as far as they changed. Blocks on the disk.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        try:
            self.write_recovery_points()
            for name, offsets in self.offset_checkpoints_due():
                self._write_checkpoint(name, offsets)
        except OSError as error:
            self._note_error(error, "writing checkpoints")
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"writing checkpoints in {self.data_dir} failed: {error.strerror}"
            ) from error

    def offset_checkpoints_due(self) -> list[tuple[str, dict[TopicPartition, int]]]:
        """The files of log start offsets and high watermarks that changed, as (name, offsets).

        They may be written off the loop by `write_files`, since a value that is some seconds old harms nobody; then
        `offset_checkpoints_written` must follow.
        """
        starts = {
            key: log.log_start_offset
            for key, log in self._logs.items()
            if log.log_start_offset and log.log_start_offset > log.segments[0].base_offset
        }
        marks = {key: log.offsets.committed_end for key, log in self._logs.items()}
        files = [(names.LOG_START_OFFSET_CHECKPOINT, starts), (names.HIGH_WATERMARK_CHECKPOINT, marks)]
        return [(name, offsets) for name, offsets in files if self._written.get(name) != offsets]

    def write_files(self, files: list[tuple[str, dict[TopicPartition, int]]]) -> None:
        """Write what `offset_checkpoints_due` named; blocks, touches no state. Raises OSError."""
        for name, offsets in files:
            self._disk.write_atomic(self._join(name), format_offsets(offsets))

    def offset_checkpoints_written(
        self, files: list[tuple[str, dict[TopicPartition, int]]], error: BaseException | None
    ) -> None:
        """The outcome of `write_files`, on the loop; a failure is logged and tried again next time."""
        if isinstance(error, OSError):
            self._note_error(error, "writing checkpoints")
        elif error is None:
            self._written.update(files)

    def write_recovery_points(self) -> None:
        """Write their checkpoint if it changed; blocks. Raises OSError."""
        with self._recovery_lock:
            points = self._recovery_points()
            if self._written.get(names.RECOVERY_POINT_CHECKPOINT) != points:
                self._write_checkpoint(names.RECOVERY_POINT_CHECKPOINT, points)

    def recovery_points_due(self) -> RecoveryPoints | None:
        """What has to be written, None without a change. It may be written off the loop by `write_off_loop`."""
        points = self._recovery_points()
        if self._written.get(names.RECOVERY_POINT_CHECKPOINT) == points:
            return None
        return RecoveryPoints(points, self._truncations)

    def write_off_loop(self, due: RecoveryPoints) -> bool:
        """Write what `recovery_points_due` gave, in the pool; blocks. Raises OSError.

        Returns False, and writes nothing, when a log was truncated since: then the newer points are on disk already,
        and these could name more than there is.
        """
        with self._recovery_lock:
            if due.truncations != self._truncations:
                return False
            self._write_checkpoint(names.RECOVERY_POINT_CHECKPOINT, due.offsets)
            return True

    def _recovery_points(self) -> dict[TopicPartition, int]:
        return {key: log.recovery_point for key, log in self._logs.items()}

    def _write_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        self._disk.write_atomic(self._join(name), format_offsets(offsets))
        self._written[name] = offsets

    # -- what logs tell (`LogEvents`) ----------------------------------------------------------------------------------

    def log_configured(self, partition: TopicPartition, config: LogConfig) -> None:
        if config.flush_ms == MAX_LONG:
            self._flushed_by_time.pop(partition, None)
        else:
            self._flushed_by_time[partition] = None

    def flush_needed(self, partition: TopicPartition) -> None:
        self._to_flush[partition] = None

    def log_truncated(self) -> None:
        self._truncations += 1
        self.write_recovery_points()

    def log_failed(self, partition: TopicPartition, error: OSError, action: str, *, lasting: bool) -> None:
        topic, index = partition
        self._note_error(error, f"{action} of {topic}-{index}", lasting=lasting)

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        when = self._clock.time_ms() + delay_ms
        self._unlinks += [(when, path) for path in paths]

    def _note_error(self, error: OSError, action: str, *, lasting: bool = False) -> None:
        """Log it, at most once in a while, and go offline unless it is only lack of room or of descriptors."""
        lasting = lasting or error.errno not in TRANSIENT_ERRORS
        now = self._clock.time_ms()
        if (lasting and self.offline is None) or now - self._last_error_log_ms >= _ERROR_LOG_INTERVAL_MS:
            logger.error(
                "%s failed in %s: %s%s%s",
                action,
                self.data_dir,
                error.strerror or error,
                "; free space there, and appends go on by themselves" if error.errno in _FULL and not lasting else "",
                f" (and {self._unlogged_errors} more errors)" if self._unlogged_errors else "",
            )
            self._last_error_log_ms = now
            self._unlogged_errors = 0
        else:
            self._unlogged_errors += 1
        if lasting and self.offline is None:
            self.offline = error
            self._on_offline(error)


def _ignore_outcome(error: BaseException | None) -> None:
    """The log itself took note of a failed flush."""
