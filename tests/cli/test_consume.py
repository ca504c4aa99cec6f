"""`ottla consume`: selection of topics, start and end."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.testing import Broker

NUMBERS = itertools.count()
READ = ("--from-beginning", "--stop-at-end")
Run = Callable[..., Result]


@pytest.fixture
def name() -> str:
    return f"consume-{next(NUMBERS)}"


@pytest.fixture
def run(ottla_broker: Broker) -> Run:
    def run(*arguments: str, stdin: str | bytes | None = None, exit_code: int = 0) -> Result:
        environment = {"OTTLA_BOOTSTRAP_SERVER": ottla_broker.bootstrap_servers}
        result = CliRunner(env=environment).invoke(cli, list(arguments), input=stdin, catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result

    return run


def produce(run: Run, topic: str, *values: str, partition: int = 0) -> None:
    run("produce", topic, "-q", "-p", str(partition), stdin="".join(f"{value}\n" for value in values))


def test_several_topics_and_a_regular_expression(run: Run, name: str) -> None:
    for suffix in ("a", "b", "other"):
        run("topic", "create", f"{name}-{suffix}")
        produce(run, f"{name}-{suffix}", suffix)
    assert sorted(run("consume", f"{name}-a", f"{name}-other", f"{name}-a", *READ).stdout.split()) == ["a", "other"]
    assert sorted(run("consume", "--include", f"{name}-[ab]", *READ).stdout.split()) == ["a", "b"]
    assert sorted(run("consume", "--include", f"{name}-.", "-g", name, *READ).stdout.split()) == ["a", "b"]
    assert f"no topic name matches '{name}'" in run("consume", "--include", name, exit_code=1).stderr
    assert "not a regular expression" in run("consume", "--include", "(", exit_code=2).stderr
    assert "--include" in run("consume", exit_code=2).stderr
    assert "--include" in run("consume", name, "--include", "a", exit_code=2).stderr
    assert "--group" in run("consume", name, "-X", "a=b", exit_code=2).stderr


def test_internal_topics_are_not_included(run: Run, name: str) -> None:
    run("topic", "create", name)
    produce(run, name, "a")
    run("consume", name, "-g", name, *READ)
    topics = {
        json.loads(line)["topic"] for line in run("consume", "--include", ".*", *READ, "--json").stdout.split("\n")[:-1]
    }
    assert name in topics
    assert not [topic for topic in topics if topic.startswith("__")]


def test_an_end_by_offset(run: Run, name: str) -> None:
    run("topic", "create", name, "-p", "2")
    produce(run, name, "a", "b", "c")
    produce(run, name, "d", partition=1)
    assert sorted(run("consume", name, *READ, "--end-offset", "2").stdout.split()) == ["a", "b", "d"]
    assert run("consume", name, "-o", "1", "-p", "0", "--end-offset", "2").stdout.split() == ["b"]
    assert run("consume", name, "-o", "2", "-p", "0", "--end-offset", "2").stdout == ""
    assert run("consume", name, "--from-beginning", "-p", "0", "--end-offset", "0").stdout == ""
    assert sorted(run("consume", name, "-g", name, *READ, "--end-offset", "1").stdout.split()) == ["a", "d"]


def test_an_end_by_time(run: Run, name: str) -> None:
    run("topic", "create", name)
    produce(run, name, "a")
    produce(run, name, "b")
    first, second = (
        json.loads(line)["timestamp"] for line in run("consume", name, *READ, "--json").stdout.splitlines()
    )
    if first < second:
        assert run("consume", name, "--from-beginning", "--end-timestamp", str(second)).stdout == "a\n"
    assert run("consume", name, "--from-beginning", "--end-timestamp", str(first)).stdout == ""
    assert run("consume", name, "--from-beginning", "--end-timestamp", "2999-01-01").stdout == "a\nb\n"
    assert "--end-timestamp" in run("consume", name, "--end-timestamp", "tomorrow", exit_code=2).stderr


def test_an_offset_that_a_partition_does_not_have(run: Run, name: str) -> None:
    run("topic", "create", name)
    empty = run("consume", name, "-o", "9", exit_code=1)
    assert empty.stderr == f"ottla: partition {name}-0 is empty, and its next offset is 0, not 9\n"
    produce(run, name, "a", "b")
    beyond = run("consume", name, "-o", "9", exit_code=1)
    assert beyond.stderr == f"ottla: partition {name}-0 has offsets 0 to 1, and its next offset is 2, not 9\n"


@pytest.mark.parametrize("arguments", [("-g", ""), ("-g", "x", "-X", "group.id=")], ids=" ".join)
def test_an_empty_group_id_is_refused(run: Run, name: str, arguments: tuple[str, ...]) -> None:
    """librdkafka would abort the process."""
    run("topic", "create", name)
    assert "the group id is empty" in run("consume", name, *arguments, exit_code=2 if arguments[1] == "" else 1).stderr


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_consumed_records_equal_produced_ones(run: Run, name: str, codec: str) -> None:
    run("topic", "create", name, "-p", "3")
    for partition in range(3):
        run(
            "produce",
            name,
            "-q",
            "-z",
            codec,
            "-p",
            str(partition),
            stdin="".join(f"{partition}:{n}\n" for n in range(9000)),
        )
    lines = run("consume", name, *READ).stdout.splitlines()
    assert len(lines) == 27_000
    for partition in range(3):
        mine = [line for line in lines if line.startswith(f"{partition}:")]
        assert mine == [f"{partition}:{n}" for n in range(9000)]


def test_lines_of_a_windows_file(run: Run, name: str) -> None:
    run("topic", "create", name)
    run("produce", name, "-k", ":", stdin=b"k:one\r\n:\r\nk:a\rb\r\nk:last")
    assert run("consume", name, *READ, "-f", "{key}={value}").stdout_bytes == b"k=one\n=\nk=a\rb\nk=last\n"


def test_the_summary_counts_in_words_that_fit(run: Run, name: str) -> None:
    run("topic", "create", name)
    one = run("produce", name, stdin="abcd\n").stderr
    assert one.startswith(f"Produced 1 record (5 bytes) to {name} in ")
    assert "/s" not in one
    many = run("produce", name, stdin="abcd\n" * 2000).stderr
    assert many.startswith(f"Produced 2,000 records (10.0 kB) to {name} in ")
    assert many.endswith(" records/s.\n")
    assert f"Topic {name}, id " in run("topic", "describe", name).stdout
    assert ", 1 partition, " in run("topic", "describe", name).stdout


def test_a_line_that_is_larger_than_a_record_may_be(run: Run, name: str) -> None:
    run("topic", "create", name)
    refused = run("produce", name, stdin="first\n" + "x" * 5_000_000 + "\nthird\n", exit_code=1)
    assert refused.stderr.startswith("ottla: line 2 can't be sent: ")
    assert "message.max.bytes" in refused.stderr
    assert run("consume", name, *READ).stdout == "first\n"


def test_a_line_that_comes_in_pieces(run: Run, name: str) -> None:
    run("topic", "create", name)
    line = "x" * 700_000
    run("produce", name, stdin=f"{line}\r\n{line}")
    assert run("consume", name, *READ).stdout.split() == [line, line]
