"""`ottla pipeline sql`: queries over loaded tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ottla.cli.command import Command, json_option, print_json, print_table
from ottla.pipeline.cli.options import catalog_option, conf_option, master_option
from ottla.pipeline.session import open_session, require_extra


@click.command(
    cls=Command,
    examples=(
        'ottla pipeline sql "select partition, count(*) from clicks group by 1" --table lake/clicks',
        'ottla pipeline sql "select cast(value as string) from records limit 5" --table lake/clicks --json',
    ),
)
@click.argument("statement")
@click.option(
    "--table",
    "tables",
    multiple=True,
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of a table; may be repeated.",
)
@catalog_option
@master_option
@conf_option
@json_option
def sql(
    statement: str,
    tables: tuple[Path, ...],
    catalog_url: str | None,
    master: str,
    conf: Mapping[str, str],
    as_json: bool,
) -> None:
    """Run one Spark SQL query over loaded tables; a statement that would write is refused.

    A table is visible under the name of its directory, a single one also as `records`. Columns: topic, partition,
    offset, timestamp, timestamp_type, key, value, headers. Binary columns are printed as UTF-8, other bytes as \\xNN.
    """
    require_extra()
    from ottla.pipeline.query import register_tables, run_sql
    from ottla.pipeline.sinks.open_table import open_table

    targets = [open_table(path, catalog_url=catalog_url) for path in tables]
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
