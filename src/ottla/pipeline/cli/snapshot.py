"""`ottla pipeline snapshot`: the latest value of each key of some topics as a table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from ottla.cli.command import counted, security, size_text
from ottla.pipeline.cli.options import topics_option
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.cli.table_run import TableRun, run_text, with_table_run
from ottla.pipeline.spark.session import parallelism, require_lake

if TYPE_CHECKING:
    from ottla.pipeline.operations.progress import ProgressLine
    from ottla.pipeline.snapshot.run import SnapshotSummary


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline snapshot --topics users --table lake/users",
        "ottla pipeline snapshot -t users --table lake/users --decode json --schedule '*/15 * * * *'",
        "ottla pipeline snapshot -t shop.public.orders --table lake/orders --decode json --envelope debezium",
        "ottla pipeline snapshot -t prices --table lake/prices --history --format iceberg",
        "ottla pipeline snapshot -t users --table lake/users-on-monday --to 2026-03-02 --json",
        "ottla pipeline snapshot -t devices --table /lake/devices --buckets 256 --master spark://host:7077",
    ),
)
@with_table_run(
    click.option(
        "--buckets",
        type=click.IntRange(1, 1024),
        help="Number of buckets of a new table: a run rewrites the buckets that contain changed keys.  [default: 16]",
    ),
    click.option(
        "--history",
        is_flag=True,
        help="Keep earlier values in a new table, with the columns valid_from, valid_to and current.",
    ),
    topics=topics_option("Topics with the keys of the table; may be repeated."),
    table="Directory of the table, or its URL in an object store; created by the first run.",
    group="ottla-snapshot.TABLE",
    plan=("isolation", "max_bytes_per_task", "on_data_loss", "source", "end"),
)
def snapshot(run: TableRun, buckets: int | None, history: bool) -> None:
    """Keep the latest value of each key.

    Maintains a table of Delta, Iceberg or Parquet files with one row per topic, partition and key, like Kafka's log
    compaction: the record with the highest offset wins, and a record with a null value deletes its key. A run reads
    only the records since the last run. Rows and offsets are committed together: a run that is killed at any point and
    repeated gives the same table.

    With --history each value is a row, valid from its record's timestamp to that of the next one. Current rows have
    current = true and no valid_to; a deletion ends the row before it.

    A record without a key, or one that cannot be decoded, does not change its key: it goes to TABLE/_dead_letters with
    the reason.

    With --envelope the records are change events of a database: a row becomes the one after the change, and an event
    that deletes removes the row of its key.

    Buckets and history are fixed when the table is created. More buckets mean less data to rewrite for a few changed
    keys, and less memory per task. All other options are those of 'ottla pipeline load'. --engine auto adds the size of
    the table to that of the records.
    """
    require_lake()
    from ottla.pipeline.load.shape import settled_shape
    from ottla.pipeline.snapshot import run as running
    from ottla.pipeline.transform.open_format import open_format

    settings = running.snapshot_plan_settings(parallelism=parallelism(run.master), **run.plan_options)
    value_format = open_format(run.decode_options, is_history=False)
    shape = settled_shape(run.open_table(), buckets, history=history)
    target = run.open_table(shape.partition_columns)
    engine = run.engine_choice("ottla pipeline snapshot")
    group = f"ottla-snapshot.{target.name}" if run.group is None else run.group
    run_new = partial(running.snapshot, run.topics, target, run.bootstrap_server, engine, settings, shape)

    def once(progress: ProgressLine | None) -> tuple[SnapshotSummary, str]:
        summary = run_new(progress, value_format, group=group, security=security())
        return summary, summary_text(summary)

    run.repeat(once)


def summary_text(summary: SnapshotSummary) -> str:
    """Summary of a run in one or two sentences."""
    from ottla.pipeline.load.summary import engine_text

    return run_text(
        summary,
        f"{counted(summary.records, 'new record')} of {', '.join(summary.topics)} brought {summary.table} to version "
        f"{summary.version}: {counted(summary.inserted, 'key')} inserted, {summary.updated:,} updated, "
        f"{summary.deleted:,} deleted. {counted(summary.buckets, 'bucket')} rewritten: "
        f"{counted(summary.rows, 'row')}, {size_text(summary.written_bytes)} ({engine_text(summary)}, "
        f"read {summary.stage_s:.1f} s, merge and commit {summary.merge_s:.1f} s).",
    )
