"""What every command shares: error handling and exit codes, examples in the help, common options, tables and JSON.

Exit codes: 0 done (also when the reader of a pipe went away: it had enough), 1 it failed, 2 the usage or the
environment is wrong (an unknown option, a broker that can't be reached), 130 interrupted. A failure prints one sentence
on standard error, never a traceback. Errors that nobody raised on purpose are defects and do show their traceback.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ottla.client.cluster import Cluster
from ottla.common.errors import OperatorError, OttlaError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
CLIENT_ID = "ottla-cli"
COMPLETION_TIMEOUT_S = 1.0

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """A command with an "Examples" section, whose failures end as the module says."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they stand: wrapping would break what one wants to copy."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and turn what it raises into a sentence and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except OttlaError as error:
            text = str(error)
            click.echo(f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}", err=True)
            ctx.exit(EXIT_USAGE if isinstance(error, OperatorError) else EXIT_FAILURE)
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


class Group(click.Group):
    """A group whose commands are of `Command`."""

    command_class = Command


def _forget_stdout() -> None:
    """Point standard output to nowhere, or the interpreter complains when it flushes at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # standard output is no file: a test runner's buffer
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def bootstrap_option(function: F) -> F:
    """`--bootstrap-server`, from the environment when it isn't given."""
    return click.option(
        "--bootstrap-server",
        "-b",
        envvar="OTTLA_BOOTSTRAP_SERVER",
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,...",
        help="One or more brokers of the cluster.",
    )(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def settings_option(*names: str, help_text: str) -> Callable[[F], F]:
    """An option of the form NAME=VALUE that may be given several times; the function gets a dict."""
    return click.option(*names, multiple=True, metavar="NAME=VALUE", callback=_parse_settings, help=help_text)


def _parse_settings(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE", ctx, parameter)
        settings[name.strip()] = text
    return settings


def megabytes(size_bytes: int) -> str:
    """Decimal megabytes with one digit."""
    return f"{size_bytes / 1e6:,.1f} MB"


def open_cluster(bootstrap_server: str, timeout_s: float = 30.0) -> Cluster:
    """A client of the cluster, for a `with` statement."""
    return Cluster(bootstrap_server, client_id=CLIENT_ID, timeout_s=timeout_s)


def complete_topic(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topic names for the shell; nothing when no broker answers at once."""
    bootstrap_server = ctx.params.get("bootstrap_server") or os.environ.get(
        "OTTLA_BOOTSTRAP_SERVER", DEFAULT_BOOTSTRAP_SERVER
    )
    try:
        with open_cluster(bootstrap_server, COMPLETION_TIMEOUT_S) as cluster:
            names = cluster.topics()
    except OttlaError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_group(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Group ids for the shell; nothing when no broker answers at once."""
    bootstrap_server = ctx.params.get("bootstrap_server") or os.environ.get(
        "OTTLA_BOOTSTRAP_SERVER", DEFAULT_BOOTSTRAP_SERVER
    )
    try:
        with open_cluster(bootstrap_server, COMPLETION_TIMEOUT_S) as cluster:
            names = [listing.group_id for listing in cluster.groups()]
    except OttlaError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def print_json(value: object) -> None:
    """Indented, with every character as itself."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """A table on a terminal; plain aligned columns, never cut off, for a pipe. `right` names columns to align right."""
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(columns, cells, right)
        return
    widths = [max(len(column), *(len(row[i]) for row in cells), 0) for i, column in enumerate(columns)]
    for line in ([column.upper() for column in columns], *cells):
        padded = (
            text.rjust(width) if column in right else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        click.echo("  ".join(padded).rstrip())


def _print_rich_table(columns: Sequence[str], cells: list[list[str]], right: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (tuple, list)):
        return ",".join(str(item) for item in value)
    return str(value)
