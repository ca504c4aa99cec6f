"""Writers of Spark's data source `ottla`: batch and stream, with the options and columns of Spark's Kafka sink.

`topic` (or `path`, or a column `topic`), `kafka.bootstrap.servers` and any other `kafka.` property of a producer.
`delivery.guarantee` is specific to Ottla: the default is `at-least-once`, as Spark's own sink; `exactly-once` is for
streams, by `ottla.pipeline.sinks.epochs`. A row's column `timestamp` is ignored, as there: records have the time of
writing.

A worker reuses a stream's producers for tasks of the same query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.client.librdkafka.producer import RecordProducer
from ottla.common.errors import OperatorError
from ottla.pipeline.datasource.query import EPOCH_PROPERTY, QUERY_PROPERTY, current_query
from ottla.pipeline.datasource.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, GUARANTEE_OPTION, parse_sink_options
from ottla.pipeline.datasource.worker_heap import freeze_heap
from ottla.pipeline.model.lru_pool import LruPool
from ottla.pipeline.sinks.epochs import EpochTask, write_epoch
from ottla.pipeline.sinks.topic import RowWriter, TopicTarget

COLUMNS = ("topic", "partition", "key", "value", "headers")

_CHECKED: LruPool[bool] = LruPool(64)
"""Targets with verified properties: Spark creates each epoch's writer twice, in separate processes."""

_KEPT: LruPool[RecordProducer] = LruPool(4)
"""Pool of this worker: producers that write at least once, by target and query."""


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """Message of a task to the driver."""

    rows: int


class TopicWriter(DataSourceArrowWriter):
    """Batch, at least once: a retried task writes the rows of its first attempt again."""

    def __init__(self, target: TopicTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Raises KafkaError, OperatorError."""
        return TaskWritten(_write_plainly(self._target.producer(), self._target, iterator))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Stream; `guarantee` is AT_LEAST_ONCE or EXACTLY_ONCE."""

    def __init__(self, target: TopicTarget, guarantee: str) -> None:
        self._target = target
        self._guarantee = guarantee

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task for an epoch. Raises KafkaError, OperatorError."""
        if self._guarantee == AT_LEAST_ONCE:
            rows = _write_with_kept(self._target, iterator)
        else:
            rows = write_epoch(self._target, _epoch_task(), map(_written_columns, iterator))
        freeze_heap("write")
        return TaskWritten(rows)


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write.format("ottla")`. Raises OperatorError for invalid options and columns."""
    target, guarantee = _checked(options, schema, overwrite=overwrite)
    if guarantee == EXACTLY_ONCE:
        raise OperatorError(
            f"{GUARANTEE_OPTION}={EXACTLY_ONCE} is for streams: a batch has no id by which a retry could recognize "
            "earlier writes; use df.writeStream, or `ottla pipeline push`"
        )
    return TopicWriter(target)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream.format("ottla")`. Raises OperatorError for invalid options and columns."""
    writer = TopicStreamWriter(*_checked(options, schema, overwrite=overwrite))
    freeze_heap("plan")
    return writer


def _checked(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> tuple[TopicTarget, str]:
    if overwrite:
        raise OperatorError("records of a topic can't be overwritten: use mode `append`, or output mode `append`")
    target, guarantee = parse_sink_options(options)
    target.check(to_arrow_schema(StructType([field for field in schema if field.name in COLUMNS])))
    if not _CHECKED.take(target.settings):
        target.producer()  # refuses unknown properties
    _CHECKED.keep(target.settings, True)
    return target, guarantee


def _write_with_kept(target: TopicTarget, batches: Iterator[pa.RecordBatch]) -> int:
    """Write with the pooled producer of an earlier task of the query, if this worker has one without errors."""
    query = current_query()
    name = (target.settings, None if query is None else query.query_id)
    producer = _KEPT.take(name) or target.producer()
    rows = _write_plainly(producer, target, batches)
    if query is not None:
        producer.sent_count = 0
        _KEPT.keep(name, producer)
    return rows


def _write_plainly(producer: RecordProducer, target: TopicTarget, batches: Iterator[pa.RecordBatch]) -> int:
    writer = RowWriter(producer, target.topic)
    for batch in batches:
        writer.write(_written_columns(batch))
    writer.finish()
    return writer.rows


def _written_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name in COLUMNS])


def _epoch_task() -> EpochTask:
    found = current_query()
    if found is None:
        raise OperatorError(
            f"this Spark does not set {QUERY_PROPERTY} and {EPOCH_PROPERTY} for its tasks, which exactly once "
            f"requires; use {GUARANTEE_OPTION}={AT_LEAST_ONCE}"
        )
    return EpochTask(*found)
