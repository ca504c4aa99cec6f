"""Shared parts of commands: signal handling, examples in help, common options, tables and JSON output.

Commands raise exceptions; `ottla.app.ending` maps them to messages and exit codes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click
from click.core import ParameterSource

from ottla.common.errors import ErrorCode, KafkaError, OttlaError
from ottla.common.kafka.ids import MIN_NODE_ID
from ottla.common.kafka.integers import MAX_INT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ottla.client.admin.cluster import Cluster
    from ottla.client.wire.security import ClientSecurity

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
CLIENT_ID = "ottla-cli"
COMPLETION_TIMEOUT_S = 1.0
PROFILE = "--profile"
COMMAND_CONFIG = "--command-config"
BROKER_ID = click.IntRange(MIN_NODE_ID, MAX_INT)
"""Valid values of `node.id`."""
_PROPERTIES = "client properties"

F = TypeVar("F", bound=Callable[..., Any])


_ENDLESS = "ottla.cli.command.endless"


class Command(click.Command):
    """A command with an "Examples" section in its help; signals interrupt it cleanly."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples verbatim: wrapped lines could not be copied."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with interruptible():
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as error:
                if error.args != (signal.SIGTERM,) or not ctx.meta.get(_ENDLESS):
                    raise
                return None


class Group(click.Group):
    """A group with subcommands of `Command`, and other names of them that the help does not list."""

    command_class = Command

    def __init__(self, *args: Any, aliases: Mapping[str, str] = MappingProxyType({}), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = {"ls": "list", **aliases}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or of the name that this one is short for."""
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in self.aliases:
            return self.get_command(ctx, self.aliases[cmd_name])
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as in any group; an error suggests a command in the words of other suggestions."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            from ottla.common.suggestion import did_you_mean

            raise click.UsageError(f"No such command {name!r}{did_you_mean(name, self.commands) or '.'}", ctx)
        return super().resolve_command(ctx, args)


def run_until_terminated() -> None:
    """Let SIGTERM end the current command with exit code 0, as `ottla start`.

    For a command without an end of its own: a service manager stops it by this signal, and nothing is left undone.
    """
    click.get_current_context().meta[_ENDLESS] = True


ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Convert the first terminating signal into KeyboardInterrupt, so that open resources are closed: a consumer leaves
    its group, a producer flushes its queue, Spark stops. A second signal ends the process immediately. An ignored
    signal stays ignored (nohup).
    """
    plain: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        plain = [number for number in ENDING_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def as_before() -> None:
        for number in plain:
            signal.signal(number, signal.SIG_DFL)

    def interrupt(number: int, _: object) -> NoReturn:
        as_before()
        raise KeyboardInterrupt(number)

    for number in plain:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        as_before()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer a signal until the end of the block, which would leave a running process behind if it were interrupted.

    A second signal ends the process immediately, as with `interruptible`, because the block may hang. A terminal sends
    the signal to child processes too, so an error of the block may be a consequence of the signal.
    """
    heard: list[int] = []

    def on_signal(number: int, _: object) -> None:
        if heard:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        heard.append(number)

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING_SIGNALS:
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:  # do not replace PySpark's own Ctrl-C handler
                signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])


def connection_options(function: F) -> F:
    """`--bootstrap-server`, `--command-config` and `--profile`, which `open_cluster` and `security` read.

    Precedence: each of these options overrides the next ones, property by property; the command line overrides the
    environment. The profile `default` applies only to commands that use none of them: its secrets are for its own
    servers.
    """
    profile = click.option(
        PROFILE,
        envvar="OTTLA_PROFILE",
        show_envvar=True,
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_remember,
        shell_complete=_complete_profile,
        help="Client profile in ~/.config/ottla/NAME.properties; by default, the profile named default.",
    )
    command_config = click.option(
        COMMAND_CONFIG,
        envvar="OTTLA_COMMAND_CONFIG",
        show_envvar=True,
        type=click.Path(readable=False),
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="File with client properties of Kafka's tools: security.protocol, ssl.*, sasl.*.",
    )
    bootstrap_server = click.option(
        "--bootstrap-server",
        "-b",
        envvar="OTTLA_BOOTSTRAP_SERVER",
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        show_envvar=True,
        metavar="HOST[:PORT],...",
        callback=_choose_servers,
        help="One or more brokers, separated by commas; the default port is 9092.",
    )
    return profile(command_config(bootstrap_server(function)))


class _Option(NamedTuple):
    """A properties file or a profile."""

    value: str
    is_typed: bool
    """True for the command line, false for the environment."""


class _Properties(NamedTuple):
    """The client properties of a command."""

    values: Mapping[str, str]
    place: str
    """The sources, for messages."""
    is_typed: bool


def _remember(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ctx.meta[parameter.opts[0]] = None if value is None else _Option(value, typed)


def _choose_servers(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Bootstrap servers by precedence: the option, typed files or profiles, the environment, other properties. Raises
    OperatorError."""
    source = ctx.get_parameter_source("bootstrap_server")
    if source is ParameterSource.COMMANDLINE:
        return value
    properties = _properties(ctx)
    servers = properties.values.get("bootstrap.servers", "").strip()
    return servers if servers and (properties.is_typed or source is ParameterSource.DEFAULT) else value


def _properties(ctx: click.Context) -> _Properties:
    """The client properties of this command, read once. Raises OperatorError."""
    found = ctx.meta.get(_PROPERTIES)
    if found is None:
        found = ctx.meta[_PROPERTIES] = _read_properties(ctx)
    return found


def _read_properties(ctx: click.Context) -> _Properties:
    from ottla.client.wire.profiles import DEFAULT as DEFAULT_PROFILE
    from ottla.client.wire.profiles import default_profile, read_profile
    from ottla.common.config.properties import load_properties

    file: _Option | None = ctx.meta.get(COMMAND_CONFIG)
    profile: _Option | None = ctx.meta.get(PROFILE)
    if file is None and profile is None:
        from_elsewhere = ctx.get_parameter_source("bootstrap_server") is not ParameterSource.DEFAULT
        values = None if from_elsewhere else default_profile()
        return _Properties(values or {}, f"the profile {DEFAULT_PROFILE}", is_typed=False)
    typed = any(option is not None and option.is_typed for option in (file, profile))
    named: dict[str, str] = {}
    places = []
    if profile is not None and profile.is_typed == typed:
        named |= read_profile(profile.value)
        places.append(f"the profile {profile.value}")
    if file is not None and file.is_typed == typed:
        named |= load_properties(file.value, COMMAND_CONFIG)
        places.append(file.value)
    return _Properties(named, " and ".join(places), typed)


def _complete_profile(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ottla.client.wire.profiles import profile_names

    return [CompletionItem(name) for name in profile_names() if name.startswith(incomplete)]


def security(ctx: click.Context | None = None) -> ClientSecurity:
    """Security settings from the options of the running command, or of `ctx`. Raises OperatorError."""
    from ottla.client.wire.security import PLAINTEXT, parse_security

    ctx = ctx or click.get_current_context(silent=True)
    if ctx is None:
        return PLAINTEXT
    properties = _properties(ctx)
    return parse_security(properties.values, properties.place)


def client_properties() -> tuple[Mapping[str, str], str]:
    """The client properties of the running command, and their source for messages. Raises OperatorError."""
    properties = _properties(click.get_current_context())
    return properties.values, properties.place


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def settings_option(*names: str, help_text: str) -> Callable[[F], F]:
    """A repeatable option of the form NAME=VALUE; the function receives a dict."""
    return click.option(*names, multiple=True, metavar="NAME=VALUE", callback=_parse_settings, help=help_text)


def parse_assignments(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Arguments or options of the form NAME=VALUE as a dict. Raises BadParameter."""
    return _parse_settings(ctx, parameter, values)


def _parse_settings(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE", ctx, parameter)
        settings[name.strip()] = text
    return settings


def counted(count: int, noun: str) -> str:
    """`1 record`, `2,500 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size_text(size_bytes: int) -> str:
    """A size in the largest decimal unit below it: `5 bytes`, `1.5 kB`, `12.0 MB`."""
    if size_bytes < 1000:
        return counted(size_bytes, "byte")
    return f"{size_bytes / 1e3:,.1f} kB" if size_bytes < 1e6 else f"{size_bytes / 1e6:,.1f} MB"


def program() -> str:
    """The command name to type in this shell: `ottla` if it is on PATH, otherwise the path that was typed."""
    import shlex
    import shutil

    typed = sys.argv[0]
    if os.path.basename(typed) != "ottla":
        return f"{shlex.quote(sys.executable)} -m ottla"
    found = shutil.which("ottla")
    return "ottla" if found is not None and os.path.samefile(found, typed) else shlex.quote(typed)


def notify(text: str) -> None:
    """Print a progress message to standard error."""
    click.echo(f"ottla: {text}", err=True)


def open_cluster(bootstrap_server: str) -> Cluster:
    """A cluster client, for a `with` statement."""
    from ottla.client.admin.cluster import Cluster

    return Cluster(bootstrap_server, client_id=CLIENT_ID, security=security())


def partition_count(cluster: Cluster, topic: str, partitions: Iterable[int]) -> int:
    """The number of partitions of a topic. Raises KafkaError unless these are among them."""
    count = len(cluster.topics.get(topic).partitions)
    for partition in partitions:
        if partition >= count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}",
            )
    return count


def complete_topic(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topic names for shell completion; empty when no broker answers in time."""
    return complete_from(ctx, incomplete, lambda cluster: cluster.topics.all())


def complete_group(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Group ids for shell completion; empty when no broker answers in time."""
    return complete_from(ctx, incomplete, lambda cluster: [listing.group_id for listing in cluster.groups.find()])


def complete_from(
    ctx: click.Context, incomplete: str, names_of: Callable[[Cluster], Iterable[str]]
) -> list[CompletionItem]:
    """Names of one kind in a cluster. Names with control characters are omitted: a shell prints them unescaped."""
    from click.shell_completion import CompletionItem

    from ottla.client.admin.cluster import Cluster

    bootstrap_server = ctx.params.get("bootstrap_server") or os.environ.get(
        "OTTLA_BOOTSTRAP_SERVER", DEFAULT_BOOTSTRAP_SERVER
    )
    try:
        settings = security(ctx)
        with Cluster(
            bootstrap_server, client_id=CLIENT_ID, timeout_s=COMPLETION_TIMEOUT_S, security=settings
        ) as cluster:
            names = names_of(cluster)
    except OttlaError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def print_json(value: object, indent: int | None = 2) -> None:
    """Print JSON with an indent, or on one line without; non-ASCII characters are not escaped."""
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=indent))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print a rich table with shortened names on a terminal, and plain aligned columns in full to a pipe.

    `right` names the columns to align right.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        from ottla.cli.terminal_table import print_on_terminal  # imported here: rich takes long to load

        print_on_terminal(columns, cells, right)
        return
    widths = [max(len(column), *(len(row[i]) for row in cells), 0) for i, column in enumerate(columns)]
    for line in ([column.upper() for column in columns], *cells):
        padded = (
            text.rjust(width) if column in right else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        click.echo("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (tuple, list)):
        return ",".join(str(item) for item in value)
    return str(value)
