"""`ottla pipeline load`: topics into a lake table, exactly once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from ottla.cli.command import counted, security, size_text
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.cli.table_run import TableRun, run_text, with_table_run
from ottla.pipeline.spark.session import parallelism, require_lake

if TYPE_CHECKING:
    from ottla.pipeline.load.driver import LoadSummary
    from ottla.pipeline.operations.progress import ProgressLine


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline load --topics clicks --table lake/clicks",
        "ottla pipeline load -t clicks,orders --table lake/events --partition-by topic",
        "ottla pipeline load -t clicks --table lake/clicks --format iceberg",
        "ottla pipeline load -t clicks --table lake/clicks --schedule hourly",
        "ottla pipeline load -t clicks --table lake/clicks --schedule '*/15 * * * *' --json",
        "ottla pipeline load -t clicks --table lake/clicks --decode json --from 2026-03-02",
        "ottla pipeline load -t clicks --table lake/clicks --engine local --master 'local[8]'",
        "ottla pipeline load -t clicks --table /lake/clicks --master spark://host:7077 --json",
        "ottla pipeline load -t clicks --table lake/clicks --decode json --max-dead-letters 0.1% --numbers exact",
    ),
)
@with_table_run(
    click.option(
        "--partition-by",
        multiple=True,
        metavar="COLUMN",
        help="Partition column of a new table: topic, partition, a decoded column, or date, the day of a "
        "record's timestamp; may be repeated.",
    ),
    topics="Topics to load; may be repeated.",
    table="Directory of the table, or its URL in an object store such as s3://bucket/path; created by the first load.",
    group="ottla-load.TABLE.PIPELINE-ID",
)
def load(run: TableRun, partition_by: tuple[str, ...]) -> None:
    """Load topics into a table exactly once.

    Adds the new records of topics to a table of Delta, Iceberg or Parquet files. Data and offsets are committed
    together: a load that is killed at any point and repeated neither loses nor duplicates a record, and a load without
    new records adds nothing. A failed task is retried up to four attempts; local[N,F] makes F attempts. A record that
    cannot be decoded, or that does not fit the columns, goes to TABLE/_dead_letters with the reason; 'ottla pipeline
    redrive' decodes it again.

    --decode adds columns beside those of Kafka. Without --schema, the fields of JSON and CSV are inferred from the
    records, all of them up to 4 MiB a topic, and new fields are added to the table as they appear. JSON names match
    without regard to case; a space, tab, line feed or one of ,;{}()= in a name is _ in the table. A CSV field is text
    unless all inspected values are plain numbers or booleans: codes such as 02134, +49, 0x1A, 1e5 and nan stay text. An
    existing table settles the width of CSV. A field with the name of a Kafka column gets the prefix value_. A later
    load may decode differently: the table then has the columns of both, and a row is null in columns that it lacks.
    Column types stay or widen; values that do not fit become dead letters, and an incompatible --schema is rejected.

    With --envelope the values are change events of a database: each is a row with the kind of the change in __op. A
    deletion has the deleted row, as far as the event has it. 'ottla pipeline snapshot' applies the changes instead.

    A table can contain topics of several clusters, but not two topics with the same name; such a load is rejected. A
    boundary is earliest, latest, offset:N, or a time as an ISO date or in milliseconds; a time selects the first record
    at or after it. A pipeline id resumes from its last offset; --from is rejected once it has loaded something.

    Exit code 0: the table is up to date; 1: the load failed and may be retried, or records are lost; 2: the load fails
    until the problem is corrected; 3: more dead letters than --max-dead-letters, and nothing was committed. --json
    prints rows, dead_letters, dead_letter_reasons, columns_added, columns_renamed, fields_without_column, nulled,
    offsets, version (null without a new one), engine and seconds, one line a run; after a failure error, exit_code and
    retriable. With --schedule, a failed run is reported and the next catches up, unless it is the first.

    --engine auto loads up to 4 GiB of stored records without Spark: small loads in this process, others in one worker
    process per CPU. More is loaded by Spark, if it is installed; --master, --conf and --environment select Spark too.
    Both engines give the same table and the same guarantees. --engine local --master local[N] limits the processes to
    N.

    On a cluster, Ottla itself is shipped with the job. The other packages of 'ottla[pipeline]' are shipped with
    --environment, or are in the Python that --conf spark.pyspark.python=PATH selects. Every worker must reach the table
    and the brokers under the same names.
    """
    require_lake()
    from ottla.pipeline.load import driver as loading
    from ottla.pipeline.model.plan import PlanSettings
    from ottla.pipeline.transform.open_format import open_format

    settings = PlanSettings(parallelism=parallelism(run.master), **run.plan_options)
    value_format = open_format(run.decode_options, exact_fields=partition_by)  # a double can't be a partition column
    target = run.open_table(partition_by)
    engine = run.engine_choice("ottla pipeline load")
    group = f"ottla-load.{target.name}.{settings.pipeline_id}" if run.group is None else run.group
    load_new = partial(loading.load, group=group, security=security())

    def once(progress: ProgressLine | None) -> tuple[LoadSummary, str]:
        nonlocal settings
        summary = load_new(run.topics, target, run.bootstrap_server, engine, settings, progress, value_format)
        settings = replace(settings, start=None, on_rollback="fail")  # the next run resumes
        return summary, summary_text(summary)

    run.repeat(once)


def summary_text(summary: LoadSummary) -> str:
    """Summary of a load in one or two sentences."""
    from ottla.pipeline.load.summary import engine_text

    return run_text(
        summary,
        f"Loaded {counted(summary.rows, 'row')} from {counted(summary.partitions, 'partition')} of "
        f"{', '.join(summary.topics)} into {summary.table} as version {summary.version}: {summary.land_s:.1f} s, "
        f"{summary.rows_per_s:,.0f} rows/s, {size_text(summary.fetched_bytes)} fetched, "
        f"{size_text(summary.written_bytes)} written in {counted(summary.files, 'file')} "
        f"({engine_text(summary)}, commit {summary.commit_s:.2f} s).",
    )
