"""`ottla mirror`: replication of topics to another cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import Command, json_option, notify, print_json, run_until_terminated
from ottla.cli.times import Seconds
from ottla.mirror.option_values import PLACE, SKIP, STOP

if TYPE_CHECKING:
    from ottla.client.wire.security import ClientSecurity
    from ottla.mirror.driver import Totals

COLUMNS = ("SECONDS", "RECORDS", "RECORDS/S", "MB", "MB/S", "LAG", "SKIPPED")
WIDTHS = (8, 14, 11, 10, 8, 12, 10)


def _pattern(ctx: click.Context, parameter: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    try:
        return None if value is None else re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is not a regular expression: {error}", ctx, parameter) from None


def _template(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if PLACE not in value:
        raise click.BadParameter(f"{value!r} lacks the topic name placeholder {PLACE}", ctx, parameter)
    return value


def _group(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("the group id is empty", ctx, parameter)
    return value


def _security(ctx: click.Context, parameter: click.Parameter, value: str | None) -> ClientSecurity:
    from ottla.client.wire.security import PLAINTEXT, read_security

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
@click.option(
    "--from", "source", required=True, metavar="HOST:PORT,...", help="Bootstrap servers of the source cluster."
)
@click.option("--to", "target", required=True, metavar="HOST:PORT,...", help="Bootstrap servers of the target cluster.")
@click.option(
    "--topics",
    "pattern",
    required=True,
    metavar="REGEX",
    callback=_pattern,
    help="Pattern of full topic names, also of future topics; no internal topics.",
)
@click.option(
    "--rename",
    "template",
    default=PLACE,
    show_default=True,
    metavar="TEMPLATE",
    callback=_template,
    help="Template of the topic name in the target.",
)
@click.option(
    "--groups",
    metavar="REGEX",
    callback=_pattern,
    help="Pattern of full group ids, to copy offsets of groups without members in the target.",
)
@click.option(
    "--append", is_flag=True, help="Append to target topics that already contain records from other producers."
)
@click.option("--acls", is_flag=True, help="Copy topic ACLs except WRITE.")
@click.option(
    "--share",
    metavar="GROUP",
    callback=_group,
    help="Consumer group in the source that distributes the partitions over several mirrors.",
)
@click.option(
    "--on-refused",
    type=click.Choice([STOP, SKIP]),
    default=STOP,
    show_default=True,
    help="Action for a record that the target rejects (size, timestamp, missing key): stop and report its offset and "
    "the setting to change, or skip, log and count it.",
)
@click.option("--once", is_flag=True, help="Stop at the current end of the topics.")
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(0.1),
    default=10.0,
    show_default=True,
    help="Seconds between reports.",
)
@click.option(
    "--from-config",
    "source_security",
    type=_FILE,
    metavar="FILE",
    callback=_security,
    help="File with client properties for --from: security.protocol, ssl.*, sasl.*.",
)
@click.option(
    "--to-config",
    "target_security",
    type=_FILE,
    metavar="FILE",
    callback=_security,
    help="File with client properties for --to.",
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
    """Copy topics to another cluster.

    Copies each record exactly once, until Ctrl-C. Progress is stored in the target cluster; a restarted mirror resumes
    from it. If a topic has the same number of partitions on both sides, batches are copied unchanged to the same
    partition; otherwise the partition is chosen by the hash of the key.
    """
    from ottla.mirror.driver import Mirror, Settings
    from ottla.mirror.opening import Endpoint

    wanted = Settings(**settings)
    if wanted.once and wanted.share is not None:
        raise click.UsageError(
            "--share and --once exclude each other: a mirror that stops leaves its partitions to the others"
        )
    if not wanted.once:
        run_until_terminated()
    report = _Report(as_json=as_json)
    Mirror(Endpoint(source, source_security), Endpoint(target, target_security), wanted, notify, report).run()


class _Report:
    """Prints progress lines to standard output, with the rates since the previous line."""

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
