"""A topic as target: producers of `ottla.client` write the rows of Arrow batches as records.

Columns are found by name: `value` is required; `key`, `headers`, `partition`, `topic` and `timestamp` are optional;
others are ignored. Values are bytes or text, as in the batch. A null value is a tombstone, a null key means no key, a
null partition the partitioner's choice by key, a null timestamp the time of sending.

**Invariants:** at most SLICE_ROWS rows are Python objects at a time, and unsent rows are bounded by the
producer's queue; a row that can't be sent, or was not delivered, ends the write with one sentence. Visibility depends
on the producer: rows of a transactional one are visible after its commit only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.producer import NOW, UNASSIGNED, RecordProducer
from ottla.client.librdkafka.transactional_producer import ProducerFenced, TransactionalProducer
from ottla.client.wire.model import CommittedOffset
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.topic_partition import TopicPartition

SLICE_ROWS = 1_000
"""Rows between two checks of deliveries."""
DELIVERY_TIMEOUT_S = 120.0
LIBRARYS_END = "\0"
"""Terminator that confluent-kafka stores at the end of an offset's metadata."""
TRANSACTION_TIMEOUT_MS = 600_000
"""A transaction is open while a task computes its rows; an abandoned one blocks consumers of committed records for this
time, unless the id is initialized again."""

IsType = Callable[[pa.DataType], bool]

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[str, bytes | None, bytes | None, Headers, int, int | None]
"""Topic, value, key, headers, partition or UNASSIGNED, milliseconds from the epoch or NOW."""


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return bool(pa.types.is_null(kind))
    names = [each.name for each in kind.value_type]
    return names == ["key", "value"] and _is_text(kind.value_type[0].type) and _is_bytes(kind.value_type[1].type)


COLUMN_TYPES: Mapping[str, tuple[IsType, str]] = {
    "key": (_is_bytes, "binary or string"),
    "value": (_is_bytes, "binary or string"),
    "topic": (_is_text, "string"),
    "partition": (pa.types.is_integer, "integer"),
    "headers": (_is_headers, "array<struct<key: string, value: binary>>"),
    "timestamp": (pa.types.is_timestamp, "timestamp"),
}


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """Target of a write; sent to workers. `topic` overrides the column of that name; `properties` are librdkafka's."""

    bootstrap_servers: str
    topic: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    client_id: str = "ottla"
    delivery_timeout_s: float = DELIVERY_TIMEOUT_S
    security: ClientSecurity = PLAINTEXT

    @property
    def settings(self) -> Hashable:
        """All settings of a producer, as a key that distinguishes targets."""
        own = (self.bootstrap_servers, self.topic, self.client_id, self.delivery_timeout_s)
        return own, tuple(sorted(self.properties.items())), self.security.settings

    def check(self, schema: pa.Schema) -> None:
        """Raise OperatorError unless rows of that schema can be written here."""
        if "value" not in schema.names:
            raise OperatorError(f"a topic needs a column `value`, but the rows only have: {', '.join(schema.names)}")
        if self.topic is None and "topic" not in schema.names:
            raise OperatorError("no topic to write to: set the option `topic`, or add a column of that name")
        for column in schema:
            is_right, wanted = COLUMN_TYPES.get(column.name, (None, ""))
            if is_right is not None and not is_right(column.type):
                raise OperatorError(f"the column `{column.name}` must be {wanted}, not {column.type}; cast it")

    def producer(self) -> RecordProducer:
        """One that neither loses nor doubles a record by its own retries. Raises KafkaError for a bad property."""
        return RecordProducer(
            self.bootstrap_servers,
            client_id=self.client_id,
            acks=_acks(self.properties),
            delivery_timeout_s=self.delivery_timeout_s,
            properties={**self.security.library, **self.properties},
        )

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        """A producer whose records become visible with its commit; fences earlier ones of the id. Raises KafkaError."""
        return TransactionalProducer(
            self.bootstrap_servers,
            transactional_id,
            client_id=self.client_id,
            delivery_timeout_s=self.delivery_timeout_s,
            properties={
                "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
                **self.security.library,
                **self.properties,
            },
        )

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Progress of this target's transactions, as offsets of a group. Raises KafkaError."""
        with self.open_cluster() as cluster:
            found = cluster.groups.offsets(group_id, stable=True)
        return {key: each._replace(metadata=each.metadata.rstrip(LIBRARYS_END)) for key, each in found.items()}

    def open_cluster(self) -> Cluster:
        """A client that waits as long for an unreachable cluster as a producer does."""
        return Cluster(
            self.bootstrap_servers,
            client_id=self.client_id,
            timeout_s=self.delivery_timeout_s,
            security=self.security,
        )


