"""The `ottla` command: `start`, `format`, and the mounted command groups.

Groups are imported on first use, so that `ottla start` does not load client libraries and tools do not load the broker.
Their summaries in `ottla --help` are here for the same reason.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any, NamedTuple

import click

from ottla import __version__, build_revision
from ottla.app.ending import ending
from ottla.app.streams import prepare_streams
from ottla.common.logs import FORMATS, LEVELS
from ottla.common.suggestion import did_you_mean


class LazyCommand(NamedTuple):
    """A command in another module, imported on use."""

    module: str
    attribute: str
    short_help: str


MOUNTED = {
    "acl": LazyCommand("ottla.cli.acl", "acl", "Manage access control lists (ACLs)."),
    "adopt": LazyCommand("ottla.app.adoption.command", "adopt", "Check a Kafka data directory for adoption."),
    "backup": LazyCommand("ottla.app.backup.command", "backup_command", "Copy the data of a node or local cluster."),
    "client-metrics": LazyCommand("ottla.cli.client_metrics", "client_metrics", "Manage metrics that clients push."),
    "cluster": LazyCommand("ottla.app.epoch_repair", "cluster", "Manage brokers, quorum and replicas."),
    "completion": LazyCommand("ottla.cli.completion", "completion", "Print a shell completion script."),
    "config": LazyCommand("ottla.cli.config", "config", "Manage configs of topics, brokers and groups."),
    "console": LazyCommand("ottla.console.command", "console", "Serve a web console of a cluster."),
    "consume": LazyCommand("ottla.cli.consume", "consume", "Print the records of topics."),
    "group": LazyCommand("ottla.cli.group", "group", "Manage consumer groups."),
    "log": LazyCommand("ottla.app.log_cleaner", "log", "Inspect, verify and move partition logs."),
    "mirror": LazyCommand("ottla.mirror.command", "mirror", "Copy topics to another cluster."),
    "pipeline": LazyCommand("ottla.pipeline.cli", "pipeline", "Load topics into lake tables and query them."),
    "produce": LazyCommand("ottla.cli.produce", "produce", "Produce lines as records."),
    "quota": LazyCommand("ottla.cli.quota", "quota", "Manage client quotas."),
    "restore": LazyCommand(
        "ottla.app.backup.command", "restore_command", "Restore a backup into new data directories."
    ),
    "search": LazyCommand("ottla.cli.search", "search", "Find records of a topic by a query."),
    "security": LazyCommand("ottla.cli.security", "security", "Create TLS keys, certificates and settings."),
    "share": LazyCommand("ottla.cli.share", "share", "Manage and consume share groups (queues)."),
    "top": LazyCommand("ottla.cli.top", "top", "Show the activity of a cluster, refreshed."),
    "topic": LazyCommand("ottla.cli.topic", "topic", "Manage topics."),
    "txn": LazyCommand("ottla.cli.txn", "txn", "Manage transactions."),
    "token": LazyCommand("ottla.cli.token", "token", "Manage delegation tokens."),
    "user": LazyCommand("ottla.cli.user", "user", "Manage SCRAM users."),
}


class RootGroup(click.Group):
    """Root group: imports mounted commands on use; `ottla.app.ending` handles the exceptions of all commands."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the root options; also prints the help."""
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
        """The command; a mounted one is imported now."""
        mounted = MOUNTED.get(cmd_name)
        if mounted is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(mounted.module), mounted.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as in any group, with suggestions from all names, including the mounted ones."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {args[0]!r}{did_you_mean(args[0], names) or '.'}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list of the help without importing the mounted commands."""
        rows = [(name, command.get_short_help_str(limit=80)) for name, command in self.commands.items()]
        rows += [(name, mounted.short_help) for name, mounted in MOUNTED.items()]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))


PURE_ADVICE = (
    "The compiled modules are missing, so Ottla needs more CPU time per record: install a C compiler and the headers "
    "of Python (Debian: gcc and python3-dev), then run `pip install --force-reinstall --no-deps .` in a checkout."
)


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from ottla.record.walk import IMPLEMENTATION

        revision = build_revision() or "unknown"
        python = sys.version.split()[0]
        click.echo(f"ottla {__version__} (record module: {IMPLEMENTATION}, Python {python}, revision: {revision})")
        if IMPLEMENTATION == "pure":
            click.echo(PURE_ADVICE)
        ctx.exit()


CONTEXT_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "color": True,  # otherwise click strips escape sequences from names in a pipe; Ottla prints no colours
}


@click.group(cls=RootGroup, context_settings=CONTEXT_SETTINGS)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def cli() -> None:
    """Kafka-compatible broker and data pipeline."""


