"""Every command exits with one message and an exit code after any failure; all commands are tested."""

from __future__ import annotations

import codecs
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import confluent_kafka
import pytest
from click.testing import CliRunner

from ottla.app.main import MOUNTED, cli
from ottla.app.streams import ESCAPES, STANDARD_OUTPUT, escaped
from ottla.cli.command import Command
from ottla.client.admin.cluster import Cluster
from ottla.common.errors import DataDirectoryError, ErrorCode, KafkaError, OperatorError
from ottla.common.runbooks import BROKER_DOES_NOT_START
from ottla.testing import Broker

OUTLETS = ("full", "closed", "without a reader")
NOT_UTF8 = "\udcff"


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command except groups, with its command line."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


LEAVES = list(leaves(cli))
every_command = pytest.mark.parametrize(
    ("path", "command"), [pytest.param(path, command, id=" ".join(path)) for path, command in LEAVES]
)


def test_the_walk_finds_them_all() -> None:
    assert {path[0] for path, _ in LEAVES} == {*MOUNTED, *cli.commands}
    assert len(LEAVES) >= 29


@every_command
@pytest.mark.parametrize(
    ("error", "exit_code", "sentence"),
    [
        (KafkaError(ErrorCode.INVALID_CONFIG, "t is wrong"), 1, "ottla: t is wrong\n"),
        (OperatorError("t is not there"), 2, "ottla: t is not there\n"),
        (OSError(28, "No space left on device"), 2, "ottla: the operating system refused: no space left on device\n"),
        (OSError(13, "Permission denied", "a/b"), 2, "ottla: cannot use a/b: permission denied\n"),
        (BrokenPipeError(32, "Broken pipe", STANDARD_OUTPUT), 0, ""),
        (BrokenPipeError(32, "Broken pipe"), 2, "ottla: the operating system refused: broken pipe\n"),
        (
            UnicodeEncodeError("utf-8", f"a{NOT_UTF8}", 1, 2, "surrogates not allowed"),
            2,
            "ottla: an argument is not valid UTF-8: b'a\\xff'\n",
        ),
        (
            UnicodeEncodeError("utf-8", "\udcc3\udcbc", 0, 1, "surrogates not allowed"),
            2,
            "ottla: an argument is not ASCII, but the locale is: 'ü'; set LC_ALL to a UTF-8 locale\n",
        ),
        (
            confluent_kafka.KafkaException(confluent_kafka.KafkaError(10)),
            1,
            "ottla: Broker: Message size too large\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (KeyboardInterrupt(signal.SIGTERM), 143, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_exceptions_map_to_messages_and_exit_codes(
    path: tuple[str, ...],
    command: click.Command,
    error: BaseException,
    exit_code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replace the command's function and arguments, but not the code around it."""

    def fails(**_: Any) -> None:
        raise error

    monkeypatch.setattr(command, "callback", fails)
    monkeypatch.setattr(command, "params", [])
    result = CliRunner().invoke(cli, list(path))
    assert (result.exit_code, result.stderr, result.stdout) == (exit_code, sentence, "")


def test_error_of_a_data_directory_names_its_runbook(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: Any) -> None:
        raise DataDirectoryError("the directory is not formatted: mount its disk")

    monkeypatch.setattr(cli.commands["start"], "callback", refused)
    result = CliRunner().invoke(cli, ["start"])
    assert result.exit_code == 2
    assert result.stderr == f"ottla: the directory is not formatted: mount its disk. See {BROKER_DOES_NOT_START}.\n"


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli.commands["start"], "callback", broken)
    assert isinstance(CliRunner().invoke(cli, ["start"]).exception, ZeroDivisionError)


@every_command
def test_signals_interrupt_tools(path: tuple[str, ...], command: click.Command) -> None:
    """A broker has its own handlers, and nothing is open while a directory is formatted."""
    assert isinstance(command, Command) == (path not in {("start",), ("format",)})


@pytest.mark.parametrize("outlet", OUTLETS)
def test_help_where_nothing_can_be_written(outlet: str) -> None:
    """Every command's help, in a child of one process that has imported them all."""
    program = """
import os, sys
from ottla.app.main import MOUNTED, cli, main
for name in MOUNTED:
    cli.get_command(None, name)
outlet, *commands = sys.argv[1:]
for words in commands:
    path = [*words.split(), "--help"]
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.dup2(write_end, 2)
        os.close(write_end)
        if outlet == "full":
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        elif outlet == "closed":
            os.close(1)
        else:
            unread, broken = os.pipe()
            os.close(unread)
            os.dup2(broken, 1)
        sys.argv[1:] = path
        main()
    os.close(write_end)
    with os.fdopen(read_end) as errors:
        text = errors.read()
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), text, sep="|", end="|")
"""
    words = [" ".join(path) for path, _ in LEAVES] + ["", *MOUNTED]
    done = subprocess.run(
        [sys.executable, "-c", program, outlet, *words], capture_output=True, text=True, timeout=120, check=True
    )
    *results, end = done.stdout.split("|")
    assert end == ""
    reason = {"full": "no space left on device", "closed": "bad file descriptor"}.get(outlet)
    expected = ["2", f"ottla: cannot write to standard output: {reason}\n"] if reason else ["0", ""]
    assert [results[i : i + 2] for i in range(0, len(results), 2)] == [expected] * len(words)


def run_ottla(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_full_output_disk_is_not_blamed_on_input_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"")
    with open("/dev/full", "w") as full:
        done = run_ottla("log", "dump", str(path), stdout=full)
    assert done.stderr == "ottla: cannot write to standard output: no space left on device\n"
    assert done.returncode == 2


def test_a_directory_that_was_removed_under_it(tmp_path: Path) -> None:
    program = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", program, "-P", "-m", "ottla", "pipeline", "vacuum", "--table", "lake"]
    done = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, timeout=60, check=False)
    words = b"ottla: the current directory was removed: change to an existing one\n"
    assert (done.returncode, done.stderr) == (2, words)


@pytest.mark.parametrize("arguments", [["topic", "create"], ["topic", "describe"], ["group", "describe"], ["consume"]])
def test_invalid_utf8_argument_is_reported(ottla_broker: Any, arguments: list[str]) -> None:
    done = run_ottla(*arguments, f"a{NOT_UTF8}", "-b", ottla_broker.bootstrap_servers, stdout=subprocess.PIPE)
    assert done.stderr == "ottla: an argument is not valid UTF-8: b'a\\xff'\n"
    assert done.returncode == 2


def test_unencodable_characters_are_escaped() -> None:
    codecs.register_error(ESCAPES, escaped)
    assert "caf\u00e9 \udcff\udfff\u20ac".encode("ascii", ESCAPES) == rb"caf\xe9 \xff\udfff\u20ac"


@pytest.mark.parametrize("server", [f"a{NOT_UTF8}:9092", "a..b:9092", "x" * 64 + ".example:9092"])
def test_a_host_that_no_name_can_be(server: str) -> None:
    done = run_ottla("topic", "list", "-b", server, stdout=subprocess.PIPE)
    assert done.stderr.startswith("ottla: ")
    assert done.stderr.count("\n") == 1
    assert done.returncode == 2


def test_closed_streams_are_not_reused_for_files(tmp_path: Path) -> None:
    """Otherwise the first opened file would become standard output and receive the printed text."""
    program = (
        "import os, sys\n"
        "for descriptor in (0, 1, 2): os.close(descriptor)\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'ottla', 'log', 'dump', sys.argv[1]])\n"
    )
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"no batch at all")
    done = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
    assert done.returncode == 2
    assert path.read_bytes() == b"no batch at all"


