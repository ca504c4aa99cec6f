"""Runs of `ottla pipeline load`: topics into one table, or each topic into a table of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import counted, print_table, security, size_text
from ottla.pipeline import api
from ottla.pipeline.cli.options import absolute
from ottla.pipeline.cli.pipeline_command import print_report
from ottla.pipeline.cli.table_run import TableRun, run_text
from ottla.pipeline.model.plan import PlanSettings
from ottla.pipeline.spark.session import parallelism

if TYPE_CHECKING:
    from ottla.client.wire.security import ClientSecurity
    from ottla.pipeline.load.driver import LoadSummary, Observer
    from ottla.pipeline.load.engine import EngineChoice
    from ottla.pipeline.load.topic_loads import TopicLoad, TopicLoads
    from ottla.pipeline.load.topic_tables import TableAssignment
    from ottla.pipeline.operations.progress import ProgressLine
    from ottla.pipeline.sinks.table import Table

COMMAND = "ottla pipeline load"
COLUMNS = ("topic", "table", "rows", "dead letters", "version", "seconds", "result")
NUMERIC = ("rows", "dead letters", "version", "seconds")

FindTopics = Callable[[], Sequence[str]]
"""Returns the names of the topics of a run. Raises OperatorError, KafkaError."""


def table_for(run: TableRun, topic: str) -> TableRun:
    """The run with the table of one topic in place of a template. Raises OperatorError."""
    from ottla.pipeline.load.topic_tables import table_of

    return _with_table(run, table_of(str(run.table), topic, in_catalog=run.catalog_url is not None))


def load_table(run: TableRun, partition_by: Sequence[str], find_topics: FindTopics) -> None:
    """Load the topics that each run finds into one table."""
    _check_decode_options(run, partition_by)
    settings = _plan_settings(run)
    target, engine = run.open_table(partition_by), run.engine_choice(COMMAND)
    load_new = partial(_load, run, target, engine=engine, security=security())

    def once(progress: ProgressLine | None) -> tuple[LoadSummary, str]:
        nonlocal settings
        summary = load_new(find_topics(), settings=settings, observer=progress)
        settings = _resumed(settings)
        return summary, summary_text(summary)

    run.repeat(once)


def load_tables(run: TableRun, partition_by: Sequence[str], find_topics: FindTopics, *, parallel: int) -> None:
    """Load each topic that a run finds into a table of its own, up to `parallel` of them at a time.

    A run in which topics failed raises an error after its result was printed. The first run of a schedule does so only
    if no topic was loaded.
    """
    from ottla.pipeline.load.topic_loads import load_topics
    from ottla.pipeline.load.topic_tables import assign_tables

    _check_decode_options(run, partition_by)
    settings, engine, access = _plan_settings(run), run.engine_choice(COMMAND), security()
    in_catalog = run.catalog_url is not None
    template = str(run.table if in_catalog else absolute(run.table))
    loaded: set[str] = set()

    def load_one(one: TableAssignment, choice: EngineChoice, observer: Observer) -> LoadSummary:
        target = _with_table(run, one.table).open_table(partition_by)
        own = _resumed(settings) if one.topic in loaded else settings
        return _load(run, target, [one.topic], engine=choice, settings=own, observer=observer, security=access)

    def once() -> None:
        tables = assign_tables(template, find_topics(), in_catalog=in_catalog)
        with _topics_progress(run, len(tables)) as observe:
            found = load_topics(tables, load_one, engine, parallel=parallel, observe=observe)
        loaded.update(one.topic for one in found.loads if one.error is None)
        _print_loads(run, found)
        failure = found.failure()
        if failure is not None and (run.schedule is None or not loaded):
            raise failure
        if failure is not None:
            click.echo(f"Schedule: this run failed: {failure}.", err=True)

    run.on_schedule(once)


def _load(
    run: TableRun,
    target: Table,
    topics: Sequence[str],
    *,
    engine: EngineChoice,
    settings: PlanSettings,
    observer: Observer | None,
    security: ClientSecurity,
) -> LoadSummary:
    """`api.load` with the options of the command; may be called in any thread."""
    return api.load(
        topics,
        target,
        bootstrap_servers=run.bootstrap_server,
        decode=run.decode_options,
        settings=settings,
        engine=engine,
        group=run.group,
        security=security,
        observer=observer,
    )


def _check_decode_options(run: TableRun, partition_by: Sequence[str]) -> None:
    """Raise OperatorError for options that contradict each other, before anything is read."""
    from ottla.pipeline.transform.open_format import open_format

    open_format(run.decode_options, exact_fields=partition_by)


@contextmanager
def _topics_progress(run: TableRun, topics: int) -> Iterator[Callable[[TopicLoad], None] | None]:
    """A progress line while topics are loaded, on a terminal: the block calls the function with each result."""
    stream = run.progress_stream
    if stream is None:
        yield None
        return
    from ottla.pipeline.operations.progress import TopicsProgress

    with TopicsProgress(stream, topics) as progress:
        yield lambda load: progress.end_topic(load.summary.rows if load.summary else 0)


def _with_table(run: TableRun, table: str) -> TableRun:
    return replace(run, table=Path(table) if isinstance(run.table, Path) else table)


def _plan_settings(run: TableRun) -> PlanSettings:
    return PlanSettings(parallelism=parallelism(run.master), **run.plan_options)


def _resumed(settings: PlanSettings) -> PlanSettings:
    """The settings for a table that an earlier run of the schedule has loaded."""
    return replace(settings, start=None, on_rollback="fail")


def _print_loads(run: TableRun, found: TopicLoads) -> None:
    if run.as_json:
        print_report(found.to_json(), indent=None if run.schedule else 2)
        return
    for load in found.loads:
        for note in load.summary.notes if load.summary else ():
            click.echo(f"Note: topic {load.topic}: {note}.", err=True)
    if not run.quiet:
        print_table(COLUMNS, map(table_row, found.loads), right=NUMERIC)
        click.echo(totals_text(found))


def table_row(load: TopicLoad) -> list[object]:
    """The row of one topic, as COLUMNS; None is unknown."""
    summary = load.summary
    if summary is None:
        return [load.topic, load.table, None, None, None, None, f"failed, exit code {load.exit_code}"]
    result = "nothing new" if summary.version is None else "loaded"
    numbers = (summary.rows, summary.dead_letters, summary.version, f"{summary.seconds:.1f}")
    return [load.topic, summary.table, *numbers, result]


def totals_text(found: TopicLoads) -> str:
    """Totals of a run in one sentence."""
    totals = found.totals()
    loaded = sum(summary.version is not None for summary in found.summaries)
    failed = f", {totals['failed']:,} of them failed" if totals["failed"] else ""
    return (
        f"Loaded {counted(totals['rows'], 'row')} from {counted(loaded, 'topic')}: "
        f"{counted(totals['topics'], 'topic')} in {found.seconds:.1f} s{failed}, "
        f"{size_text(totals['fetched_bytes'])} fetched, {size_text(totals['written_bytes'])} written."
    )


def summary_text(summary: LoadSummary) -> str:
    """Summary of a load into one table in one or two sentences."""
    from ottla.pipeline.load.summary import engine_text

    return run_text(
        summary,
        f"Loaded {counted(summary.rows, 'row')} from {counted(summary.partitions, 'partition')} of "
        f"{', '.join(summary.topics)} into {summary.table} as version {summary.version}: {summary.land_s:.1f} s, "
        f"{summary.rows_per_s:,.0f} rows/s, {size_text(summary.fetched_bytes)} fetched, "
        f"{size_text(summary.written_bytes)} written in {counted(summary.files, 'file')} "
        f"({engine_text(summary)}, commit {summary.commit_s:.2f} s).",
    )
