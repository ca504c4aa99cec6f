"""Options and course of the commands that read topics into a table: `ottla pipeline load` and `snapshot`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ottla.cli.command import connection_options, counted, json_option, print_json, run_until_terminated
from ottla.pipeline.cli.engine import engine_choice, engine_option
from ottla.pipeline.cli.options import (
    PLAN_OPTIONS,
    TableLocation,
    catalog_option,
    spark_options,
    with_decode_options,
)
from ottla.pipeline.sinks.formats import TABLE_FORMATS
from ottla.pipeline.spark.session import open_session, with_small_jvm

if TYPE_CHECKING:
    from ottla.pipeline.load.engine import EngineChoice
    from ottla.pipeline.load.summary import RunSummary
    from ottla.pipeline.operations.progress import ProgressLine
    from ottla.pipeline.sinks.table import Table
    from ottla.pipeline.transform.decode_options import DecodeOptions


@dataclass(frozen=True, slots=True)
class TableRun:
    """The shared options of a command that reads topics into a table."""

    topics: Sequence[str]
    table: Path | str
    format_name: str | None
    catalog_url: str | None
    group: str | None
    schedule: str | None
    decode_options: DecodeOptions
    engine: str
    master: str
    conf: Mapping[str, str]
    quiet: bool
    as_json: bool
    bootstrap_server: str
    plan_options: Mapping[str, Any]

    def open_table(self, partition_by: Sequence[str] = ()) -> Table:
        """The table; one that does not exist yet gets the partition columns. Raises OperatorError."""
        from ottla.pipeline.sinks.open_table import open_table

        return open_table(self.table, format=self.format_name, partition_by=partition_by, catalog_url=self.catalog_url)

    def engine_choice(self, command: str) -> EngineChoice:
        """Chooses the engine by the options; a Spark session has the name of the command. As `engine_choice`."""
        open_spark = partial(open_session, self.master, command, with_small_jvm(self.conf))
        return engine_choice(self.engine, self.master, self.conf, open_spark)

    def repeat(self, once: Callable[[ProgressLine | None], tuple[RunSummary, str]]) -> None:
        """Run once, or on the schedule, and print each summary: as JSON, or in the words that `once` returns with it.

        `once` receives a progress line if stderr is a terminal.
        """

        def run() -> None:
            with self._progress_line() as progress:
                summary, text = once(progress)
            if self.as_json:
                print_json(summary.to_json(), indent=None if self.schedule else 2)
                return
            for note in summary.notes:
                click.echo(f"Note: {note}.", err=True)
            if not self.quiet:
                click.echo(text)

        self.on_schedule(run)

    def on_schedule(self, run: Callable[[], None]) -> None:
        """Run once, or on the schedule until a signal ends the command; failures are as in `schedule.repeat`."""
        from ottla.pipeline.spark.schedule import parse_schedule, repeat

        if self.schedule is None:
            run()
        else:
            run_until_terminated()
            repeat(parse_schedule(self.schedule), run, lambda text: click.echo(f"Schedule: {text}.", err=True))

    @property
    def progress_stream(self) -> TextIO | None:
        """The terminal for a progress line, None without one or if none is to be drawn."""
        is_drawn = sys.stderr.isatty() and not self.quiet and not self.as_json
        return (sys.__stderr__ or sys.stderr) if is_drawn else None

    def _progress_line(self) -> AbstractContextManager[ProgressLine | None]:
        from ottla.pipeline.operations.progress import ProgressLine

        stream = self.progress_stream
        return nullcontext() if stream is None else closing(ProgressLine(stream))


def with_table_run(
    *own: Callable[[Any], Any],
    topics: Callable[[Any], Any],
    table: str,
    group: str,
    plan: Sequence[str] = tuple(PLAN_OPTIONS),
) -> Callable[[Any], Any]:
    """Add the options of a `TableRun`, which the command receives as `run`; its `own` options are listed among them.

    `topics` is the option of that name, `table` the help of `--table`, `group` the default group in words, and `plan`
    names options of PLAN_OPTIONS.
    """
    stack = (
        topics,
        click.option("--table", required=True, type=TableLocation(file_okay=False), help=table),
        click.option(
            "--format",
            "format_name",
            type=click.Choice(TABLE_FORMATS),
            help="Format of a new table.  [default: delta]",
        ),
        catalog_option,
        *own,
        click.option(
            "--group",
            metavar="NAME",
            help="Consumer group to which the loaded offsets are published for lag tools; '' for none.  "
            f"[default: {group}]",
        ),
        click.option(
            "--schedule",
            metavar="hourly|daily|CRON",
            help="Run immediately, then on this schedule in UTC until interrupted.",
        ),
        *(PLAN_OPTIONS[name] for name in plan),
        with_decode_options,
        engine_option,
        spark_options,
        click.option("--quiet", "-q", is_flag=True, help="Disable the progress line and the summary."),
        json_option,
        connection_options,
    )

    def decorated(function: Any) -> Any:
        @wraps(function)
        def collected(**named: Any) -> Any:
            named["plan_options"] = {name: named.pop(name) for name in plan}
            return function(TableRun(**{each.name: named.pop(each.name) for each in fields(TableRun)}), **named)

        for option in reversed(stack):
            collected = option(collected)
        return collected

    return decorated


def run_text(summary: RunSummary, text: str) -> str:
    """`text` about a run with new records, and the skipped offsets; another sentence for a run without new records."""
    if summary.version is None:
        return f"Nothing new in {', '.join(summary.topics)}; {summary.table} is unchanged."
    return text + (f" Skipped: {counted(summary.skipped_offsets, 'offset')}." if summary.skipped_offsets else "")
