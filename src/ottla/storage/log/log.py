"""Log of one partition: a directory of segments, appended at the end, read anywhere, truncated at both ends.

`Log` combines the components and is their only interface; a component receives its inputs and knows neither the log
nor the internals of the others:

- `log_segments`: the set of segments and the offsets, which the others share;
- `log_writer`, `log_reader`: append and read; the partition calls them without a layer in between;
- `aborted_transactions`: transactions that a read_committed reader needs;
- `flush`: the volatile part; `health`: whether appends are accepted;
- `truncation`, `retention`, `deletion`: its two ends; `epochs`, `producer_state`: state derived from its batches.

Everything runs on the event loop; only `FlushTask.run` and region reads run in pool threads.

The rules of the high watermark and read limits are in `replica`, the work of cleaning in `compaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import BlockingPool, Clock, Rng
from ottla.common.platform.disk import Buffer
from ottla.record.control import EndMarker
from ottla.storage.files.checkpoints import format_partition_metadata, write_unsynced
from ottla.storage.files.damage import Damage
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.epochs import UNDEFINED_EPOCH, LeaderEpochCache
from ottla.storage.files.log_config import MAX_INT, LogConfig
from ottla.storage.files.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.storage.files.off_loop import Known
from ottla.storage.log.aborted_transactions import AbortedTransactions
from ottla.storage.log.deletion import delete_segments
from ottla.storage.log.epoch_repair import add_missing_entries, epoch_at
from ottla.storage.log.flush import FlushDone, LogFlush
from ottla.storage.log.log_cleaning import LogCleaning
from ottla.storage.log.log_reader import LogReader
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.log.log_writer import LogWriter
from ottla.storage.log.lookup import FoundRecord
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.log.retention import count_deletable, warn_of_future
from ottla.storage.log.truncation import Truncation
from ottla.storage.log.verification import VerificationGuard
from ottla.storage.segment.health import LogHealth
from ottla.storage.segment.results import AppendResult, LogEvents, ReadResult
from ottla.storage.segment.segment import Segment


class StoredLog(NamedTuple):
    """Checked content of a log's files, from which a `Log` is created."""

    partition: TopicPartition
    topic_id: Uuid | None
    folder: Folder
    segments: LogSegments
    offsets: LogOffsets
    epochs: LeaderEpochCache
    producers: ProducerState
    names_are_durable: bool
    """Whether every name in the directory survives a power failure."""
    unrepaired_damage: Sequence[Damage] = ()
    """Damage that was left unrepaired and logged."""


