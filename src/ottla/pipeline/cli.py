"""`ottla pipeline`: load topics into a lake table, query it, see the whole path in a demo.

Spark, Arrow and deltalake are imported by the commands that use them, so `--help` needs none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ottla.cli.command import (
    Group,
    bootstrap_option,
    complete_topic,
    counted,
    json_option,
    print_json,
    print_table,
    settings_option,
    size_text,
)
from ottla.pipeline.session import DEFAULT_MASTER, open_session, parallelism, require_extra

if TYPE_CHECKING:
    from ottla.pipeline.load import LoadSummary
    from ottla.pipeline.progress import ProgressLine

SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30}


def _parse_size(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    """Bytes, with an optional unit: 1048576, 256MiB, 1g."""
    text = value.strip().lower()
    digits = text.rstrip("bgikm")
    unit = text[len(digits) :].strip()
    if not digits.strip().isdecimal() or unit not in SIZE_UNITS or int(digits) < 1:
        raise click.BadParameter(f"{value!r} is not a size such as 1048576 or 256MiB", ctx, parameter)
    return int(digits) * SIZE_UNITS[unit]


def _master_option(function: Any) -> Any:
    return click.option(
        "--master",
        default=DEFAULT_MASTER,
        show_default=True,
        metavar="URL",
        help="Where Spark runs: local[N], spark://host:7077, sc://host:15002 or any other master.",
    )(function)


def _conf_option(function: Any) -> Any:
    return settings_option("--conf", help_text="A Spark setting, such as spark.driver.memory=4g; may be repeated.")(
        function
    )


@click.group(cls=Group)
def pipeline() -> None:
    """Load topics into lake tables exactly once, and query them, with Spark."""


@pipeline.command(
    examples=(
        "ottla pipeline load --topics clicks --table lake/clicks",
        "ottla pipeline load -t clicks,orders --table lake/events --partition-by topic",
        "ottla pipeline load -t clicks --table /lake/clicks --master spark://host:7077 --json",
    )
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
    help="Directory of the Delta table; it is made by the first load.",
)
@click.option("--pipeline-id", default="default", show_default=True, help="Whose offsets count in the table.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
)
@click.option(
    "--max-bytes-per-task",
    callback=_parse_size,
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
@_master_option
@_conf_option
@click.option("--quiet", "-q", is_flag=True, help="No progress line and no summary.")
@json_option
@bootstrap_option
def load(
    topics: tuple[str, ...],
    table: Path,
    pipeline_id: str,
    isolation: str,
    max_bytes_per_task: int,
    on_data_loss: Literal["fail", "skip"],
    partition_by: tuple[str, ...],
    master: str,
    conf: Mapping[str, str],
    quiet: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Load what is new in some topics into a Delta table.

    Data and offsets are committed together: a load that is killed at any point and run again neither loses a record nor
    doubles one, and a load with nothing new adds nothing. A task that fails is tried four times; local[N,F] tries F.
    A record that the columns can't hold, such as one with a timestamp after the year 9999, goes to the table
    TABLE/_dead_letters instead, with the reason.

    On a cluster, Ottla itself travels with the job; the Python of the workers needs the other packages of
    'ottla[pipeline]', and --conf spark.pyspark.python=PATH names it. The table's directory and the brokers must be
    reached from every worker under the same names.
    """
    require_extra()
    from ottla.pipeline import load as loading
    from ottla.pipeline.plan import PlanSettings
    from ottla.pipeline.tables.delta import DeltaTarget

    settings = PlanSettings(pipeline_id, isolation, max_bytes_per_task, parallelism(master), on_data_loss)
    names = [name.strip() for value in topics for name in value.split(",") if name.strip()]

    def session() -> AbstractContextManager[Any]:
        return open_session(master, "ottla pipeline load", conf)

    with _progress(quiet or as_json) as progress:
        summary = loading.load(
            names, DeltaTarget(table, partition_by), bootstrap_server, session, settings, progress or loading.Observer()
        )
    if as_json:
        print_json(summary.to_json())
        return
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


@pipeline.command(
    examples=(
        'ottla pipeline sql "select partition, count(*) from clicks group by 1" --table lake/clicks',
        'ottla pipeline sql "select cast(value as string) from records limit 5" --table lake/clicks --json',
    )
)
@click.argument("statement")
@click.option(
    "--table",
    "tables",
    multiple=True,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of a table; may be repeated.",
)
@_master_option
@_conf_option
@json_option
def sql(statement: str, tables: tuple[Path, ...], master: str, conf: Mapping[str, str], as_json: bool) -> None:
    """Run one Spark SQL query over loaded tables; a statement that would write is refused.

    A table is visible under the name of its directory, a single one also as `records`. Columns: topic, partition,
    offset, timestamp, timestamp_type, key, value, headers. Binary columns are printed as UTF-8, other bytes as \\xNN.
    """
    require_extra()
    from ottla.pipeline.query import register_tables, run_sql
    from ottla.pipeline.tables.delta import DeltaTarget

    targets = [DeltaTarget(path) for path in tables]
    for target in targets:
        target.version()  # a missing table is told before Spark starts
    with open_session(master, "ottla pipeline sql", conf) as spark:
        register_tables(spark, targets)
        result = run_sql(spark, statement)
    columns = list(result.column_names)
    rows = [
        [printable(value) for value in row]
        for row in zip(*(column.to_pylist() for column in result.columns), strict=True)
    ]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    numeric = [field.name for field in result.schema if str(field.type).startswith(("int", "uint", "float", "double"))]
    print_table(columns, rows, right=numeric)


def printable(value: Any) -> Any:
    """A value of a result as JSON has it: bytes as text, times in ISO form, nested values likewise."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(printable(key)): printable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


@pipeline.command(
    examples=(
        "ottla pipeline demo",
        "ottla pipeline demo --input /var/log/apache2/access.log",
        "ottla pipeline demo --events 1000000 --dir /tmp/ottla-demo",
    )
)
@click.option(
    "--input",
    "input_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An access log in common or combined format, one record a line; without it one is generated.",
)
@click.option(
    "--events",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Lines to generate without --input.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where broker data and table go; must be new or empty.  [default: a new temporary directory, kept]",
)
@_master_option
def demo(input_path: Path | None, events: int, directory: Path | None, master: str) -> None:
    """The whole path on this machine: broker, stock producer, exactly-once load, SQL.

    Starts a broker on a free port, produces an access log keyed by client address through confluent-kafka with zstd,
    loads it by PySpark, prints the most viewed pages and the views per hour, loads again to show that nothing is added,
    and stops everything. A page is the seventh space-separated field of a line, the request's path: what
    `cut -d' ' -f7 FILE | sort | uniq -c` counts.

    A file is refused before anything starts when it is empty, or when more than one in ten of its first 1,000 lines is
    in neither the common nor the combined format of Apache and nginx. Fewer such lines, and later ones, are loaded and
    counted as they are, and their number is told.
    """
    require_extra()
    from ottla.pipeline.demo import run_demo

    run_demo(input_path, events, directory, master)
