"""Consumer of assigned partitions by Ottla's own client, without librdkafka, and the type of a consumed record.

`ottla consume` without a group and the mirror's progress use `RecordConsumer`. The simple consumer (`ottla.api`) and
the legacy consumer share `ConsumedRecord` and `read_batches`.

Invariants: it uses neither a group nor a coordinator (which would create `__consumer_offsets`), and commits nothing. A
partition starts at the given offset and never jumps: an offset out of range is an error, and so is a topic that was
deleted and created again. With `ends`, records at and beyond a partition's end are not returned. The iteration stops
once every partition has reached its end, also when its last records are markers or were compacted. An unreachable
cluster is retried until it responds.

Left out: groups (`ottla.client.librdkafka.group_consumer`), deserializers, the API for programs (`ottla.api`). Not
thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.failure import TopicNotFound, TopicReplaced
from ottla.client.wire.model import FetchResult
from ottla.client.wire.outage import Notify, OutageReporter
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.client.wire.time_limit import require_seconds
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.record.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchView
from ottla.record.legacy.stored import iter_any_batches
from ottla.record.rendering import rendered
from ottla.record.transactions import TransactionFilter

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a TypeVar without a default is sufficient at run time

    from ottla.record.template import Template

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

T = TypeVar("T")
Span = tuple[int, int, int]
"""First offset, end offset (exclusive), largest number of records."""
Decode = Callable[[TopicPartition, BatchView, Span], tuple[T, int]]
"""Decodes the records of a batch in a span; also returns their number."""
UNLIMITED = (1 << 63) - 1
FETCH_WAIT_MS = 500
FETCH_BYTES = 4 * 1024 * 1024
REQUEST_TIMEOUT_S = 10.0
FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 1.0
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}
"""By librdkafka's numbers; 0 means not available."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord(Generic[K, V]):
    """One record; `timestamp_ms` is None if the topic's format has none. Key and value may be decoded."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: str | None
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordConsumer:
    """Reads assigned partitions of one cluster; a context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        starts: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        client_id: str = "ottla",
        isolation: str = "read_committed",
        notify: Notify | None = None,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """`notify` gets a message when the cluster becomes unreachable and when it is back. Raises OperatorError for a
        bad address.
        """
        self._cluster = Cluster(bootstrap_servers, client_id=client_id, timeout_s=REQUEST_TIMEOUT_S, security=security)
        self._ends = ends
        self._isolation = isolation
        self._outage = OutageReporter(notify)
        self._pause_s = FIRST_PAUSE_S
        self._topic_ids: dict[str, Uuid] = {}
        """Topics as of the first fetch."""
        self._positions = {key: start for key, start in starts.items() if ends is None or start < ends[key]}

    def __enter__(self) -> RecordConsumer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._cluster.close()

    @property
    def is_done(self) -> bool:
        """True if every partition is at its end."""
        return not self._positions

    def batches(
        self, *, max_records: int | None = None, idle_timeout_s: float | None = None
    ) -> Iterator[list[ConsumedRecord]]:
        """Records in lists, as they arrive; ends after `max_records`, at the `ends`, or after the idle timeout.

        Raises KafkaError for partition errors, CORRUPT_MESSAGE for damaged data, TopicNotFound.
        """
        return self._read(_consumed, max_records, idle_timeout_s)

    def rendered(
        self,
        template_of: Callable[[TopicPartition], Template],
        null: bytes,
        *,
        max_records: int | None = None,
        idle_timeout_s: float | None = None,
    ) -> Iterator[bytearray]:
        """The text of the same records by a template for each partition, without objects for records.

        See `record.rendering`. Raises as `batches`.
        """
        templates: dict[TopicPartition, Template] = {}

        def render(key: TopicPartition, batch: BatchView, span: Span) -> tuple[bytearray, int]:
            template = templates.get(key)
            if template is None:
                template = templates[key] = template_of(key)
            return rendered(batch, template, null, span)

        return self._read(render, max_records, idle_timeout_s)

    def _read(self, decode: Decode[T], max_records: int | None, idle_timeout_s: float | None) -> Iterator[T]:
        require_seconds(idle_timeout_s)
        remaining = UNLIMITED if max_records is None else max_records
        last_arrival = time.monotonic()

        def limited(key: TopicPartition, batch: BatchView, span: Span) -> tuple[T, int]:
            return decode(key, batch, (*span[:2], remaining))

        while self._positions:
            limit_s = None if idle_timeout_s is None else last_arrival + idle_timeout_s - time.monotonic()
            for key, result in self._fetch(limit_s).items():
                for decoded, count in self._decoded(key, result, limited):
                    remaining -= count
                    yield decoded
                    last_arrival = time.monotonic()
                    if remaining == 0:
                        return
            if idle_timeout_s is not None and time.monotonic() - last_arrival >= idle_timeout_s:
                return

    def _fetch(self, limit_s: float | None) -> dict[TopicPartition, FetchResult]:
        """One round over all partitions, in turn; empty, after a pause, if the cluster does not respond."""
        wait_ms = FETCH_WAIT_MS if limit_s is None else max(0, min(FETCH_WAIT_MS, int(limit_s * 1000)))
        try:
            for topic in sorted({topic for topic, _ in self._positions} - self._topic_ids.keys()):
                self._topic_ids[topic] = self._cluster.topics.get(topic).topic_id
            answers = self._cluster.records.fetch_several(
                self._positions,
                max_bytes=FETCH_BYTES,
                max_wait_ms=wait_ms,
                isolation=self._isolation,
                topic_ids=self._topic_ids,
            )
        except TopicNotFound:
            raise
        except (BrokerUnreachable, KafkaError) as error:
            self._rest(error)
            return {}
        results: dict[TopicPartition, FetchResult] = {}
        failure: KafkaError | None = None
        for key, answer in answers.items():
            if isinstance(answer, KafkaError):
                failure = answer
                self._require_retriable(answer)
                continue
            results[key] = answer
            if answer.records:  # the next round starts with partitions without records
                self._positions[key] = self._positions.pop(key)
        if failure is None:
            self._outage.ended()
            self._pause_s = FIRST_PAUSE_S
        else:
            self._rest(failure)
        return results

    def _rest(self, error: BrokerUnreachable | KafkaError) -> None:
        if isinstance(error, KafkaError):
            self._require_retriable(error)
        self._outage.failed(str(error))
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)

    @staticmethod
    def _require_retriable(error: KafkaError) -> None:
        """Raise permanent errors; while metadata spreads, a partition may be missing for a moment."""
        if isinstance(error, (TopicNotFound, TopicReplaced)) or error.code not in RETRIABLE_ERRORS:
            raise error

    def _decoded(self, key: TopicPartition, result: FetchResult, decode: Decode[T]) -> Iterator[tuple[T, int]]:
        """The batches of a fetch with records from the position to before the end; advances the position."""
        end = None if self._ends is None else self._ends[key]
        position = start = self._positions[key]
        for position, decoded in decoded_batches(key, result, start, end, decode):
            if decoded is not None and decoded[1]:
                self._positions[key] = position
                yield decoded
        self._positions[key] = position
        if end is not None and position >= end:
            del self._positions[key]


