"""One run of a snapshot: plan, stage by bucket, merge each bucket that has new records, commit.

**Invariant:** exactly once. Added and removed files and their offsets are one commit of the table, which is
refused if another run committed since this one began: each run moves RUNS_ID by one, so concurrent runs conflict
even in different partitions and buckets. A compaction in between may remove files that were to be replaced; then the
buckets are merged again from the staged records. Dead letters are committed first, as in a load, and never twice.

Rows of a recreated topic, or of a partition whose log was truncated, are void: they are removed, and the records are
read from the start. Spark is not started when there is nothing new. Not supported: a history over a truncated log,
since its records would be read twice (refused).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.load.driver import CLIENT_ID, Observer, commit_letters, commit_of, publish_offsets
from ottla.pipeline.load.engine import Engine, EngineChoice, OpenSession, engine_for, noted_session
from ottla.pipeline.load.land import (
    Counters,
    LandSettings,
    NumberedTasks,
    WrittenRange,
    make_counters,
    parted,
    position_of,
    read_rows,
    read_tasks,
)
from ottla.pipeline.load.leased_files import discard_files, leased_files
from ottla.pipeline.load.leases import Lease
from ottla.pipeline.load.reading import PlannedRead, find_reading
from ottla.pipeline.load.shape import Shape
from ottla.pipeline.load.summary import RunSummary, with_commit, with_engine, with_plan
from ottla.pipeline.load.tasks import attempt, run_tasks
from ottla.pipeline.model.decode import SCHEMA
from ottla.pipeline.model.plan import LoadPlan, OffsetRange, PlanSettings, app_id
from ottla.pipeline.sinks.table import CommitResult, StaleCommitError, Table, files_from_json
from ottla.pipeline.snapshot.merge import BucketTask, MergeRow, MergeSettings, merge_task
from ottla.pipeline.snapshot.staging import (
    StagedBatch,
    StagedWriter,
    discard_staged,
    staged_by_bucket,
    staged_to_json,
)
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.value_format import ValueFormat

PIPELINE_ID = "snapshot"
"""A table has one snapshot, so it has the offsets of one pipeline only."""
RUNS_ID = "snapshot/runs"
"""Application id whose version is the number of committed runs."""
MERGE_ATTEMPTS = 3
"""Maximum number of attempts when compactions come in between."""
NO_KEY = "the record has no key, and a snapshot has one row a key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSummary(RunSummary):
    """Result of a run; dead letters, including records without a key, change nothing."""

    history: bool = False
    records: int = 0
    """Records that were read, including deletions."""
    inserted: int = 0
    """Keys that the table did not have."""
    updated: int = 0
    deleted: int = 0
    buckets: int = 0
    """Buckets that were rewritten."""
    stage_s: float = 0.0
    merge_s: float = 0.0


class SnapshotObserver(Observer):
    """Receives each step; the base class ignores all."""

    def merging(self, buckets: int, counters: Counters | None) -> None: ...
    def merged(self) -> None: ...


def snapshot(
    topics: Sequence[str],
    target: Table,
    bootstrap_servers: str,
    open_session: OpenSession | EngineChoice,
    settings: PlanSettings,
    shape: Shape,
    observer: SnapshotObserver | None = None,
    value_format: ValueFormat | None = None,
    *,
    group: str = "",
    security: ClientSecurity = PLAINTEXT,
) -> SnapshotSummary:
    """Bring the latest values of the keys of `topics` up to date; the session is opened only if there are new records.

    `target` is an existing or new table of `shape`. `settings` are those of `snapshot_plan_settings`. All other
    parameters and errors are as in `ottla.pipeline.load.driver.load`.
    """
    if not topics:
        raise OperatorError("name at least one topic with --topics")
    open_cluster = partial(Cluster, bootstrap_servers, client_id=CLIENT_ID, security=security)
    run = Run(target, open_cluster, settings, shape, observer or SnapshotObserver())
    summary, plan = run.run(topics, open_session, value_format)
    return publish_offsets(summary, plan, open_cluster, group) if group else summary


def snapshot_plan_settings(**settings: Any) -> PlanSettings:
    """`PlanSettings` of a snapshot, which fixes the id, the start and the handling of a truncated log."""
    return PlanSettings(pipeline_id=PIPELINE_ID, follows_log=True, **settings)


@dataclass(frozen=True, slots=True)
class VoidRows:
    """Rows of these topics and partitions in the table are void."""

    topics: frozenset[str]
    """Topics without records read under their present ids."""
    partitions: frozenset[TopicPartition]
    """Partitions whose logs were truncated below the table's offsets."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run on one table."""

    target: Table
    open_cluster: Callable[..., AbstractContextManager[Any]]
    settings: PlanSettings
    shape: Shape
    observer: SnapshotObserver

    def run(
        self, topics: Sequence[str], open_session: OpenSession | EngineChoice, value_format: ValueFormat | None
    ) -> tuple[SnapshotSummary, LoadPlan]:
        """Plan, and run the plan."""
        runs = self._runs()  # before any other read of the table
        known_ids = self.target.known_topics().ids
        reading = find_reading(
            topics,
            self.target,
            self.open_cluster,
            self.settings,
            value_format,
            reserved_columns=self.shape.reserved_columns,
        )
        plan = reading.plan
        void = self._find_void(plan)
        summary = SnapshotSummary(
            table=self.target.location, topics=list(dict.fromkeys(topics)), history=self.shape.history
        )
        summary = with_plan(summary, reading)
        self.observer.planned(plan)
        replaced = any(known_ids.get(name, topic_id) != topic_id for name, topic_id in plan.topic_ids.items())
        if plan.is_empty and not replaced:
            return summary, plan
        size_bytes = plan.size_bytes + self._size_bytes()
        engine = engine_for(open_session, size_bytes, self.settings.max_bytes_per_task)
        layout = self.target.ensure(self._rows_schema(reading.decoder))
        settings = reading.land_settings(layout, self.target.dead_letters().layout())
        try:
            return self._run_planned(reading, void, runs, settings, engine, summary), plan
        finally:
            discard_staged(layout.store, settings.load_id)

    def _run_planned(
        self,
        reading: PlannedRead,
        void: VoidRows,
        runs: int | None,
        settings: LandSettings,
        engine: Engine,
        summary: SnapshotSummary,
    ) -> SnapshotSummary:
        plan = reading.plan
        with leased_files(self.target, settings.load_id) as lease:
            started = time.monotonic()
            with noted_session(engine, plan.notes) as session:
                staging = time.monotonic()
                counters = make_counters(session)
                self.observer.landing(plan, counters)
                landed = stage(session, plan.tasks, settings, self.shape, counters)
                self.observer.landed(landed)
                staged_at = time.monotonic()
                lease.require()
                commit_letters(plan, self.target, landed, settings.load_id)
                committed, merged = self._merge(session, plan, void, runs, settings, landed, lease)
        self.observer.committed(committed.version)
        own = {
            "records": sum(row.rows for row in landed),
            "inserted": sum(row.inserted for row in merged),
            "updated": sum(row.updated for row in merged),
            "deleted": sum(row.deleted for row in merged),
            "buckets": sum(row.changed for row in merged),
            "start_s": staging - started,
            "stage_s": staged_at - staging,
            "merge_s": time.monotonic() - staged_at,
        }
        return with_commit(with_engine(summary, engine), reading, self.target, landed, merged, committed, own)

    def _merge(
        self,
        session: Any,
        plan: LoadPlan,
        void: VoidRows,
        runs: int | None,
        settings: LandSettings,
        landed: Sequence[WrittenRange],
        lease: Lease,
    ) -> tuple[CommitResult, list[MergeRow]]:
        """Merge and commit; again if a compaction removed a file."""
        staged = staged_by_bucket(row.files for row in landed)
        for left in reversed(range(MERGE_ATTEMPTS)):
            tasks = bucket_tasks(self.target, self.shape, staged, every=bool(void.topics or void.partitions))
            merge_settings = MergeSettings(
                self.shape,
                settings.layout,
                self.target.schema(),
                settings.load_id,
                void.topics,
                void.partitions,
                time.time_ns() // 1000,
            )
            counters = make_counters(session)
            self.observer.merging(len(tasks), counters)
            merged = merge(session, tasks, merge_settings, counters)
            self.observer.merged()
            lease.require()
            try:
                return self._commit(plan, runs, settings.load_id, tasks, merged), merged
            except StaleCommitError:
                if not left or self._runs() != runs:
                    raise
                discard_files(self.target, settings.load_id)
        raise AssertionError

    def _commit(
        self, plan: LoadPlan, runs: int | None, load_id: str, tasks: Sequence[BucketTask], merged: Sequence[MergeRow]
    ) -> CommitResult:
        changed = [(task, row) for task, row in zip(tasks, merged, strict=True) if row.changed]
        commit = commit_of(plan, load_id, [file for _, row in changed for file in files_from_json(row.files)])
        return self.target.commit(
            replace(
                commit,
                removed=[path for task, _ in changed for path in task.held],
                expected={**plan.expected, RUNS_ID: runs},
                following={**plan.following, RUNS_ID: (runs or 0) + 1},
            )
        )

    def _size_bytes(self) -> int:
        """Size of the table, whose buckets may have to be read."""
        return sum(file.size_bytes for file in self.target.data_files()) if self.target.exists() else 0

    def _runs(self) -> int | None:
        return self.target.committed_offsets([RUNS_ID])[RUNS_ID]

    def _rows_schema(self, decoder: RecordDecoder | None) -> pa.Schema:
        return pa.schema([*(decoder.schema if decoder else SCHEMA), *self.shape.own_columns])

    def _find_void(self, plan: LoadPlan) -> VoidRows:
        """Raises OperatorError for a history of a truncated log."""
        names = {app_id(plan.pipeline_id, plan.topic_ids[key[0]], key[1]): key for key in plan.reached}
        held = {names[name]: offset for name, offset in self.target.committed_offsets(names).items()}
        read = {key[0] for key, offset in held.items() if offset is not None}
        starts = plan.reached | {(part.topic, part.partition): part.start_offset for part in plan.ranges}
        cut = frozenset(key for key, offset in held.items() if offset is not None and starts[key] < offset)
        if cut and self.shape.history:
            topic, partition = min(cut)
            raise OperatorError(
                f"topic {topic!r} partition {partition}: the log was truncated, and the history {self.target.location} "
                "contains the truncated records as well; create the history in another directory"
            )
        return VoidRows(frozenset(plan.topic_ids) - read, cut)


