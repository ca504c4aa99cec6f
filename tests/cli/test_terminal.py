"""Terminal output: text of other users contains no control sequences; a pipe gets it unchanged."""

from __future__ import annotations

import itertools
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ottla.cli.command import CLIENT_ID
from ottla.cli.terminal_table import longest_names, shorten
from ottla.client.admin.cluster import Cluster
from ottla.common.control_chars import escape_control_chars
from ottla.testing import Broker

EVIL = "\x1b]0;owned\x07\x1b[2J"
SHOWN = rb"\x1b]0;owned\x07\x1b[2J"
NUMBERS = itertools.count()


@pytest.fixture
def environment(ottla_broker: Broker) -> dict[str, str]:
    return {**os.environ, "OTTLA_BOOTSTRAP_SERVER": ottla_broker.bootstrap_servers}


@pytest.fixture
def topic(environment: dict[str, str]) -> str:
    """A topic with one record: key, value and header contain control sequences, and the value is invalid UTF-8."""
    name = f"terminal-{next(NUMBERS)}"
    line = EVIL.encode() + b"=" + EVIL.encode() + b"\xff\x9b5n\xc2\x9b6n\n"
    piped(environment, "produce", name, "-k", "=", "-H", f"h{EVIL}=v{EVIL}", "-q", stdin=line)
    return name