def read_batches(
    key: TopicPartition, result: FetchResult, position: int, end: int | None = None
) -> Iterator[tuple[int, list[ConsumedRecord]]]:
    """For each batch of a fetch: the next offset, and its visible records from `position` to before `end`.

    Raises KafkaError for a batch that cannot be decoded, CORRUPT_MESSAGE for a wrong checksum.
    """
    for after, decoded in decoded_batches(key, result, position, end, _consumed):
        yield after, [] if decoded is None else decoded[0]


def decoded_batches(
    key: TopicPartition, result: FetchResult, position: int, end: int | None, decode: Decode[T]
) -> Iterator[tuple[int, tuple[T, int] | None]]:
    """For each batch of a fetch: the next offset, and its visible records by `decode`, with their number; or None.

    Raises as `read_batches`.
    """
    transactions = TransactionFilter(result.aborted)
    stop = UNLIMITED if end is None else end
    try:
        for batch in iter_any_batches(result.records):
            if batch.base_offset >= stop:
                yield stop, None
                return
            if not batch.crc_matches():
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the checksum does not match")
            decoded: tuple[T, int] | None = None
            if transactions.passes(batch) and batch.next_offset > position:
                decoded = decode(key, batch, (position, stop, UNLIMITED))
            position = max(position, batch.next_offset)
            yield position, decoded
    except KafkaError as error:
        where = f"the batch of {key[0]}-{key[1]} at or after offset {position}"
        raise KafkaError(error.code, f"{where} can't be read: {error.message}") from error


def _consumed(key: TopicPartition, batch: BatchView, span: Span) -> tuple[list[ConsumedRecord], int]:
    topic, partition = key
    start, end, limit = span
    kind = TIMESTAMP_TYPES[2 if batch.timestamp_type == LOG_APPEND_TIME else 1]
    records = [
        ConsumedRecord(
            topic,
            partition,
            record.offset,
            None if record.timestamp == NO_TIMESTAMP else record.timestamp,
            None if record.timestamp == NO_TIMESTAMP else kind,
            record.key,
            record.value,
            record.headers,
        )
        for record in batch.records()
        if start <= record.offset < end
    ][:limit]
    return records, len(records)
