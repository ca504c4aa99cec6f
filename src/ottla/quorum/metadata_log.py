"""The files of `__cluster_metadata-0`: log, snapshots and `quorum-state` in Apache Kafka's layout, and a damage file.

Purpose: store bytes, on top of `ottla.storage.log.log`; the driver interprets them. A start checks only the tail after
the newest snapshot, since nothing before it is read.

Invariants:
- The log starts at or before the end of the newest snapshot, so snapshot plus log contain every committed record. If
  the snapshot ends above the log, it has replaced the log.
- Before the log is truncated at damage, or a damaged `quorum-state` is replaced, the damage file is written; it is
  removed once the replica has caught up with a leader.
- Served data is in the file that a restart will read: the open file is compared with the directory.
- One record of the metadata log is one metadata record; one submission is one batch, so it is atomic.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ottla.common.errors import DataDirectoryError, InvariantError, KafkaError, OttlaError, ProtocolError
from ottla.common.kafka.ids import METADATA_TOPIC_ID
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import BlockingPool, Clock
from ottla.common.platform.disk import Disk
from ottla.common.platform.runtime import NodeRuntime
from ottla.quorum.election_file import (
    decode_catching_up,
    decode_configured_voters,
    decode_election_state,
    encode_catching_up,
    encode_election_state,
)
from ottla.quorum.raft_types import ElectionState, OffsetAndEpoch, Voter
from ottla.quorum.snapshot_file import (
    SnapshotBatches,
    SnapshotId,
    batches_in,
    check_snapshot,
    parse_snapshot_name,
    replay_snapshot,
)
from ottla.record.batch import BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.files.directories import make_durably
from ottla.storage.files.log_config import LogConfig
from ottla.storage.files.names import METADATA_DIR, METADATA_TOPIC
from ottla.storage.log.flush import FlushDone
from ottla.storage.log.log import Log
from ottla.storage.recovery.loader import LoadOptions, load_log

DIRECTORY = METADATA_DIR
QUORUM_STATE = "quorum-state"
CATCHING_UP_FILE = ".ottla_catching_up"
"""Damage file, an addition of Ottla: exists from the detection of damage until the replica has caught up with a leader.
"""

T = TypeVar("T")

logger = logging.getLogger(__name__)
_READ_BYTES = 1024 * 1024
_MAX_DESCRIPTORS = 16
_MAX_BATCH_BYTES = 64 * 1024 * 1024
UNREADABLE_SUFFIX = ".unreadable"
"""Suffix of a snapshot that a start could not read and replaced by the previous one and the log."""
KEPT_SNAPSHOTS = 2
"""The newest and the previous one."""


class MetadataLogConfig(NamedTuple):
    """The settings `metadata.*` of the broker."""

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3600 * 1000
    snapshot_bytes: int = 20 * 1024**2
    snapshot_interval_ms: int = 3600 * 1000
    retention_bytes: int = 100 * 1024**2
    retention_ms: int = 7 * 24 * 3600 * 1000


class ElectionStateDamage(OttlaError):
    """`quorum-state` is damaged: epoch and vote are lost."""


class _Events:
    """Events of the log: a failure, which the next append or flush raises, and the truncation at damage."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def log_configured(self, partition: TopicPartition, config: LogConfig) -> None:
        """The metadata log is flushed by its writers."""

    def flush_needed(self, partition: TopicPartition) -> None:
        """The next append is followed by a flush."""

    def log_truncated(self, partition: TopicPartition, offset: int) -> None:
        """No checkpoint contains offsets of this log."""

    def records_lost(self, partition: TopicPartition, *, proved: bool) -> None:
        """Write the damage file before the log is truncated, with the last known epoch, for this and later starts.

        Not for a tail that a power failure may have left incomplete: that affects all voters at once, and none could
        lead. Raises OSError, OperatorError.
        """
        if not proved:
            return
        path = f"{self._directory}/{QUORUM_STATE}"
        try:
            leader_epoch = decode_election_state(self._disk.read_bytes(path)).leader_epoch
        except FileNotFoundError:
            leader_epoch = 0
        except ValueError as error:
            raise DataDirectoryError(
                f"the metadata log in {self._directory} and {path} are both damaged ({error}); restore the directory "
                "from a copy, or empty it and let the node join again"
            ) from error
        self._disk.write_atomic(f"{self._directory}/{CATCHING_UP_FILE}", encode_catching_up(leader_epoch))

    def log_failed(self, partition: TopicPartition, error: OSError, action: str, *, lasting: bool) -> None:
        logger.error("%s: %s failed: %s", self._directory, action, error, extra=RATE_LIMITED)

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        """Removed at once, since no reader uses another path."""
        for path in paths:
            self._disk.unlink(path)


