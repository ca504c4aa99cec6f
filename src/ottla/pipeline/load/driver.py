"""One load from topics into a table: plan, land, commit.

**Invariant:** exactly once. If the commit happened, files and offsets are in the table together; if not, nothing of the
load is in it. Dead letters are committed before, into a table of their own; the next load does not write them twice.
Wherever the driver or a worker dies, the next run continues from the offsets in the table. The commit
decides between two concurrent loads: one wins, the other raises StaleCommitError. A file is committed only after the
driver has seen it in the table's store.

No engine is started when there is nothing to load. After the commit the table's offsets are also committed to a
consumer group, for lag tools only: no load reads it, and a load whose group commit fails reports that and has
succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.load.engine import Engine, EngineChoice, OpenSession, engine_for, noted_session
from ottla.pipeline.load.land import Counters, WrittenRange, land, make_counters
from ottla.pipeline.load.leased_files import leased_files
from ottla.pipeline.load.reading import PlannedRead, Planner, find_reading
from ottla.pipeline.load.shape import require_no_snapshot, require_rows
from ottla.pipeline.load.summary import RunSummary, Summary, with_commit, with_engine, with_plan
from ottla.pipeline.model.decode import DEAD_LETTER_SCHEMA, SCHEMA
from ottla.pipeline.model.plan import LoadPlan, PlanSettings, make_plan
from ottla.pipeline.sinks.partitioning import require_partition_columns, with_date_column
from ottla.pipeline.sinks.table import CommitResult, DataFile, Table, TableCommit, files_from_json
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.value_format import ValueFormat

CLIENT_ID = "ottla-pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary(RunSummary):
    """Result of a load."""

    pipeline_id: str
    tasks: int = 0
    body_bytes: int = 0
    land_s: float = 0.0
    commit_s: float = 0.0
    seconds: float = 0.0
    """From the first request to the brokers to the last response, including the start of the engine."""

    @property
    def rows_per_s(self) -> float:
        """Rows a second while the tasks ran."""
        return self.rows / self.land_s if self.land_s > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"rows_per_s": round(self.rows_per_s)}


class Observer:
    """Receives each step; the base class ignores all. `counters` move while tasks run."""

    def planned(self, plan: LoadPlan) -> None: ...
    def landing(self, plan: LoadPlan, counters: Counters | None) -> None: ...
    def landed(self, rows: Sequence[WrittenRange]) -> None: ...
    def committed(self, version: int) -> None: ...


def load(
    topics: Sequence[str],
    target: Table,
    bootstrap_servers: str,
    open_session: OpenSession | EngineChoice,
    settings: PlanSettings,
    observer: Observer | None = None,
    value_format: ValueFormat | None = None,
    *,
    group: str = "",
    planner: Planner = make_plan,
    security: ClientSecurity = PLAINTEXT,
) -> LoadSummary:
    """Load new records of `topics` into `target`; the engine's session is opened only if there are any.

    `value_format`: decodes values to columns beside those of Kafka; None leaves values unchanged. `group`: consumer
    group that gets the table's offsets for lag tools; none if it is empty. `planner` finds the new records. Raises
    OperatorError, DataLossError, StaleCommitError, KafkaError, or OttlaError with the reason.
    """
    if not topics:
        raise OperatorError("name at least one topic with --topics")
    observer = observer or Observer()
    require_no_snapshot(target)
    open_cluster = partial(Cluster, bootstrap_servers, client_id=CLIENT_ID, security=security)
    started = time.monotonic()
    reading = find_reading(topics, target, open_cluster, settings, value_format, planner=planner)
    summary = LoadSummary(table=target.location, topics=list(dict.fromkeys(topics)), pipeline_id=settings.pipeline_id)
    summary = with_plan(summary, reading)
    observer.planned(reading.plan)
    if not reading.plan.is_empty:
        engine = engine_for(open_session, reading.plan.size_bytes, settings.max_bytes_per_task)
        summary = _run(reading, target, engine, observer, summary)
    if group:
        summary = publish_offsets(summary, reading.plan, open_cluster, group)
    return replace(summary, seconds=time.monotonic() - started)


def publish_offsets(summary: Summary, plan: LoadPlan, open_cluster: Callable[[], Cluster], group: str) -> Summary:
    """Commit the table's offsets to the group, even without new records: the previous load may have died before this.

    The end of a partition includes the markers of transactions, so a table with all records shows no lag.
    """
    try:
        with open_cluster() as cluster:
            cluster.groups.commit_offsets(group, plan.reached)
    except OttlaError as error:
        note = f"the table's offsets could not be committed to the group {group!r}, which lag tools read: {error}"
        return replace(summary, notes=[*summary.notes, note])
    return replace(summary, group=group)


def _run(reading: PlannedRead, target: Table, engine: Engine, observer: Observer, summary: LoadSummary) -> LoadSummary:
    plan = reading.plan
    layout = target.ensure(rows_schema(target, reading.decoder))
    settings = reading.land_settings(layout, target.dead_letters().layout())
    require_rows(target, layout, settings.schema)
    with leased_files(target, settings.load_id) as lease:
        started = landing = landed_at = time.monotonic()
        rows: list[WrittenRange] = []
        if plan.tasks:
            summary = with_engine(summary, engine)
            with noted_session(engine, plan.notes) as session:
                landing = time.monotonic()
                counters = make_counters(session)
                observer.landing(plan, counters)
                rows = land(session, plan.tasks, settings, counters)
                landed_at = time.monotonic()
        observer.landed(rows)
        if (limit := reading.settings.max_dead_letters) is not None:
            limit.check(sum(row.dead_rows for row in rows), sum(row.rows for row in rows))
        committing = time.monotonic()
        lease.require()
        committed = _commit(plan, target, rows, settings.load_id)
    observer.committed(committed.version)
    own = {
        "tasks": len(plan.tasks),
        "body_bytes": sum(row.body_bytes for row in rows),
        "start_s": landing - started,
        "land_s": landed_at - landing,
        "commit_s": time.monotonic() - committing,
    }
    return with_commit(summary, reading, target, rows, rows, committed, own)


def rows_schema(target: Table, decoder: RecordDecoder | None) -> pa.Schema:
    """Schema of the rows that are written. Raises OperatorError if the table can't be partitioned as requested."""
    columns = target.layout().partition_columns
    schema = with_date_column(decoder.schema if decoder else SCHEMA, columns)
    require_partition_columns(schema, columns)
    return schema