# Tasks


def stage(
    session: Any, tasks: Sequence[OffsetRange], settings: LandSettings, shape: Shape, counters: Counters | None
) -> list[WrittenRange]:
    """Read all ranges and stage their rows by bucket; `files` of the returned rows are as in `staged_to_json`."""
    work = partial(stage_task, settings=settings, shape=shape)
    return read_tasks(session, tasks, work, counters, "snapshot", settings.layout.directory)


def stage_task(number: int, task: OffsetRange, settings: LandSettings, shape: Shape) -> WrittenRange:
    """Stage one range; runs in a worker."""
    return attempt(number, lambda: _stage_range(number, task, settings, shape), WrittenRange, settings.layout.directory)


def _stage_range(number: int, task: OffsetRange, settings: LandSettings, shape: Shape) -> WrittenRange:
    schema = settings.record_decoder.schema if settings.record_decoder else SCHEMA
    with StagedWriter(settings.layout.store, settings.load_id, position_of(task), shape, schema) as writer:
        landed = read_rows(number, task, settings, _keyed, writer.add)
        files = writer.finish()
    return replace(
        landed, files=staged_to_json(files), size_bytes=sum(file.size_bytes for file in files), rows=writer.rows
    )


def _keyed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    return parted(batch, batch.column("key").is_null(), NO_KEY)


def bucket_tasks(
    target: Table, shape: Shape, staged: Mapping[int, Sequence[StagedBatch]], *, every: bool
) -> list[BucketTask]:
    """Buckets to merge: those with staged records, or every one. Raises OperatorError."""
    held: dict[int, list[str]] = {}
    for path in target.files():
        bucket, current = shape.place_of(path)
        if current:
            held.setdefault(bucket, []).append(path)
    buckets = sorted({*staged, *(held if every else ())})
    return [BucketTask(bucket, tuple(held.get(bucket, ())), tuple(staged.get(bucket, ()))) for bucket in buckets]


def merge(
    session: Any, tasks: Sequence[BucketTask], settings: MergeSettings, counters: Counters | None
) -> list[MergeRow]:
    """Merge all buckets, one task each; returns their rows in the order of `tasks`."""

    def observe(number: int, row: MergeRow) -> None:
        if counters is not None:
            counters.tasks.add(1)
            counters.rows.add(row.rows)

    work = NumberedTasks(tasks, partial(merge_task, settings=settings))
    return run_tasks(session, len(tasks), work, MergeRow, "snapshot", settings.layout.directory, observe)
