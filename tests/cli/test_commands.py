"""Help, usage errors and failures without a broker; nothing here shows a traceback."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from ottla.app.ending import ending
from ottla.app.main import cli
from ottla.cli.acl import acl
from ottla.cli.cluster import MAX_PLAN_BYTES, parse_plan, read_plan
from ottla.cli.command import (
    Command,
    interruptible,
    print_table,
    program,
    run_until_terminated,
    settings_option,
    uninterrupted,
)
from ottla.cli.completion import completion
from ottla.cli.config import config
from ottla.cli.consume import consume
from ottla.cli.features import features
from ottla.cli.group import group
from ottla.cli.log import log
from ottla.cli.produce import produce
from ottla.cli.topic import topic
from ottla.cli.txn import txn
from ottla.cli.user import user
from ottla.client.wire.model import BrokerInfo, PartitionInfo
from ottla.common.errors import OperatorError

ROOTS = {
    "acl": acl,
    "topic": topic,
    "config": config,
    "group": group,
    "log": log,
    "produce": produce,
    "consume": consume,
    "completion": completion,
    "txn": txn,
    "user": user,
    "cluster features": features,
}


def every_command():
    for name, command in ROOTS.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", subcommand) for sub, subcommand in command.commands.items())
        else:
            yield name, command


@pytest.fixture
def nowhere():
    """An address without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(("name", "command"), list(every_command()), ids=[name for name, _ in every_command()])
def test_every_command_has_help_with_examples_that_parse(name, command):
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert command.examples
    for example in command.examples:
        assert f"ottla {name}" in example
    assert command.help


def test_command_list_is_complete():
    names = {name for name, _ in every_command()}
    assert names >= {
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "produce",
        "consume",
        "log dump",
        "group list",
        "group describe",
        "group members",
        "group state",
        "group reset-offsets",
        "group delete-offsets",
        "group delete",
        "config describe",
        "config alter",
        "completion",
        "acl add",
        "acl list",
        "acl remove",
        "txn list",
        "txn describe",
        "txn producers",
        "txn hanging",
        "txn abort",
        "txn terminate",
        "user add",
        "user list",
        "user remove",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "t"],
        ["topic", "list"],
        ["topic", "list", "--json"],
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "--partitions", "3"],
        ["topic", "delete", "t", "--yes"],
        ["config", "describe", "topic", "t"],
        ["config", "alter", "broker", "1", "--set", "a=b"],
        ["produce", "t"],
        ["produce", "t", "--transactional-id", "i"],
        ["consume", "t"],
        ["acl", "list"],
        ["txn", "list"],
        ["txn", "describe", "i"],
        ["txn", "producers", "t"],
        ["txn", "hanging"],
        ["txn", "abort", "t:0", "--start-offset", "1", "--yes"],
        ["txn", "terminate", "i", "--yes"],
    ],
    ids=" ".join,
)
def test_unreachable_broker_prints_one_line(arguments, nowhere):
    name, *rest = arguments
    result = CliRunner().invoke(cli, [name, *rest, "-b", nowhere], input="line\n")
    assert result.exit_code == 2
    assert result.stderr == f"ottla: cannot connect to {nowhere}: connection refused; is a broker running there?\n"
    assert result.stdout == ""


def test_unregister_with_replicas_names_the_next_command(monkeypatch):
    """`--unregister --execute` would fail with the same message."""
    partition = PartitionInfo(0, 4, 0, (4,), (4,), ())
    client = SimpleNamespace(
        brokers=SimpleNamespace(all=lambda: [SimpleNamespace(node_id=4, fenced=True)]),
        topics=SimpleNamespace(all=lambda: {"t": SimpleNamespace(name="t", partitions=[partition])}),
    )
    monkeypatch.setattr("ottla.cli.decommission.open_cluster", lambda servers: nullcontext(client))
    result = CliRunner().invoke(cli, ["cluster", "decommission", "4", "--unregister", "--execute"])
    assert result.exit_code == 2
    assert "has 1 replica: move them with `ottla cluster decommission 4 --execute`, then run --unregister again" in (
        result.stderr
    )


def test_decommission_names_a_replica_that_can_not_move(monkeypatch):
    """The other replica of its partition is not in sync."""
    partition = PartitionInfo(0, 4, 0, (4, 5), (4,), ())
    client = SimpleNamespace(
        brokers=SimpleNamespace(all=lambda: [SimpleNamespace(node_id=4, fenced=False)]),
        describe=lambda: SimpleNamespace(brokers=[BrokerInfo(number, "a", 1, None) for number in (4, 5, 6)]),
        topics=SimpleNamespace(all=lambda: {"t": SimpleNamespace(name="t", partitions=[partition])}),
        reassignments=SimpleNamespace(all=dict),
        log_directories=SimpleNamespace(all=list),
    )
    monkeypatch.setattr("ottla.cli.decommission.open_cluster", lambda servers: nullcontext(client))
    result = CliRunner().invoke(cli, ["cluster", "decommission", "4", "--execute"])
    assert result.exit_code == 2
    assert "broker 4 still has 1 replica, such as that of t-0" in result.stderr


