"""The log of one partition: a directory of segments, appended at the end, read anywhere, cut at both ends.

Hot: `append_as_leader` and `read` touch headers and counters, never a record object. Everything runs on the event loop;
only `FlushTask.run` and region reads run in pool threads.

Invariants:
- Segments are sorted by base offset; the last is the active one and the only one that grows.
- log_start_offset <= log_end_offset, recovery_point <= flushed_offset <= log_end_offset, and high_watermark <=
  log_end_offset where replication set it. The recovery point may be below the start: deleted records are synced too,
  else a power failure could take the offsets back.
- After any OSError file and memory agree, as before the call; where that can't be reached (a torn append that can't be
  cut off, half a truncation, a failed sync) the log refuses every further append with KAFKA_STORAGE_ERROR.
- Offsets are given once: nothing rewrites a batch of an epoch.

Left out: the high watermark's rules and who may read up to where (`replica`), cleaning, the aborted-transaction index.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable

from ottla.common.clock import BlockingPool, Clock, Rng
from ottla.common.disk import Buffer, Disk
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.ids import Uuid
from ottla.record.batch import COMPRESSION_MASK, HEADER_SIZE, LOG_OVERHEAD, NO_PRODUCER_ID, BatchHeader
from ottla.record.errors import InvalidRecord
from ottla.record.validate import check_batch, check_replicated_batch, patch_batch, set_log_append_time
from ottla.record.walk import walk_records
from ottla.storage.append_rules import (
    LOG_APPEND_TIME,
    DecompressionBudget,
    check_records,
    inspects,
    needs_decompression,
    prepare_batch,
    refuse_timestamps,
    timestamps_out_of_range,
)
from ottla.storage.checkpoints import format_epochs, format_partition_metadata, write_unsynced
from ottla.storage.descriptors import Folder
from ottla.storage.epochs import LeaderEpochCache
from ottla.storage.flush import TRANSIENT_ERRORS, FlushDone, Flusher, FlushTask
from ottla.storage.index import TIME_ENTRY_SIZE
from ottla.storage.log_config import MAX_INT, LogConfig
from ottla.storage.lookup import find_max_timestamp, find_timestamp
from ottla.storage.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.storage.off_loop import Known
from ottla.storage.producer_files import reload_producers, remove_producers, write_producers
from ottla.storage.producer_state import ProducerState
from ottla.storage.results import AppendResult, LogEvents, ReadResult
from ottla.storage.retention import count_deletable
from ottla.storage.segment import Outline, Segment, TornAppendError

__all__ = ["AppendResult", "Log", "LogEvents", "ReadResult"]

_RECENT_BATCHES = 8


class Log:
    """One partition's log; see the module's invariants. Made by `loader.load_log`."""

    __slots__ = (
        "_appended_since_flush",
        "_base_offsets",
        "_clock",
        "_closed",
        "_compacted",
        "_config",
        "_events",
        "_failed",
        "_flush",
        "_flusher",
        "_folder",
        "_folder_changed",
        "_inspects",
        "_log_append_time",
        "_max_index_entries",
        "_max_message_bytes",
        "_recent",
        "_rng",
        "_roll_after_ms",
        "_unsynced_paths",
        "changed",
        "directory_is_new",
        "epochs",
        "flushed_offset",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producer_expiration_ms",
        "producers",
        "recovery_point",
        "segments",
        "start_listener",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        folder: Folder,
        config: LogConfig,
        clock: Clock,
        rng: Rng,
        events: LogEvents,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        producer_expiration_ms: int,
        names_are_durable: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self._folder = folder
        self._clock = clock
        self._rng = rng
        self._events = events
        self.segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = self.flushed_offset = recovery_point
        self.high_watermark: int | None = None
        self.epochs = epochs
        self.producers = producers
        self.last_flush_ms = clock.time_ms()
        self._recent: dict[int, int] = {}
        self._folder_changed = not names_are_durable
        self._unsynced_paths = [] if names_are_durable or topic_id is None else [folder.join(PARTITION_METADATA)]
        self._appended_since_flush = 0
        self.changed = recovery_point < log_end_offset  # so that a clean stop has to flush it
        self._failed = False
        self._closed = False
        self._flush: FlushTask | None = None  # under way
        self._flusher: Flusher | None = None
        self.start_listener: Callable[[], None] | None = None  # told after the log start offset rose
        self.directory_is_new = False  # set by who made it: the first flush then makes its name durable too
        self.producer_expiration_ms = producer_expiration_ms
        self._set_config(config)

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._set_config(config)

    def _set_config(self, config: LogConfig) -> None:
        self._config = config
        self._compacted = config.compacted
        self._inspects = inspects(config)
        self._max_message_bytes = config.max_message_bytes
        self._max_index_entries = max(config.segment_index_bytes // TIME_ENTRY_SIZE, 1)
        self._log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        self._draw_roll_time()
        self._events.log_configured(self)

    def _draw_roll_time(self) -> None:
        jitter = min(self._config.segment_jitter_ms, self._config.segment_ms)
        self._roll_after_ms = self._config.segment_ms - (self._rng.randrange(jitter) if jitter > 0 else 0)

    @property
    def disk(self) -> Disk:
        return self._folder.disk

    @property
    def folder(self) -> Folder:
        return self._folder

    @property
    def directory(self) -> str:
        return self._folder.path

    @property
    def name(self) -> str:
        """`topic-partition`, for messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def active_segment(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' data."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch in the log, -1 without one."""
        return self.epochs.latest_epoch

    @property
    def failed(self) -> bool:
        """The log refuses appends, since what is on disk is unknown."""
        return self._failed

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end of what read_committed may see: before the first open transaction, never above the watermark."""
        first_offsets = self.producers.open_transactions
        return min(high_watermark, *first_offsets.values()) if first_offsets else high_watermark

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch (KIP-279); (-1, -1) when unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_leader_epoch(self, epoch: int) -> None:
        """This replica leads `epoch` from the log end on, before its first append (followers may ask for it)."""
        self.epochs.begin(epoch, self.log_end_offset)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Write `partition.metadata`, for a log that has none. Raises KafkaError."""
        path = self._folder.join(PARTITION_METADATA)
        try:
            write_unsynced(self.disk, path, format_partition_metadata(topic_id))
        except OSError as error:
            raise self._storage_error(error, "writing partition.metadata") from error
        self.topic_id = topic_id
        self._unsynced_paths.append(path)
        self._folder_changed = True

    # -- append ------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        buffer: bytearray,
        start: int,
        end: int,
        leader_epoch: int,
        *,
        client: bool = True,
        prepared: bool = False,
    ) -> AppendResult:
        """Give the batch at `buffer[start:end]` its offsets and append it; the buffer is patched in place.

        From a client it must be exactly one batch and obey the topic's configuration; the broker's own
        (`client=False`) may be several and hold control records. `prepared`: it went through
        `append_rules.prepare_batch`. Raises KafkaError with the code for the client.
        """
        if not client:
            return self._append_own(buffer, start, end, leader_epoch)
        size = end - start
        if size > self._max_message_bytes:
            self._refuse_size(size)
        with memoryview(buffer) as view, view[start:end] as data:
            header = check_batch(buffer, view, start, end)
            if header[1] + LOG_OVERHEAD != size:
                raise InvalidRecord("a produce request carries exactly one batch a partition")
            config = self._config
            attributes = header[5]
            now = self._clock.time_ms()
            if header[9] != NO_PRODUCER_ID:
                duplicate = self.producers.check(header[9], header[10], header[11], header[6])
                if duplicate is not None:
                    return self._duplicate_result(duplicate[2], header[6], duplicate[3])
            compressed = attributes & COMPRESSION_MASK
            if not self._log_append_time and timestamps_out_of_range(header[7], header[8], now, config):
                records_start = end if compressed else start + HEADER_SIZE
                refuse_timestamps(buffer, records_start, end, header, now, config, self.name)
            if not prepared:
                if self._inspects and needs_decompression(buffer, start, now, config):
                    batch = prepare_batch(buffer, start, end, now, config, self.name, DecompressionBudget())
                    return self.append_as_leader(batch, 0, len(batch), leader_epoch, prepared=True)
                if self._compacted:
                    check_records(buffer, start + HEADER_SIZE, end, header, now, config, self.name)
                elif not compressed:
                    walk_records(buffer, start + HEADER_SIZE, end, header[12])
            append_time = -1
            if self._log_append_time:
                set_log_append_time(buffer, start, now)
                append_time = now
            base_offset = self.log_end_offset
            patch_batch(buffer, start, base_offset, leader_epoch)
            return self._append_batch(data, base_offset, leader_epoch, header, append_time)

    def _append_own(self, buffer: bytearray, start: int, end: int, leader_epoch: int) -> AppendResult:
        result: AppendResult | None = None
        position = start
        with memoryview(buffer) as view:
            while position < end:
                header = check_replicated_batch(buffer, view, position, end)
                batch_end = position + header[1] + LOG_OVERHEAD
                patch_batch(buffer, position, self.log_end_offset, leader_epoch)
                with view[position:batch_end] as data:
                    one = self._append_batch(data, self.log_end_offset, leader_epoch, header, -1)
                if result is not None:
                    one.base_offset = result.base_offset
                    one.needs_flush |= result.needs_flush
                result = one
                position = batch_end
        if result is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no batch to append")
        return result

    def _refuse_size(self, size: int) -> None:
        # A batch that a request carried incompletely is corrupt, but its size alone is reason enough.
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is larger than max.message.bytes of {self.name}, {self._max_message_bytes}",
        )

    def _duplicate_result(self, last_offset: int, last_delta: int, timestamp: int) -> AppendResult:
        append_time = timestamp if self._log_append_time else -1
        return AppendResult(last_offset - last_delta, last_offset, append_time, self.log_start_offset, True, False)

    def append_as_follower(self, buffer: Buffer, start: int, end: int) -> AppendResult:
        """Append batches that a leader wrote, with their offsets and epochs; an incomplete last one is left out.

        Returns the range appended, `last_offset` below `base_offset` when no batch was whole. Raises KafkaError
        CORRUPT_MESSAGE when a batch is damaged or its offsets go back; batches before it are appended.
        """
        first = self.log_end_offset
        needs_flush = False
        position = start
        while end - position >= HEADER_SIZE:
            size = int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True) + LOG_OVERHEAD
            if size > end - position:
                break
            with memoryview(buffer) as view:
                header = check_replicated_batch(buffer, view, position, end)
            base_offset = header[0]
            if base_offset < self.log_end_offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.name} ends at {self.log_end_offset}, the leader sent a batch at {base_offset}",
                )
            with memoryview(buffer) as view, view[position : position + size] as data:
                result = self._append_batch(data, base_offset, header[2], header, -1)
            needs_flush |= result.needs_flush
            position += size
        return AppendResult(first, self.log_end_offset - 1, -1, self.log_start_offset, False, needs_flush)

    def _append_batch(
        self, data: memoryview, base_offset: int, leader_epoch: int, header: BatchHeader, append_time: int
    ) -> AppendResult:
        """Write one batch that is ready, and take note of it."""
        if self._failed or self._closed:
            reason = "closed" if self._closed else "offline after a disk error"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is {reason}")
        size = len(data)
        last_offset = base_offset + header[6]
        max_timestamp = header[8] if append_time < 0 else append_time
        segment = self.segments[-1]
        if (
            segment.size_bytes + size > self._config.segment_bytes
            or last_offset - segment.base_offset > MAX_INT
            or segment.index_entry_count >= self._max_index_entries
            or (segment.size_bytes and self._waited_for_roll(segment, max_timestamp))
        ):
            segment = self._roll_for(segment, size, base_offset)
        position = segment.size_bytes
        try:
            segment.append(data, size)
        except OSError as error:
            raise self._storage_error(error, "an append") from error
        segment.note_batch(position, size, last_offset, max_timestamp)
        recent = self._recent
        recent[base_offset] = position
        if len(recent) > _RECENT_BATCHES:
            del recent[next(iter(recent))]
        self.log_end_offset = last_offset + 1
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        if header[9] != NO_PRODUCER_ID:
            self.producers.update(header, base_offset)
        self.producers.map_end_offset = last_offset + 1
        self.changed = True
        self._appended_since_flush += header[12]
        needs_flush = self._appended_since_flush >= self._config.flush_messages
        return AppendResult(base_offset, last_offset, append_time, self.log_start_offset, False, needs_flush)

    def _waited_for_roll(self, segment: Segment, timestamp: int) -> bool:
        first = segment.first_timestamp
        if first >= 0:
            return timestamp - first > self._roll_after_ms
        if segment.load_first_timestamp() >= 0:
            return self._waited_for_roll(segment, timestamp)
        return self._clock.time_ms() - segment.created_ms > self._roll_after_ms

    def _roll_for(self, segment: Segment, size: int, base_offset: int) -> Segment:
        if size > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes is larger than segment.bytes of {self.name}, {self._config.segment_bytes}",
            )
        if segment.size_bytes == 0 and segment.base_offset == base_offset:
            return segment
        return self.roll(base_offset)

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new active segment at the log end (or at a follower's next batch); returns it.

        An empty active segment stays. Raises KafkaError KAFKA_STORAGE_ERROR with nothing changed.
        """
        old = self.segments[-1]
        next_offset = self.log_end_offset if base_offset is None else base_offset
        if old.size_bytes == 0 and old.base_offset == next_offset:
            return old
        try:
            old.become_inactive()
            self._write_snapshot()
            segment = Segment.create(
                self._folder, next_offset, self._clock.time_ms(), self._config.index_interval_bytes
            )
        except OSError as error:
            raise self._storage_error(error, "a roll") from error
        self.segments = [*self.segments, segment]
        self._base_offsets = [*self._base_offsets, next_offset]
        self._recent.clear()
        self._folder_changed = True
        self._draw_roll_time()
        self._events.flush_needed(self)
        return segment

    def _write_snapshot(self) -> None:
        path = write_producers(self.producers, self._folder, self.log_end_offset)
        if path is not None:
            self._unsynced_paths.append(path)
            self._folder_changed = True

    def _storage_error(self, error: OSError, action: str) -> KafkaError:
        """Note what the failure means for the log; the error for the client."""
        if isinstance(error, TornAppendError) or error.errno not in TRANSIENT_ERRORS:
            self._failed = True
        self._events.log_failed(self, error, action)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{action} of {self.name} failed: {error.strerror or error}")

    # -- read --------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True, known: Known | None = None
    ) -> ReadResult:
        """Batches from the one that holds `offset` on, below `max_offset`, within one segment.

        At most `max_bytes`, where a small last batch may be cut; but the first comes whole with `min_one_batch`, and
        without it nothing comes when it doesn't fit. The caller releases `records`. Raises KafkaError
        OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, and, when given what is `known`, OffLoop instead of blocking.
        """
        end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is outside {self.log_start_offset} to {end_offset}",
            )
        if max_offset > end_offset:
            max_offset = end_offset
        if offset >= max_offset or (max_bytes <= 0 and not min_one_batch):
            return ReadResult(offset, self.segments[-1].base_offset, 0, None, 0)
        descriptors = self._folder.descriptors
        descriptors.known = known
        try:
            segment = self.segments[-1]
            position = self._recent.get(offset, -1)
            first_size = 0
            if position < 0:
                located = self._locate(offset)
                if located is None:
                    return ReadResult(offset, segment.base_offset, 0, None, 0)
                segment, outline = located
                position, first_size = outline[0], outline[1]
            length = sent = self._end_position(segment, max_offset) - position
            if length > max_bytes:
                if not first_size:
                    first = segment.outline_at(position)
                    first_size = first[1] if first is not None else length
                if first_size <= max_bytes:
                    length = max_bytes
                    sent = segment.leave_cut_batch(position, max_bytes)
                else:
                    length = sent = first_size if min_one_batch else 0
            if length <= 0:
                return ReadResult(offset, segment.base_offset, position, None, 0)
            return ReadResult(offset, segment.base_offset, position, segment.region(position, sent), length)
        except OSError as error:
            raise self.read_error(error) from error
        finally:
            descriptors.known = None

    def read_error(self, error: OSError) -> KafkaError:
        """Take note of a read that failed; the error for the client."""
        self._events.log_failed(self, error, "a read")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"a read of {self.name} failed: {error.strerror or error}")

    def segment_number(self, offset: int) -> int:
        """The number of the segment that holds `offset`, or of the first when it is before all."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def _locate(self, offset: int) -> tuple[Segment, Outline] | None:
        """Segment and batch of the first offset that is `offset` or more; None at the end. Raises OSError."""
        segments = self.segments
        for number in range(self.segment_number(offset), len(segments)):
            outline = segments[number].find_offset(offset)
            if outline is not None:
                return segments[number], outline
        return None

    def _end_position(self, segment: Segment, max_offset: int) -> int:
        """Where the batches below `max_offset` end in `segment`."""
        if segment is self.segments[-1]:
            if max_offset == self.log_end_offset:
                return segment.size_bytes
            position = self._recent.get(max_offset, -1)
            if position >= 0:
                return position
        elif self._base_offsets[self.segment_number(segment.base_offset) + 1] <= max_offset:
            return segment.size_bytes
        outline = segment.find_offset(max_offset)
        return segment.size_bytes if outline is None else outline[0]

    # -- offsets by time ---------------------------------------------------------------------------------------------

    def lookup_timestamp(self, timestamp: int, known: Known | None = None) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record whose time is `timestamp` or later; None without one.

        Reads and may decompress a batch. Raises KafkaError, and, when given what is `known`, OffLoop instead of that.
        """
        return find_timestamp(self, timestamp, known)

    def max_timestamp(self, known: Known | None = None) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the largest timestamp (KIP-734); None if empty.

        Raises as its sibling above.
        """
        return find_max_timestamp(self, known)

    # -- flush -------------------------------------------------------------------------------------------------------

    def prepare_flush(self, *, closing: bool = False) -> FlushTask | None:
        """What makes everything up to the log end durable; None when it is. Its `run` blocks, `finish` must follow.

        `closing` makes the log ready for the start after a clean stop, which trusts the indexes of the active segment
        too and finds the producers in a snapshot.

        Raises OSError, and InvariantError while another flush of this log is under way.
        """
        if self._flush is not None:
            raise InvariantError(f"two flushes of {self.name} at once")
        epochs_changed = self.epochs.must_be_written(self.log_end_offset)
        if closing:
            if not self.changed:
                return None
            self.segments[-1].become_inactive()
            self._write_snapshot()
        elif not (self.recovery_point < self.log_end_offset or self._unsynced_paths or epochs_changed):
            return None
        atomic_writes = []
        if epochs_changed:
            atomic_writes.append((self._folder.join(LEADER_EPOCH_CHECKPOINT), format_epochs(self.epochs.entries())))
        task = FlushTask(
            self,
            # No start rebuilds indexes of complete segments before it; one that ends there may have become so since.
            self.segments[self.segment_number(self.recovery_point - 1) :],
            closing=closing,
            atomic_writes=atomic_writes,
            loose_paths=self._unsynced_paths,
            folder=self.directory if self._folder_changed else None,
            # A clean stop ends with a marker in that directory, whose names it makes durable all at once.
            holder=posixpath.dirname(self.directory) if self.directory_is_new and not closing else None,
        )
        if closing:
            self.changed = False
        self.epochs.dirty = False
        self._unsynced_paths = []
        self._folder_changed = False
        self.directory_is_new = False
        self._appended_since_flush = 0
        self.last_flush_ms = self._clock.time_ms()
        self._flush = task
        return task

    def flush_finished(self, task: FlushTask, error: BaseException | None) -> None:
        """The outcome of `task`; called by it."""
        self._flush = None
        if self._closed:
            return
        if error is not None:
            self._failed = True
            if isinstance(error, OSError):
                self._events.log_failed(self, error, "a flush")
            return
        self.flushed_offset = max(self.flushed_offset, min(task.end_offset, self.log_end_offset))
        if task.refused is None:
            self.recovery_point = self.flushed_offset
        else:
            self.epochs.dirty = True
            self._events.log_failed(self, task.refused, "a part of a flush")
            self._events.flush_needed(self)

    def flush(self, *, closing: bool = False) -> None:
        """Make everything durable, blocking. Raises KafkaError KAFKA_STORAGE_ERROR."""
        try:
            task = self.prepare_flush(closing=closing)
        except OSError as error:
            raise self._storage_error(error, "a flush") from error
        if task is None:
            return
        try:
            task.run()
        except OSError as error:
            task.finish(error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"a flush of {self.name} failed: {error.strerror}"
            ) from error
        task.finish(None)

    def request_flush(self, pool: BlockingPool, done: FlushDone) -> None:
        """Call `done(None)` once everything appended so far is durable; requests of the meantime share one sync."""
        if self._flusher is None:
            self._flusher = Flusher(self)
        self._flusher.request(pool, self.log_end_offset, done)

    # -- the start of the log ------------------------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Let the log start at `offset`, if that is later; segments go with the next retention pass.

        Whether it changed. Raises KafkaError OFFSET_OUT_OF_RANGE beyond the log end (the caller checks the high
        watermark).
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} ends at {self.log_end_offset}, before {offset}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.changed = True
        if self.start_listener is not None:
            self.start_listener()
        return True

    def delete_records(self, before_offset: int) -> int:
        """Drop records below `before_offset`; the log start offset after that. Raises as its sibling above."""
        self.maybe_increment_log_start_offset(before_offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete whole segments by start offset, age and size; how many. Raises KafkaError KAFKA_STORAGE_ERROR."""
        try:
            count = count_deletable(self, now_ms)
            if not count:
                return 0
            if count == len(self.segments):
                self.roll()
            self.remove_segments(self.segments[:count], self._config.file_delete_delay_ms)
        except OSError as error:
            raise self._storage_error(error, "deleting segments") from error
        self.maybe_increment_log_start_offset(self.segments[0].base_offset)
        return count

    def remove_segments(self, segments: list[Segment], delay_ms: int) -> None:
        """Take segments out of the log; their files get the suffix `.deleted` and go after `delay_ms`."""
        if not segments:
            return
        gone = {segment.base_offset for segment in segments}
        self.segments = [segment for segment in self.segments if segment.base_offset not in gone]
        self._base_offsets = [segment.base_offset for segment in self.segments]
        paths = []
        for segment in segments:
            paths += segment.mark_deleted()
            segment.close()
        remove_producers(self.producers, self._folder, gone)
        self._folder_changed = True
        self._events.unlink_later(paths, delay_ms)

    # -- the end of the log --------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on; whether there was anything. Raises KafkaError KAFKA_STORAGE_ERROR.

        A batch that holds `offset` goes as a whole, and the log then ends where it began.
        Responses that still carry dropped bytes fail (`SegmentRegion`). A full disk refuses before anything changed.
        """
        if offset >= self.log_end_offset:
            # A leader that appended nothing left an epoch at the end, which the new leader never heard of.
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            number = self.segment_number(offset)
            segment = self.segments[number]
            outline = segment.find_offset(offset)
            if outline is not None:
                offset = min(offset, segment.base_offset_at(outline[0]))
            self._announce_end(offset, [entry for entry in self.epochs.entries() if entry[1] < offset])
        except OSError as error:
            raise self._storage_error(error, "a truncation") from error
        try:
            if number + 1 < len(self.segments):
                # First the later segments, durably: a power failure in between must not leave a gap before them.
                self.remove_segments(self.segments[number + 1 :], 0)
                self.disk.fsync_dir(self.directory)
            segment.truncate_to_position(segment.size_bytes if outline is None else outline[0], offset)
            self._end_moved_back(offset)
            reload_producers(
                self.producers,
                self._folder,
                self.segments,
                range(self.log_start_offset, offset),
                self._clock.time_ms(),
                self.producer_expiration_ms,
            )
        except OSError as error:
            raise self._half_truncated(error) from error
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and starts at `offset`. Raises as its sibling above."""
        try:
            self._announce_end(offset, [])
        except OSError as error:
            raise self._storage_error(error, "a truncation") from error
        try:
            old = self.segments
            paths = [path for segment in old for path in segment.mark_deleted()]
            self.disk.fsync_dir(self.directory)
            new = Segment.create(self._folder, offset, self._clock.time_ms(), self._config.index_interval_bytes)
            self.segments, self._base_offsets = [new], [offset]
            for segment in old:
                segment.close()
            self.log_start_offset = offset
            self.epochs.clear()
            self._end_moved_back(offset)
            remove_producers(self.producers, self._folder)
            self.producers.clear(offset)
            self._events.unlink_later(paths, 0)
        except OSError as error:
            raise self._half_truncated(error) from error

    def _announce_end(self, offset: int, epochs: list[tuple[int, int]]) -> None:
        """First of a truncation: no checkpoint names more than there will be. Raises OSError with nothing changed.

        After a crash in between a start walks what is above the recovery point, and finds the epochs there.
        """
        self.recovery_point = min(self.recovery_point, offset)
        self._events.log_truncated(self)
        self.disk.write_atomic(self._folder.join(LEADER_EPOCH_CHECKPOINT), format_epochs(epochs))

    def _half_truncated(self, error: OSError) -> KafkaError:
        self._failed = True
        return self._storage_error(error, "a truncation")

    def _end_moved_back(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        if self._flush is not None:  # what is appended now, it does not cover
            self._flush.end_offset = min(self._flush.end_offset, offset)
        if self.high_watermark is not None:
            self.high_watermark = min(self.high_watermark, offset)
        self._recent.clear()
        self.changed = self._folder_changed = True
        self.epochs.truncate_from_end(offset)

    # -- the end of the object -----------------------------------------------------------------------------------------

    def release_idle_reserve(self) -> None:
        """Give back blocks that were reserved for appends which didn't come. Best effort."""
        try:
            self.segments[-1].release_reserve()
        except OSError as error:
            self._events.log_failed(self, error, "giving back reserved blocks")

    def close(self, *, clean: bool = True) -> None:
        """Let go of all files. With `clean`, everything is on disk and durable first, so that the next start can trust
        it; raises KafkaError KAFKA_STORAGE_ERROR when that fails, and the files are let go of anyway."""
        try:
            if clean and not self._failed:
                self.flush(closing=True)
        finally:
            self._closed = True
            for segment in self.segments:
                segment.close()

    def remove_expired_producers(self, now_ms: int) -> int:
        """Forget producers that wrote nothing for `producer.id.expiration.ms`; how many."""
        return self.producers.remove_expired(now_ms, self.producer_expiration_ms) if len(self.producers) else 0

    def moved_to(self, directory: str) -> None:
        """The directory was renamed."""
        self._folder.path = directory