def _acks(properties: Mapping[str, str]) -> str:
    acks = properties.get("acks", properties.get("request.required.acks", "all"))
    return "all" if acks == "-1" else acks


TOO_LARGE = (
    "; raise the producer property message.max.bytes, as in -X message.max.bytes=20000000, and max.message.bytes of "
    "the topic"
)


class RowWriter:
    """Queues rows with a producer, and counts them."""

    def __init__(self, producer: RecordProducer, topic: str | None) -> None:
        self._producer = producer
        self._topic = topic
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Queue all rows of a batch that `TopicTarget.check` accepts.

        Raises ProducerFenced, KafkaError, OperatorError.
        """
        queue = self._producer.queue
        for records in slices(batch, self._topic):
            try:
                for record in records:
                    queue(*record)
            except ProducerFenced:
                raise
            except KafkaError as error:
                number = self._producer.sent_count + 1
                way_out = TOO_LARGE if error.code == ErrorCode.MESSAGE_TOO_LARGE else ""
                what = f"row {number:,} of the task can't be sent: {error.message}{way_out}"
                raise KafkaError(error.code, what) from error
            except (TypeError, ValueError) as error:
                raise OperatorError(
                    f"row {self._producer.sent_count + 1:,} of the task can't be sent: {error}; "
                    "correct or filter out such rows in the query"
                ) from error
            self.rows += len(records)
            self._producer.poll()
            if self._producer.first_failure is not None:
                self.finish()  # queued records may fail too, and are counted

    def finish(self) -> None:
        """Wait until everything is delivered. Raises KafkaError for a row that was not."""
        self._producer.flush()
        self._producer.raise_first_failure()


def slices(batch: pa.RecordBatch, topic: str | None) -> Iterator[list[Record]]:
    """The rows of a batch as records, SLICE_ROWS at a time. Raises OperatorError for a row without topic."""
    for start in range(0, batch.num_rows, SLICE_ROWS):
        yield _records(batch.slice(start, SLICE_ROWS), topic)


def _records(batch: pa.RecordBatch, topic: str | None) -> list[Record]:
    count = batch.num_rows
    names = batch.schema.names

    def column(name: str, default: Any) -> Sequence[Any]:
        return batch.column(name).to_pylist() if name in names else [default] * count

    topics = column("topic", None) if topic is None else [topic] * count
    if None in topics:
        raise OperatorError("a row has no topic: its column `topic` is null, and the option `topic` is not set")
    partitions = [UNASSIGNED if index is None else index for index in column("partition", None)]
    headers = [
        () if pairs is None else [(pair["key"], pair["value"]) for pair in pairs] for pairs in column("headers", None)
    ]
    return list(
        zip(topics, column("value", None), column("key", None), headers, partitions, _times(batch, names), strict=True)
    )


def _times(batch: pa.RecordBatch, names: Sequence[str]) -> Sequence[int | None]:
    if "timestamp" not in names:
        return [NOW] * batch.num_rows
    times = pc.cast(batch.column("timestamp"), pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    found: list[int | None] = times.to_pylist()
    return found


class Fingerprint:
    """Number of records and checksums of their keys and values in order, independent of how they are split into
    batches.

    Detects a replayed task with other rows. It does not detect malicious changes (CRC-32C).
    """

    def __init__(self) -> None:
        self._rows = 0
        self._crcs = dict.fromkeys(("key", "value"), (0, 0))
        """Checksums of lengths and of bytes."""

    def add(self, batch: pa.RecordBatch) -> None:
        for name, (lengths_crc, bytes_crc) in self._crcs.items():
            if name in batch.schema.names:
                column = batch.column(name).cast(pa.large_binary())
                lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
                self._crcs[name] = crc32c(lengths, lengths_crc), crc32c(_data(column), bytes_crc)
        self._rows += batch.num_rows

    def __str__(self) -> str:
        crcs = "".join(f"{crc:08x}" for pair in self._crcs.values() for crc in pair)
        return f"{self._rows} rows, crc32c {crcs}"


def _data(column: pa.Array) -> bytes | memoryview:
    """The bytes of all values of a large_binary column, concatenated."""
    _, offsets, data = pc.fill_null(column, b"").buffers()[:3] if column.null_count else column.buffers()
    if data is None:
        return b""
    borders = np.frombuffer(offsets, np.int64)
    start = 0 if column.null_count else column.offset
    return memoryview(data)[borders[start] : borders[start + len(column)]]