def commit_of(plan: LoadPlan, load_id: str, files: Sequence[DataFile]) -> TableCommit:
    """The commit that adds those files and moves the table's offsets as planned."""
    return TableCommit(
        load_id,
        files,
        expected=plan.expected,
        following=plan.following,
        pipeline_id=plan.pipeline_id,
        topic_ids=plan.topic_ids,
        cluster_id=plan.cluster_id,
        ranges=plan.readable_ranges,
        accepted_rollback=plan.accepted_rollback,
    )


def commit_letters(plan: LoadPlan, target: Table, rows: Sequence[WrittenRange], load_id: str) -> None:
    """Commit the dead letters of a load; call this before the table is committed.

    Letters may be visible before their load, and are then not written twice, but never after it.
    """
    letters = [file for row in rows for file in files_from_json(row.dead_files)]
    if letters or plan.letters.accepted_rollback is not None:
        table = target.dead_letters()
        table.ensure(DEAD_LETTER_SCHEMA)
        commit = commit_of(plan, load_id, letters)
        table.commit(
            replace(
                commit,
                expected=plan.letters.expected,
                following=plan.letters.following,
                accepted_rollback=plan.letters.accepted_rollback,
            )
        )


def _commit(plan: LoadPlan, target: Table, rows: Sequence[WrittenRange], load_id: str) -> CommitResult:
    commit_letters(plan, target, rows, load_id)
    files = [file for row in rows for file in files_from_json(row.files)]
    return target.commit(commit_of(plan, load_id, files))
