"""Produce 0 to 2: message sets of formats v0 and v1 are converted to record batches in the pool, and appended.

The request stays parked during the conversion, which preserves the order of the connection. As in Apache Kafka 3.9 a
client may send a record batch by these versions too; unlike there, idempotent batches and empty sets are refused. The
memory is bounded as for other produces that decompress (`append_rules.DecompressionBudget`), one request at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, without_frames
from ottla.protocol.primitives import Topic
from ottla.protocol.produce import ParsedProduceRequest
from ottla.record.batch import HEADER_SIZE, MAGIC_POSITION, MAGIC_V2, NO_PRODUCER_ID, TRANSACTIONAL_MASK, BatchView
from ottla.record.errors import InvalidRecord
from ottla.record.legacy.up_conversion import batch_of_message_set
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.produce_transactions import Findings
from ottla.server.requests.request import Request
from ottla.storage.log.append_rules import DecompressionBudget

_REFUSED = bytes(HEADER_SIZE)
"""Placeholder of a refused message set: its finding has the error, so it is never read."""

Converted = Callable[[ParsedProduceRequest, bytearray, Findings], None]
"""Continues with the converted batches, on the loop."""


class UpConversion:
    """A request whose message sets are being converted."""

    __slots__ = ("_buffer", "_context", "_counts", "_elapsed_ms", "_findings", "_produce", "_request", "_then")

    def __init__(
        self,
        context: DataContext,
        request: Request,
        produce: ParsedProduceRequest,
        buffer: bytearray,
        then: Converted,
    ) -> None:
        """`buffer` contains the request for the lifetime of this object."""
        self._context = context
        self._request = request
        self._produce = produce
        self._buffer = buffer
        self._then = then
        self._findings = Findings()
        self._counts: list[tuple[Topic, int]] = []
        """Converted records by topic."""
        self._elapsed_ms = 0.0

    def begin(self) -> None:
        """Runs on the loop: convert, then call `then`."""
        self._context.in_flight.begin()
        self._context.compute_pool.long.submit(self._convert, self._converted)

    def _convert(self) -> tuple[ParsedProduceRequest, bytearray]:
        """Runs in the pool: the request with batches, and their buffer."""
        produce, clock = self._produce, self._context.clock
        began_s = clock.monotonic()
        budget = DecompressionBudget()
        out = bytearray()
        topics: list[tuple[Topic, list[tuple[int, int, int]]]] = []
        with memoryview(self._buffer) as view:
            for row, (topic, partitions) in enumerate(produce.topics):
                placed: list[tuple[int, int, int]] = []
                count = 0
                topics.append((topic, placed))
                for position, (index, start, stop) in enumerate(partitions):
                    begin = len(out)
                    try:
                        batch, records = _batch(view, start, stop, budget)
                        out += batch
                        count += records
                    except KafkaError as error:
                        self._findings.refusals[row, position] = without_frames(error)
                        out += _REFUSED
                    placed.append((index, begin, len(out)))
                self._counts.append((topic, count))
        self._elapsed_ms = (clock.monotonic() - began_s) * 1000
        converted = ParsedProduceRequest(None, produce.acks, produce.timeout_ms, topics, produce.partition_count)
        converted.refused = produce.refused
        return converted, out

    def _converted(self, result: tuple[ParsedProduceRequest, bytearray] | None, error: BaseException | None) -> None:
        """Runs on the loop."""
        try:
            if result is None:
                self._context.failures("Produce", error or InvariantError("a conversion has no result"))
                self._request.channel.close("Produce failed: internal error")
                return
            self._count()
            self._then(*result, self._findings)
        finally:
            self._context.in_flight.end()

    def _count(self) -> None:
        statistics = self._context.statistics.conversions("Produce")
        statistics.time_ms.observe(self._elapsed_ms)
        image = self._context.metadata.image
        for topic, count in self._counts:
            known = image.find(topic)
            statistics.count(None if known is None else known.name, count)


def _batch(view: memoryview, start: int, stop: int, budget: DecompressionBudget) -> tuple[bytes | bytearray, int]:
    """The batch to append, and the number of converted records. Raises KafkaError."""
    if stop - start > MAGIC_POSITION and view[start + MAGIC_POSITION] == MAGIC_V2:
        if stop - start >= HEADER_SIZE:
            batch = BatchView(view, start)
            if batch.attributes & TRANSACTIONAL_MASK or batch.producer_id != NO_PRODUCER_ID:
                raise InvalidRecord("batches of transactions and idempotent producers need Produce version 3")
        return bytes(view[start:stop]), 0
    if start == stop:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request needs messages for each partition")
    converted = batch_of_message_set(view, start, stop, budget.decompress)
    return converted, BatchView(converted).records_count
