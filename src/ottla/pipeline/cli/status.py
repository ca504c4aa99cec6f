"""`ottla pipeline status`: lag of tables behind their topics."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import CLIENT_ID, Command, connection_options, json_option, print_json, print_table, security
from ottla.cli.times import duration_text
from ottla.pipeline.cli.options import TableLocation, catalog_option
from ottla.pipeline.spark.session import require_extra

if TYPE_CHECKING:
    from ottla.pipeline.operations.status import TableStatus

COLUMNS = (
    *("table", "pipeline", "topic", "partition", "committed", "end", "lag", "behind"),
    *("rows", "dead letters", "last load", "note"),
)
NUMERIC = ("partition", "committed", "end", "lag", "behind", "rows", "dead letters")


@click.command(
    cls=Command,
    examples=(
        "ottla pipeline status lake",
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
@catalog_option
@json_option
@connection_options
def status(
    tables: tuple[Path | str, ...], isolation: str, catalog_url: str | None, as_json: bool, bootstrap_server: str
) -> None:
    """Show the lag of tables.

    Shows the given TABLES, or all tables below a directory. For each partition: the offset in the table, the end of the
    partition, the lag in offsets, the age of the first record that is not loaded, and the rows and dead letters of the
    table. A table that cannot be read, or was rolled back behind its newest load (which has no lag then), is listed
    with the reason, beside the others. The exit code is then 1, or 2 if this applies to all tables.
    """
    require_extra()
    from ottla.pipeline.operations.status import locate_tables, raise_unreadable, statuses

    located = locate_tables(tables, catalog_url)
    found = statuses(
        located,
        bootstrap_server,
        catalog_url=catalog_url,
        client_id=CLIENT_ID,
        isolation=isolation,
        security=security(),
    )
    if as_json:
        print_json([one.to_json() for one in found])
    elif not found or any(one.error is None or one.partitions for one in found):
        print_table(COLUMNS, [row for one in found for row in _rows(one)], right=NUMERIC)
    raise_unreadable(found)


def _rows(one: TableStatus) -> list[list[object]]:
    if one.error is not None and not one.partitions:
        return [[one.table, *["-"] * (len(COLUMNS) - 2), "can't be read"]]
    if not one.partitions:
        return [[one.table, *["-"] * (len(COLUMNS) - 2), "no load that it remembers"]]
    last = "-" if one.last_load_ms is None else f"{datetime.fromtimestamp(one.last_load_ms / 1000, UTC):%F %T}"
    return [
        [
            one.table,
            part.pipeline_id,
            part.topic,
            part.partition,
            *("-" if number is None else number for number in (part.committed, part.end, part.lag)),
            "-" if part.lag_s is None else duration_text(round(part.lag_s * 1000)),
            part.rows,
            part.dead_letters,
            last,
            part.note,
        ]
        for part in one.partitions
    ]
