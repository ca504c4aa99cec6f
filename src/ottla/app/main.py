"""The command `ottla`: `start`, and the command groups of the tools.

Groups are imported when they are called, so that `ottla start` loads no client library and a tool loads no broker, and
the short texts of `ottla --help` stand here for the same reason.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any, NamedTuple

import click

from ottla import __version__
from ottla.app.ending import ending
from ottla.app.logging import FORMATS, LEVELS
from ottla.app.streams import prepare_streams
from ottla.common.suggestion import did_you_mean


class Mounted(NamedTuple):
    """A command that lives elsewhere."""

    module: str
    attribute: str
    short_help: str


MOUNTED = {
    "acl": Mounted("ottla.cli.acl", "acl", "Allow and deny principals what they do."),
    "adopt": Mounted("ottla.app.adoption.command", "adopt", "Check whether a directory of Apache Kafka can be served."),
    "cluster": Mounted(
        "ottla.app.epoch_repair", "cluster", "Describe the cluster, set features, elect leaders, move replicas."
    ),
    "completion": Mounted("ottla.cli.completion", "completion", "Print the completion script for a shell."),
    "config": Mounted("ottla.cli.config", "config", "Describe and alter settings of topics and brokers."),
    "consume": Mounted("ottla.cli.consume", "consume", "Print the records of a topic."),
    "group": Mounted("ottla.cli.group", "group", "List, describe, reset and delete consumer groups."),
    "log": Mounted("ottla.app.log_cleaner", "log", "Look into segment files and data directories."),
    "mirror": Mounted("ottla.mirror.command", "mirror", "Copy topics to another cluster, exactly once."),
    "pipeline": Mounted("ottla.pipeline.cli", "pipeline", "Load topics into lake tables with PySpark, and query them."),
    "produce": Mounted("ottla.cli.produce", "produce", "Send lines as records to a topic."),
    "quota": Mounted("ottla.cli.quota", "quota", "Set, describe and remove quotas of users, clients and addresses."),
    "security": Mounted("ottla.cli.security", "security", "Make keys, certificates and settings of TLS."),
    "topic": Mounted("ottla.cli.topic", "topic", "Create, list, describe, alter, trim and delete topics."),
    "txn": Mounted("ottla.cli.txn", "txn", "List, describe and abort transactions, and find those that hang."),
    "token": Mounted("ottla.cli.token", "token", "Create, renew, expire and list delegation tokens."),
    "user": Mounted("ottla.cli.user", "user", "Add, list and remove users with passwords for SCRAM."),
}


class RootGroup(click.Group):
    """A group whose mounted commands are imported on use, and all of whose commands end as `ottla.app.ending` says."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the options before the command; the help is printed here."""
        with ending():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Import, parse and run the command."""
        with ending():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted([*self.commands, *MOUNTED])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now if it is mounted."""
        mounted = MOUNTED.get(cmd_name)
        if mounted is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(mounted.module), mounted.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As of any group; the name that was meant may be a mounted one, too."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {args[0]!r}{did_you_mean(args[0], names) or '.'}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list for the help without importing what is mounted."""
        rows = [(name, command.get_short_help_str(limit=80)) for name, command in self.commands.items()]
        rows += [(name, mounted.short_help) for name, mounted in MOUNTED.items()]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from ottla.record.walk import IMPLEMENTATION

        click.echo(f"ottla {__version__} (record module: {IMPLEMENTATION}, Python {sys.version.split()[0]})")
        ctx.exit()


CONTEXT_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "color": True,  # or click cuts escape sequences out of names on their way to a pipe; Ottla colours nothing by it
}


@click.group(cls=RootGroup, context_settings=CONTEXT_SETTINGS)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
def cli() -> None:
    """A commit log that speaks the Kafka wire protocol, with a data pipeline on PySpark."""


