"""A thin consumer on confluent-kafka that reads partitions by assignment, as far as the command line needs one.

Invariants: no group takes part and nothing is committed; a partition starts where it is told and never jumps: an offset
out of range is an error. With `ends`, records at and beyond a partition's end are not returned and the iteration stops
once every partition got there, also when its last records are markers or were compacted away.

Left out: groups (`ottla.client.group_consumer`), deserializers, the user-facing API of a later issue. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ottla.client.model import Position
from ottla.common.errors import ErrorCode, KafkaError

BATCH_RECORDS = 500
BATCH_WAIT_S = 0.1
FULL_QUEUE_BACKOFF_MS = 10
"""The library's own second of rest, whenever its queue is full, more than halves the speed of a long read."""
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}
"""By librdkafka's numbers; 0 is 'not available'."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """One record; `timestamp_ms` is None where the topic's format has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordConsumer:
    """Reads assigned partitions of one cluster; a context manager.

    `properties` are librdkafka's, and win over the defaults.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        starts: Mapping[Position, int],
        *,
        ends: Mapping[Position, int] | None = None,
        client_id: str = "ottla",
        isolation: str = "read_committed",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Raises KafkaError INVALID_CONFIG for a property that librdkafka refuses."""
        import confluent_kafka

        self._eof_code = confluent_kafka.KafkaError._PARTITION_EOF
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": client_id,
            "group.id": client_id,  # the library insists; assignment alone never joins
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.queue.backoff.ms": FULL_QUEUE_BACKOFF_MS,
            "log_level": 0,
            **(properties or {}),
        }
        self._ends = dict(ends) if ends is not None else None
        self._open = {key for key in starts if ends is None or starts[key] < ends[key]}
        try:
            self._consumer = confluent_kafka.Consumer(settings)
        except confluent_kafka.KafkaException as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.args[0].str()) from error
        self._consumer.assign(
            [
                confluent_kafka.TopicPartition(topic, partition, starts[topic, partition])
                for topic, partition in self._open
            ]
        )

    def __enter__(self) -> RecordConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def batches(
        self, *, max_records: int | None = None, idle_timeout_s: float | None = None
    ) -> Iterator[list[ConsumedRecord]]:
        """Records as they come, in lists; ends after `max_records`, at the `ends`, or when nothing came for that long.

        Raises KafkaError for what a partition reports.
        """
        remaining = max_records
        last_arrival = time.monotonic()
        while self._open and (remaining is None or remaining > 0):
            count = BATCH_RECORDS if remaining is None else min(BATCH_RECORDS, remaining)
            wait_s = BATCH_WAIT_S if idle_timeout_s is None else min(BATCH_WAIT_S, idle_timeout_s)
            records = [record for message in self._consumer.consume(count, wait_s) for record in self._accept(message)]
            now = time.monotonic()
            if records:
                last_arrival = now
                if remaining is not None:
                    remaining -= len(records)
                yield records
            elif idle_timeout_s is not None and now - last_arrival >= idle_timeout_s:
                return

    def _accept(self, message: Any) -> list[ConsumedRecord]:
        """The record of a message; none for an end-of-partition event or what lies beyond the end."""
        key = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() != self._eof_code:
                raise consume_error(error, key)
            if self._ends is not None:
                self._finish(key)
            return []
        offset = message.offset()
        end = None if self._ends is None else self._ends[key]
        if end is not None and offset + 1 >= end:
            self._finish(key)
            if offset >= end:
                return []
        return [record_of(message)]

    def _finish(self, key: Position) -> None:
        """Fetch nothing more of a partition that got to its end."""
        import confluent_kafka

        if key in self._open:
            self._open.discard(key)
            self._consumer.pause([confluent_kafka.TopicPartition(*key)])


def record_of(message: Any) -> ConsumedRecord:
    """The record that a message without an error carries."""
    kind, timestamp = message.timestamp()
    return ConsumedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp if kind in TIMESTAMP_TYPES else None,
        TIMESTAMP_TYPES.get(kind),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def consume_error(error: Any, key: tuple[str | None, int | None] = (None, None)) -> KafkaError:
    """An error of librdkafka as ours; `key` is the partition that it is about, where it is about one."""
    try:
        code = ErrorCode(error.code())
    except ValueError:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    text = str(error.str()).removeprefix("Broker: ").removeprefix("Local: ")
    return KafkaError(code, f"{key[0]}-{key[1]}: {text}" if key[0] is not None else text)
