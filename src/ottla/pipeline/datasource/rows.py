"""A range of offsets as Arrow batches with the columns of Spark's Kafka connector, inside a Python worker.

The only difference in values: a record without a timestamp, or with one that Spark can't hold, has null there, where
the connector gives the last millisecond of 1969 or fails the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from ottla.pipeline.datasource.offsets import SourceCluster
from ottla.pipeline.datasource.pushdown import Bounds
from ottla.pipeline.decode import HEADERS_TYPE, SCHEMA, Decoded
from ottla.pipeline.plan import OffsetRange, OnDataLoss
from ottla.pipeline.sources.fetch import read_range
from ottla.pipeline.sources.source import RecordsDeletedError

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS_SCHEMA = ", headers array<struct<key: string, value: binary>>"
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")
_TIMESTAMP = SCHEMA.field("timestamp").type
_MAX_TIMESTAMP_MS = (1 << 63) // 1000 - 1

OpenCluster = Callable[[], AbstractContextManager[SourceCluster]]
"""Connects from inside a worker; must be picklable."""


def spark_schema(*, headers: bool) -> str:
    """The columns as DDL."""
    return SPARK_SCHEMA + (HEADERS_SCHEMA if headers else "")


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """What one task reads."""

    whole: OffsetRange
    bounds: Bounds = field(default_factory=Bounds)
    """Rows outside need not be given."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads a partition; travels to the workers."""

    open_cluster: OpenCluster
    isolation: str
    on_data_loss: OnDataLoss
    headers: bool

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range in the order of their offsets. Raises DataLossError, DecodeError, KafkaError."""
        whole = partition.whole
        with self.open_cluster() as cluster:
            try:
                parts = read_range(cluster, whole, isolation=self.isolation, on_data_loss=self.on_data_loss)
                for part in parts:
                    for batch in _in_order(part.decoded):
                        rows = partition.bounds.filtered(batch)
                        if rows.num_rows:
                            yield _as_spark(rows, headers=self.headers)
            except RecordsDeletedError as error:
                raise RecordsDeletedError(f"{error}; with failOnDataLoss false what is there is read") from error


def _in_order(decoded: Decoded) -> Sequence[pa.RecordBatch]:
    """The batches of a part; records that a table would not take are put back in their places."""
    if not decoded.dead_letters:
        return decoded.batches
    letters = [_with_timestamp(letters) for letters in decoded.dead_letters]
    merged: list[pa.RecordBatch] = pa.Table.from_batches([*decoded.batches, *letters]).sort_by("offset").to_batches()
    return merged


def _with_timestamp(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Dead letters by SCHEMA: with the timestamp as it is where its microseconds fit, else null."""
    stored = letters.column("timestamp_ms").to_numpy()
    fits = np.abs(stored) <= _MAX_TIMESTAMP_MS
    microseconds = pa.array(np.where(fits, stored, 0) * 1000, pa.int64(), mask=~fits).view(_TIMESTAMP)
    columns = [microseconds if name == "timestamp" else letters.column(name) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _as_spark(batch: pa.RecordBatch, *, headers: bool) -> pa.RecordBatch:
    columns = [batch.column(name) for name in _COLUMNS]
    fields = [
        pa.field("timestampType" if name == "timestamp_type" else name, SCHEMA.field(name).type) for name in _COLUMNS
    ]
    if headers:
        given = batch.column("headers")
        none = pc.equal(pc.list_value_length(given), 0)
        columns.append(pc.if_else(none, pa.scalar(None, HEADERS_TYPE), given))
        fields.append(pa.field("headers", HEADERS_TYPE))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
