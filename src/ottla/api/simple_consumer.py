"""`SimpleConsumer`: reads partitions at offsets that the caller keeps; nothing is remembered, nobody is coordinated.

    with SimpleConsumer("localhost:9092") as consumer:
        fetched = consumer.fetch("views", 0, consumer.earliest("views", 0))

Built on Ottla's own client: one request names many partitions of one broker. Each response has memory of its own, which
nothing else ever writes to. May be shared by threads, which take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from ottla.api.errors import ClientClosed, one_family
from ottla.api.settings import Config, read_tool_settings
from ottla.client.cluster import DEFAULT_FETCH_BYTES, Cluster
from ottla.client.consumer import ConsumedRecord, consumed_records
from ottla.client.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, FetchResult, Position
from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.legacy.stored import iter_any_batches
from ottla.record.transactions import TransactionFilter

READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch of one partition gave; `next_offset` is where to go on."""

    records: tuple[ConsumedRecord, ...]
    next_offset: int
    high_watermark: int
    log_start_offset: int


class SimpleConsumer:
    """See the module. A context manager that closes its connections."""

    def __init__(
        self, bootstrap_servers: str, config: Config | None = None, *, isolation: str = READ_UNCOMMITTED
    ) -> None:
        """Connects later. `isolation` is read_uncommitted or read_committed. Raises KafkaError INVALID_CONFIG."""
        settings = read_tool_settings(bootstrap_servers, config)
        self._isolation = isolation
        self._lock = threading.Lock()
        self._closed = False
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=settings.client_id,
            timeout_s=settings.seconds("default.api.timeout.ms"),
            security=settings.security,
        )

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a second time it does nothing."""
        with self._lock:
            self._closed = True
            self._cluster.close()

    @contextmanager
    def _asking(self) -> Iterator[Cluster]:
        with self._lock, one_family():
            if self._closed:
                raise ClientClosed("consumer")
            yield self._cluster

    # Records

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = DEFAULT_FETCH_BYTES, max_wait_ms: int = 500
    ) -> Fetched:
        """The records from `offset` on, of about `max_bytes`; none where nothing came for `max_wait_ms`.

        At least one batch comes whatever its size (KIP-74). What may be tried again is, for `default.api.timeout.ms`.
        Raises KafkaError, OFFSET_OUT_OF_RANGE and UNKNOWN_TOPIC_OR_PARTITION among others.
        """
        with self._asking() as cluster:
            result = cluster.fetch(
                topic,
                partition,
                offset,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                isolation=self._isolation,
            )
        return _fetched((topic, partition), offset, result)

    def fetch_many(
        self,
        offsets: Mapping[Position, int],
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
    ) -> dict[Position, Fetched | KafkaError]:
        """What `fetch` gives for each partition, or why not: one request for each broker that leads some of them.

        Nothing is tried again. Raises KafkaError where the cluster can't be asked at all.
        """
        topics = {topic for topic, _ in offsets}
        with self._asking() as cluster:
            ids = {topic: cluster.topic(topic).topic_id for topic in sorted(topics)}
            results = cluster.fetch_several(
                offsets, max_bytes=max_bytes, max_wait_ms=max_wait_ms, isolation=self._isolation, topic_ids=ids
            )
        return {
            key: result if isinstance(result, KafkaError) else _fetched(key, offsets[key], result)
            for key, result in results.items()
        }

    # Offsets

    def earliest(self, topic: str, partition: int) -> int:
        """The first offset that is there. Raises KafkaError."""
        return self._offset((topic, partition), EARLIEST_TIMESTAMP)

    def latest(self, topic: str, partition: int) -> int:
        """Where the next record of its isolation level comes."""
        return self._offset((topic, partition), LATEST_TIMESTAMP)

    def youngest(self, topic: str, partition: int) -> int | None:
        """The offset of the record with the largest timestamp (KIP-734); None in an empty partition."""
        found = self._offset((topic, partition), MAX_TIMESTAMP)
        return None if found < 0 else found

    def offsets_for_times(self, timestamps_ms: Mapping[Position, int]) -> dict[Position, int | None]:
        """For each partition the first offset whose record is at least that young; None where there is none.

        Raises KafkaError, INVALID_REQUEST for a negative time.
        """
        for key, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"a time in milliseconds is not {timestamp} ({key})")
        with self._asking() as cluster:
            found = cluster.list_offsets(timestamps_ms, isolation=self._isolation)
        return {key: None if info.offset < 0 else info.offset for key, info in found.items()}

    def bounds(self, partitions: Iterable[Position]) -> dict[Position, tuple[int, int]]:
        """First offset and end offset of each partition."""
        keys = list(partitions)
        with self._asking() as cluster:
            first = cluster.list_offsets(dict.fromkeys(keys, EARLIEST_TIMESTAMP), isolation=self._isolation)
            last = cluster.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation=self._isolation)
        return {key: (first[key].offset, last[key].offset) for key in keys}

    def partitions(self, topic: str) -> list[Position]:
        """All partitions of a topic. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        with self._asking() as cluster:
            return [(topic, each.index) for each in cluster.topic(topic).partitions]

    def _offset(self, key: Position, timestamp: int) -> int:
        with self._asking() as cluster:
            return cluster.list_offsets({key: timestamp}, isolation=self._isolation)[key].offset


def _fetched(key: Position, offset: int, result: FetchResult) -> Fetched:
    records: list[ConsumedRecord] = []
    position = offset
    transactions = TransactionFilter(result.aborted)
    try:
        for batch in iter_any_batches(result.records):
            if not batch.crc_matches():
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "its checksum does not match")
            if transactions.passes(batch):
                records += consumed_records(key, batch, offset, None)
            position = max(position, batch.next_offset)
    except KafkaError as error:
        where = f"the batch of {key[0]}-{key[1]} at offset {position} or behind it"
        raise KafkaError(error.code, f"{where} can't be read: {error.message}") from error
    return Fetched(tuple(records), position, result.high_watermark, result.log_start_offset)