class Log:
    """Log of one partition; see the module. Created by `loader.load_log`."""

    __slots__ = (
        "_clock",
        "_flush",
        "_health",
        "_warned_of_future",
        "aborted",
        "cleaner_works",
        "cleaning",
        "epochs",
        "folder",
        "offsets",
        "partition",
        "producer_expiration_ms",
        "producers",
        "reader",
        "segments",
        "start_listener",
        "topic",
        "topic_id",
        "unrepaired_damage",
        "writer",
    )

    def __init__(
        self,
        stored: StoredLog,
        config: LogConfig,
        producer_expiration_ms: int,
        *,
        clock: Clock,
        rng: Rng,
        events: LogEvents,
    ) -> None:
        self.topic, self.partition = stored.partition
        self.topic_id = stored.topic_id
        self.folder = folder = stored.folder
        self.segments = segments = stored.segments
        self.offsets = offsets = stored.offsets
        self.epochs = epochs = stored.epochs
        self.unrepaired_damage = stored.unrepaired_damage
        """Initial state for the code that uses the log."""
        self.producers = producers = stored.producers
        self.producer_expiration_ms = producer_expiration_ms
        self.start_listener: Callable[[], None] | None = None
        """Called after the log start offset rose."""
        self.cleaning: LogCleaning | None = None
        """The running cleaner pass or repair."""
        self.cleaner_works = False
        """Whether a cleaner worker uses files of the log, also after its pass ended early."""
        self._warned_of_future = -1
        self._clock = clock
        self._health = health = LogHealth(stored.partition, events)
        self._flush = flush = LogFlush(segments, offsets, epochs, producers, folder, clock, health)
        self.writer = LogWriter(segments, offsets, epochs, producers, folder, flush, health, config, clock, rng)
        self.reader = LogReader(segments, offsets, folder.descriptors, health)
        self.aborted = AbortedTransactions(segments, offsets, producers, folder, health)
        if not stored.names_are_durable:
            flush.names_changed(*(() if self.topic_id is None else (folder.join(PARTITION_METADATA),)))
        events.log_configured(stored.partition, config)

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self.writer.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.writer.configure(config)
        self._health.events.log_configured(self._health.partition, config)

    @property
    def directory(self) -> str:
        return self.folder.path

    @property
    def name(self) -> str:
        """`topic-partition`, for messages."""
        return self._health.name

    @property
    def log_start_offset(self) -> int:
        return self.offsets.log_start_offset

    @property
    def high_watermark(self) -> int:
        """End of the committed records; -1 if not tracked."""
        return self.offsets.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.offsets.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self.offsets.flushed_offset

    @property
    def recovery_point(self) -> int:
        return self.offsets.recovery_point

    @property
    def active_segment(self) -> Segment:
        return self.segments.active

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' data."""
        return self.segments.size_bytes

    @property
    def leader_epoch(self) -> int:
        """Newest leader epoch in the log, -1 without one."""
        return self.epochs.latest_epoch

    @property
    def failed(self) -> bool:
        """Whether the log rejects appends, since its content on disk is unknown."""
        return self._health.failed

    @property
    def changed(self) -> bool:
        """Whether a clean stop must flush the log."""
        return self._flush.changed

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is running."""
        return self._flush.under_way

    @property
    def last_flush_ms(self) -> int:
        """Time of the last flush's start."""
        return self._flush.last_flush_ms

    def last_stable_offset(self, high_watermark: int) -> int:
        """End of the records for read_committed: before the first transaction that is open, or has its marker at or
        above the high watermark, but never above the watermark nor below the log start.
        """
        transactions = self.producers.transactions
        if transactions.first_unstable >= high_watermark:
            return high_watermark
        return max(min(transactions.settle(high_watermark), high_watermark), self.offsets.log_start_offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) for OffsetForLeaderEpoch (KIP-279); (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.offsets.log_end_offset)

    def assign_leader_epoch(self, epoch: int) -> None:
        """Record that this replica leads `epoch` from the log end on, before its first append: followers may ask for
        it.
        """
        self.epochs.assign(epoch, self.offsets.log_end_offset)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Write `partition.metadata` of a log without one, or with a damaged one. Raises KafkaError."""
        path = self.folder.join(PARTITION_METADATA)
        try:
            write_unsynced(self.folder.disk, path, format_partition_metadata(topic_id))
        except OSError as error:
            raise self._health.storage_error(error, "writing partition.metadata") from error
        self.topic_id = topic_id
        self._flush.names_changed(path)

    # -- components ----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        buffer: bytearray,
        start: int,
        end: int,
        leader_epoch: int,
        *,
        client: bool = True,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """See `LogWriter.append_as_leader`."""
        return self.writer.append_as_leader(buffer, start, end, leader_epoch, client=client, guard=guard)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """See `ProducerState.begin_verification`."""
        return self.producers.begin_verification(
            producer_id, producer_epoch, base_sequence, self._clock.time_ms(), supports_epoch_bump=supports_epoch_bump
        )

    def check_marker(self, marker: EndMarker) -> None:
        """See `ProducerState.check_marker`."""
        self.producers.check_marker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version
        )

    def append_as_follower(self, buffer: Buffer, start: int, end: int) -> AppendResult:
        """See `LogWriter.append_as_follower`."""
        return self.writer.append_as_follower(buffer, start, end)

    def roll(self) -> Segment:
        """Roll a new active segment at the log end; see `LogWriter.roll`."""
        return self.writer.roll()

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True, known: Known | None = None
    ) -> ReadResult:
        """See `LogReader.read`."""
        return self.reader.read(offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch, known=known)

    def lookup_timestamp(self, timestamp: int, known: Known | None = None) -> FoundRecord | None:
        """See `LogReader.lookup_timestamp`."""
        return self.reader.lookup_timestamp(timestamp, known)

    def max_timestamp(self, known: Known | None = None) -> FoundRecord | None:
        """See `LogReader.max_timestamp`."""
        return self.reader.max_timestamp(known)

    def flush(self, *, closing: bool = False) -> None:
        """Flush everything, blocking. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self._flush.run(closing=closing)

    def request_flush(self, pool: BlockingPool, done: FlushDone) -> None:
        """See `LogFlush.request`."""
        self._flush.request(pool, done)

    def request_closing_flush(self, pool: BlockingPool, done: FlushDone) -> None:
        """See `LogFlush.request_closing`."""
        self._flush.request_closing(pool, done)

    # -- the start of the log ------------------------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset to `offset`; segments are deleted by the next retention pass.

        Returns whether it changed. Raises KafkaError OFFSET_OUT_OF_RANGE beyond the log end (the caller checks the high
        watermark).
        """
        offsets = self.offsets
        if offset > offsets.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} ends at {offsets.log_end_offset}, before {offset}"
            )
        if offset <= offsets.log_start_offset:
            return False
        offsets.advance_log_start_offset(offset)
        self.epochs.truncate_from_start(offset)
        self._flush.changed = True
        if self.start_listener is not None:
            self.start_listener()
        return True

    def delete_records(self, before_offset: int) -> int:
        """Delete records below `before_offset`; returns the new log start offset. Raises as the method above."""
        self.maybe_increment_log_start_offset(before_offset)
        return self.offsets.log_start_offset

    def delete_old_segments(self, now_ms: int, max_count: int = MAX_INT) -> int:
        """Delete whole segments by start offset, age and size; returns how many, at most `max_count` (renames are
        slow).

        Deletes none while a cleaner pass reads them. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        if self.cleaning is not None:
            return 0
        try:
            count = count_deletable(self.segments, self.offsets, self.config, now_ms, max_count)
            if not count:
                self._warned_of_future = warn_of_future(self.segments, self.config, now_ms, self._warned_of_future)
                return 0
            if count == len(self.segments):
                self.roll()
            delete_segments(
                self.segments[:count],
                self.config.file_delete_delay_ms,
                segments=self.segments,
                producers=self.producers,
                folder=self.folder,
                flush=self._flush,
                events=self._health.events,
            )
        except OSError as error:
            raise self._health.storage_error(error, "deleting segments") from error
        self.maybe_increment_log_start_offset(self.segments[0].base_offset)
        return count

    # -- the end of the log --------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on; returns whether there was anything. Raises KafkaError KAFKA_STORAGE_ERROR.

        A batch that contains `offset` is dropped as a whole, and the log then ends at its base offset.
        """
        if offset >= self.offsets.log_end_offset:
            # A leader without appends left an epoch at the end, unknown to the new leader.
            self.epochs.truncate_from_end(self.offsets.log_end_offset)
            return False
        self.end_cleaning()
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
        else:
            self._truncation().cut_to(offset, self.producer_expiration_ms)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the empty log starts at `offset`. Raises as the method above."""
        self.end_cleaning()
        self._truncation().restart_at(offset, self.config.index_interval_bytes)

    def _truncation(self) -> Truncation:
        return Truncation(
            self.segments,
            self.offsets,
            self.epochs,
            self.producers,
            self.folder,
            self._flush,
            self._health,
            self._clock,
        )

    def shares_epoch(self, leader_epoch: int, last_offset: int) -> bool:
        """Return whether the batch that ends with `last_offset` has `leader_epoch`, as another replica has it there.

        Adds entries that the file lacks. Raises KafkaError.
        """
        try:
            found = epoch_at(self.segments, last_offset)
        except OSError as error:
            self._health.report(error, "reading leader epochs")
            return False
        if found is None or (found.leader_epoch, found.last_offset) != (leader_epoch, last_offset):
            return False
        return self.add_missing_epochs(leader_epoch)

    def add_missing_epochs(self, confirmed_epoch: int = UNDEFINED_EPOCH) -> bool:
        """Add the entries that the log's batches have and the file lacks; returns whether any was missing.

        `confirmed_epoch` is an epoch that another replica has for the same batch. Raises KafkaError.
        """
        path = self.folder.join(LEADER_EPOCH_CHECKPOINT)
        try:
            added = add_missing_entries(
                path, self.segments, self.epochs, range(self.log_start_offset, self.log_end_offset), confirmed_epoch
            )
        except OSError as error:
            self._health.report(error, "reading leader epochs")
            return False
        if added:
            self.write_epochs_soon()
        return added

    def write_epochs_soon(self) -> None:
        """Let the next flush write the entries, which changed without an append."""
        self._flush.changed = True
        self._health.events.flush_needed((self.topic, self.partition))

    def learn_epochs(self, start_offset: int, end_offset: int, entries: list[tuple[int, int]]) -> None:
        """Record the (leader epoch, first offset) entries of a range that was fetched again."""
        self.epochs.replace(start_offset, end_offset, entries)
        self.write_epochs_soon()

    # -- cleaning ------------------------------------------------------------------------------------------------------

    def begin_cleaning(self) -> LogCleaning:
        """Start a cleaner pass; the last one has ended. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self.end_cleaning()
        self.cleaning = LogCleaning(self.segments, self.producers, self.folder, self._health, self.config)
        return self.cleaning

    def end_cleaning(self) -> None:
        """End the pass, complete or not. Raises KafkaError KAFKA_STORAGE_ERROR."""
        cleaning, self.cleaning = self.cleaning, None
        if cleaning is not None:
            cleaning.end()

    # -- the end of the object -----------------------------------------------------------------------------------------

    def release_idle_reserve(self) -> None:
        """Release blocks reserved for further appends. Best effort."""
        try:
            self.segments.active.data.release_reserve()
        except OSError as error:
            self._health.report(error, "releasing reserved blocks")

    def close(self, *, clean: bool = True) -> None:
        """Close all files. With `clean`, all data is flushed first, so that the next start can trust it; raises
        KafkaError KAFKA_STORAGE_ERROR if that fails, and closes the files anyway.
        """
        try:
            if clean and not self._health.failed:
                self.end_cleaning()
                self.flush(closing=True)
        finally:
            if self.cleaning is not None:
                self.cleaning.is_over = True  # the next start, if any, completes the swap
                self.cleaning = None
            self._health.close()
            for segment in self.segments:
                segment.close()

    def remove_expired_producers(self, now_ms: int) -> int:
        """Remove producers without a write for `producer.id.expiration.ms`; returns how many."""
        producers = self.producers
        if not len(producers) and not producers.verifications.guards:
            return 0
        return producers.remove_expired(now_ms, self.producer_expiration_ms)

    def fail(self, error: OSError, action: str) -> None:
        """Reject appends until the next start: the content on disk is unknown."""
        self._health.fail()
        self._health.report(error, action)

    def directory_was_made(self) -> None:
        """Record that the directory is new: the first flush makes its name durable too."""
        self._flush.directory_is_new = True

    def moved_to(self, directory: str) -> None:
        """Apply a rename of the directory."""
        self.folder.path = directory
