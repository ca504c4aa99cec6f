"""Views of a stream: the decoded records of topics, with event time and watermark.

A view has the columns of a table of a load. The fields of decoded values replace `value` and `headers`, which then
need not pass through the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.datasource.offsets import earliest, latest, positions, require_all, subscribed
from ottla.pipeline.datasource.options import Subscription
from ottla.pipeline.datasource.provider import NAME
from ottla.pipeline.model.decode import SCHEMA
from ottla.pipeline.model.failure import refusal, spark_reason
from ottla.pipeline.model.plan import OffsetRange
from ottla.pipeline.model.rollback import LoadRefusedError
from ottla.pipeline.sql.topic_views import COLUMNS
from ottla.pipeline.stream.definition import SourceDefinition, StreamDefinition
from ottla.pipeline.stream.letters import DecodingTask
from ottla.pipeline.transform.columns import column_name
from ottla.pipeline.transform.open_format import open_format
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.target_schema import given_fields, settle_fields
from ottla.pipeline.transform.value_format import ValueFormat

EVENT_TIME = "event_time"
KEPT_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key")
"""Kafka's columns in a view with decoded values."""


def open_formats(definition: StreamDefinition) -> dict[str, ValueFormat]:
    """The value format of each source; sources with raw values have none. Raises OperatorError."""
    found = {}
    for view, source in definition.sources.items():
        path = source.decode.schema
        if path is not None and not path.is_file():
            raise OperatorError(f"[sources.{view}] schema: the file {path} does not exist")
        decode = source.decode
        if decode.decode == "json" and path is None:
            decode = replace(decode, numbers="exact", map_keys=0)
        value_format = open_format(decode)
        if value_format is not None:
            found[view] = value_format
    return found


def settle(definition: StreamDefinition, formats: Mapping[str, ValueFormat], cluster: Cluster) -> dict[str, pa.Schema]:
    """The fields of the values of each decoded source: as given, else from a sample. Raises OperatorError,
    KafkaError."""
    return {
        view: settle_fields(value_format, cluster, _ranges(source, cluster), source.isolation)
        for view, value_format in formats.items()
        for source in [definition.sources[view]]
    }


def require_same_fields(
    definition: StreamDefinition, formats: Mapping[str, ValueFormat], settled: Mapping[str, pa.Schema]
) -> None:
    """Raise LoadRefusedError for a schema file that was edited since the stream was started: its state and its results
    have the old fields."""
    for view, value_format in formats.items():
        path = definition.sources[view].decode.schema
        if path is not None and view in settled and given_fields(value_format) != settled[view]:
            raise LoadRefusedError(
                f"[sources.{view}] schema: the file {path} has other fields than the stream {definition.name!r} was "
                "started with: revert that change, or start a new stream with another name and another place for the "
                "results"
            )


def require_topics(definition: StreamDefinition, cluster: Cluster) -> None:
    """Raise OperatorError unless all named topics exist, and no pattern matches that of the results."""
    for view, source in definition.sources.items():
        found = subscribed(cluster, _subscription(source))
        if not source.topic_pattern:
            require_all(found, _subscription(source))
        elif definition.result.topic in found:
            raise OperatorError(
                f"[sources.{view}] topic_pattern = {source.topic_pattern!r} matches {definition.result.topic!r}, the "
                "topic of [result]: the stream would feed itself; narrow the pattern, or choose another topic"
            )


