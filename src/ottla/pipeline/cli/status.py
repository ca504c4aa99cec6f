"""`ottla pipeline status`: lag of tables behind their topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import connection_options, json_option, print_table, security
from ottla.common.durations import duration_text
from ottla.pipeline import api
from ottla.pipeline.cli.options import TableLocation, catalog_option
from ottla.pipeline.cli.pipeline_command import PipelineCommand, print_report

if TYPE_CHECKING:
    from ottla.pipeline.operations.status import PartitionStatus, TableStatus

SUMMARY = ("table", "pipeline", "topic", "partitions", "lag", "behind", "rows", "dead letters", "last load", "note")
DETAILS = (
    *("table", "pipeline", "topic", "partition", "committed", "end", "lag", "behind"),
    *("rows", "dead letters", "last load", "note"),
)
NUMERIC = ("partitions", "partition", "committed", "end", "lag", "behind", "rows", "dead letters")


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline status lake",
        "ottla pipeline status lake/clicks --partitions",
        "ottla pipeline status lake/clicks lake/orders --json",
        "ottla pipeline status lake.clicks --catalog http://catalog:8181",
    ),
)
@click.argument("tables", nargs=-1, required=True, type=TableLocation())
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="End of a partition for the lag: last stable offset or high watermark.",
)
@click.option("--partitions", "by_partition", is_flag=True, help="Show each partition instead of one row per topic.")
@catalog_option
@json_option
@connection_options
def status(
    tables: tuple[Path | str, ...],
    isolation: str,
    by_partition: bool,
    catalog_url: str | None,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Show the lag of tables.

    Shows the given TABLES, or all tables below a directory. For each topic of a table: the lag in offsets, the age of
    the oldest record that is not loaded, and the rows and dead letters of the table. The largest lag is first, unknown
    lags are last. With --partitions or --json: the same for each partition, with the offset in the table and the end of
    the partition; --json lists them by table. A table that cannot be read, or was rolled back behind its newest load
    (which has no lag then), is listed with the reason, beside the others. The exit code is then 1, or 2 if this applies
    to all tables and a retry can't help.
    """
    found = api.status(
        *tables,
        bootstrap_servers=bootstrap_server,
        catalog_url=catalog_url,
        isolation=isolation,
        security=security(),
    )
    if as_json:
        print_report([one.to_json() for one in found])
    elif not found or any(one.error is None or one.partitions for one in found):
        columns = DETAILS if by_partition else SUMMARY
        rows = [row for one in found for row in table_rows(one, len(columns), by_partition=by_partition)]
        print_table(columns, by_lag(rows, columns.index("lag")), right=NUMERIC)
    from ottla.pipeline.operations.status import raise_unreadable

    raise_unreadable(found)


def by_lag(rows: Sequence[list[object]], position: int) -> list[list[object]]:
    """The rows with the largest lag first, `position` is that of the lag; those without a known one last."""

    def lag(row: list[object]) -> int:
        found = row[position]
        return found if isinstance(found, int) else -1

    return sorted(rows, key=lag, reverse=True)


def table_rows(one: TableStatus, column_count: int, *, by_partition: bool) -> Iterator[list[object]]:
    """Rows of one table, one for each partition or topic; None is unknown."""
    if not one.partitions:
        note = "no load that it remembers" if one.error is None else "can't be read"
        yield [one.table, *["-"] * (column_count - 2), note]
        return
    last = "-" if one.last_load_ms is None else f"{datetime.fromtimestamp(one.last_load_ms / 1000, UTC):%F %T}"
    if by_partition:
        for part in one.partitions:
            offsets = (part.partition, part.committed, part.end)
            yield [one.table, part.pipeline_id, part.topic, *offsets, *_totals([part]), last, part.note]
        return
    for (pipeline_id, topic), parts in groupby(one.partitions, key=lambda part: (part.pipeline_id, part.topic)):
        of_topic = list(parts)
        yield [one.table, pipeline_id, topic, len(of_topic), *_totals(of_topic), last, _notes(of_topic)]


def _totals(parts: Sequence[PartitionStatus]) -> list[object]:
    """Lag, age of the oldest record that is not loaded, rows and dead letters; None where unknown for all."""
    lags = [part.lag for part in parts if part.lag is not None]
    ages = [part.lag_s for part in parts if part.lag_s is not None]
    rows = [part.rows for part in parts if part.rows is not None]
    return [
        sum(lags) if lags else None,
        duration_text(round(max(ages) * 1000)) if ages else None,
        sum(rows) if rows else None,
        sum(part.dead_letters for part in parts),
    ]


def _notes(parts: Sequence[PartitionStatus]) -> str:
    """Each different note, with its number of partitions unless it applies to all."""
    counts = Counter(part.note for part in parts if part.note)
    return "; ".join(
        note if count == len(parts) else f"{note} ({count} of {len(parts)} partitions)"
        for note, count in counts.items()
    )
