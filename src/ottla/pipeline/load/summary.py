"""Summary of a run that loads topics into a table, from its plan to its commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from ottla.common.control_chars import escape_control_chars
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.load.engine import Engine
from ottla.pipeline.load.land import WrittenRange
from ottla.pipeline.load.reading import PlannedRead
from ottla.pipeline.load.tasks import ManifestRow
from ottla.pipeline.model.plan import LoadPlan
from ottla.pipeline.sinks.table import CommitResult, Table, files_from_json
from ottla.pipeline.spark.engines import LOCAL
from ottla.pipeline.transform.schema_report import SchemaReport, Tally

MAX_LISTED = 10
"""Maximum number of fields or reasons in a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Sizes in bytes, durations in seconds. `version` is None when nothing was committed."""

    table: str
    topics: list[str]
    version: int | None = None
    rows: int = 0
    """Of the files that were written."""
    offsets: int = 0
    partitions: int = 0
    files: int = 0
    fetched_bytes: int = 0
    written_bytes: int = 0
    skipped_offsets: int = 0
    dead_letters: int = 0
    """Records that the table can't store; they are in the table of dead letters with the reason."""
    dead_letter_reasons: dict[str, int] = field(default_factory=dict)
    """Dead letters of values by reason, without the values."""
    nulled: int = 0
    """Records that were kept although their value can't be decoded, with null in the decoded columns."""
    columns_added: list[str] = field(default_factory=list)
    columns_renamed: dict[str, str] = field(default_factory=dict)
    """Field -> its name in the table, for names with characters that a table can't have."""
    fields_without_column: list[dict[str, str | int]] = field(default_factory=list)
    """`field`, `values` and `why` of each, the commonest first."""
    plan_s: float = 0.0
    start_s: float = 0.0
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """`topic/partition` -> offsets [start, end) that the run added to the table."""
    engine: str | None = None
    """The engine that executed the tasks, `local` or `spark`; None without a task."""
    engine_reason: str = ""
    group: str = ""
    """The consumer group with the offsets of the table, for lag tools."""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Summary = TypeVar("Summary", bound=RunSummary)


def with_plan(summary: Summary, reading: PlannedRead) -> Summary:
    """Add the facts of the plan."""
    plan = reading.plan
    return replace(summary, plan_s=reading.seconds, skipped_offsets=plan.skipped_offsets, notes=plan.notes)


def with_engine(summary: Summary, engine: Engine) -> Summary:
    """Add the engine of the tasks."""
    return replace(summary, engine=engine.name, engine_reason=engine.reason)


def engine_text(summary: RunSummary) -> str:
    """`local engine: at most 4 GiB to read`, or `Spark start 4.1 s`."""
    if summary.engine == LOCAL:
        return f"local engine: {summary.engine_reason}"
    return f"Spark start {summary.start_s:.1f} s"


def with_commit(
    summary: Summary,
    reading: PlannedRead,
    target: Table,
    landed: Sequence[WrittenRange],
    written: Sequence[ManifestRow],
    committed: CommitResult,
    own: Mapping[str, Any],
) -> Summary:
    """Add the facts of reading and commit; `written`: the tasks whose files the commit names, `own`: further fields."""
    plan = reading.plan
    tally = tally_of(landed)
    left_out = reading.report.fields_without_column(tally.unknown)
    return replace(
        summary,
        version=committed.version,
        rows=sum(row.rows for row in written),
        offsets=plan.offsets,
        partitions=len(plan.ranges),
        files=sum(len(files_from_json(row.files)) for row in written),
        fetched_bytes=sum(row.fetched_bytes for row in landed),
        written_bytes=sum(row.size_bytes for row in written),
        skipped_offsets=plan.skipped_offsets + sum(row.skipped_offsets for row in landed),
        dead_letters=sum(row.dead_rows for row in landed),
        dead_letter_reasons=dict(tally.reasons.most_common()),
        nulled=tally.nulled,
        columns_added=reading.report.columns,
        columns_renamed=reading.report.renamed,
        fields_without_column=left_out,
        ranges=plan.readable_ranges,
        notes=[
            *plan.notes,
            *_loss_notes(plan, landed),
            *letter_notes(landed, target),
            *value_notes(tally, left_out, reading.report),
            *([committed.note] if committed.note else []),
        ],
        **own,
    )


def _loss_notes(plan: LoadPlan, landed: Sequence[WrittenRange]) -> list[str]:
    """Offsets that tasks skipped, as the operator accepted; the plan reports those that were deleted before."""
    lost: Counter[TopicPartition] = Counter()
    for row in landed:
        task = plan.tasks[row.task]
        lost[task.topic, task.partition] += row.skipped_offsets
    return [
        f"topic {topic!r} partition {partition}: {count:,} offsets were deleted while they were loaded"
        for (topic, partition), count in sorted(lost.items())
        if count
    ]


def letter_notes(rows: Sequence[WrittenRange], target: Table) -> list[str]:
    """Note for the operator about dead letters; empty without any."""
    count = sum(row.dead_rows for row in rows)
    path = target.dead_letters().location
    records = "record" if count == 1 else "records"
    return [f"{count:,} {records} that the table can't store went to {path}, with the reason of each"] if count else []


def tally_of(rows: Sequence[WrittenRange]) -> Tally:
    """The counts of all tasks."""
    tally = Tally()
    for row in rows:
        tally.add_text(row.tally)
    return tally


def value_notes(tally: Tally, left_out: Sequence[Mapping[str, str | int]], report: SchemaReport) -> list[str]:
    """Notes for the operator about values: reasons of dead letters, kept bad values, fields without a column or with
    another name."""
    notes = []
    if tally.reasons:
        notes.append(f"reasons of dead letters: {_listed([f'{r} ({n:,})' for r, n in tally.reasons.most_common()])}")
    if tally.nulled:
        notes.append(f"{tally.nulled:,} records could not be decoded: their columns are null, _corrupt has the reason")
    if left_out:
        texts = [f"{one['field']} ({one['values']:,}: {one['why']})" for one in left_out]
        notes.append(f"fields without a column, with the number of values: {_listed(texts)}")
    if report.renamed:
        texts = [f"{path!r} as {name}" for path, name in report.renamed.items()]
        what = "fields with another name in the table, which can't have all of their characters"
        notes.append(f"{what}: {_listed(texts)}")
    if report.spellings:
        texts = [f"{name} ({count:,})" for name, count in report.spellings.items()]
        notes.append(f"names with several spellings in one object, of which one is read: {_listed(texts)}")
    return notes


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_LISTED
    return escape_control_chars("; ".join(texts[:MAX_LISTED])) + (
        f"; and {more:,} more, see --json" if more > 0 else ""
    )