EARLY = 8
ENDS = (-signal.SIGINT, 128 + signal.SIGINT, 0, 2)
"""By the signal; by itself as shells have it; a broker that had begun to serve; where no broker is, before that."""
COMMANDS: dict[str, list[str]] = {
    "start": ["start", "--port", "0", "--data-dir", "data"],
    "topic list": ["topic", "list", "-b", "127.0.0.1:1"],
    "consume": ["consume", "t", "-b", "127.0.0.1:1"],
    "produce": ["produce", "t", "-b", "127.0.0.1:1"],
    "pipeline load": ["pipeline", "load", "-t", "t", "--table", "table", "-b", "127.0.0.1:1"],
}


HEARING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
"""The shell that runs the tests may have the signal ignored."""


class TestAnEarlyInterrupt:
    """Ctrl-C at eight places of the start, which are counted in imported modules instead of seconds."""

    def test_the_command_begins_where_nothing_is_imported(self) -> None:
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
        assert project["scripts"]["ottla"] == "ottla.__main__:main"

    @pytest.mark.parametrize("name", COMMANDS)
    def test_is_quiet(self, name: str, tmp_path: Path) -> None:
        whole = self.run(COMMANDS[name], tmp_path, None)
        first = next(number for number, line in enumerate(whole) if line.endswith(" ottla")) + 2
        places = sorted({first + step * (len(whole) - first) // EARLY for step in range(EARLY)})
        assert len(places) == EARLY
        for place in places:
            assert len(self.run(COMMANDS[name], tmp_path, place)) >= place
        if name == "start":
            with Broker(data_dir=tmp_path / "data") as broker, Cluster(broker.bootstrap_servers) as cluster:
                assert cluster.describe().brokers, "the directory is good for the next start"

    def run(self, arguments: list[str], folder: Path, place: int | None) -> list[str]:
        """Send Ctrl-C at the import that is number `place` (None: at the first line that is none); returns them all."""
        with subprocess.Popen(
            [sys.executable, "-c", HEARING, sys.executable, "-X", "importtime", "-m", "ottla", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        ) as process:
            assert process.stderr is not None
            imports: list[str] = []
            others: list[str] = []
            for line in process.stderr:
                (imports if line.startswith("import time:") else others).append(line.rstrip())
                if len(imports) == place or (place is None and len(others) == 1):
                    process.send_signal(signal.SIGINT)
            code = process.wait(60)
        text = "\n".join(others)
        assert "Traceback" not in text, text
        assert "Exception" not in text, text
        assert "KeyboardInterrupt" not in text, text
        assert code in ENDS, text
        return imports


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            "OSError('gone')",
            "stopping the node: the disk of log.dirs failed: gone; repair it and start the node again",
        ),
        ("InvariantError('4 to 3')", "stopping the node: inconsistent state: 4 to 3"),
    ],
)
def test_disk_failure_is_logged_as_such(error: str, sentence: str) -> None:
    code = (
        f"from ottla.app import process; from ottla.common.errors import InvariantError; process._end_of_node({error})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.strip()) == (1, sentence)
