"""`ottla pipeline snapshot`: the latest value of each key of some topics as a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import Command, connection_options, counted, json_option, print_json, security, size_text
from ottla.pipeline.cli.load import print_summary, progress_line
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
    from ottla.pipeline.snapshot.run import SnapshotSummary
    from ottla.pipeline.transform.decode_options import DecodeOptions


@click.command(
    cls=Command,
    examples=(
        "ottla pipeline snapshot --topics users --table lake/users",
        "ottla pipeline snapshot -t users --table lake/users --decode json --schedule '*/15 * * * *'",
        "ottla pipeline snapshot -t prices --table lake/prices --history --format iceberg",
        "ottla pipeline snapshot -t users --table lake/users-on-monday --to 2026-03-02 --json",
        "ottla pipeline snapshot -t devices --table /lake/devices --buckets 256 --master spark://host:7077",
    ),
)
@topics_option("Topics with the keys of the table; may be repeated.")
@click.option(
    "--table",
    required=True,
    type=TableLocation(file_okay=False),
    help="Directory of the table, or its URL in an object store; created by the first run.",
)
@format_option
@catalog_option
@click.option(
    "--buckets",
    type=click.IntRange(1, 1024),
    help="Number of buckets of a new table: a run rewrites the buckets that contain changed keys.  [default: 16]",
)
@click.option(
    "--history",
    is_flag=True,
    help="Keep earlier values in a new table, with the columns valid_from, valid_to and current.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Consumer group to which the loaded offsets are published for lag tools; '' for none.  "
    "[default: ottla-snapshot.TABLE]",
)
@schedule_option
@with_plan_options("isolation", "max_bytes_per_task", "on_data_loss", "source", "end")
@with_decode_options
@master_option
@conf_option
@click.option("--quiet", "-q", is_flag=True, help="Disable the progress line and the summary.")
@json_option
@connection_options
def snapshot(
    topics: tuple[str, ...],
    table: Path | str,
    format_name: str | None,
    catalog_url: str | None,
    buckets: int | None,
    history: bool,
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
    """Keep the latest value of each key.

    Maintains a table of Delta, Iceberg or Parquet files with one row per topic, partition and key, like Kafka's log
    compaction: the record with the highest offset wins, and a record with a null value deletes its key. A run reads
    only the records since the last run. Rows and offsets are committed together: a run that is killed at any point and
    repeated gives the same table.

    With --history each value is a row, valid from its record's timestamp to that of the next one. Current rows have
    current = true and no valid_to; a deletion ends the row before it.

    A record without a key, or one that cannot be decoded, does not change its key: it goes to TABLE/_dead_letters with
    the reason.

    Buckets and history are fixed when the table is created. More buckets mean less data to rewrite for a few changed
    keys, and less memory per task. All other options are those of 'ottla pipeline load'.
    """
    require_extra()
    from ottla.pipeline.load.shape import settled_shape
    from ottla.pipeline.sinks.open_table import open_table
    from ottla.pipeline.snapshot import run as running
    from ottla.pipeline.transform.open_format import open_format

    settings = running.snapshot_plan_settings(parallelism=parallelism(master), **plan_options)
    value_format = open_format(decode_options)
    names = split_names(topics)
    found = open_table(table, format=format_name, catalog_url=catalog_url)
    shape = settled_shape(found, buckets, history=history)
    target = open_table(table, format=format_name, partition_by=shape.partition_columns, catalog_url=catalog_url)
    require_spark(master)  # before requests to brokers, and before the table is created
    shown_group = f"ottla-snapshot.{target.name}" if group is None else group
    session = partial(open_session, master, "ottla pipeline snapshot", with_small_jvm(conf))

    def run() -> None:
        with progress_line(quiet or as_json) as progress:
            summary = running.snapshot(
                names,
                target,
                bootstrap_server,
                session,
                settings,
                shape,
                progress,
                value_format,
                group=shown_group,
                security=security(),
            )
        if as_json:
            print_json(summary.to_json(), indent=None if schedule else 2)
        else:
            print_summary(summary.notes, "" if quiet else summary_text(summary))

    run_on_schedule(schedule, run)


def summary_text(summary: SnapshotSummary) -> str:
    """Summary of a run in one or two sentences."""
    topics = ", ".join(summary.topics)
    if summary.version is None:
        return f"Nothing new in {topics}; {summary.table} is unchanged."
    text = (
        f"{counted(summary.records, 'new record')} of {topics} brought {summary.table} to version {summary.version}: "
        f"{counted(summary.inserted, 'key')} inserted, {summary.updated:,} updated, {summary.deleted:,} deleted. "
        f"{counted(summary.buckets, 'bucket')} rewritten: {counted(summary.rows, 'row')}, "
        f"{size_text(summary.written_bytes)} (Spark start {summary.start_s:.1f} s, read {summary.stage_s:.1f} s, "
        f"merge and commit {summary.merge_s:.1f} s)."
    )
    if summary.skipped_offsets:
        text += f" Skipped: {counted(summary.skipped_offsets, 'offset')}."
    return text
