"""One load from topics into a table: plan, land, commit.

**Invariant:** exactly once. Either the commit happened, then files and offsets are in the table together, or it did
not, then nothing of the load is; wherever the driver or a worker dies, running it again continues from the truth in
the table. Two loads that race are told apart at the commit: one wins, the other raises StaleCommitError. A file is
committed only when it is seen where the table is.

Nothing starts Spark when there is nothing to load. What the table holds is committed to a consumer group as well, after
it and for lag tools alone: no load reads it, and a load that can't commit it says so and has succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from ottla.client.cluster import Cluster
from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.decode import DEAD_LETTER_SCHEMA, SCHEMA
from ottla.pipeline.land import (
    Counters,
    Landed,
    LandSettings,
    OpenCluster,
    land,
    make_counters,
)
from ottla.pipeline.leases import held_lease
from ottla.pipeline.plan import LoadPlan, PlanSettings, make_plan
from ottla.pipeline.sinks.partitioning import require_partition_columns, with_date_column
from ottla.pipeline.sinks.table import Committed, DataFile, Table, TableCommit, UnknownCommitError, files_from_json
from ottla.pipeline.sinks.writer import discard_load, new_load_id
from ottla.pipeline.snapshot.shape import require_no_snapshot
from ottla.pipeline.sources.segments import open_source
from ottla.pipeline.sources.source import ReadRange
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.target_schema import settle
from ottla.pipeline.transform.value_format import ValueFormat

CLIENT_ID = "ottla-pipeline"

OpenSession = Callable[[], AbstractContextManager[Any]]
Planner = Callable[[Cluster, Table, Sequence[str], PlanSettings, Table], LoadPlan]
"""Plans what a load brings into a table, and into that of its dead letters."""
Summary = TypeVar("Summary", bound=Any)
"""A dataclass with `group` and `notes`."""


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What a load did; sizes in bytes, durations in seconds. `version` is None when nothing was committed."""

    table: str
    topics: list[str]
    pipeline_id: str
    version: int | None = None
    rows: int = 0
    offsets: int = 0
    partitions: int = 0
    tasks: int = 0
    files: int = 0
    fetched_bytes: int = 0
    body_bytes: int = 0
    written_bytes: int = 0
    skipped_offsets: int = 0
    dead_letters: int = 0
    """Records that the table can't hold; they are in the table of dead letters with the reason."""
    plan_s: float = 0.0
    start_s: float = 0.0
    land_s: float = 0.0
    commit_s: float = 0.0
    seconds: float = 0.0
    """From the first question to the brokers to the last answer, the start of Spark in it."""
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """`topic/partition` -> offsets [start, end) that the table now holds in addition."""
    group: str = ""
    """The consumer group that tells the offsets of the table to lag tools."""
    notes: list[str] = field(default_factory=list)

    @property
    def rows_per_s(self) -> float:
        """Rows a second while Spark ran the tasks."""
        return self.rows / self.land_s if self.land_s > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"rows_per_s": round(self.rows_per_s)}


class Observer:
    """Hears of each step; the base class ignores all. `counters` move while tasks run."""

    def planned(self, plan: LoadPlan) -> None: ...
    def landing(self, plan: LoadPlan, counters: Counters | None) -> None: ...
    def landed(self, rows: Sequence[Landed]) -> None: ...
    def committed(self, version: int) -> None: ...


def load(
    topics: Sequence[str],
    target: Table,
    bootstrap_servers: str,
    open_session: OpenSession,
    settings: PlanSettings,
    observer: Observer | None = None,
    value_format: ValueFormat | None = None,
    *,
    group: str = "",
    planner: Planner = make_plan,
) -> LoadSummary:
    """Load what is new in `topics` into `target`; the session is opened only when there is something.

    `value_format`: how values become columns beside those of Kafka; None leaves them as they are. `group`: the consumer
    group whose offsets show lag tools how far the table is, none when it is empty. `planner` tells what is new. Raises
    OperatorError, DataLossError, StaleCommitError, KafkaError, or OttlaError with the reason.
    """
    if not topics:
        raise OperatorError("name at least one topic with --topics")
    observer = observer or Observer()
    require_no_snapshot(target)
    open_cluster = partial(Cluster, bootstrap_servers, client_id=CLIENT_ID)
    started = time.monotonic()
    with open_cluster() as cluster:
        plan = planner(cluster, target, topics, settings, target.dead_letters())
        read_range = open_source(settings.source if plan.tasks else "fetch", cluster)
        decoder = None
        if value_format is not None and plan.tasks:
            decoder = settle(value_format, target, cluster, plan.ranges, settings.isolation)
    summary = LoadSummary(
        table=target.location,
        topics=list(dict.fromkeys(topics)),
        pipeline_id=settings.pipeline_id,
        plan_s=time.monotonic() - started,
        skipped_offsets=plan.skipped_offsets,
        notes=plan.notes,
    )
    observer.planned(plan)
    if not plan.is_empty:
        summary = _run(plan, target, open_cluster, open_session, settings, observer, summary, decoder, read_range)
    if group:
        summary = show_offsets(summary, plan, open_cluster, group)
    return replace(summary, seconds=time.monotonic() - started)