def _parse_settings(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE", ctx, parameter)
        settings[name.strip()] = text.strip()
    return settings


class GivenPath(click.Path):
    """A path that is not empty, as by a shell's variable that is not set."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`."""
        if value == "":
            self.fail("the path is empty", parameter, ctx)
        return super().convert(value, parameter, ctx)


PORT = click.IntRange(0, 65535)
PATH = GivenPath(readable=False)
"""Whether it can be read is for the broker to find out, whose words name the way out."""
START_EPILOG = """\b
Examples:
  ottla start
  ottla start --data-dir /var/lib/ottla --port 9092
  ottla start --config server.properties --set log.retention.hours=24
  ottla start --brokers 3 --data-dir ./ottla-cluster
  ottla start --brokers 3 --data-dir ./ottla-cluster --replace-node 2
  ottla start --port 0 --ready-file ready.json --metrics-port 9404
  ottla start --config server.properties --metrics-port 9404 --metrics-token-file ./metrics.token
"""


@cli.command(epilog=START_EPILOG)
@click.option("--config", type=PATH, metavar="FILE", help="A server.properties file.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_settings,
    help="A broker setting; wins over the file; may be repeated.",
)
@click.option("--data-dir", type=PATH, metavar="DIR", help="Where the data is kept  [default: ./ottla-data]")
@click.option("--port", type=PORT, help="Port of the plaintext listener; 0 takes a free one  [default: 9092]")
@click.option("--ready-file", type=PATH, metavar="FILE", help="Write addresses as JSON there once ready.")
@click.option("--metrics-port", type=PORT, help="Serve Prometheus metrics on this port; 0 takes a free one.")
@click.option("--metrics-token-file", type=PATH, metavar="FILE", help="Who asks for metrics has to show what it holds.")
@click.option("--brokers", type=click.IntRange(1, 64), metavar="N", help="Run a cluster of N brokers on this machine.")
@click.option(
    "--replace-node",
    type=int,
    multiple=True,
    metavar="ID",
    help="With --brokers: the disk of this one is lost; it begins anew, as an observer, and fetches from the others.",
)
@click.option("--stop-with-pipe", type=int, hidden=True, help="Stop at the end of file of this descriptor.")
@click.option("--audit-log", type=PATH, metavar="FILE", help="Append what the authorizer refuses, and changes, there.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Least level shown.")
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help="Form of the log.")
def start(**options: Any) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    gc.disable()  # what is imported stays, and looking through it again and again would take 9 of 157 ms
    from ottla.app.start import StartOptions, run

    sys.exit(run(StartOptions(**options)))


FORMAT_EPILOG = """\b
Examples:
  ottla format --config server.properties --standalone
  ottla format --config server.properties --cluster-id 2v6DyEs_QqqMYFjaPzw5Ow
  ottla format --config server.properties --cluster-id 2v6DyEs_QqqMYFjaPzw5Ow --no-initial-controllers
  ottla format --config server.properties --cluster-id 2v6DyEs_QqqMYFjaPzw5Ow \\
    --initial-controllers 1@a:9093:JEXY6aqzQY-32P5TStzaFg,2@b:9093:4l9ywY1rQHa3yjT1JlPKyw,...
  ottla format --config server.properties --standalone --release-version 3.9 --feature group.version=0
  ottla format --config server.properties --standalone --add-scram 'SCRAM-SHA-512=[name=admin,password=secret]'
"""


@cli.command("format", epilog=FORMAT_EPILOG)
@click.option("--config", type=PATH, metavar="FILE", help="A server.properties file.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_settings,
    help="A broker setting; wins over the file; may be repeated.",
)
@click.option("--data-dir", type=PATH, metavar="DIR", help="The directory to format  [default: ./ottla-data]")
@click.option("--cluster-id", metavar="ID", help="The cluster's id, the same for all its nodes.")
@click.option("--standalone", is_flag=True, help="A new cluster, of which this node is the only voter at first.")
@click.option(
    "--initial-controllers", metavar="ID@HOST:PORT:DIRECTORYID,...", help="The first voters of a new cluster."
)
@click.option("--no-initial-controllers", is_flag=True, help="The cluster is there already, or this is a broker only.")
@click.option("--release-version", metavar="VERSION", help="Features as in new clusters of this version, as 4.0-IV3.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    callback=_parse_settings,
    help="The level of a feature of a new cluster; wins over the version; may be repeated.",
)
@click.option(
    "--add-scram",
    multiple=True,
    metavar="MECHANISM=[name=NAME,password=PASSWORD]",
    help="A user of a new cluster, as SCRAM-SHA-512=[name=admin,password=secret]; may be repeated.",
)
def format_command(**options: Any) -> None:
    """Make the data directories of a node of a cluster; a single node needs no formatting."""
    from ottla.app.format import FormatOptions, run_format

    formatted = run_format(FormatOptions(**options))
    meta = next(iter(formatted.values()))
    click.echo(f"cluster.id={meta.cluster_id}\nnode.id={meta.node_id}")
    for path, each in formatted.items():
        click.echo(f"directory.id={each.directory_id}" + (f" ({path})" if len(formatted) > 1 else ""))


def main() -> None:
    """Run the command of this process; `ottla.__main__` calls it."""
    prepare_streams()
    cli(prog_name="ottla")
