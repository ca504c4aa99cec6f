"""Reads of a share fetch: finds available records in the log, and acquires them for the response.

A pass reads batch headers only. Whole batches are sent as file regions, from the first batch with an acquired record to
the last one; the response names the acquired offsets. Nothing is acquired by a pass until the fetch is to be answered.
"""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.share_fetch import SharePartitionResult
from ottla.replica.purgatory import Watch
from ottla.server.coordination.share_partitions import LedSharePartition
from ottla.server.handlers.share.member_requests import LEADER_ERRORS, check_topic, settings_of
from ottla.server.handlers.share.partition_context import SharePartitionContext
from ottla.server.requests.request import Request
from ottla.share.acquisition import AcquiredRange, AcquireLimits
from ottla.share.sessions import PartitionId, SessionKey
from ottla.share.settings import READ_COMMITTED, ShareSettings
from ottla.share.share_partition import SharePartition
from ottla.storage.files.off_loop import Known, WouldBlock
from ottla.storage.log.aborted_transactions import ListedTransactions
from ottla.storage.log.batch_extents import BatchExtent
from ottla.storage.segment.results import ReadResult

MAX_BATCHES = 1024
"""Batches of a partition that one pass looks at."""
MAX_PASSES = 16
"""Passes of one attempt that find only offsets without records, such as markers; later ones follow in further turns."""
MAX_READ_AHEAD = 64
RECORD_LIMIT_MODE = 1
_URGENT = (*LEADER_ERRORS, ErrorCode.KAFKA_STORAGE_ERROR)


class AvailableRecords(NamedTuple):
    """Available records that a pass found in a partition."""

    key: PartitionId
    led: LedSharePartition
    machine: SharePartition
    offset: int
    found: ReadResult
    batches: list[BatchExtent]
    aborted: frozenset[int]


class ShareReadRound:
    """One pass: candidates to acquire, and rows of the response."""

    __slots__ = ("byte_count", "candidates", "needed", "progressed", "rows", "throttle_ms", "urgent")

    def __init__(self, rows: dict[PartitionId, SharePartitionResult] | None = None) -> None:
        self.candidates: list[AvailableRecords] = []
        self.rows: dict[PartitionId, SharePartitionResult] = rows or {}
        self.needed: list[WouldBlock] = []
        self.byte_count = 0
        self.throttle_ms = 0
        self.urgent = False
        """Whether an error must be answered at once."""
        self.progressed = False
        """Whether offsets without records were passed, so that another pass may find records."""

    def release(self) -> None:
        """Release the regions of the candidates."""
        for candidate in self.candidates:
            if candidate.found.records is not None:
                candidate.found.records.release()
        self.candidates.clear()