def show_offsets(summary: Summary, plan: LoadPlan, open_cluster: Callable[[], Cluster], group: str) -> Summary:
    """Commit what the table holds to the group. Also where nothing was new: the load before may have died just here.

    An end lies behind the markers of transactions, so a table that has everything shows no lag.
    """
    try:
        with open_cluster() as cluster:
            cluster.commit_group_offsets(group, plan.reached)
    except OttlaError as error:
        note = f"the table's offsets could not be shown in the group {group!r}, where lag tools look: {error}"
        return replace(summary, notes=[*summary.notes, note])
    return replace(summary, group=group)


def _run(
    plan: LoadPlan,
    target: Table,
    open_cluster: OpenCluster,
    open_session: OpenSession,
    settings: PlanSettings,
    observer: Observer,
    summary: LoadSummary,
    decoder: RecordDecoder | None,
    read_range: ReadRange,
) -> LoadSummary:
    letters = target.dead_letters()
    land_settings = LandSettings(
        open_cluster=open_cluster,
        layout=target.ensure(rows_schema(target, decoder)),
        letters_layout=letters.layout(),
        load_id=new_load_id(),
        isolation=settings.isolation,
        on_data_loss=settings.on_data_loss,
        letters_held=plan.letters.held,
        record_decoder=decoder,
        read_range=read_range,
        bounds=plan.bounds,
    )
    try:
        with held_lease(land_settings.layout.store, land_settings.load_id) as lease:
            started = time.monotonic()
            rows: list[Landed] = []
            landing = started
            if plan.tasks:
                with open_session() as spark:
                    landing = time.monotonic()
                    counters = make_counters(spark)
                    observer.landing(plan, counters)
                    rows = land(spark, plan.tasks, land_settings, counters)
                    landed_at = time.monotonic()
            else:
                landed_at = started
            observer.landed(rows)
            committing = time.monotonic()
            lease.require()
            committed = _commit(plan, target, rows, land_settings)
    except UnknownCommitError:
        raise  # its files may be in the table
    except OttlaError:
        discard_files(target, land_settings)
        raise
    observer.committed(committed.version)
    return replace(
        summary,
        version=committed.version,
        rows=sum(row.rows for row in rows),
        offsets=plan.offsets,
        partitions=len(plan.ranges),
        tasks=len(plan.tasks),
        files=sum(len(files_from_json(row.files)) for row in rows),
        fetched_bytes=sum(row.fetched_bytes for row in rows),
        body_bytes=sum(row.body_bytes for row in rows),
        written_bytes=sum(row.size_bytes for row in rows),
        skipped_offsets=plan.skipped_offsets + sum(row.skipped_offsets for row in rows),
        start_s=landing - started,
        land_s=landed_at - landing,
        commit_s=time.monotonic() - committing,
        ranges=readable_ranges(plan),
        dead_letters=sum(row.dead_rows for row in rows),
        notes=[*plan.notes, *letter_notes(rows, target), *([committed.note] if committed.note else [])],
    )


def rows_schema(target: Table, decoder: RecordDecoder | None) -> pa.Schema:
    """Of the rows that are landed. Raises OperatorError where the table can't be partitioned as was asked."""
    columns = target.layout().partition_columns
    schema = with_date_column(decoder.schema if decoder else SCHEMA, columns)
    require_partition_columns(schema, columns)
    return schema


def discard_files(target: Table, settings: LandSettings) -> None:
    """Remove what the tasks of a load wrote, but for what target and dead letters name."""
    letters = target.dead_letters()
    with suppress(OperatorError):  # a table that can't be read names nothing, so all its files stay
        named = target.named_files() | (letters.named_files() if letters.exists() else set())
        for layout in (settings.layout, settings.letters_layout):
            discard_load(layout.store, settings.load_id, named)


def letter_notes(rows: Sequence[Landed], target: Table) -> list[str]:
    """What an operator should know of dead letters; nothing without one."""
    count = sum(row.dead_rows for row in rows)
    path = target.dead_letters().location
    records = "record" if count == 1 else "records"
    return [f"{count:,} {records} that the table can't hold went to {path}, with the reason of each"] if count else []


def readable_ranges(plan: LoadPlan) -> dict[str, tuple[int, int]]:
    """`topic/partition` -> offsets [start, end) of a plan."""
    return {f"{part.topic}/{part.partition}": (part.start_offset, part.end_offset) for part in plan.ranges}


def commit_of(plan: LoadPlan, load_id: str, files: Sequence[DataFile]) -> TableCommit:
    """What moves the table as planned and brings those files."""
    return TableCommit(
        load_id,
        files,
        expected=plan.expected,
        following=plan.following,
        pipeline_id=plan.pipeline_id,
        topic_ids=plan.topic_ids,
        ranges=readable_ranges(plan),
    )


def commit_letters(plan: LoadPlan, target: Table, rows: Sequence[Landed], load_id: str) -> None:
    """To be called before the table is committed: letters may be there before their load is, and then they are not
    written again, but never too late."""
    letters = [file for row in rows for file in files_from_json(row.dead_files)]
    if letters:
        table = target.dead_letters()
        table.ensure(DEAD_LETTER_SCHEMA)
        commit = commit_of(plan, load_id, letters)
        table.commit(replace(commit, expected=plan.letters.expected, following=plan.letters.following))


def _commit(plan: LoadPlan, target: Table, rows: Sequence[Landed], settings: LandSettings) -> Committed:
    commit_letters(plan, target, rows, settings.load_id)
    files = [file for row in rows for file in files_from_json(row.files)]
    return target.commit(commit_of(plan, settings.load_id, files))
