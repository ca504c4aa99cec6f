"""A topic in memory with the answers of a broker: raw batches, time index, last stable offset, aborted transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.client.wire.model import AbortedTransaction, FetchResult, KeyFreeRange
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.reused_memory import ReusedMemory
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch, build_batch_with_gaps
from ottla.record.control import end_transaction_marker


@dataclass(slots=True)
class Transaction:
    producer_id: int
    first_offset: int
    last_offset: int | None = None
    aborted: bool = False


@dataclass(slots=True)
class MemoryLog:
    """One partition."""

    batches: list[BatchView] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def append(self, records: Sequence[RecordData], codec: str = "none", producer_id: int = -1) -> None:
        is_transactional = producer_id >= 0
        if is_transactional and self.open_transaction(producer_id) is None:
            self.transactions.append(Transaction(producer_id, self.end))
        batch = build_batch(
            records,
            base_offset=self.end,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )
        self.batches.append(BatchView(batch))
        self.end += len(records)

    def finish(self, producer_id: int, *, commit: bool, timestamp_ms: int = 0) -> None:
        transaction = self.open_transaction(producer_id)
        if transaction is None:
            return
        transaction.last_offset, transaction.aborted = self.end, not commit
        marker = end_transaction_marker(
            commit=commit,
            timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=self.end,
        )
        self.batches.append(BatchView(marker))
        self.end += 1

    def open_transaction(self, producer_id: int) -> Transaction | None:
        found = [each for each in self.transactions if each.producer_id == producer_id and each.last_offset is None]
        return found[0] if found else None

    @property
    def last_stable_offset(self) -> int:
        return min((each.first_offset for each in self.transactions if each.last_offset is None), default=self.end)

    def compact(self, is_kept: Callable[[int], bool]) -> None:
        """Remove records by their offset; batches of transactions and markers stay."""
        kept: list[BatchView] = []
        for batch in self.batches:
            if batch.is_control or batch.is_transactional:
                kept.append(batch)
                continue
            records = [
                (each.offset - batch.base_offset, RecordData(each.timestamp, each.key, each.value, each.headers))
                for each in batch.records()
                if is_kept(each.offset)
            ]
            if records:
                kept.append(BatchView(build_batch_with_gaps(records, batch.base_offset)))
        self.batches = kept

    def delete_before(self, offset: int) -> None:
        """Raise the log start offset."""
        self.start = max(self.start, min(offset, self.end))
        self.batches = [each for each in self.batches if each.next_offset > self.start]


class MemoryTopic:
    """See the module; `on_fetch` runs before each fetch and may change the logs."""

    topic_id = None

    def __init__(self, logs: Mapping[int, MemoryLog], isolation: str = "uncommitted", max_bytes: int = 1 << 20) -> None:
        self.logs = dict(logs)
        self.fetches: list[tuple[int, int]] = []
        self.on_fetch: Callable[[], None] = lambda: None
        self.is_built: Callable[[int], bool] = lambda base_offset: False
        """Whether the broker has a key filter for a batch."""
        self._is_committed = isolation == "committed"
        self._max_bytes = max_bytes
        self._memory = ReusedMemory()

    def partitions(self) -> Sequence[int]:
        return sorted(self.logs)

    def start_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        return {each: self.logs[each].start for each in partitions}

    def end_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        return {each: self._end(each) for each in partitions}

    def offsets_since(self, timestamp_ms: int, ends: Mapping[int, int]) -> dict[int, int]:
        assert timestamp_ms >= 0, "negative timestamps are special offsets"
        found = dict(ends)
        for partition in ends:
            log = self.logs[partition]
            since = (
                record.offset
                for batch in log.batches
                for record in batch.records()
                if record.timestamp >= timestamp_ms and log.start <= record.offset < self._end(partition)
            )
            found[partition] = next(since, ends[partition])
        return found

    def ranges_without_keys(
        self, ranges: Mapping[int, tuple[int, int]], keys: Sequence[bytes]
    ) -> dict[int, list[KeyFreeRange]]:
        """By the batches of the moment: each one is a block of its own, if the filters are `built` for it."""
        found: dict[int, list[KeyFreeRange]] = {}
        for partition, (start, end) in ranges.items():
            found[partition] = []
            batches = self.logs[partition].batches
            for batch, later in zip(batches, [*batches[1:], None], strict=False):
                block_end = self.logs[partition].end if later is None else later.base_offset
                records = [] if batch.is_control else list(batch.records())
                is_hidden = self._is_committed and batch.is_transactional
                is_inside = start <= batch.base_offset and block_end <= end
                if not is_inside or is_hidden or not self.is_built(batch.base_offset):
                    continue
                if all(record.key not in keys for record in records):
                    times = [record.timestamp for record in records] or [0]
                    found[partition].append(
                        KeyFreeRange(batch.base_offset, block_end, len(records), min(times), max(times))
                    )
        return found

    def fetch(self, partition: int, offset: int, max_bytes: int) -> FetchResult:
        self.on_fetch()
        self.fetches.append((partition, offset))
        log, end = self.logs[partition], self._end(partition)
        if not log.start <= offset <= log.end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {log.start} to {log.end}")
        data = bytearray()
        last = offset
        for batch in log.batches:
            if batch.next_offset <= offset or batch.base_offset >= end:
                continue
            if data and len(data) + batch.size_bytes > min(max_bytes, self._max_bytes):
                break
            data += batch.to_bytes()
            last = batch.last_offset
        aborted = [
            AbortedTransaction(each.producer_id, each.first_offset)
            for each in log.transactions
            if each.aborted
            and each.last_offset is not None
            and each.last_offset >= offset
            and each.first_offset <= last
        ]
        records = self._memory.take(len(data))[: len(data)]  # overwritten by the next fetch
        records[:] = data
        return FetchResult(records, log.end, log.start, end, tuple(aborted) if self._is_committed else ())

    def _end(self, partition: int) -> int:
        log = self.logs[partition]
        return log.last_stable_offset if self._is_committed else log.end
