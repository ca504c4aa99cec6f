"""The writing half of Spark's Data Source `ottla`: batch and stream, with options and columns as of Spark's Kafka sink.

`topic` (or `path`, or a column `topic`), `kafka.bootstrap.servers` and any other `kafka.` property of a producer.
`delivery.guarantee` is ours: `at-least-once`, as Spark's own sink, is the default; `exactly-once` is for streams, by
`ottla.pipeline.sinks.epochs`. A row's column `timestamp` is left out, as there: records have the time of writing.

A worker keeps a stream's producers from one task to the next of the same query.
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
"""Targets whose properties the library knows: Spark has each epoch's writer made twice, in processes of their own."""

_KEPT: LruPool[RecordProducer] = LruPool(4)
"""Of this worker: those that write at least once, by target and query."""


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int


class TopicWriter(DataSourceArrowWriter):
    """Batch, at least once: a task that is tried again writes again what its first attempt wrote."""

    def __init__(self, target: TopicTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write what one task has. Raises KafkaError, OperatorError."""
        return TaskWritten(_write_plainly(self._target.producer(), self._target, iterator))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Stream; `guarantee` is AT_LEAST_ONCE or EXACTLY_ONCE."""

    def __init__(self, target: TopicTarget, guarantee: str) -> None:
        self._target = target
        self._guarantee = guarantee

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write what one task has for an epoch. Raises KafkaError, OperatorError."""
        if self._guarantee == AT_LEAST_ONCE:
            rows = _write_with_kept(self._target, iterator)
        else:
            rows = write_epoch(self._target, _epoch_task(), map(_written_columns, iterator))
        freeze_heap("write")
        return TaskWritten(rows)


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write.format("ottla")`. Raises OperatorError for options and columns that can't be."""
    target, guarantee = _checked(options, schema, overwrite=overwrite)
    if guarantee == EXACTLY_ONCE:
        raise OperatorError(
            f"{GUARANTEE_OPTION}={EXACTLY_ONCE} is for streams: a batch has no id by which its next attempt would know "
            "it again; use df.writeStream, or `ottla pipeline push`"
        )
    return TopicWriter(target)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream.format("ottla")`. Raises OperatorError for options and columns that can't be."""
    writer = TopicStreamWriter(*_checked(options, schema, overwrite=overwrite))
    freeze_heap("plan")
    return writer


def _checked(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> tuple[TopicTarget, str]:
    if overwrite:
        raise OperatorError("records of a topic can't be overwritten: use mode `append`, or output mode `append`")
    target, guarantee = parse_sink_options(options)
    target.check(to_arrow_schema(StructType([field for field in schema if field.name in COLUMNS])))
    if not _CHECKED.take(target.settings):
        target.producer()  # knows which properties there are
    _CHECKED.keep(target.settings, True)
    return target, guarantee


def _write_with_kept(target: TopicTarget, batches: Iterator[pa.RecordBatch]) -> int:
    """By the producer of an earlier task of the query, where this worker had one that failed in nothing."""
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
            f"this Spark does not tell its tasks {QUERY_PROPERTY} and {EPOCH_PROPERTY}, without which nothing can be "
            f"written exactly once; use {GUARANTEE_OPTION}={AT_LEAST_ONCE}"
        )
    return EpochTask(*found)