@pytest.mark.parametrize("digits", [5, 10, 19, 40, 5000])
@pytest.mark.parametrize(
    "command",
    [
        "topic create t --replication-factor N",
        "topic create t --partitions N",
        "topic alter t --partitions N",
        "topic trim t --before-offset N",
        "txn abort t:0 --start-offset N",
        "txn abort t:0 --producer-id N --producer-epoch 1 --coordinator-epoch 1",
        "txn abort t:0 --producer-id 1 --producer-epoch N --coordinator-epoch 1",
        "txn abort t:0 --producer-id 1 --producer-epoch 1 --coordinator-epoch N",
        "txn list --producer-id N",
        "txn list --duration Nw",
        "txn producers t --broker N",
        "txn hanging --broker N",
        "token create --max-lifetime Nw",
        "token renew X --period Nw",
        "cluster decommission N --unregister",
        "cluster voters remove N",
        "cluster voters add N --listener CONTROLLER://host:9093",
        "cluster voters add 4 --listener CONTROLLER://host:N",
        "cluster decommission N --throttle N",
        "cluster reassign t --replication-factor 1 --throttle N",
        "cluster features upgrade --feature group.version=N",
        "log move t --broker N --to /tmp",
        "group reset-offsets g t --to-offset N",
        "group reset-offsets g t --shift-by N",
        "group reset-offsets g t --by-duration Nw",
        "consume t --offset N",
        "consume t --partition N",
        "consume t --max N",
        "consume t --timeout N",
        "consume t --timestamp N",
        "produce t --partition N",
        "produce t --timeout N",
        "quota set --user u --producer-byte-rate N",
        "mirror --from a:1 --to b:1 --topics t --interval N",
    ],
)
def test_numbers_are_validated_or_sent_to_the_broker(command, digits, nowhere):
    """A number that does not fit in its request field is rejected, with the name of the option."""
    *words, last = [word.replace("N", "9" * digits) for word in command.split()]
    servers = [] if command.startswith("mirror") else ["-b", nowhere]
    result = CliRunner().invoke(cli, [*words, last, *servers], input="")
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output


@pytest.mark.parametrize("node_id", [2**31, 10**10, "9" * 5000], ids=["32 bits", "64 bits", "many"])
def test_the_id_of_a_voter_has_to_fit_into_a_record(tmp_path, node_id):
    voter = f"{node_id}@localhost:9093:JEXY6aqzQY-32P5TStzaFg"
    cluster = ["--cluster-id", "2v6DyEs_QqqMYFjaPzw5Ow", "--initial-controllers", voter]
    command = ["format", "--data-dir", str(tmp_path / "data"), *cluster]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 2
    assert "is not a controller of the form ID@HOST:PORT:DIRECTORYID, with an id up to 2147483647" in result.stderr


def test_the_environment_names_the_broker(nowhere):
    result = CliRunner(env={"OTTLA_BOOTSTRAP_SERVER": nowhere}).invoke(cli, ["topic", "list"])
    assert nowhere in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create"],
        ["topic", "create", "t", "--partitions", "0"],
        ["topic", "create", "t", "--config", "novalue"],
        ["topic", "alter", "t"],
        ["topic", "list", "-b", "nonsense"],
        ["config", "alter", "topic", "t"],
        ["config", "describe", "planet", "t"],
        ["consume", "t", "--from-beginning", "--offset", "3"],
        ["consume", "t", "--timestamp", "yesterday"],
        ["consume", "t", "--format", "{nonsense}"],
        ["consume", "t", "--max", "0"],
        ["produce", "t", "--file", "/no/such/file"],
        ["produce", "t", "--compression", "rar"],
        ["produce", "t", "--key-separator", ""],
        ["completion", "tcsh"],
        ["log", "dump", "/no/such/file.log"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_says_why(arguments):
    name, *rest = arguments
    result = CliRunner().invoke(cli, [name, *rest])
    assert result.exit_code == 2
    assert result.stderr
    assert "Traceback" not in result.output


def test_program_returns_the_typed_command(tmp_path, monkeypatch):
    installed = tmp_path / "my bin" / "ottla"
    installed.parent.mkdir()
    installed.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(installed.parent))
    monkeypatch.setattr(sys, "argv", [str(installed), "topic"])
    assert program() == "ottla"
    monkeypatch.setenv("PATH", "/no/such/directory")
    assert program() == f"'{installed}'"
    monkeypatch.setattr(sys, "argv", ["my bin/ottla"])
    assert program() == "'my bin/ottla'"
    monkeypatch.setattr(sys, "argv", ["/anything/ottla/__main__.py"])
    assert program() == f"{sys.executable} -m ottla"


