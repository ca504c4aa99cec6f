"""`ottla pipeline load`: topics into a lake table, exactly once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import (
    Command,
    connection_options,
    counted,
    json_option,
    print_json,
    security,
    size_text,
)
from ottla.pipeline.cli.options import (
    TableLocation,
    catalog_option,
    conf_option,
    format_option,
    master_option,
    run_on_schedule,
    schedule_option,
    split_names,
    topics_option,
    with_decode_options,
    with_plan_options,
)
from ottla.pipeline.spark.session import open_session, parallelism, require_extra, require_spark, with_small_jvm

if TYPE_CHECKING:
    from ottla.pipeline.load.driver import LoadSummary
    from ottla.pipeline.operations.progress import ProgressLine
    from ottla.pipeline.transform.decode_options import DecodeOptions


@click.command(
    cls=Command,
    examples=(
        "ottla pipeline load --topics clicks --table lake/clicks",
        "ottla pipeline load -t clicks,orders --table lake/events --partition-by topic",
        "ottla pipeline load -t clicks --table lake/clicks --format iceberg",
        "ottla pipeline load -t clicks --table lake/clicks --schedule hourly",
        "ottla pipeline load -t clicks --table lake/clicks --schedule '*/15 * * * *' --json",
        "ottla pipeline load -t clicks --table lake/clicks --decode json --from 2026-03-02",
        "ottla pipeline load -t clicks --table /lake/clicks --master spark://host:7077 --json",
    ),
)
@topics_option("Topics to load; may be repeated.")
@click.option(
    "--table",
    required=True,
    type=TableLocation(file_okay=False),
    help="Directory of the table, or its URL in an object store such as s3://bucket/path; created by the first load.",
)
@format_option
@catalog_option
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN",
    help="Partition column of a new table: topic, partition, a decoded column, or date, the day of a "
    "record's timestamp; may be repeated.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Consumer group to which the loaded offsets are published for lag tools; '' for none.  "
    "[default: ottla-load.TABLE.PIPELINE-ID]",
)
@schedule_option
@with_plan_options()
@with_decode_options
@master_option
@conf_option
@click.option("--quiet", "-q", is_flag=True, help="Disable the progress line and the summary.")
@json_option
@connection_options
def load(
    topics: tuple[str, ...],
    table: Path | str,
    format_name: str | None,
    catalog_url: str | None,
    partition_by: tuple[str, ...],
    group: str | None,
    schedule: str | None,
    plan_options: Mapping[str, Any],
    decode_options: DecodeOptions,
    master: str,
    conf: Mapping[str, str],
    quiet: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Load topics into a table exactly once.

    Adds the new records of topics to a table of Delta, Iceberg or Parquet files. Data and offsets are committed
    together: a load that is killed at any point and repeated neither loses nor duplicates a record, and a load without
    new records adds nothing. A failed task is retried up to four attempts; local[N,F] makes F attempts. A record that
    cannot be decoded, or that does not fit the columns, goes to TABLE/_dead_letters with the reason.

    --decode adds columns beside those of Kafka. Without --schema, the fields of JSON and CSV are inferred from a sample
    of the records, and new fields are added to the table as they appear. A CSV field is text unless all values of the
    sample are plain numbers or booleans: codes such as 02134, +49, 0x1A, 1e5 and nan stay text. A field with the name
    of a Kafka column gets the prefix value_. A later load may decode differently: the table then has the columns of
    both, and a row is null in columns that it lacks. Column types stay or widen; values that do not fit become dead
    letters, and an incompatible --schema is rejected.

    A table can contain topics of several clusters, but not two topics with the same name; such a load is rejected.
    A boundary is earliest, latest, offset:N, or a time as an ISO date or in milliseconds; a time selects the first
    record at or after it. A pipeline id resumes from its last offset; --from is rejected once it has loaded something.

    Exit code 0: the table is up to date; 1: the load failed and may be retried, or records are lost; 2: the load fails
    until the problem is corrected. --json prints rows, dead_letters, offsets, version (null without a new one) and
    seconds, one line a run. With --schedule, a failed run is reported and the next catches up, unless it is the first.

    On a cluster, Ottla itself is shipped with the job. The other packages of 'ottla[pipeline]' are shipped with
    --environment, or are in the Python that --conf spark.pyspark.python=PATH selects. Every worker must reach the
    table and the brokers under the same names.
    """
    require_extra()
    from ottla.pipeline.load import driver as loading
    from ottla.pipeline.model.plan import PlanSettings
    from ottla.pipeline.sinks.open_table import open_table
    from ottla.pipeline.transform.open_format import open_format

    settings = PlanSettings(parallelism=parallelism(master), **plan_options)
    value_format = open_format(decode_options)
    names = split_names(topics)
    target = open_table(table, format=format_name, partition_by=partition_by, catalog_url=catalog_url)
    require_spark(master)  # before requests to brokers, and before the table is created
    shown_group = f"ottla-load.{target.name}.{settings.pipeline_id}" if group is None else group

    session = partial(open_session, master, "ottla pipeline load", with_small_jvm(conf))
    load_new = partial(loading.load, group=shown_group, security=security())

    def run() -> None:
        nonlocal settings
        with progress_line(quiet or as_json) as progress:
            observer = progress or loading.Observer()
            summary = load_new(names, target, bootstrap_server, session, settings, observer, value_format)
        settings = replace(settings, start=None, on_rollback="fail")  # the next run resumes
        if as_json:
            print_json(summary.to_json(), indent=None if schedule else 2)
        else:
            print_summary(summary.notes, "" if quiet else summary_text(summary))

    run_on_schedule(schedule, run)


def print_summary(notes: Sequence[str], summary: str) -> None:
    """Print notes and the summary of a run; an empty summary is skipped."""
    for note in notes:
        click.echo(f"Note: {note}.", err=True)
    if summary:
        click.echo(summary)


def progress_line(silent: bool) -> AbstractContextManager[ProgressLine | None]:
    """A progress line during a run, if stderr is a terminal."""
    from ottla.pipeline.operations.progress import ProgressLine

    if silent or not sys.stderr.isatty():
        return nullcontext()
    return closing(ProgressLine(sys.__stderr__ or sys.stderr))


def summary_text(summary: LoadSummary) -> str:
    """Summary of a load in one or two sentences."""
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
