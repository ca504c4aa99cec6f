"""Replay into a table: records of a topic by a load of their own, rows of a table by copying them.

Either is one commit under the replay's id as pipeline id, with the offsets or the version of the table that it covers.

**Invariants:** exactly once, as a load: rows and progress are committed together, or neither is. Of two replays into
the same new table one is refused, in any order of their checks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.load.engine import OpenSession
from ottla.pipeline.load.leased_files import leased_files
from ottla.pipeline.load.shape import require_no_snapshot, require_rows
from ottla.pipeline.load.tasks import map_rows, table_directory, task_failure
from ottla.pipeline.model.arrays import texts
from ottla.pipeline.model.plan import (
    DataLossError,
    LoadPlan,
    PlanSettings,
    app_id,
    cut_into_tasks,
    epoch_app_id,
    find_truncations,
    plan_letters,
)
from ottla.pipeline.model.row_bounds import RowBounds
from ottla.pipeline.replay.ranges import Bound, row_bounds, topic_ranges
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter, require_placeable
from ottla.pipeline.sinks.partitioning import require_partition_columns, typed_rows, with_date_column
from ottla.pipeline.sinks.table import (
    DataFile,
    FileLayout,
    Table,
    TableCommit,
    files_from_json,
    files_to_json,
    require_no_rollback,
    stored_schema,
)
from ottla.pipeline.sinks.writer import new_load_id
from ottla.pipeline.sql.query import read_table

OWNER = "ottla-replays"
"""Application id that each replay into a table moves by one, so that concurrent replays conflict."""
SOURCE_TABLE = "table"
"""Takes the place of a topic in an application id, whose version is that of the table with the copied rows."""


@dataclass(frozen=True, slots=True)
class TopicReplay:
    """Plans the records of a range of some partitions that a table lacks; a `Planner` for
    `ottla.pipeline.load.driver`."""

    positions: Sequence[TopicPartition]
    start: Bound
    end: Bound

    def __call__(
        self, cluster: Cluster, table: Table, topics: Sequence[str], settings: PlanSettings, letters: Table
    ) -> LoadPlan:
        """Return the plan.

        Raises OperatorError for a table with other rows, DataLossError if the log was truncated below the table's
        offsets, TopicNotFound, KafkaError.
        """
        bounds = row_bounds(self.start, self.end, offsets=False)
        cluster_id = cluster.describe().cluster_id or ""
        plan = LoadPlan(settings.pipeline_id, settings.isolation, cluster_id=cluster_id, bounds=bounds)
        plan.topic_ids = {name: uuid_to_string(cluster.topics.get(name).topic_id) for name in topics}
        names = {key: app_id(settings.pipeline_id, plan.topic_ids[key[0]], key[1]) for key in self.positions}
        committed = _require_own(table, settings.pipeline_id, [*names.values(), *map(epoch_app_id, names.values())])
        held = {key: offset for key, name in names.items() if (offset := committed[name]) is not None}
        ends = cluster.records.list_offsets(dict.fromkeys(names, LATEST_TIMESTAMP), isolation=settings.isolation)
        for key in find_truncations(cluster, held, {key: committed[epoch_app_id(names[key])] for key in held}, ends):
            raise DataLossError(
                f"topic {key[0]!r} partition {key[1]}: the log was truncated below offset {held[key]}, up to which it "
                f"was replayed into {table.location}; replay it into a new table"
            )
        for whole in topic_ranges(cluster, self.positions, self.start, self.end):
            key = (whole.topic, whole.partition)
            rest = replace(whole, start_offset=max(whole.start_offset, held.get(key, 0)))
            if rest.offsets > 0:
                plan.ranges.append(rest)
                plan.move(names[key], rest.end_offset, rest.leader_epoch, committed)
        if plan.ranges:
            plan.expected[OWNER] = committed[OWNER]
            plan.following[OWNER] = (committed[OWNER] or 0) + 1
        for name, topic_id in plan.topic_ids.items():
            of_topic = {key: info for key, info in ends.items() if key[0] == name}
            plan_letters(cluster, letters, name, topic_id, of_topic, plan)
        cut_into_tasks(cluster, plan, settings)
        return plan


def _require_own(table: Table, replay_id: str, app_ids: Sequence[str]) -> dict[str, int | None]:
    """The table's offsets of these application ids and of OWNER.

    Raises OperatorError when the table has rows that are not of this replay, and when it is a snapshot.
    """
    require_no_snapshot(table)
    committed = table.committed_offsets([*app_ids, OWNER])
    if table.exists():
        is_ours = any(committed[name] is not None for name in app_ids)
        others = [load.pipeline_id for load in table.loads() if load.pipeline_id != replay_id]
        if others or not (is_ours or not (table.loads() or table.files())):
            raise OperatorError(
                f"the table {table.location} has rows that are not of the replay {replay_id!r}: a replay needs a "
                "target of its own; name a new table, or the --replay-id that wrote them"
            )
    return committed


@dataclass(frozen=True, slots=True)
class CopySummary:
    """Result of one run. `version` is None when nothing was committed: the rows of `source_version` are already
    there."""

    table: str
    source: str
    pipeline_id: str
    source_version: int
    version: int | None = None
    rows: int = 0
    files: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def copy_rows(
    source: Table, target: Table, replay_id: str, bounds: RowBounds | None, open_session: OpenSession
) -> CopySummary:
    """Copy the rows of the newest version within `bounds`, all columns of them, unless an earlier run did.

    Raises OperatorError for a target with other rows and for a source without the column of the bounds,
    StaleCommitError, or OttlaError with the reason.
    """
    started = time.monotonic()
    name = app_id(replay_id, SOURCE_TABLE, 0)
    schema = source.schema()
    column = bounds.column_in(schema, f"the table {source.location}") if bounds else None
    require_no_rollback(target)
    committed = _require_own(target, replay_id, [name])
    done = committed[name]
    if done is not None:
        return CopySummary(target.location, source.location, replay_id, done)
    version = source.version()
    columns = target.layout().partition_columns
    schema = stored_schema(target.format, with_date_column(schema, columns))
    require_partition_columns(schema, columns)
    layout, load_id = target.ensure(schema), new_load_id()
    require_rows(target, layout, schema)
    with leased_files(target, load_id) as lease:
        with open_session() as spark:
            frame = _within(read_table(spark, source), column, bounds)
            task = partial(_copy_task, layout=layout, schema=schema, load_id=load_id)
            files = _write_files(frame, task, layout.directory)
        lease.require()
        made = target.commit(
            TableCommit(
                load_id=load_id,
                files=files,
                expected={name: None, OWNER: committed[OWNER]},
                following={name: version, OWNER: (committed[OWNER] or 0) + 1},
                pipeline_id=replay_id,
            )
        )
    return CopySummary(
        target.location,
        source.location,
        replay_id,
        version,
        made.version,
        sum(file.rows for file in files),
        len(files),
        time.monotonic() - started,
    )


def _within(frame: Any, column: str | None, bounds: RowBounds | None) -> Any:
    """Filtered by Spark, which skips row groups by their statistics."""
    from pyspark.sql import functions as F

    if column is None or bounds is None:
        return frame
    is_time = column == "timestamp"
    for bound, is_low in ((bounds.low, True), (bounds.high, False)):
        if bound is not None:
            limit = F.timestamp_millis(F.lit(bound)) if is_time else F.lit(bound)
            frame = frame.where(frame[column] >= limit if is_low else frame[column] < limit)
    return frame


def _write_files(frame: Any, task: Any, directory: str) -> list[DataFile]:
    """Files that the tasks wrote. Raises OttlaError when a task failed."""
    try:
        rows = map_rows(frame, task, "files string").collect()
    except Exception as error:  # Spark wraps the worker's exception
        raise task_failure("the replay failed in a Spark task", error, table_directory(directory)) from error
    return [file for row in rows for file in files_from_json(row.files)]


def _copy_task(
    batches: Iterator[pa.RecordBatch], *, layout: FileLayout, schema: pa.Schema, load_id: str
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task; runs in a worker."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    position = f"replay-{context.partitionId()}-{context.stageId()}"
    with PartitionedWriter(layout, schema, position, load_id) as writer:
        for batch in batches:
            rows = typed_rows(batch, schema)
            require_placeable(rows, layout.partition_columns)
            writer.add(rows)
        yield pa.RecordBatch.from_arrays([texts([files_to_json(writer.finish())])], ["files"])