def test_deferred_signal_takes_precedence_over_block_error():
    steps = []

    def work(*, signalled, fails):
        with interruptible(), uninterrupted():
            if signalled:
                signal.raise_signal(signal.SIGTERM)
            steps.append(signalled)
            if fails:
                raise ConnectionError("the process that was started is gone")

    for fails in (False, True):
        with pytest.raises(KeyboardInterrupt) as ended:
            work(signalled=True, fails=fails)
        assert ended.value.args == (signal.SIGTERM,)
    with pytest.raises(ConnectionError):
        work(signalled=False, fails=True)
    assert steps == [True, True, False]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("number", "is_endless", "exit_code"),
    [(signal.SIGTERM, True, 0), (signal.SIGTERM, False, 143), (signal.SIGINT, True, 130)],
)
def test_termination_is_the_end_of_an_endless_command(number, is_endless, exit_code):
    @click.command(cls=Command)
    def work():
        if is_endless:
            run_until_terminated()
        raise KeyboardInterrupt(number)

    def run():
        try:
            with ending():
                work.invoke(work.make_context("work", []))
        except click.exceptions.Exit as ended:
            return ended.exit_code
        return 0

    assert run() == exit_code


def test_settings_keep_what_follows_the_first_equals_sign():
    @click.command(cls=Command)
    @settings_option("--set", "settings", help_text="x")
    def show(settings):
        click.echo(repr(settings))

    result = CliRunner().invoke(show, ["--set", "a=b=c", "--set", " d =", "--set", "a=2"])
    assert result.stdout == "{'a': '2', 'd': ''}\n"


def test_a_table_for_a_pipe_is_plain_and_whole(capsys):
    print_table(("name", "size"), [("x" * 200, 5), ("y", None), ("z", (1, 2))], right=("size",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "SIZE"]
    assert lines[1] == "x" * 200 + "     5"
    assert lines[2].split() == ["y", "-"]
    assert lines[3].split() == ["z", "1,2"]
    print_table(("name",), [])
    assert capsys.readouterr().out == "NAME\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    result = CliRunner().invoke(completion, [shell])
    assert result.exit_code == 0
    assert "_OTTLA_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"partitions": [{"topic": "t", "partition": 0}]}',
        '{"partitions": [{"topic": "t", "partition": Infinity, "replicas": []}]}',
        "[" * 100_000,
    ],
)
def test_malformed_plan_is_rejected(text):
    with pytest.raises(OperatorError, match=r"the plan can't be read .* it looks like"):
        parse_plan(text)


def test_a_plan_is_read_from_a_file_only(tmp_path):
    path = tmp_path / "plan"
    path.write_text('{"version": 1, "partitions": [{"topic": "t\u00e4g", "partition": 0, "replicas": [2, 1]}]}')
    assert read_plan(str(path)) == {("t\u00e4g", 0): (2, 1)}
    os.truncate(path, MAX_PLAN_BYTES + 1)
    with pytest.raises(OperatorError, match=f"--plan .* can't be read: it is larger than {MAX_PLAN_BYTES} bytes"):
        read_plan(str(path))
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("none", "No such file"), ("", "Is a directory"), ("pipe", "a pipe without a writer")):
        with pytest.raises(OperatorError, match=f"--plan .* can't be read: .*{words}"):
            read_plan(str(tmp_path / name))


@pytest.mark.parametrize(
    "command",
    [
        "start --config PIPE --data-dir DIR",
        "start --audit-log PIPE --data-dir DIR --port 0",
        "start --metrics-port 0 --metrics-token-file PIPE --data-dir DIR",
        "start --data-dir PIPE --port 0",
        "format --config PIPE --data-dir DIR",
        "format --cluster-id 2v6DyEs_QqqMYFjaPzw5Ow --no-initial-controllers --data-dir PIPE",
        "adopt PIPE",
        "backup DIR --data-dir PIPE",
        "backup DIR --config PIPE",
        "restore PIPE --data-dir DIR",
        "log scrub PIPE",
        "log dump PIPE",
        "log cleaner PIPE",
        "log restore PIPE",
        "security init PIPE",
        "topic list --command-config PIPE",
        "user add ann --password-file PIPE",
        "mirror --from a:1 --to b:1 --topics t --from-config PIPE",
    ],
)
def test_pipe_without_writer_does_not_block(tmp_path, command):
    """The pipe has the name of a segment."""
    os.mkfifo(tmp_path / "00000000000000000000.log")
    places = {"PIPE": str(tmp_path / "00000000000000000000.log"), "DIR": str(tmp_path / "data")}
    result = CliRunner().invoke(cli, [places.get(word, word) for word in command.split()])
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    assert places["PIPE"] in result.stderr


def test_pipe_in_place_of_index_does_not_block(tmp_path):
    (tmp_path / "00000000000000000000.log").touch()
    os.mkfifo(tmp_path / "00000000000000000000.index")
    result = CliRunner().invoke(cli, ["log", "dump", str(tmp_path / "00000000000000000000.log")])
    assert result.exit_code == 2
    assert "00000000000000000000.index: " in result.stderr
    assert "regular file" in result.stderr
