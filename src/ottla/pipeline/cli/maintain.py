"""`ottla pipeline vacuum` and `compact`: maintenance of a table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from ottla.cli.command import counted, json_option, print_json, size_text
from ottla.pipeline import api
from ottla.pipeline.cli.options import TableLocation, catalog_option, parse_size
from ottla.pipeline.cli.pipeline_command import PipelineCommand

MAX_RETENTION_HOURS = 1_000_000
"""A hundred years."""


def _table_option(function: Any) -> Any:
    return click.option(
        "--table", required=True, type=TableLocation(file_okay=False), help="Directory or URL of the table."
    )(catalog_option(function))


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline vacuum --table lake/clicks --dry-run",
        "ottla pipeline vacuum --table lake/clicks --retention-hours 24 --json",
    ),
)
@_table_option
@click.option(
    "--retention-hours",
    type=click.IntRange(0, MAX_RETENTION_HOURS),
    default=168,
    show_default=True,
    help="Retention of replaced versions in hours.",
)
@click.option("--dry-run", is_flag=True, help="List the files without removing them.")
@json_option
def vacuum(table: Path | str, catalog_url: str | None, retention_hours: int, dry_run: bool, as_json: bool) -> None:
    """Remove files that a table no longer needs.

    Also those of its dead letters; loads may run at the same time. Files of killed loads are removed ten minutes after
    the last sign of life of the load. Other files are removed when they are older than the retention: those of replaced
    versions, and those without an owner.
    """
    target = api.open_table(table, catalog_url=catalog_url)
    summary = api.vacuum(target, retention=timedelta(hours=retention_hours), dry_run=dry_run)
    if as_json:
        print_json(summary.to_json())
        return
    did = "Would remove" if dry_run else "Removed"
    killed, old = counted(summary.abandoned_files, "file"), counted(summary.old_files, "old file")
    click.echo(
        f"{did} {killed} of killed loads and {old} from {summary.table}, {size_text(summary.freed_bytes)}; "
        f"{counted(len(summary.running_loads), 'load')} running."
    )


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline compact --table lake/clicks",
        "ottla pipeline compact --table lake/clicks --target-size 512MiB --json",
    ),
)
@_table_option
@click.option(
    "--target-size",
    callback=parse_size,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Size of the merged files.",
)
@json_option
def compact(table: Path | str, catalog_url: str | None, target_size: int, as_json: bool) -> None:
    """Merge small files of a table.

    Rewrites them as larger files in one commit; loads may run at the same time. The small files remain readable until a
    vacuum.
    """
    summary = api.compact(api.open_table(table, catalog_url=catalog_url), target_bytes=target_size)
    if as_json:
        print_json(summary.to_json())
        return
    click.echo(
        f"{summary.table} has {counted(summary.files_after, 'file')} in version {summary.version}, "
        f"{summary.files_before:,} before."
    )
