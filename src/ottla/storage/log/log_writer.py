"""Appends to a log, and rolls its segments: batches of clients, of the broker, of a leader to follow. Hot.

`append_as_leader` touches headers and counters, never a record object, and is one call below the partition.

Invariants:
- Offsets are assigned once: a batch is never rewritten within an epoch.
- After any OSError file and memory agree, as before the call, or the log accepts no more appends (`health`).

Permission to append is checked in `replica`, a topic's requirements in `append_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Clock, Rng
from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    PARTITION_LEADER_EPOCH,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from ottla.record.control import MARKER_SIZE, EndMarker, end_transaction_marker
from ottla.record.errors import InvalidRecord
from ottla.record.validate import check_batch, check_replicated_batch, patch_batch, set_log_append_time
from ottla.record.walk import walk_records
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.epochs import UNDEFINED_EPOCH, LeaderEpochCache
from ottla.storage.files.log_config import MAX_INT, LogConfig
from ottla.storage.log.append_rules import (
    LOG_APPEND_TIME,
    DecompressionBudget,
    check_records,
    inspects,
    needs_decompression,
    prepare_batch,
    refuse_timestamps,
    timestamps_out_of_range,
)
from ottla.storage.log.flush import LogFlush
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.log.producer_state import ProducerState, RememberedBatch
from ottla.storage.log.verification import VerificationGuard
from ottla.storage.segment.health import LogHealth
from ottla.storage.segment.index import TIME_ENTRY_SIZE
from ottla.storage.segment.results import AppendResult
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.transactions import CompletedTransaction

_RECENT_BATCHES = 8


class LogWriter:
    """Appends to one log."""

    __slots__ = (
        "_clock",
        "_compacted",
        "_epochs",
        "_flush",
        "_folder",
        "_health",
        "_inspects",
        "_log_append_time",
        "_max_index_entries",
        "_max_message_bytes",
        "_offsets",
        "_producers",
        "_rng",
        "_roll_after_ms",
        "_segments",
        "config",
    )

    def __init__(
        self,
        segments: LogSegments,
        offsets: LogOffsets,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        folder: Folder,
        flush: LogFlush,
        health: LogHealth,
        config: LogConfig,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._folder = folder
        self._flush = flush
        self._health = health
        self._clock = clock
        self._rng = rng
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Use these settings for later appends."""
        self.config = config
        self._compacted = config.compacted
        self._inspects = inspects(config)
        self._max_message_bytes = config.max_message_bytes
        self._max_index_entries = max(config.segment_index_bytes // TIME_ENTRY_SIZE, 1)
        self._log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        self._draw_roll_time()

    def _draw_roll_time(self) -> None:
        segment_ms = self.config.max_segment_ms
        jitter = min(self.config.segment_jitter_ms, segment_ms)
        self._roll_after_ms = segment_ms - (self._rng.randrange(jitter) if jitter > 0 else 0)

    def append_as_leader(
        self,
        buffer: bytearray,
        start: int,
        end: int,
        leader_epoch: int,
        *,
        client: bool = True,
        prepared: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Assign offsets to the batch at `buffer[start:end]` and append it; the buffer is patched in place.

        From a client it must be exactly one batch and obey the topic's configuration; the broker's own (`client=False`)
        may be several and contain control records. `prepared`: it went through `append_rules.prepare_batch`. `guard`:
        the proof for a batch that begins a transaction. Raises KafkaError with the code for the client.
        """
        if not client:
            return self._append_own(buffer, start, end, leader_epoch, guard)
        size = end - start
        if size > self._max_message_bytes:
            self._refuse_size(size)
        with memoryview(buffer) as view, view[start:end] as data:
            header = check_batch(buffer, view, start, end)
            # All at once: access to a field by its name takes twice as long.
            (
                _, length, _, _, _, attributes, delta,
                base_timestamp, max_timestamp, producer_id, epoch, sequence, count,
            ) = header  # fmt: skip
            if length + LOG_OVERHEAD != size:
                raise InvalidRecord("a produce request carries exactly one batch a partition")
            config = self.config
            now = self._clock.time_ms()
            if producer_id != NO_PRODUCER_ID:
                transactional = attributes & TRANSACTIONAL_MASK
                duplicate = self._producers.check(producer_id, epoch, sequence, delta, transactional, guard)
                if duplicate is not None:
                    return self._duplicate_result(duplicate, delta)
            compressed = attributes & COMPRESSION_MASK
            if not self._log_append_time and timestamps_out_of_range(base_timestamp, max_timestamp, now, config):
                records_start = end if compressed else start + HEADER_SIZE
                refuse_timestamps(buffer, records_start, end, header, now, config, self._health.name)
            if not prepared:
                if self._inspects and needs_decompression(buffer, start, now, config):
                    batch = prepare_batch(buffer, start, end, now, config, self._health.name, DecompressionBudget())
                    return self.append_as_leader(batch, 0, len(batch), leader_epoch, prepared=True, guard=guard)
                if self._compacted:
                    check_records(buffer, start + HEADER_SIZE, end, header, now, config, self._health.name)
                elif not compressed:
                    walk_records(buffer, start + HEADER_SIZE, end, count)
            append_time = -1
            if self._log_append_time:
                set_log_append_time(buffer, start, now)
                append_time = now
            base_offset = self._offsets.log_end_offset
            patch_batch(buffer, start, base_offset, leader_epoch)
            return self._append_batch(data, base_offset, leader_epoch, header, append_time)

    def _append_own(
        self, buffer: bytearray, start: int, end: int, leader_epoch: int, guard: VerificationGuard | None
    ) -> AppendResult:
        result: AppendResult | None = None
        offsets = self._offsets
        position = start
        with memoryview(buffer) as view:
            while position < end:
                header = check_replicated_batch(buffer, view, position, end)
                batch_end = position + header[BATCH_LENGTH] + LOG_OVERHEAD
                producer_id, attributes = header[PRODUCER_ID], header[ATTRIBUTES]
                if producer_id != NO_PRODUCER_ID and not attributes & CONTROL_MASK:
                    transactional = attributes & TRANSACTIONAL_MASK
                    self._producers.check_without_sequence(producer_id, header[PRODUCER_EPOCH], transactional, guard)
                patch_batch(buffer, position, offsets.log_end_offset, leader_epoch)
                with view[position:batch_end] as data:
                    one = self._append_batch(data, offsets.log_end_offset, leader_epoch, header, -1)
                if result is not None:
                    one.base_offset = result.base_offset
                    one.needs_flush |= result.needs_flush
                result = one
                position = batch_end
        if result is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no batch to append")
        return result

    def _refuse_size(self, size: int) -> None:
        # A batch that is incomplete in the request is corrupt, but its size alone is reason enough.
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is larger than max.message.bytes of {self._health.name}, "
            f"{self._max_message_bytes}",
        )

    def _duplicate_result(self, duplicate: RememberedBatch, last_delta: int) -> AppendResult:
        _, _, last_offset, timestamp = duplicate
        append_time = timestamp if self._log_append_time else -1
        start_offset = self._offsets.log_start_offset
        return AppendResult(last_offset - last_delta, last_offset, append_time, start_offset, True, False)

    def append_as_follower(
        self, buffer: Buffer, start: int, end: int, *, leader_epoch: int | None = None, gaps_allowed: bool = False
    ) -> AppendResult:
        """Append batches of a leader, with their offsets and epochs; an incomplete last one is ignored.

        `leader_epoch` is the current epoch of the leader: if given, fields without a CRC are checked too.
        `gaps_allowed`: offsets may be missing although the topic is not compacted. Returns the range appended, with
        `last_offset` below `base_offset` if no batch was whole. Raises KafkaError CORRUPT_MESSAGE if a batch is damaged
        or its offsets go back; batches before it are appended.
        """
        offsets = self._offsets
        first = offsets.log_end_offset
        needs_flush = False
        position = start
        while end - position > MAGIC_POSITION:
            size = int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True) + LOG_OVERHEAD
            if size > end - position:
                break
            with memoryview(buffer) as view:
                header = check_replicated_batch(buffer, view, position, end)
            base_offset, epoch = header[BASE_OFFSET], header[PARTITION_LEADER_EPOCH]
            if base_offset < offsets.log_end_offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self._health.name} ends at {offsets.log_end_offset}, the leader sent a batch at {base_offset}",
                )
            if leader_epoch is not None:
                if not self._epochs.latest_epoch <= epoch <= leader_epoch:
                    self._check_epoch(header, leader_epoch)
                if base_offset > offsets.log_end_offset > offsets.log_start_offset:
                    following = buffer[position + size : min(position + size + LENGTH_POSITION, end)]
                    self._check_gap(header, following, gaps_allowed=gaps_allowed)
            with memoryview(buffer) as view, view[position : position + size] as data:
                result = self._append_batch(data, base_offset, epoch, header, -1)
            needs_flush |= result.needs_flush
            position += size
        return AppendResult(first, offsets.log_end_offset - 1, -1, offsets.log_start_offset, False, needs_flush)

    def _check_epoch(self, header: BatchHeader, leader_epoch: int) -> None:
        """Raise KafkaError CORRUPT_MESSAGE for an impossible epoch; messages of old formats have none."""
        base_offset, epoch = header[BASE_OFFSET], header[PARTITION_LEADER_EPOCH]
        if epoch != UNDEFINED_EPOCH:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the leader of {self._health.name} in epoch {leader_epoch} sent {base_offset} as of epoch {epoch}",
            )

    def _check_gap(self, header: BatchHeader, following: Buffer, *, gaps_allowed: bool) -> None:
        """Raise KafkaError CORRUPT_MESSAGE unless offsets may be missing before a batch of a leader.

        An offset with one wrong bit looks like a gap, but the next batch is not behind it then: `following` begins with
        the offset of the next batch, if there is one. A log that is no longer compacted requires that as proof.
        """
        behind = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        if len(following) < LENGTH_POSITION:
            fits = self._compacted
        else:
            next_offset = int.from_bytes(following[:LENGTH_POSITION], "big", signed=True)
            fits = next_offset >= behind and (gaps_allowed or self._compacted)
        if not fits:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self._health.name} ends at {self._offsets.log_end_offset}, {header[BASE_OFFSET]} was sent next",
            )

    def _append_batch(
        self, data: memoryview, base_offset: int, leader_epoch: int, header: BatchHeader, append_time: int
    ) -> AppendResult:
        """Write one prepared batch, and update the state."""
        if not self._health.writable:
            raise self._health.refusal()
        _, _, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, _, _, records_count = header
        size = len(data)
        last_offset = base_offset + last_offset_delta
        if append_time >= 0:
            max_timestamp = append_time
        segment = self._segment_for(size, base_offset, last_offset, max_timestamp)
        position = segment.data.size_bytes
        try:
            segment.data.append(data, size)
        except OSError as error:
            raise self._health.storage_error(error, "an append") from error
        segment.indexes.note_batch(position, size, last_offset, max_timestamp)
        recent = self._segments.recent
        recent[base_offset] = position
        if len(recent) > _RECENT_BATCHES:
            del recent[next(iter(recent))]
        offsets = self._offsets
        offsets.log_end_offset = last_offset + 1
        if leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, base_offset)
        producers = self._producers
        if producer_id != NO_PRODUCER_ID:
            if attributes & CONTROL_MASK:
                aborted = producers.end_transaction(header, base_offset, data)
                if aborted is not None:
                    self._note_aborted(segment, aborted)
            else:
                producers.update(header, base_offset, max_timestamp)
        producers.map_end_offset = last_offset + 1
        flush = self._flush
        flush.changed = True
        flush.appended_count += records_count
        needs_flush = flush.appended_count >= self.config.flush_messages
        return AppendResult(base_offset, last_offset, append_time, offsets.log_start_offset, False, needs_flush)

    def append_end_markers(self, markers: Sequence[EndMarker], leader_epoch: int) -> AppendResult:
        """End transactions of different producers by one write; `ProducerState.check_marker` has accepted them.

        Appends all of the markers or none. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        if not self._health.writable:
            raise self._health.refusal()
        now = self._clock.time_ms()
        offsets, producers = self._offsets, self._producers
        first = offsets.log_end_offset
        last = first + len(markers) - 1
        batches = bytearray()
        for offset, (producer_id, producer_epoch, coordinator_epoch, committed, _) in enumerate(markers, first):
            batches += end_transaction_marker(
                commit=committed,
                timestamp_ms=now,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                base_offset=offset,
                leader_epoch=leader_epoch,
            )
        size = len(batches)
        segment = self._segment_for(size, first, last, now)
        position = segment.data.size_bytes
        try:
            segment.data.append(batches, size)
        except OSError as error:
            raise self._health.storage_error(error, "an append") from error
        for index, offset in enumerate(range(first, last + 1)):
            if segment.indexes.note_batch(position + index * MARKER_SIZE, MARKER_SIZE, offset, now):
                break
        recent = self._segments.recent
        for index, offset in enumerate(range(first, last + 1)):
            recent[offset] = position + index * MARKER_SIZE
        while len(recent) > _RECENT_BATCHES:
            del recent[next(iter(recent))]
        offsets.log_end_offset = last + 1
        if leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, first)
        for offset, (producer_id, producer_epoch, coordinator_epoch, committed, _) in enumerate(markers, first):
            aborted = producers.apply_marker(
                producer_id, producer_epoch, coordinator_epoch, offset, now, committed=committed
            )
            if aborted is not None:
                self._note_aborted(segment, aborted)
        producers.map_end_offset = last + 1
        flush = self._flush
        flush.changed = True
        flush.appended_count += len(markers)
        needs_flush = flush.appended_count >= self.config.flush_messages
        return AppendResult(first, last, -1, offsets.log_start_offset, False, needs_flush)

    def _note_aborted(self, segment: Segment, aborted: CompletedTransaction) -> None:
        self._segments.with_aborted = True
        if segment.aborted.note(aborted):
            self._flush.names_changed()

    def _waited_for_roll(self, segment: Segment, timestamp: int) -> bool:
        first = segment.search.load_first_timestamp()
        if segment.indexes.entry_count >= self._max_index_entries:  # unknown before in a segment of an earlier process
            return True
        if first >= 0:
            return timestamp - first > self._roll_after_ms
        return self._clock.time_ms() - segment.created_ms > self._roll_after_ms

    def _segment_for(self, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> Segment:
        """Return the active segment, or a new one if it is full, for `size` bytes of these offsets."""
        segment = self._segments.active
        indexes = segment.indexes
        first = indexes.first_timestamp
        if not (
            segment.data.size_bytes + size > self.config.segment_bytes
            or last_offset - segment.base_offset > MAX_INT
            or indexes.entry_count >= self._max_index_entries
            or (
                max_timestamp - first > self._roll_after_ms
                if first >= 0  # almost always: an empty segment has none
                else segment.data.size_bytes and self._waited_for_roll(segment, max_timestamp)
            )
        ):
            return segment
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes is larger than segment.bytes of {self._health.name}, "
                f"{self.config.segment_bytes}",
            )
        if segment.data.size_bytes == 0 and segment.base_offset == base_offset:
            return segment
        # Not at a follower's next batch: a start takes offsets missing before a segment for lost.
        return self.roll(base_offset if last_offset - self._offsets.log_end_offset > MAX_INT else None)

    def roll(self, base_offset: int | None = None) -> Segment:
        """Roll a new active segment at the log end, or at `base_offset` if that is too far from it; returns it.

        An empty active segment stays. Raises KafkaError KAFKA_STORAGE_ERROR with nothing changed.
        """
        old = self._segments.active
        next_offset = self._offsets.log_end_offset if base_offset is None else base_offset
        if old.data.size_bytes == 0 and old.base_offset == next_offset:
            return old
        try:
            old.become_inactive()
            self._flush.write_snapshot()
            segment = Segment.create(self._folder, next_offset, self._clock.time_ms(), self.config.index_interval_bytes)
        except OSError as error:
            raise self._health.storage_error(error, "a roll") from error
        self._segments.replace((), (segment,))
        self._flush.names_changed()
        self._draw_roll_time()
        self._health.events.flush_needed(self._health.partition)
        return segment
