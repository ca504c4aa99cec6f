"""`ottla search`: find records of a topic by a query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ottla.cli.command import Command, complete_topic, connection_options
from ottla.cli.schema_options import schema_options
from ottla.cli.times import Seconds
from ottla.search.decoder_names import AUTO, DECODERS
from ottla.search.scopes import BOUND_FORMS, ISOLATIONS, PARTITION_FORMS

MAX_PROCESSES = 256
_DECODER = click.Choice(list(DECODERS))


@click.command(
    cls=Command,
    examples=(
        "ottla search orders timeout                              # a word in the key, value or a header",
        "ottla search orders '\"payment failed\" !test' --from -2h --newest-first --limit 20",
        'ottla search orders \'value.user.id == 42 && headers["env"] == "prod"\' --json',
        "ottla search orders 'key ~ /^user-[0-9]+$/ || value.items.exists(i, i.price > 99.5)'",
        'ottla search orders \'value.state in ["open", "late"]\' --from 2026-11-28 --until 2026-11-29',
        "ottla search orders 'from:-1h partition:0,3-5 isolation:committed has(value.error)'",
        "ottla search counters 'key == 7' --key-decoder integer",
        "ottla search orders 'value.user.id == 42' --schema-registry http://registry:8081",
        "ottla search --resume TOKEN --limit 20                   # continue after the last match",
    ),
)
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.argument("query", default="", required=False)
@click.option("--from", "start", metavar="BOUND", help=f"Start of the search: {BOUND_FORMS}.")
@click.option("--until", metavar="BOUND", help="End of the search, exclusive, in the same forms.")
@click.option("--partition", "-p", "partitions", metavar="LIST", help=f"Only these {PARTITION_FORMS}.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Maximum number of matches.")
@click.option("--newest-first", is_flag=True, help="Print the newest matches of all partitions first.")
@click.option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    help="committed skips aborted transactions and ends before open ones  [default: uncommitted]",
)
@click.option("--key-decoder", type=_DECODER, default=AUTO, show_default=True, help="Decoder of keys.")
@click.option("--value-decoder", type=_DECODER, default=AUTO, show_default=True, help="Decoder of values.")
@schema_options
@click.option("--max-records", type=click.IntRange(min=1), help="Stop after searching this many records.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="Stop after reading this many bytes.")
@click.option("--max-seconds", type=Seconds(), help="Stop after this many seconds.")
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    help="Maximum number of worker processes; a short search needs none.  [default: one per core]",
)
@click.option("--resume", "token", metavar="TOKEN", help="Continue a search that stopped, with the token it printed.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each match.")
@click.option("--report", "report_file", type=click.Path(dir_okay=False), metavar="FILE", help="File for the report.")
@connection_options
def search(
    topic: str | None,
    query: str,
    token: str | None,
    limit: int | None,
    max_records: int | None,
    max_bytes: int | None,
    max_seconds: float | None,
    processes: int | None,
    as_json: bool,
    report_file: str | None,
    bootstrap_server: str,
    **choice: Any,
) -> None:
    """Find the records of a topic that match a query.

    A query is a list of words, "phrases" and comparisons such as value.user.id == 42, joined by spaces, &&, || and !.
    Without a query every record matches. The end offsets are fixed at the start. Matches go to standard output;
    progress and the final report go to standard error.
    """
    if (topic is None) == (token is None):
        raise click.UsageError("give a topic, or --resume with a token")
    from ottla.cli.search_results import find  # imported here: help needs no client

    budget = (max_records, max_bytes, max_seconds)
    choice["processes"] = processes
    report, failure = find(bootstrap_server, topic, query, token, limit, budget, choice, as_json=as_json)
    if report_file is not None:
        Path(report_file).write_text(json.dumps(report.as_json(), ensure_ascii=False, indent=2) + "\n")
    if failure is not None:
        raise failure