def _parse_settings(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE", ctx, parameter)
        settings[name.strip()] = text.strip()
    return settings


class GivenPath(click.Path):
    """A path that must not be empty, as from an unset shell variable."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`."""
        if value == "":
            self.fail("the path is empty", parameter, ctx)
        return super().convert(value, parameter, ctx)


PORT = click.IntRange(0, 65535)
PATH = GivenPath(readable=False)
"""Without a check that the file is readable: the broker reports that with a remedy."""
START_EPILOG = """\b
Examples:
  ottla start
  ottla start --data-dir /var/lib/ottla --port 9092
  ottla start --config server.properties --set log.retention.hours=24
  ottla start --brokers 3 --data-dir ./ottla-cluster
  ottla start --brokers 3 --data-dir ./ottla-cluster --replace-node 2
  ottla start --port 0 --ready-file ready.json --metrics-port 9404
  ottla start --config server.properties --metrics-port 9404 --metrics-token-file ./metrics.token
  ottla start --console-port 8080
"""


@cli.command(epilog=START_EPILOG)
@click.option("--config", type=PATH, metavar="FILE", help="Broker configuration, a server.properties file.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_settings,
    help="Broker setting, overrides the file; may be repeated.",
)
@click.option("--data-dir", type=PATH, metavar="DIR", help="Data directory  [default: ./ottla-data]")
@click.option("--port", type=PORT, help="Port of the plaintext listener; 0 for a free one  [default: 9092]")
@click.option(
    "--ready-file", type=PATH, metavar="FILE", help="File for the listener addresses as JSON, written when ready."
)
@click.option("--metrics-port", type=PORT, help="Port for Prometheus metrics; 0 for a free one.")
@click.option(
    "--metrics-token-file", type=PATH, metavar="FILE", help="File with the bearer token required to scrape metrics."
)
@click.option(
    "--metrics-names",
    type=click.Choice(("strimzi", "reporter", "confluent")),
    default="strimzi",
    show_default=True,
    help="Spelling of metric names for dashboards.",
)
@click.option("--console-port", type=PORT, help="Port for the web console on this machine; 0 for a free one.")
@click.option(
    "--console-config",
    type=PATH,
    metavar="FILE",
    help="Client properties of the console, for a listener with TLS or SASL.",
)
@click.option("--console-masks", type=PATH, metavar="FILE", help="Mask rules of the console, a TOML file.")
@click.option("--console-tables", metavar="DIR", help="Directory or URL of tables of the pipeline, for the console.")
@click.option("--brokers", type=click.IntRange(1, 64), metavar="N", help="Number of brokers of a local cluster.")
@click.option(
    "--replace-node",
    type=int,
    multiple=True,
    metavar="ID",
    help="With --brokers: id of a broker with a lost disk, to be rebuilt from the others; may be repeated.",
)
@click.option("--stop-with-pipe", type=int, hidden=True, help="File descriptor; stop at its end of file.")
@click.option("--audit-log", type=PATH, metavar="FILE", help="Audit log file of denied requests and changes.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    help="Minimum log level  [default: info; warning for each broker of --brokers]",
)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help="Log format.")
def start(**options: Any) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    gc.disable()  # imported objects stay alive; collections at startup would take 9 of 157 ms
    from ottla.app.start import StartOptions, run

    sys.exit(run(StartOptions(**options)))


def _print_random_uuid(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from ottla.app.clock import SystemRng
        from ottla.storage.files.meta_properties import random_id

        click.echo(random_id(SystemRng()))
        ctx.exit()


FORMAT_EPILOG = """\b
Examples:
  ottla format --random-uuid
  ottla format --config server.properties --standalone
  ottla format --config server.properties --cluster-id 2v6DyEs_QqqMYFjaPzw5Ow
  ottla format --config server.properties --cluster-id 2v6DyEs_QqqMYFjaPzw5Ow --no-initial-controllers
  ottla format --config server.properties --cluster-id 2v6DyEs_QqqMYFjaPzw5Ow \\
    --initial-controllers 1@a:9093:JEXY6aqzQY-32P5TStzaFg,2@b:9093:4l9ywY1rQHa3yjT1JlPKyw,...
  ottla format --config server.properties --standalone --release-version 3.9 --feature group.version=0
  ottla format --config server.properties --standalone --add-scram 'SCRAM-SHA-512=[name=admin,password=secret]'
"""


@cli.command("format", epilog=FORMAT_EPILOG)
@click.option("--config", type=PATH, metavar="FILE", help="Broker configuration, a server.properties file.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_settings,
    help="Broker setting, overrides the file; may be repeated.",
)
@click.option("--data-dir", type=PATH, metavar="DIR", help="Data directory to format  [default: ./ottla-data]")
@click.option("--cluster-id", metavar="ID", help="Cluster id, the same for all nodes.")
@click.option("--standalone", is_flag=True, help="Create a new cluster with this node as the only initial voter.")
@click.option("--initial-controllers", metavar="ID@HOST:PORT:DIRECTORYID,...", help="Initial voters of a new cluster.")
@click.option("--no-initial-controllers", is_flag=True, help="Join an existing cluster, or format a broker-only node.")
@click.option(
    "--release-version", metavar="VERSION", help="Kafka version of the default feature levels, such as 4.0-IV3."
)
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    callback=_parse_settings,
    help="Feature level of a new cluster, overrides the version; may be repeated.",
)
@click.option(
    "--add-scram",
    multiple=True,
    metavar="MECHANISM=[name=NAME,password=PASSWORD]",
    help="SCRAM user of a new cluster, such as SCRAM-SHA-512=[name=admin,password=secret]; may be repeated.",
)
@click.option(
    "--random-uuid",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_random_uuid,
    help="Print a new cluster id or directory id, and exit.",
)
def format_command(**options: Any) -> None:
    """Format the data directories of a node.

    A single node formats its directories at the first start.
    """
    from ottla.app.format import FormatOptions, run_format

    formatted = run_format(FormatOptions(**options))
    meta = next(iter(formatted.values()))
    click.echo(f"cluster.id={meta.cluster_id}\nnode.id={meta.node_id}")
    for path, each in formatted.items():
        click.echo(f"directory.id={each.directory_id}" + (f" ({path})" if len(formatted) > 1 else ""))


def main() -> None:
    """Entry point of `ottla.__main__`."""
    prepare_streams()
    cli(prog_name="ottla")