class ReplicaLog:
    """The open files of one replica, created by `open_metadata_log`. Implements `RaftLog`."""

    __slots__ = ("_clock", "_disk", "_log", "_snapshots", "directory", "must_catch_up")

    def __init__(self, disk: Disk, clock: Clock, directory: str, log: Log, snapshots: list[SnapshotId]) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._snapshots = snapshots
        self.directory = directory
        self.must_catch_up = disk.exists(f"{directory}/{CATCHING_UP_FILE}")
        """Whether this start or an earlier one found damage, and the replica has not caught up with a leader since."""

    @property
    def failed(self) -> bool:
        """Whether the log rejects all writes, since file and memory may disagree."""
        return self._log.failed

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The next offset."""
        return self._log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before this offset is on disk."""
        return self._log.flushed_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch, or of the newest snapshot if no batch follows it; 0 if there is neither."""
        if self._log.leader_epoch >= 0:
            return self._log.leader_epoch
        return self._snapshots[-1].epoch if self._snapshots else 0

    def end_offset_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """See `RaftLog`."""
        entries = self._log.epochs.entries()
        found = OffsetAndEpoch(self.start_offset, self._snapshots[0].epoch if self._snapshots else 0)
        for index, (known, _) in enumerate(entries):
            if known > epoch:
                break
            end = entries[index + 1][1] if index + 1 < len(entries) else self.end_offset
            found = OffsetAndEpoch(end, known)
        return found

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return OffsetAndEpoch(*self._snapshots[0]) if self._snapshots else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return OffsetAndEpoch(*self._snapshots[-1]) if self._snapshots else None

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def append(self, records: Sequence[RecordData], epoch: int, *, is_control: bool) -> int:
        """Append one batch; returns the size in bytes. Raises KafkaError for a disk error."""
        batch = build_batch(records, leader_epoch=epoch, is_control=is_control)
        self._log.append_as_leader(batch, 0, len(batch), epoch, client=False)
        return len(batch)

    def append_replicated(self, batch: bytes) -> None:
        """Append one batch of the leader unchanged. Raises KafkaError for a disk error or a damaged batch."""
        self._log.append_as_follower(batch, 0, len(batch))

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on, durably. Raises KafkaError."""
        self._log.truncate_to(offset)

    def request_flush(self, pool: BlockingPool, done: FlushDone) -> None:
        """Call `done(None)` once all appended batches are on disk; requests during a sync share the next one.

        `done` may be called before this returns. It receives FileNotFoundError if the file is no longer in the
        directory: a sync would succeed, but a restart would not find the data.
        """
        try:
            removed = [file.path for file in self._log.active_segment.data.to_sync() if not file.in_place]
        except OSError as error:
            done(error)
            return
        if removed:
            done(FileNotFoundError(errno.ENOENT, "the file was removed, moved or replaced while open", removed[0]))
            return
        self._log.request_flush(pool, done)

    def flush(self) -> None:
        """Flush now, blocking; raises KafkaError."""
        self._log.flush()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from `offset` on, a batch start below the end; the first is returned regardless of its size.

        Raises OSError, KafkaError.
        """
        result = self._log.read(offset, max_bytes, max_offset=self._log.log_end_offset)
        if result.records is None:
            raise InvariantError(f"{self.directory} has nothing at offset {offset}, before its end")
        try:
            return result.records.read_all()
        finally:
            result.records.release()

    def batches(self, offset: int) -> Iterator[BatchView]:
        """All batches from `offset` on, which is a batch start; at start-up only. Raises OSError, KafkaError."""
        while offset < self._log.log_end_offset:
            data = self.read(offset, _READ_BYTES)
            next_offset = offset
            for batch in iter_batches(data):
                # A read begins with the batch that holds the offset, so it may repeat one.
                if batch.next_offset > next_offset:
                    next_offset = batch.next_offset
                    yield batch
            if next_offset == offset:
                raise InvariantError(f"{self.directory} has no whole batch at offset {offset}")
            offset = next_offset

    # -- snapshots and retention -----------------------------------------------------------------------------------

    def snapshots(self) -> list[SnapshotId]:
        """All valid snapshots, oldest first."""
        return list(self._snapshots)

    def has_snapshot(self, snapshot: SnapshotId) -> bool:
        return snapshot in self._snapshots

    def snapshot_path(self, snapshot: SnapshotId) -> str:
        return f"{self.directory}/{snapshot.file_name}"

    def read_snapshot(self, snapshot: SnapshotId, read: Callable[[SnapshotBatches], T]) -> T:
        """Return what `read` makes of the batches of a snapshot; it counts only when this returns.

        Raises OperatorError if the file is damaged or can't be read, and the errors of `read`.
        """
        path = self.snapshot_path(snapshot)
        try:
            file = self._disk.open(path, read_only=True)
            try:
                return read(batches_in(file))
            finally:
                file.close()
        except (OSError, ProtocolError) as error:
            raise DataDirectoryError(
                f"the metadata snapshot {path} can't be used ({error}); restore it from a backup of the data directory"
            ) from error

    def write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """Write the file and read it back; blocks, for the pool. The snapshot is valid from `add_snapshot` on.

        Older data may be deleted afterwards, so a file with unreadable batches is removed, with an OSError. Raises
        OSError, and ProtocolError for damaged `data`.
        """
        path = self.snapshot_path(snapshot)
        if self._disk.exists(path):
            check_snapshot(data)  # before it replaces a file that may be the only valid one
        self._disk.write_atomic(path, data)
        try:
            _require_content(self._disk, path, data)
            check_snapshot(data)
        except ProtocolError as error:
            self._disk.unlink(path)
            raise OSError(errno.EIO, f"the disk returned a damaged file after the write: {error}", path) from error

    def set_aside(self, snapshot: SnapshotId) -> None:
        """Rename a file that can't be read, so that followers don't fetch it. Raises OSError."""
        path = self.snapshot_path(snapshot)
        self._disk.rename(path, path + UNREADABLE_SUFFIX)
        self._disk.fsync_dir(self.directory)
        self._snapshots.remove(snapshot)

    def read_snapshot_piece(self, snapshot: SnapshotId, position: int, length: int) -> tuple[int, bytes]:
        """The size of the file and at most `length` bytes from `position` on; blocks, for the pool. Raises OSError."""
        file = self._disk.open(self.snapshot_path(snapshot), read_only=True)
        try:
            return file.size(), file.read(length, max(position, 0))
        finally:
            file.close()

    def add_snapshot(self, snapshot: SnapshotId) -> None:
        """Register a snapshot after its file was written."""
        if snapshot not in self._snapshots:
            self._snapshots = sorted([*self._snapshots, snapshot])

    def start_from(self, snapshot: SnapshotId) -> None:
        """Replace the log and older snapshots with a written snapshot. Raises OSError, KafkaError."""
        self._log.truncate_fully_and_start_at(snapshot.end_offset)
        for old in self._snapshots:
            if old != snapshot:
                self._disk.unlink(self.snapshot_path(old))
        self._snapshots = [snapshot]

    def roll(self, min_bytes: int) -> None:
        """Start a new segment if the active one has at least `min_bytes`, so that retention can drop it. Raises
        OSError.
        """
        if self._log.active_segment.data.size_bytes >= min_bytes:
            self._log.roll()

    def clean(self, config: MetadataLogConfig) -> None:
        """Delete data below the second newest snapshot, by the limits of size and age. Raises OSError, KafkaError.

        That snapshot and the log after it remain, for a start that can't read the newest one.
        """
        snapshots = self._snapshots
        now = self._clock.time_ms()
        while len(snapshots) > KEPT_SNAPSHOTS:
            oldest = self.snapshot_path(snapshots[0])
            total = self.size_bytes + sum(self._disk.size(self.snapshot_path(item)) for item in snapshots)
            too_large = 0 <= config.retention_bytes < total
            too_old = 0 <= config.retention_ms < now - self._disk.mtime_ms(oldest)
            if not too_large and not too_old:
                break
            self._disk.unlink(oldest)
            del snapshots[0]
            # Followers may fetch any offset from the oldest snapshot's end on.
            self._log.maybe_increment_log_start_offset(snapshots[0].end_offset)
        self._log.delete_old_segments(now)

    # -- quorum-state ----------------------------------------------------------------------------------------------

    def read_election_state(self) -> ElectionState | None:
        """None if the file does not exist; raises ElectionStateDamage, OSError."""
        path = f"{self.directory}/{QUORUM_STATE}"
        try:
            return decode_election_state(self._disk.read_bytes(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ElectionStateDamage(f"{path} is damaged: {error}") from error

    def read_noted_epoch(self) -> int:
        """The last epoch known when damage was found; no vote was given above it. 0 without damage. Raises OSError,
        OperatorError.
        """
        path = f"{self.directory}/{CATCHING_UP_FILE}"
        try:
            return decode_catching_up(self._disk.read_bytes(path)) if self.must_catch_up else 0
        except ValueError as error:
            raise DataDirectoryError(
                f"{path} and {QUORUM_STATE} there are both damaged ({error}); restore the directory from a backup, or "
                "empty it and let the node join again"
            ) from error

    def read_configured_voters(self) -> tuple[int, ...]:
        """The configured voter node ids stored in `quorum-state`; empty without the file.

        Raises OperatorError for a damaged file.
        """
        path = f"{self.directory}/{QUORUM_STATE}"
        try:
            return decode_configured_voters(self._disk.read_bytes(path))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            raise DataDirectoryError(
                f"{path} can't be used: {error}; restore it from a backup of the data directory"
            ) from error

    def write_election_state(self, state: ElectionState, configured: Sequence[Voter]) -> None:
        """Write `quorum-state` durably; blocks. `configured` as in `encode_election_state`. Raises OSError."""
        note = f"{self.directory}/{CATCHING_UP_FILE}"
        # first, since an intact quorum-state does not show the damage
        if state.must_catch_up and not self.must_catch_up:
            self._disk.write_atomic(note, encode_catching_up(state.leader_epoch))
            self.must_catch_up = True
        self._disk.write_atomic(f"{self.directory}/{QUORUM_STATE}", encode_election_state(state, configured))
        if self.must_catch_up and not state.must_catch_up:
            self._disk.unlink(note)
            self._disk.fsync_dir(self.directory)
            self.must_catch_up = False

    def close(self) -> None:
        """Flush and close; raises KafkaError."""
        self._log.flush()
        self._log.close()


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """The snapshots in a directory, oldest first."""
    return sorted(found for name in disk.listdir(directory) if (found := parse_snapshot_name(name)) is not None)


def _require_content(disk: Disk, path: str, data: bytes) -> None:
    """Raise ProtocolError unless the file contains `data`. Reads it in pieces; raises OSError."""
    file = disk.open(path, read_only=True)
    try:
        is_same = file.size() == len(data) and all(
            file.read(_READ_BYTES, position) == data[position : position + _READ_BYTES]
            for position in range(0, len(data), _READ_BYTES)
        )
    finally:
        file.close()
    if not is_same:
        raise ProtocolError("it differs from the data that was written")


def open_metadata_log(runtime: NodeRuntime, data_dir: str, config: MetadataLogConfig) -> ReplicaLog:
    """Open or create the metadata log below `data_dir`; blocks. Raises OSError, OperatorError."""
    disk, clock = runtime.disk, runtime.clock
    directory = f"{data_dir}/{DIRECTORY}"
    make_durably(disk, directory)
    snapshots = list_snapshots(disk, directory)
    end_of_snapshot = snapshots[-1].end_offset if snapshots else 0
    oldest = snapshots[0].end_offset if snapshots else 0
    options = LoadOptions(
        config=LogConfig(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            max_message_bytes=_MAX_BATCH_BYTES,
            retention_ms=-1,
            retention_bytes=-1,
            file_delete_delay_ms=0,
        ),
        clean=False,
        log_start_offset=oldest,
        recovery_point=end_of_snapshot,
    )
    folder = Folder(Descriptors(disk, _MAX_DESCRIPTORS), directory)
    try:
        events = _Events(disk, directory)
        log = load_log(folder, (METADATA_TOPIC, 0), options, clock=clock, rng=runtime.rng, events=events)
        if log.topic_id is None:
            log.assign_topic_id(METADATA_TOPIC_ID)
    except KafkaError as error:
        raise DataDirectoryError(f"the metadata log in {directory} can't be opened: {error}") from error
    if log.topic_id != METADATA_TOPIC_ID:
        raise DataDirectoryError(
            f"{directory}/partition.metadata contains the id of another topic, so this is not a metadata log: set "
            "metadata.log.dir to the right directory, or restore it from a backup"
        )
    metadata_log = ReplicaLog(disk, clock, directory, log, snapshots)
    if snapshots and _ends_before(log, snapshots[-1]):
        # The log is replaced only by a readable snapshot.
        metadata_log.read_snapshot(snapshots[-1], partial(replay_snapshot, replay=lambda _: None))
        metadata_log.start_from(snapshots[-1])
    if log.log_start_offset > end_of_snapshot:
        raise DataDirectoryError(
            f"the metadata log in {directory} starts at offset {log.log_start_offset}, and no snapshot covers earlier "
            "offsets; restore the missing .checkpoint file from a backup of the data directory"
        )
    return metadata_log


def drop_unknown_epochs(log: ReplicaLog, disk: Disk) -> None:
    """Truncate a log before the first batch of an epoch above that of an intact `quorum-state`; at a start.

    A replica writes an epoch there before it appends a batch of it. So a later epoch is damage, which no CRC covers,
    and with it the replica would refuse every leader. Other replicas have the batch: not for a single voter. Raises
    OSError, KafkaError.
    """
    try:
        stored = log.read_election_state()
    except ElectionStateDamage:
        return
    if stored is None or log.last_epoch <= stored.leader_epoch:
        return
    offset = log.end_offset_of_epoch(stored.leader_epoch).end_offset
    logger.error(
        "%s has epoch %s at offset %s, above epoch %s of %s, which is damage; the log is truncated there",
        log.directory,
        log.last_epoch,
        offset,
        stored.leader_epoch,
        QUORUM_STATE,
    )
    disk.write_atomic(f"{log.directory}/{CATCHING_UP_FILE}", encode_catching_up(stored.leader_epoch))
    log.must_catch_up = True
    log.truncate_to(offset)


def _ends_before(log: Log, snapshot: SnapshotId) -> bool:
    """Whether a snapshot, which contains only committed records, ends above the log.

    A log with only older epochs may be longer and contain none of it: a leader sent the snapshot to replace a tail that
    was never committed, and the process ended before the tail was removed.
    """
    if log.log_end_offset < snapshot.end_offset:
        return True
    return log.log_start_offset < log.log_end_offset and log.leader_epoch < snapshot.epoch
