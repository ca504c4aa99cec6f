"""`ottla pipeline replay`: ranges of topics and tables into topics and tables of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake")

from ottla.pipeline.cli import pipeline  # noqa: E402

from .committed import read_committed  # noqa: E402
from .limits import RUN_S  # noqa: E402
from .topics import make_again, new_topic  # noqa: E402

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("push_driver.py")
FIRST_MS = 1_700_000_000_000
ROWS = 3_000


@pytest.fixture
def topic(bootstrap: str) -> str:
    """ROWS records in three partitions, in turn, one a second; between them aborted ones."""
    name = new_topic(bootstrap, 3)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(30)
    for start in range(0, ROWS, 500):
        for wanted in (False, True):
            producer.begin_transaction()
            for row in range(start, start + 500):
                value, time = (b"%d" % row, FIRST_MS + row * 1_000) if wanted else (b"aborted", FIRST_MS - 1_000)
                producer.produce(name, value, b"k", row % 3, timestamp=time, headers=[("h", b"1")])
            if wanted:
                producer.commit_transaction(30)
            else:
                producer.flush(30)
                producer.abort_transaction(30)
    assert len(read_committed(bootstrap, name, ROWS)) == ROWS
    return name


@pytest.fixture
def run(bootstrap: str, topic: str) -> Callable[..., Result]:
    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(pipeline, ["replay", *map(str, arguments), "-b", bootstrap])

    return run


def rows(bootstrap: str, topic: str, count: int) -> list[int]:
    return sorted(int(message.value()) for message in read_committed(bootstrap, topic, count))


def test_a_range_of_time_goes_to_a_new_topic(bootstrap: str, topic: str, run: Callable[..., Result]) -> None:
    target = f"{topic}-again"
    arguments = ("--topic", topic, "--from", "2023-11-14T22:13:30", "--to", "2023-11-14T22:13:40", "--to-topic", target)
    result = run(*arguments, "--keep-timestamps", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 10
    found = read_committed(bootstrap, target, 10)
    assert sorted((int(each.value()), each.partition(), each.timestamp()[1]) for each in found) == [
        (row, row % 3, FIRST_MS + row * 1_000) for row in range(10, 20)
    ]
    assert {(each.key(), tuple(each.headers())) for each in found} == {(b"k", (("h", b"1"),))}
    again = run(*arguments, "--keep-timestamps")
    assert again.stdout == f"Nothing to add to {target}, after the rows of earlier runs.\n"


def test_target_with_other_records_is_refused(bootstrap: str, topic: str, run: Callable[..., Result]) -> None:
    other = f"{topic}-other"
    assert run("--topic", topic, "--to", "300", "--to-topic", other).exit_code == 0
    result = run("--topic", topic, "--to", "301", "--to-topic", other)
    assert f"topic '{other}' has records that are not of the replay" in str(result.exception)
    assert "has records that are not of the replay" in str(run("--topic", topic, "--to-topic", topic).exception)


@pytest.mark.promise("P11")
@pytest.mark.parametrize("step", ["sent", "offsets", "committed"])
@pytest.mark.parametrize("transaction", ["1", "2"])
def test_killed_replay_resumes(
    bootstrap: str, topic: str, run: Callable[..., Result], transaction: str, step: str
) -> None:
    target = f"{topic}-{transaction}-{step}"
    arguments = ["--topic", topic, "--to-topic", target]
    command = [sys.executable, str(DRIVER), transaction, step, "replay", *arguments, "-b", bootstrap]
    process = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert rows(bootstrap, target, ROWS) == list(range(ROWS))


def test_recreated_target_topic(bootstrap: str, topic: str, run: Callable[..., Result]) -> None:
    """An empty target gets every record again, by the same command; one with other records is refused."""
    target = f"{topic}-again"
    for _ in range(2):
        assert run("--topic", topic, "--to-topic", target).exit_code == 0
        assert rows(bootstrap, target, ROWS) == list(range(ROWS))
        make_again(bootstrap, target, 3)
    assert run("--topic", topic, "--to", "300", "--to-topic", target).exit_code == 0
    result = run("--topic", topic, "--to-topic", target)
    assert f"topic '{target}' has records that are not of the replay" in str(result.exception)


def test_rows_of_a_table_by_time(bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]) -> None:
    times = pa.array([(FIRST_MS + row * 1_000) * 1_000 for row in range(100)], pa.timestamp("us", tz="UTC"))
    columns = {"value": [b"%d" % row for row in range(100)], "offset": list(range(100)), "timestamp": times}
    deltalake.write_deltalake(str(tmp_path / "table"), pa.table(columns))
    bounds = ("--from", "2023-11-14T22:13:30", "--to", "2023-11-14T22:13:40")
    assert run("--table", tmp_path / "table", *bounds, "--to-topic", f"{topic}-time").exit_code == 0
    assert rows(bootstrap, f"{topic}-time", 10) == list(range(10, 20))
    assert run("--table", tmp_path / "table", "--from", "95", "--to-topic", f"{topic}-offset").exit_code == 0
    assert rows(bootstrap, f"{topic}-offset", 5) == list(range(95, 100))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--to-topic", "b"),
        ("--topic", "a"),
        ("--topic", "a", "--topic", "c", "--to-topic", "b"),
        ("--topic", "a", "--table", ".", "--to-topic", "b"),
        ("--topic", "a", "--to-topic", "b", "--from", "yesterday"),
    ],
)
def test_ambiguous_requests_are_refused(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(pipeline, ["replay", *arguments, "-b", "127.0.0.1:1"]).exit_code == 2
