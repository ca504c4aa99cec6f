"""Selection of fetched records to write to the target: the state of one source partition, without I/O.

Batches are copied unchanged if both topics have the same number of partitions and brokers accept the batches from a
client; otherwise their records are put into new batches. Records that are invisible to read_committed consumers are
omitted: aborted transactions and control batches. The CRC of every batch is verified, since a new one is computed for
the target, which would hide damage.

Memory: the records of one batch at a time, and CHUNK_BYTES for each partition of the target.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from ottla.client.wire.model import FetchResult
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.key_hash import hash_partition
from ottla.mirror.progress import Run
from ottla.mirror.routes import Route
from ottla.record.batch import BatchView, Record
from ottla.record.builder import RecordData, build_batch
from ottla.record.legacy.stored import iter_any_batches
from ottla.record.stamp import is_sendable
from ottla.record.transactions import TransactionFilter

CHUNK_BYTES = 512 * 1024
"""Bytes of keys, values and headers in a new batch; a larger record gets its own batch."""
RECORD_OVERHEAD = 24
SUBSTITUTE_CODEC = "gzip"
"""Replaces codecs that the target does not support; every version supports this one."""
MAX_RUNS = 2_000
"""Runs per transaction; beyond the limit only the first run of each partition is stored, and groups reread records."""


class Span(NamedTuple):
    """Source offsets in a batch: `records` records starting with record `delta`; see `progress.Run`."""

    source_first: int
    source_end: int
    delta: int
    records: int


class Write(NamedTuple):
    """A batch for a partition of the target, not yet assigned to a producer."""

    partition: int
    batch: BatchView
    spans: tuple[Span, ...]
    offsets: Sequence[int]
    """Source offset of each record."""


class Step(NamedTuple):
    """The writes of one transaction, in order; `next_offset` is the source position after it."""

    first_offset: int
    next_offset: int
    writes: tuple[Write, ...]

    def runs(self, base_offsets: Iterable[int]) -> tuple[Run, ...]:
        """The runs of the records, given the base offsets of the writes; contiguous neighbours are merged."""
        found: dict[int, list[Run]] = {}
        for write, base in zip(self.writes, base_offsets, strict=True):
            runs = found.setdefault(write.partition, [])
            for span in write.spans:
                run = Run(write.partition, span.source_first, span.source_end, base + span.delta, span.records)
                if runs and _is_contiguous(runs[-1], run):
                    before = runs.pop()
                    run = before._replace(source_end=run.source_end, records=before.records + run.records)
                runs.append(run)
        if sum(map(len, found.values())) > MAX_RUNS:
            ends = {partition: runs[-1].source_end for partition, runs in found.items()}
            found = {
                partition: [runs[0]._replace(source_end=ends[partition], records=0)]
                for partition, runs in found.items()
            }
        return tuple(run for partition in sorted(found) for run in found[partition])


def _is_contiguous(before: Run, run: Run) -> bool:
    """True if both runs are exact and contiguous, in the source and in the target."""
    exact = all(each.source_end - each.source_first == each.records for each in (before, run))
    return exact and before.source_end == run.source_first and before.target_first + before.records == run.target_first


class PartitionCopy:
    """A source partition that is copied from `position`, into all partitions of the target topic."""

    def __init__(self, route: Route, position: int, target_count: int, *, in_step: bool) -> None:
        self.route = route
        self.position = position
        self._target_count = target_count
        self.in_step = in_step
        self._unsupported_codecs: set[str] = set()

    def take(self, result: FetchResult) -> Step:
        """The writes for a read_committed fetch from `position`; may be empty.

        Raises KafkaError INVALID_RECORD for a damaged batch, UNSUPPORTED_COMPRESSION_TYPE.
        """
        writes: list[Write] = []
        chunks = _Chunks(writes, dense=self.in_step)
        position = self.position
        transactions = TransactionFilter(result.aborted)
        try:
            for batch in iter_any_batches(result.records):
                if not batch.crc_matches():
                    raise KafkaError(ErrorCode.INVALID_RECORD, "the checksum does not match")
                if transactions.passes(batch) and batch.next_offset > position and batch.records_count:
                    self._take_batch(batch, position, writes, chunks)
                position = max(position, batch.next_offset)
        except KafkaError as error:
            where = f"the batch of {self.route.topic}-{self.route.partition} at or after offset {position}"
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{where} can't be copied: {error.message}") from error
        chunks.flush()
        return Step(self.position, position, tuple(writes))

    def _take_batch(self, batch: BatchView, position: int, writes: list[Write], chunks: _Chunks) -> None:
        codec = self._codec(batch)
        if self.in_step and batch.base_offset >= position and is_sendable(batch) and codec == batch.compression:
            chunks.flush()
            span = Span(batch.base_offset, batch.next_offset, 0, batch.records_count)
            writes.append(Write(self.route.partition, batch, (span,), range(batch.base_offset, batch.next_offset)))
            return
        for record in batch.records():
            if record.offset >= position:
                partition = self.route.partition
                if not self.in_step:
                    partition = self._partition_of(record)
                chunks.add(partition, record, codec)

    def _partition_of(self, record: Record) -> int:
        """The target partition by the hash of the key; round-robin without a key."""
        count = self._target_count
        return record.offset % count if record.key is None else hash_partition(record.key, count)

    def _codec(self, batch: BatchView) -> str:
        return SUBSTITUTE_CODEC if batch.compression in self._unsupported_codecs else batch.compression

    def avoid_codec(self, codec: str) -> bool:
        """Use SUBSTITUTE_CODEC instead of this codec from now on. Returns False if that would change nothing."""
        if codec in (SUBSTITUTE_CODEC, "none"):
            return False
        self._unsupported_codecs.add(codec)
        return True

    def part(self, write: Write, numbers: Container[int]) -> Write:
        """A write of the records with these numbers within the batch.

        Raises KafkaError for a batch that cannot be decoded.
        """
        chosen = [(write.offsets[n], record) for n, record in enumerate(write.batch.records()) if n in numbers]
        offsets, records = [offset for offset, _ in chosen], [record for _, record in chosen]
        return _built(write.partition, records, offsets, self._codec(write.batch), dense=self.in_step)

    def committed(self, step: Step) -> None:
        """Advance after the step was committed, or wrote nothing. Raises InvariantError for a step that is not the
        next."""
        if step.first_offset != self.position:
            raise InvariantError(f"a step from offset {step.first_offset} is not at the position {self.position}")
        self.position = step.next_offset


class _Chunks:
    """Records for new batches, one batch per target partition, all with one codec.

    `dense`: missing source offsets are also missing in the target, so that gaps are recorded; otherwise these records
    are in other partitions.
    """

    def __init__(self, writes: list[Write], *, dense: bool) -> None:
        self._writes = writes
        self._dense = dense
        self._records: dict[int, list[Record]] = {}
        self._sizes: dict[int, int] = {}
        self._codec = ""

    def add(self, partition: int, record: Record, codec: str) -> None:
        size = size_of(record)
        if codec != self._codec:
            self.flush()
            self._codec = codec
        if partition in self._records and self._sizes[partition] + size > CHUNK_BYTES:
            self._flush_one(partition)
        self._records.setdefault(partition, []).append(record)
        self._sizes[partition] = self._sizes.get(partition, 0) + size

    def flush(self) -> None:
        for partition in sorted(self._records):
            self._flush_one(partition)

    def _flush_one(self, partition: int) -> None:
        records = self._records.pop(partition)
        del self._sizes[partition]
        offsets = [record.offset for record in records]
        self._writes.append(_built(partition, records, offsets, self._codec, dense=self._dense))


def size_of(record: Record) -> int:
    """Upper bound of the bytes of a record in an uncompressed batch."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(RECORD_OVERHEAD + len(name) + len(value or b"") for name, value in record.headers)


def _built(partition: int, records: list[Record], offsets: list[int], codec: str, *, dense: bool) -> Write:
    """A write with a new batch; `offsets` are the source offsets of the records, `dense` as in `_Chunks`."""
    built = build_batch(
        (RecordData(record.timestamp, record.key, record.value, record.headers) for record in records),
        compression=codec,
    )
    spans = _stretches(offsets) if dense else (Span(offsets[0], offsets[-1] + 1, 0, len(offsets)),)
    return Write(partition, BatchView(built), spans, array("q", offsets))


def _stretches(offsets: list[int]) -> tuple[Span, ...]:
    """Spans without gaps from ascending offsets."""
    starts = [0, *(index for index in range(1, len(offsets)) if offsets[index] != offsets[index - 1] + 1)]
    ends = [*starts[1:], len(offsets)]
    return tuple(
        Span(offsets[start], offsets[end - 1] + 1, start, end - start) for start, end in zip(starts, ends, strict=True)
    )
