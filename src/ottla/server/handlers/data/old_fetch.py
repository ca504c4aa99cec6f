"""Fetch 0 to 3: records are converted to message format v0 (versions 0 and 1) or v1 (2 and 3), in the pool.

As in Apache Kafka 3.9, except that the first batch is returned whole in every version (KIP-74), so that no consumer
gets stuck at a batch that is larger than its limit. A consumer positioned before control batches only is moved past
them.

Memory: reading and converting one request takes `MAX_CONVERTED_BYTES` and one batch
(`record.legacy.down_conversion`), and one request is converted at a time.
"""

from __future__ import annotations

from ottla.common.errors import InvariantError, KafkaError, without_frames
from ottla.common.platform.channel import FileRegion, Part
from ottla.protocol.fetch import ParsedFetchRequest
from ottla.record.legacy.down_conversion import ConversionResult, convert_down
from ottla.record.legacy.message_set import MAGIC_V0, MAGIC_V1
from ottla.replica.fetch_session import FetchContext
from ottla.server.handlers.data.consumer_fetch import ConsumerFetch
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.fetching import ReadRound
from ottla.server.requests.request import Request

FIRST_VERSION_WITH_V1 = 2
MAX_CONVERTED_BYTES = 4 * 1024 * 1024
"""Maximum size of a response, besides one batch."""

_Outcome = ConversionResult | KafkaError | OSError


class OldFetch(ConsumerFetch):
    """A fetch of a consumer that does not support record batches."""

    __slots__ = ("_deadline_s", "_elapsed_ms", "_magic")

    def __init__(
        self, context: DataContext, request: Request, message: ParsedFetchRequest, session: FetchContext
    ) -> None:
        super().__init__(context, request, message, session)
        message.max_bytes = min(message.max_bytes, MAX_CONVERTED_BYTES)
        message.min_bytes = min(message.min_bytes, message.max_bytes)
        self._magic = MAGIC_V0 if request.api_version < FIRST_VERSION_WITH_V1 else MAGIC_V1
        self._deadline_s = request.started_s + message.max_wait_ms / 1000
        self._elapsed_ms = 0.0

    def encode(self, done: ReadRound) -> list[Part] | None:
        """The response; None if it follows once the records are converted."""
        regions = {at: result.records for at, (_, result) in enumerate(done.rows) if result.records is not None}
        if not regions:
            return super().encode(done)
        offsets = [asked.fetch_offset for asked, _ in done.rows]

        def convert() -> list[_Outcome]:
            began_s = self._context.clock.monotonic()
            left = self._message.max_bytes
            outcomes = []
            for at, region in regions.items():
                outcome = _converted(region, self._magic, offsets[at], left)
                outcomes.append(outcome)
                left -= len(outcome.data) if isinstance(outcome, ConversionResult) else 0
            self._elapsed_ms = (self._context.clock.monotonic() - began_s) * 1000
            return outcomes

        def converted(outcomes: list[_Outcome] | None, error: BaseException | None) -> None:
            try:
                done.release_regions()
                self._go_on(done, None if outcomes is None else dict(zip(regions, outcomes, strict=True)), error)
            finally:
                self._context.in_flight.end()

        self._context.in_flight.begin()
        self._context.compute_pool.long.submit(convert, converted)
        return None

    def _go_on(self, done: ReadRound, outcomes: dict[int, _Outcome] | None, error: BaseException | None) -> None:
        """Runs on the loop, with the regions released: answer, or read again past records that converted to nothing."""
        if outcomes is None:
            self._context.failures("Fetch", error or InvariantError("a conversion has no outcome"))
            self._request.channel.close("Fetch failed: internal error")
            return
        self._count_conversions(done, outcomes)
        if self._request.channel.closed:
            return
        passed = False
        for at, outcome in outcomes.items():
            asked, result = done.rows[at]
            if isinstance(outcome, ConversionResult):
                if outcome.data:
                    done.urgent = True
                elif outcome.next_offset > asked.fetch_offset:
                    asked.fetch_offset = outcome.next_offset
                    passed = True
                done.rows[at] = asked, result._replace(records=outcome.data or None)
            else:
                done.urgent = True
                done.rows[at] = asked, self.failed(asked, outcome)
        if passed and not done.urgent:
            left_s = self._deadline_s - self._context.clock.monotonic()
            self._message.max_wait_ms = max(0, int(left_s * 1000))
            self._context.in_flight.begin()
            self._resume()
            return
        parts = super().encode(done)
        if parts is None:
            raise InvariantError("a converted answer waits for another conversion")
        self._request.respond_parts(parts)

    def _count_conversions(self, done: ReadRound, outcomes: dict[int, _Outcome]) -> None:
        statistics = self._context.statistics.conversions("Fetch")
        statistics.time_ms.observe(self._elapsed_ms)
        image = self._context.metadata.image
        for at, outcome in outcomes.items():
            if isinstance(outcome, ConversionResult):
                known = image.find(done.rows[at][0].topic)
                statistics.count(None if known is None else known.name, outcome.record_count)


def _converted(region: FileRegion | bytes, magic: int, offset: int, max_bytes: int) -> _Outcome:
    """Runs in the pool: the converted records of one partition, or the error."""
    try:
        return convert_down(memoryview(_read(region)), magic, offset, max_bytes)
    except (KafkaError, OSError) as error:
        return without_frames(error)


def _read(region: FileRegion | bytes) -> bytes | bytearray:
    if isinstance(region, bytes):
        return region
    data = bytearray(region.length)
    done = 0
    with memoryview(data) as view:
        while done < len(data):
            done += region.read_into(view[done:], done)
    return data
