"""A range of offsets as Arrow batches with the columns of Spark's Kafka connector, inside a Python worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.pipeline.datasource.bounds import Bounds
from ottla.pipeline.datasource.records import OpenCluster, read_records
from ottla.pipeline.decode import HEADERS_TYPE, SCHEMA
from ottla.pipeline.plan import OffsetRange, OnDataLoss
from ottla.pipeline.sources.source import RecordsDeletedError

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS_SCHEMA = ", headers array<struct<key: string, value: binary>>"
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")


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
                for rows in read_records(cluster, whole, partition.bounds, self.isolation, self.on_data_loss):
                    yield _as_spark(rows, headers=self.headers)
            except RecordsDeletedError as error:
                raise RecordsDeletedError(f"{error}; with failOnDataLoss false what is there is read") from error


def _as_spark(batch: pa.RecordBatch, *, headers: bool) -> pa.RecordBatch:
    columns = [batch.column(name) for name in _COLUMNS]
    fields = [
        pa.field("timestampType" if name == "timestamp_type" else name, SCHEMA.field(name).type) for name in _COLUMNS
    ]
    if headers:
        columns.append(batch.column("headers"))
        fields.append(pa.field("headers", HEADERS_TYPE))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
