"""`ottla mirror`: copy topics to another cluster."""

from __future__ import annotations

import re
from typing import Any

import click

from ottla.cli.command import Command, json_option, print_json, tell
from ottla.cli.times import Seconds
from ottla.client.wire.security import PLAINTEXT, ClientSecurity, read_security
from ottla.mirror.driver import Mirror, Settings, Totals
from ottla.mirror.opening import Endpoint
from ottla.mirror.refusals import SKIP, STOP
from ottla.mirror.routes import PLACE

COLUMNS = ("SECONDS", "RECORDS", "RECORDS/S", "MB", "MB/S", "LAG", "SKIPPED")
WIDTHS = (8, 14, 11, 10, 8, 12, 10)


def _pattern(ctx: click.Context, parameter: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    try:
        return None if value is None else re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}", ctx, parameter) from None


def _template(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if PLACE not in value:
        raise click.BadParameter(f"{value!r} lacks {PLACE}, for the name that a topic has", ctx, parameter)
    return value


def _group(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("the id of a group can't be empty", ctx, parameter)
    return value


def _security(ctx: click.Context, parameter: click.Parameter, value: str | None) -> ClientSecurity:
    return PLAINTEXT if value is None else read_security(value, parameter.opts[0])


_FILE = click.Path(readable=False)


@click.command(
    "mirror",
    cls=Command,
    examples=(
        "ottla mirror --from old:9092 --to new:9092 --topics 'clicks|orders' --once",
        "ottla mirror --from paris:9092 --to berlin:9092 --topics '.*' --rename 'paris.{topic}'",
        "ottla mirror --from old:9092 --to new:9092 --topics 'pay.*' --groups '.*'",
        "ottla mirror --from old:9092 --to new:9092 --topics 'pay.*' --share mirrors",
        "ottla mirror --from old:9092 --to new:9092 --topics 'pay.*' --on-refused skip",
        "ottla mirror --from a:9093 --from-config a.properties --to b:9092 --topics 'pay.*' --json",
    ),
)
@click.option("--from", "source", required=True, metavar="HOST:PORT,...", help="The cluster to copy from.")
@click.option("--to", "target", required=True, metavar="HOST:PORT,...", help="The cluster to copy to.")
@click.option(
    "--topics",
    "pattern",
    required=True,
    metavar="REGEX",
    callback=_pattern,
    help="Topics whose whole name matches, also those that come; no internal ones.",
)
@click.option(
    "--rename",
    "template",
    default=PLACE,
    show_default=True,
    metavar="TEMPLATE",
    callback=_template,
    help="The name of a topic in the target.",
)
@click.option(
    "--groups",
    metavar="REGEX",
    callback=_pattern,
    help="Carry over the offsets of groups whose whole id matches, for as long as they have no members in the target.",
)
@click.option(
    "--append", is_flag=True, help="Copy also into topics that hold records of which no mirror knows, behind these."
)
@click.option("--acls", is_flag=True, help="Copy ACLs that name a topic, but for leave to write there.")
@click.option(
    "--share",
    metavar="GROUP",
    callback=_group,
    help="Share the work with all mirrors that name this consumer group of the source.",
)
@click.option(
    "--on-refused",
    type=click.Choice([STOP, SKIP]),
    default=STOP,
    show_default=True,
    help="For a record that the target refuses (size, timestamp, missing key): end with its offset and the setting to "
    "change, or log it, count it and copy the rest.",
)
@click.option("--once", is_flag=True, help="Stop at what is the end now.")
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(0.1),
    default=10.0,
    show_default=True,
    help="Seconds between two reports.",
)
@click.option(
    "--from-config",
    "source_security",
    type=_FILE,
    metavar="FILE",
    callback=_security,
    help="Client properties for --from as Apache Kafka's tools take them: security.protocol, ssl.*, sasl.*.",
)
@click.option(
    "--to-config", "target_security", type=_FILE, metavar="FILE", callback=_security, help="The same for --to."
)
@json_option
def mirror(
    source: str,
    target: str,
    source_security: ClientSecurity,
    target_security: ClientSecurity,
    as_json: bool,
    **settings: Any,
) -> None:
    """Copy topics to another cluster, each record exactly once, until Ctrl-C.

    How far it came is kept in the target, so that it goes on there after any end. Where a topic has as many partitions
    on both sides, batches pass as they are; else records go by the hash of their key.
    """
    wanted = Settings(**settings)
    if wanted.once and wanted.share is not None:
        raise click.UsageError("--share is for mirrors that stay: who stops --once leaves work to the others; omit one")
    report = _Report(as_json=as_json)
    Mirror(Endpoint(source, source_security), Endpoint(target, target_security), wanted, tell, report).run()


class _Report:
    """Lines on standard output, with the rates since the one before."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._before = (0.0, 0, 0)
        self._begun = False

    def __call__(self, totals: Totals) -> None:
        elapsed_s, records, size = totals.elapsed_s, totals.records, totals.bytes
        seconds = max(elapsed_s - self._before[0], 1e-3)
        rates = (records - self._before[1]) / seconds, (size - self._before[2]) / seconds
        self._before = elapsed_s, records, size
        lag = sum(totals.lags.values())
        skipped = sum(totals.skipped.values())
        if self._as_json:
            print_json(
                {
                    "elapsed_s": round(elapsed_s, 3),
                    "records": records,
                    "bytes": size,
                    "transactions": totals.transactions,
                    "records_per_s": round(rates[0], 1),
                    "bytes_per_s": round(rates[1], 1),
                    "lag": lag,
                    "lags": {f"{topic}-{index}": each for (topic, index), each in sorted(totals.lags.items())},
                    "skipped": skipped,
                    "skipped_records": {
                        f"{topic}-{index}": each for (topic, index), each in sorted(totals.skipped.items()) if each
                    },
                },
                indent=None,
            )
            return
        if not self._begun:
            self._begun = True
            click.echo(_line(COLUMNS))
        cells = (
            f"{elapsed_s:.1f}",
            f"{records:,}",
            f"{rates[0]:,.0f}",
            f"{size / 1e6:,.1f}",
            f"{rates[1] / 1e6:,.1f}",
            f"{lag:,}",
            f"{skipped:,}",
        )
        click.echo(_line(cells))


def _line(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))