class ShareReader:
    """Reads of one share fetch."""

    __slots__ = ("_context", "_key", "_led", "_limits", "_message", "_partitions", "_request", "known")

    def __init__(
        self,
        context: SharePartitionContext,
        request: Request,
        message: ShareFetchRequest,
        key: SessionKey,
        partitions: list[PartitionId],
    ) -> None:
        self._context = context
        self._request = request
        self._message = message
        self._key = key
        self._partitions = partitions if message.max_records > 0 else []
        self._led: dict[PartitionId, LedSharePartition] = {}
        self._limits = AcquireLimits(
            message.max_records, message.batch_size, message.share_acquire_mode == RECORD_LIMIT_MODE
        )
        self.known: Known = {}

    # --- one pass --------------------------------------------------------------------------------------------------

    def read(self) -> ShareReadRound:
        """Look for available records in all partitions, within the limits; acquires nothing."""
        done = ShareReadRound()
        settings = settings_of(self._context, self._key[0])
        offsets_left = self._message.max_records
        bytes_left = min(self._message.max_bytes, self._context.config.get_int("fetch.max.bytes"))
        for key in self._partitions:
            if offsets_left <= 0 or bytes_left <= 0:
                break
            try:
                candidate = self._read_one(key, settings, bytes_left, first=not done.candidates)
            except WouldBlock as needed:
                done.needed.append(needed)
                if len(done.needed) >= MAX_READ_AHEAD:
                    break
                continue
            except Exception as error:
                self._failed(done, key, error)
                continue
            if candidate is not None:
                done.candidates.append(candidate)
                done.byte_count += candidate.found.length
                bytes_left -= candidate.found.length
                offsets_left -= candidate.batches[-1].last_offset - candidate.offset + 1
        if not done.needed:
            self.known.clear()
        return done

    def _read_one(
        self, key: PartitionId, settings: ShareSettings, max_bytes: int, *, first: bool
    ) -> AvailableRecords | None:
        check_topic(self._context, self._request, key[0])
        led = self._find(key, settings)
        machine = led.machine
        if machine is None:
            return None
        partition = led.partition
        self._context.partitions.use(led, settings)
        machine.move_log_start(partition.offsets.log_start_offset)
        self._context.partitions.expire(led)
        offset = machine.next_fetch_offset()
        committed = settings.isolation_level == READ_COMMITTED
        if offset is None or offset >= partition.read_end(int(committed)):
            return None
        found = partition.read(offset, max_bytes, first, int(committed), self.known)
        region = found.records
        if region is None:
            return None
        try:
            batches = partition.log.reader.extents(
                found, end_offset=machine.window_end, max_batches=MAX_BATCHES, known=self.known
            )
            listed: ListedTransactions = ()
            if committed and partition.log.segments.with_aborted:
                listed = partition.aborted_transactions(offset, found, self.known)
        except BaseException:
            region.release()
            raise
        if not batches:
            region.release()
            return None
        return AvailableRecords(key, led, machine, offset, found, batches, aborted_batches(batches, listed))

    def _find(self, key: PartitionId, settings: ShareSettings) -> LedSharePartition:
        """Return the share partition; one that failed to load is reported once to each request."""
        led = self._led.get(key)
        if led is not None and led.failure is not None:
            raise led.failure
        if led is None or led.dropped or led.partition.offline or not led.partition.is_leader:
            led = self._context.partitions.find_or_load(self._key[0], key[0], key[1], settings)
            self._led[key] = led
        return led

    def _failed(self, done: ShareReadRound, key: PartitionId, error: Exception) -> None:
        """Add the row of a partition that can't be read; a defect is reported and answered, never raised."""
        text: str | None = None
        if isinstance(error, KafkaError):
            code, text = error.code, error.message or None
        elif isinstance(error, InvariantError):
            raise error
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            self._context.services.failures("ShareFetch", error)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return  # the log is shorter than the stored state, after an unclean election: its end will reach the offset
        done.rows[key] = SharePartitionResult(key[1], code, text)
        done.urgent = done.urgent or code in _URGENT

    # --- acquire ---------------------------------------------------------------------------------------------------

    def acquire(self, done: ShareReadRound) -> ShareReadRound:
        """Acquire the records of the candidates, pass by pass while they contain only offsets without records.

        If the result has no records and has `progressed`, further passes are left for another turn.
        """
        acquired = self._acquire_once(done)
        for _ in range(MAX_PASSES):
            if acquired.byte_count or not acquired.progressed:
                break
            done = self.read()
            if done.needed:
                done.release()
                break
            acquired = self._acquire_once(done)
        return acquired

    def _acquire_once(self, done: ShareReadRound) -> ShareReadRound:
        result = ShareReadRound(done.rows)
        result.urgent = done.urgent
        partitions = self._context.partitions
        left = self._message.max_records
        bytes_out: dict[bytes, int] = {}
        for candidate in done.candidates:
            region = candidate.found.records
            if region is None:
                continue
            machine = candidate.machine
            before = machine.next_fetch_offset()
            ranges = machine.acquire(
                self._key[1],
                candidate.offset,
                candidate.batches,
                candidate.aborted,
                self._limits._replace(max_records=left),
                partitions.now_ms(),
            )
            partitions.acquired(candidate.led)
            if not ranges:
                region.release()
                result.progressed = result.progressed or machine.next_fetch_offset() != before
                continue
            left -= sum(each.last_offset - each.first_offset + 1 for each in ranges)
            start, end = sent_range(candidate.batches, ranges)
            region.narrow(start, end)
            result.byte_count += region.length
            topic_id, index = candidate.key
            bytes_out[topic_id] = bytes_out.get(topic_id, 0) + region.length
            result.rows[candidate.key] = SharePartitionResult(index, records=region, acquired=ranges)
        self._count(bytes_out)
        return result

    def _count(self, bytes_out: dict[bytes, int]) -> None:
        statistics = self._context.broker_statistics
        for topic_id, size in bytes_out.items():
            statistics.all_topics.bytes_out.value += size
            known = self._context.metadata.image.topic_by_id(topic_id)
            if known is not None:
                statistics.topic(known.name).bytes_out.value += size

    # --- answer or wait --------------------------------------------------------------------------------------------

    def is_finished(self, done: ShareReadRound) -> bool:
        """Whether the fetch may be answered: enough bytes are available, or nothing is left to wait for."""
        if done.urgent or not self._partitions:
            return True
        return bool(done.candidates) and done.byte_count >= self._message.min_bytes

    def answers(self, acquired: ShareReadRound) -> bool:
        """Whether a finished pass acquired records, has an error that is not held, or is throttled."""
        return acquired.byte_count > 0 or acquired.urgent or acquired.throttle_ms > 0 or not self._partitions

    def watches(self) -> list[Watch]:
        """Watches to park under: records arrive in a partition, or become available in a share partition."""
        watches: list[Watch] = []
        for led in self._led.values():
            watches += (led.partition.fetch_watch, led.watch)
        return watches


def aborted_batches(batches: list[BatchExtent], listed: ListedTransactions) -> frozenset[int]:
    """Return the indexes of the batches of aborted transactions, which are (producer id, first offset).

    A producer's transaction is aborted from its first offset to the next control batch of the producer.
    """
    if not listed:
        return frozenset()
    waiting = sorted(listed, key=itemgetter(1), reverse=True)
    active: set[int] = set()
    aborted: list[int] = []
    for index, batch in enumerate(batches):
        while waiting and waiting[-1][1] <= batch.last_offset:
            active.add(waiting.pop()[0])
        if batch.is_control:
            active.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in active:
            aborted.append(index)
    return frozenset(aborted)


def sent_range(batches: list[BatchExtent], ranges: list[AcquiredRange]) -> tuple[int, int]:
    """Return (start, end) of the bytes from the first batch with an acquired record to the last one."""
    first, last = ranges[0].first_offset, ranges[-1].last_offset
    chosen = [batch for batch in batches if batch.last_offset >= first and batch.first_offset <= last]
    return chosen[0].position, chosen[-1].position + chosen[-1].size
