"""`ottla pipeline load`: topics into a lake table, exactly once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ottla.cli.command import (
    Command,
    bootstrap_option,
    complete_topic,
    counted,
    json_option,
    print_json,
    size_text,
)
from ottla.pipeline.cli.options import (
    TABLE_FORMATS,
    catalog_option,
    conf_option,
    master_option,
    parse_size,
    with_decode_options,
)
from ottla.pipeline.session import open_session, parallelism, require_extra

if TYPE_CHECKING:
    from ottla.pipeline.load import LoadSummary
    from ottla.pipeline.progress import ProgressLine
    from ottla.pipeline.transform.decode_options import DecodeOptions


@click.command(
    cls=Command,
    examples=(
        "ottla pipeline load --topics clicks --table lake/clicks",
        "ottla pipeline load -t clicks,orders --table lake/events --partition-by topic",
        "ottla pipeline load -t clicks --table lake/clicks --format iceberg",
        "ottla pipeline load -t clicks --table lake/clicks --schedule hourly",
        "ottla pipeline load -t clicks --table lake/clicks --schedule '*/15 * * * *' --json",
        "ottla pipeline load -t clicks --table lake/clicks --decode json",
        "ottla pipeline load -t clicks --table /lake/clicks --master spark://host:7077 --json",
    ),
)
@click.option(
    "--topics",
    "-t",
    multiple=True,
    required=True,
    metavar="NAME,...",
    shell_complete=complete_topic,
    help="Topics to load; may be repeated.",
)
@click.option(
    "--table",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the table; it is made by the first load.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(TABLE_FORMATS),
    help="Format of a table that this load makes.  [default: delta]",
)
@catalog_option
@click.option("--pipeline-id", default="default", show_default=True, help="Whose offsets count in the table.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
)
@click.option(
    "--max-bytes-per-task",
    callback=parse_size,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Stored bytes that a task reads.",
)
@click.option(
    "--on-data-loss",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What to do when records were deleted before they were loaded, or a log was cut back below what was loaded.",
)
@click.option(
    "--partition-by",
    multiple=True,
    type=click.Choice(["topic", "partition"]),
    help="Partition column of a table that this load makes; may be repeated.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Consumer group whose offsets show lag tools how far the table is; '' for none.  "
    "[default: ottla-load.TABLE.PIPELINE-ID]",
)
@click.option(
    "--schedule",
    metavar="hourly|daily|CRON",
    help="Load now and then at these times, in UTC, until interrupted.",
)
@with_decode_options
@master_option
@conf_option
@click.option("--quiet", "-q", is_flag=True, help="No progress line and no summary.")
@json_option
@bootstrap_option
def load(
    topics: tuple[str, ...],
    table: Path,
    format_name: str | None,
    catalog_url: str | None,
    pipeline_id: str,
    isolation: str,
    max_bytes_per_task: int,
    on_data_loss: Literal["fail", "skip"],
    partition_by: tuple[str, ...],
    group: str | None,
    schedule: str | None,
    decode_options: DecodeOptions,
    master: str,
    conf: Mapping[str, str],
    quiet: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Load what is new in some topics into a table of Delta, Iceberg or Parquet files.

    Data and offsets are committed together: a load that is killed at any point and run again neither loses a record nor
    doubles one, and a load with nothing new adds nothing. A task that fails is tried four times; local[N,F] tries F.
    A record that the columns can't hold, such as one with a timestamp after the year 9999, goes to the table
    TABLE/_dead_letters instead, with the reason.

    --decode adds columns beside those of Kafka, which stay as they are. Without --schema the fields of JSON and CSV are
    those of a sample of the records; a table gets new ones as they turn up. A field named like a column of Kafka gets
    the prefix value_, as in value_offset. A record whose value can't be decoded goes to the dead letters too.

    A run with --schedule that fails is told, and the next one makes up for it; what fails at the first ends the
    command. With --json each run is one line.

    On a cluster, Ottla itself travels with the job; the Python of the workers needs the other packages of
    'ottla[pipeline]', and --conf spark.pyspark.python=PATH names it. The table's directory and the brokers must be
    reached from every worker under the same names.
    """
    require_extra()
    from ottla.pipeline import load as loading
    from ottla.pipeline.plan import PlanSettings
    from ottla.pipeline.schedule import parse_schedule, repeat
    from ottla.pipeline.sinks.open_table import open_table
    from ottla.pipeline.transform.open_format import open_format

    settings = PlanSettings(pipeline_id, isolation, max_bytes_per_task, parallelism(master), on_data_loss)
    value_format = open_format(decode_options)
    names = [name.strip() for value in topics for name in value.split(",") if name.strip()]
    target = open_table(table, format=format_name, partition_by=partition_by, catalog_url=catalog_url)
    shown_group = f"ottla-load.{target.name}.{pipeline_id}" if group is None else group

    def session() -> AbstractContextManager[Any]:
        return open_session(master, "ottla pipeline load", conf)

    def run() -> None:
        with _progress(quiet or as_json) as progress:
            observer = progress or loading.Observer()
            summary = loading.load(
                names, target, bootstrap_server, session, settings, observer, value_format, group=shown_group
            )
        if as_json:
            print_json(summary.to_json(), indent=None if schedule else 2)
        else:
            _tell(summary, quiet=quiet)

    if schedule is None:
        run()
    else:
        repeat(parse_schedule(schedule), run, lambda text: click.echo(f"Schedule: {text}.", err=True))


def _tell(summary: LoadSummary, *, quiet: bool) -> None:
    for note in summary.notes:
        click.echo(f"Note: {note}.", err=True)
    if not quiet:
        click.echo(summary_text(summary))


def _progress(silent: bool) -> AbstractContextManager[ProgressLine | None]:
    from ottla.pipeline.progress import ProgressLine

    if silent or not sys.stderr.isatty():
        return nullcontext()
    return closing(ProgressLine(sys.__stderr__ or sys.stderr))


def summary_text(summary: LoadSummary) -> str:
    """One or two sentences for a person."""
    topics = ", ".join(summary.topics)
    if summary.version is None:
        return f"Nothing new in {topics}; {summary.table} is unchanged."
    text = (
        f"Loaded {counted(summary.rows, 'row')} from {counted(summary.partitions, 'partition')} of {topics} "
        f"into {summary.table} as version {summary.version}: {summary.land_s:.1f} s, {summary.rows_per_s:,.0f} rows/s, "
        f"{size_text(summary.fetched_bytes)} fetched, {size_text(summary.written_bytes)} written in "
        f"{counted(summary.files, 'file')} (Spark start {summary.start_s:.1f} s, commit {summary.commit_s:.2f} s)."
    )
    if summary.skipped_offsets:
        text += f" Skipped: {counted(summary.skipped_offsets, 'offset')}."
    return text