def register_views(
    spark: Any,
    definition: StreamDefinition,
    formats: Mapping[str, ValueFormat],
    fields: Mapping[str, pa.Schema],
    letters: Path,
    cluster_options: Mapping[str, str],
) -> dict[str, Any]:
    """Register each source as a temporary view; returns them as DataFrames.

    `cluster_options`: options of a source with the cluster's address and security. Raises OperatorError.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    found = {}
    for view, source in definition.sources.items():
        try:
            frame = _read(spark, f"{definition.name}.{view}", source, cluster_options)
            if view in formats:
                frame = _decoded(frame, formats[view], fields[view], letters, view)
            else:
                frame = frame.selectExpr(*COLUMNS)
            frame = _with_time(frame, view, source)
        except PySparkException as error:
            raise OperatorError(f"[sources.{view}]: Spark refused it: {refusal(error)}") from error
        except Py4JJavaError as error:  # the driver lacks the Python for planning
            raise OperatorError(f"[sources.{view}]: Spark can't plan it: {spark_reason(error)}") from error
        frame.createOrReplaceTempView(view)
        found[view] = frame
    return found


def _subscription(source: SourceDefinition) -> Subscription:
    return Subscription(pattern=source.topic_pattern) if source.topic_pattern else Subscription(topics=source.topics)


def _ranges(source: SourceDefinition, cluster: Cluster) -> list[OffsetRange]:
    """All offsets that the topics of a source have now."""
    topics = subscribed(cluster, _subscription(source))
    keys = positions(topics, _subscription(source))
    firsts, ends = earliest(cluster, keys), latest(cluster, keys, source.isolation)
    return [
        OffsetRange(key[0], uuid_to_string(topics[key[0]].topic_id), key[1], firsts[key], end.offset, 0)
        for key, end in sorted(ends.items())
        if firsts[key] < end.offset
    ]


def _read(spark: Any, name: str, source: SourceDefinition, cluster_options: Mapping[str, str]) -> Any:
    """`name` identifies the reader to brokers and lag tools."""
    chosen = (
        {"subscribePattern": source.topic_pattern} if source.topic_pattern else {"subscribe": ",".join(source.topics)}
    )
    limit = {} if source.max_records is None else {"maxOffsetsPerTrigger": str(source.max_records)}
    return (
        spark.readStream.format(NAME)
        .options(**chosen, **limit, **cluster_options)
        .option("kafka.client.id", f"ottla-stream.{name}")
        .option("kafka.group.id", f"ottla-stream.{name}")
        .option("kafka.isolation.level", source.isolation)
        .option("startingOffsets", source.start)
        .option("failOnDataLoss", str(source.on_data_loss == "fail").lower())
        .option("includeHeaders", "true")
        .load()
    )


def _decoded(frame: Any, value_format: ValueFormat, fields: pa.Schema, letters: Path, view: str) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    kept = [SCHEMA.field(name) for name in KEPT_COLUMNS]
    schema = pa.schema([*kept, *(pa.field(column_name(one.name), one.type) for one in fields)])
    task = DecodingTask(RecordDecoder(value_format.decoder(fields), schema, value_format.id_length), letters, view)
    return frame.mapInArrow(task, from_arrow_schema(schema, prefer_timestamp_ntz=True))


def _with_time(frame: Any, view: str, source: SourceDefinition) -> Any:
    """Add the event time as a timestamp and its watermark, and drop later copies of an id."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, StringType, TimestampNTZType, TimestampType

    column = source.event_time
    if column not in frame.columns:
        frame, column = frame.withColumn(EVENT_TIME, F.expr(source.event_time)), EVENT_TIME
    kind = frame.schema[column].dataType
    if isinstance(kind, StringType | DateType | TimestampNTZType):
        frame = frame.withColumn(column, F.col(column).try_cast("timestamp"))
    elif not isinstance(kind, TimestampType):
        raise OperatorError(
            f"[sources.{view}] event_time: {source.event_time!r} is of type {kind.simpleString()}, not a time; convert "
            'it, as in event_time = "timestamp_millis(at)"'
        )
    if source.watermark:
        frame = frame.withWatermark(column, source.watermark)
    missing = next((name for name in source.deduplicate if name not in frame.columns), None)
    if missing is not None:
        raise OperatorError(
            f"[sources.{view}] deduplicate: the view has no column {missing!r}; it has {', '.join(frame.columns)}"
        )
    return frame.dropDuplicatesWithinWatermark(list(source.deduplicate)) if source.deduplicate else frame
