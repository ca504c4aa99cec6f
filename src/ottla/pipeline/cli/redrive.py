"""`ottla pipeline redrive`: dead letters of a table are decoded again and become rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ottla.cli.command import counted, json_option, print_json
from ottla.common.errors import OperatorError
from ottla.pipeline import api
from ottla.pipeline.cli.options import TableLocation, catalog_option, with_decode_options
from ottla.pipeline.cli.pipeline_command import PipelineCommand

MAX_LISTED = 10
"""Maximum number of reasons in the text."""

if TYPE_CHECKING:
    from ottla.pipeline.operations.redrive import RedriveSummary
    from ottla.pipeline.sinks.table import Table
    from ottla.pipeline.transform.decode_options import DecodeOptions


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline redrive lake/clicks --decode json --dry-run",
        "ottla pipeline redrive lake/clicks --decode csv --schema clicks.json --reason 'columns, got'",
        "ottla pipeline redrive lake.clicks --catalog http://catalog:8181 --decode json --json",
    ),
)
@click.argument("table", type=TableLocation(file_okay=False))
@click.option("--reason", default="", metavar="TEXT", help="Only dead letters with this text in their reason.")
@with_decode_options
@click.option("--dry-run", is_flag=True, help="Decode without changing the table or its dead letters.")
@catalog_option
@json_option
def redrive(
    table: Path | str,
    reason: str,
    decode_options: DecodeOptions,
    dry_run: bool,
    catalog_url: str | None,
    as_json: bool,
) -> None:
    """Decode the dead letters of a table again.

    Records in TABLE/_dead_letters that can be decoded now become rows of the table, exactly once: a redrive that is
    killed at any point and repeated neither loses nor duplicates a record. The others stay with their reason. Loads may
    run at the same time; of two concurrent redrives one is refused.

    The options for decoding are those of 'ottla pipeline load'. Runs in this process; no broker is needed.

    --json prints rows, dead_letters (that still can't be decoded), dead_letter_reasons (as stored) and present_reasons
    (of this decoding), already_loaded (records that the table had), uncommitted (of a load that did not commit its
    rows; the next load reads these records again), unselected (with another reason), columns_added, and version, null
    without new rows.
    """
    target = api.open_table(table, catalog_url=catalog_url)
    if decode_options.decode == "raw":
        _require_wanted(target)
    summary = api.redrive(target, decode_options, reason=reason, dry_run=dry_run)
    if as_json:
        print_json(summary.to_json())
    else:
        click.echo(summary_text(summary))


def _require_wanted(table: Table) -> None:
    """Raise OperatorError for a table with decoded columns, unless the command names --decode raw."""
    from ottla.pipeline.transform.columns import RESERVED_COLUMNS

    if click.get_current_context().get_parameter_source("decode") is not ParameterSource.DEFAULT:
        return
    decoded = [name for name in table.schema().names if name not in RESERVED_COLUMNS] if table.exists() else []
    if decoded:
        raise OperatorError(
            f"the table {table.location} has the column {decoded[0]!r}, decoded by loads: name the format of the "
            "values with --decode, or --decode raw for rows with null in such columns"
        )


def summary_text(summary: RedriveSummary) -> str:
    """Summary of a redrive in a few sentences."""
    letters = counted(summary.rows, "dead letter")
    if summary.dry_run:
        text = f"{letters} can be decoded and would be added to {summary.table}"
    elif summary.version is None:
        text = f"No dead letter can be added to {summary.table}"
    else:
        text = f"Added {letters} to {summary.table} as version {summary.version}"
    text += f" ({summary.seconds:.1f} s)."
    if summary.already_loaded:
        done = "would be removed" if summary.dry_run else "were removed"
        text += f" {counted(summary.already_loaded, 'dead letter')} of records in the table {done}."
    if summary.dead_letters:
        reasons = [f"{reason} ({count:,})" for reason, count in summary.present_reasons.items()]
        more = f"; and {len(reasons) - MAX_LISTED:,} more, see --json" if len(reasons) > MAX_LISTED else ""
        text += f" {summary.dead_letters:,} still can't be decoded: {'; '.join(reasons[:MAX_LISTED])}{more}."
    if summary.uncommitted:
        text += f" {summary.uncommitted:,} are of a load that did not commit; load again first."
    if summary.unselected:
        text += f" {summary.unselected:,} have another reason."
    return text