@pytest.fixture
def member(ottla_broker: Broker, environment: dict[str, str], topic: str) -> Iterator[str]:
    """A group and a member client id with control sequences."""
    group_id = f"g{next(NUMBERS)}{EVIL}"
    command = [*ottla("consume", topic, "-g", group_id, "--from-beginning"), "-X", f"client.id={EVIL}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(EVIL.encode())
        yield group_id
        process.send_signal(signal.SIGTERM)
        process.wait(90)


def ottla(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments]


def piped(environment: dict[str, str], *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(ottla(*arguments), input=stdin, capture_output=True, env=environment, timeout=90, check=False)
    return done.stdout + done.stderr


def on_terminal(environment: dict[str, str], *arguments: str) -> bytes:
    """All output of the command on a terminal (standard output and standard error)."""
    primary, secondary = pty.openpty()
    with subprocess.Popen(
        ottla(*arguments), stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary, env=environment
    ) as process:
        os.close(secondary)
        output = b""
        try:
            while data := os.read(primary, 65536):
                output += data
        except OSError:  # the terminal's other end is closed
            pass
        process.wait(90)
    os.close(primary)
    return output


def assert_harmless(output: bytes) -> None:
    for control in (b"\x1b]", b"\x07", b"\x1b[2J", b"\xff", b"\xc2\x9b"):
        assert control not in output, output


READ = ("--from-beginning", "--stop-at-end")
EVERYTHING = ("--format", "{key}|{value}|{headers}")


@pytest.mark.parametrize("form", [(), EVERYTHING, ("--json",)], ids=["text", "template", "json"])
def test_records(environment: dict[str, str], topic: str, form: tuple[str, ...]) -> None:
    output = on_terminal(environment, "consume", topic, *READ, *form)
    assert_harmless(output)
    assert b"owned" in output
    if form == EVERYTHING:
        assert output.strip() == b"|".join([SHOWN, SHOWN + rb"\xff\x9b5n\x9b6n", b"h" + SHOWN + b"=v" + SHOWN])


def test_terminal_shortens_long_names_under_the_same_header(environment: dict[str, str]) -> None:
    name = f"{'a' * 80}{next(NUMBERS)}{'b' * 80}"
    piped(environment, "topic", "create", name)
    try:
        shown = on_terminal(environment, "topic", "list")
        header = b"TOPIC PARTITIONS REPLICAS TOPIC ID".split()
        for output in (shown, piped(environment, "topic", "list")):
            assert re.sub(rb"\x1b\[[0-9;]*m", b"", output).split()[:5] == header
        (row,) = (line for line in shown.decode().splitlines() if "aaaa" in line or "bbbb" in line)
        assert "a…b" in row
        assert len(row) <= 80
        assert name.encode() in piped(environment, "topic", "list")
    finally:
        piped(environment, "topic", "delete", name, "--yes")


def test_waiting_consumer_reports_its_position(environment: dict[str, str]) -> None:
    name = f"waiting-{next(NUMBERS)}"
    piped(environment, "produce", name, "-q", stdin=b"a\nb\n")

    def consumed(*arguments: str) -> str:
        return on_terminal(environment, "consume", name, *arguments).decode()

    waits = f"waiting for new records of {name} from offset 2"
    assert f"{waits}; --from-beginning prints earlier records" in consumed("--timeout", "0.1")
    assert f"{waits}; --from-beginning starts at the first record" in consumed("-g", name, "--timeout", "0.1")
    assert "waiting" not in consumed("-g", name, "--from-beginning", "--max", "2")
    again = consumed("-g", name, "--from-beginning", "--timeout", "0.1")
    assert f"{waits}, which group {name} has committed; `ottla group reset-offsets`" in again


@pytest.mark.parametrize(
    ("widths", "width", "longest"),
    [
        ((10, 10), 80, (None, None)),
        ((60, 10), 60, (45, None)),
        ((60, 50), 60, (27, 27)),
        ((60, 10), 20, (12, None)),
    ],
    ids=["fits", "longest first", "equally", "not below the shortest"],
)
def test_longest_names_of_a_table_fit_its_width(
    widths: tuple[int, ...], width: int, longest: tuple[int | None, ...]
) -> None:
    rows = [["x" * used for used in widths], ["x" for _ in widths]]
    found = longest_names(("a", "b"), rows, (), width)
    assert tuple(found) == longest
    fitting = [used if limit is None else limit for used, limit in zip(widths, found, strict=True)]
    assert sum(fitting) <= max(width, 27) - 5, "names of 12 and 10 characters stay on a narrow terminal"
    assert longest_names(("a", "value"), rows, ("a",), width) == [None, None], "numbers and values are whole"


def test_shortened_name_keeps_begin_and_end_but_sentences_are_whole() -> None:
    assert shorten("abcdefghij", 5, "~") == "ab~ij"
    assert shorten("abcdefghij", 6, "~") == "abc~ij"
    assert shorten("abcdefghij", 10, "~") == "abcdefghij"
    assert shorten("a sentence of words", 5, "~") == "a sentence of words"
    assert shorten("abcdefghij", None, "~") == "abcdefghij"


def test_records_for_a_pipe_are_unchanged(environment: dict[str, str], topic: str) -> None:
    evil = EVIL.encode()
    value = evil + b"\xff\x9b5n\xc2\x9b6n"
    assert piped(environment, "consume", topic, *READ) == value + b"\n"
    assert piped(environment, "consume", topic, *READ, *EVERYTHING) == b"%b|%b|h%b=v%b\n" % (evil, value, evil, evil)


def test_a_template_may_steer(environment: dict[str, str], topic: str) -> None:
    output = on_terminal(environment, "consume", topic, *READ, "--format", r"\x1b[31m{key}\x1b[0m")
    assert output.strip() == b"\x1b[31m" + SHOWN + b"\x1b[0m"


def test_names_of_groups_and_clients(environment: dict[str, str], ottla_broker: Broker, member: str) -> None:
    commands: list[Callable[[], tuple[str, ...]]] = [
        lambda: ("group", "list"),
        lambda: ("group", "list", "--json"),
        lambda: ("group", "describe", member),
        lambda: ("group", "members", member),
        lambda: ("group", "state", member),
        lambda: ("group", "delete", member),
        lambda: ("group", "delete", member + "x", "--yes"),
        lambda: ("topic", "describe", f"t{EVIL}"),
        lambda: ("consume", f"t{EVIL}"),
        lambda: ("topic", "list", "-b", EVIL),
        lambda: ("topic", f"list{EVIL}"),
        lambda: ("log", "dump", f"/no/such{EVIL}"),
    ]
    for command in commands:
        output = on_terminal({**environment, "COLUMNS": "300"}, *command())
        assert_harmless(output)
        assert b"owned" in output, command()
    assert EVIL.encode() in piped(environment, "group", "list")
    with Cluster(ottla_broker.bootstrap_servers, client_id=CLIENT_ID) as cluster:
        assert [each.client_id for each in cluster.groups.describe(member).members] == [EVIL]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\r", r"\x0d"),
        ("\x7f\x80\x9f\xa0", "\\x7f\\x80\\x9f\xa0"),
        ("\u202eabc\u2069", r"\u202eabc\u2069"),
        ("é漢👩‍💻", "é漢👩‍💻"),
    ],
)
def test_escaped_control_characters(text: str, shown: str) -> None:
    assert escape_control_chars(text) == shown
