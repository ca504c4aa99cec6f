"""The commands with a table in an S3 bucket, a real broker and a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline import cli
from ottla.pipeline.operations import doctor
from ottla.pipeline.stores.object_store import ObjectStore

from .committed import read_committed
from .s3_server import BUCKET, WRONG_KEY
from .topics import new_topic, produce

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("commands_in_session", "s3_server")]

FORMATS = pytest.mark.parametrize("table_format", ["delta", "parquet"])
STREAM = """
name = "counts"
[sources.clicks]
topic = "{topic}"
decode = "json"
[query]
sql = "select id % 3 as third, count(*) as n from clicks group by id % 3"
output = "update"
[result]
table = "{table}"
format = "{table_format}"
keys = ["third"]
"""

Run = Callable[..., Any]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Run a command; returns its JSON output."""

    def run(*arguments: str, asks: bool = True) -> Any:
        where = ("-b", bootstrap) if asks else ()
        result = CliRunner().invoke(cli.pipeline, [*arguments, "--json", *where])
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout)

    return run


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A prefix for one test."""
    return f"s3://{BUCKET}/{tmp_path.name}"


def send(bootstrap: str, topic: str, numbers: range) -> None:
    """Send a JSON object for each number; ten keys, each in one partition."""
    produce(
        bootstrap,
        topic,
        ({"key": b"%d" % (one % 10), "value": b'{"id":%d}' % one, "partition": one % 10 % 3} for one in numbers),
    )


def ask(run: Run, statement: str, table: str) -> Any:
    """Run a statement with both engines; returns their common result."""
    by_spark, by_duckdb = (
        run("sql", statement, "--table", table, "--engine", engine, asks=False) for engine in ("spark", "duckdb")
    )
    assert by_spark == by_duckdb
    return by_spark


@FORMATS
def test_table_is_loaded_queried_and_maintained(
    bootstrap: str, topic: str, run: Run, place: str, table_format: str
) -> None:
    table = f"{place}/clicks"
    for part in range(2):
        send(bootstrap, topic, range(part * 30, part * 30 + 30))
        assert run("load", "-t", topic, "--table", table, "--format", table_format, "--decode", "json")["rows"] == 30
    assert run("compact", "--table", table, asks=False)["files_after"] == 1
    run("vacuum", "--table", table, "--retention-hours", "0", asks=False)
    [found] = ask(run, "select count(*) n, count(distinct id) ids, max(id) top from clicks", table)
    assert found == {"n": 60, "ids": 60, "top": 59}
    [held] = run("status", table)
    assert [(each["lag"], each["committed"]) for each in held["partitions"]] == [(0, 24), (0, 18), (0, 18)]
    again = new_topic(bootstrap, 1)
    assert run("push", table, "--topic", again, "--value-column", "id")["rows"] == 60
    assert run("push", table, "--topic", again, "--value-column", "id")["rows"] == 0
    assert {int(message.value() or b"") for message in read_committed(bootstrap, again, 60)} == set(range(60))


@FORMATS
@pytest.mark.parametrize("history", [False, True])
def test_a_snapshot(bootstrap: str, topic: str, run: Run, place: str, table_format: str, history: bool) -> None:
    table = f"{place}/latest"
    options = ("--format", table_format, "--decode", "json", "--buckets", "2", *(["--history"] if history else []))
    for part in range(2):
        send(bootstrap, topic, range(part * 20, part * 20 + 20))
        done = run("snapshot", "-t", topic, "--table", table, *options)
        assert (done["inserted"], done["updated"]) == ((0, 10) if part else (10, 0))
    current = "where current" if history else ""
    [found] = ask(run, f"select count(*) n, min(id) low, max(id) top from latest {current}", table)
    assert found == {"n": 10, "low": 30, "top": 39}
    [rows] = ask(run, "select count(*) n from latest", table)
    assert rows == {"n": 40 if history else 10}
    assert run("snapshot", "-t", topic, "--table", table)["version"] is None


@FORMATS
def test_a_replay_of_a_topic_and_of_a_table(
    bootstrap: str, topic: str, run: Run, place: str, table_format: str
) -> None:
    send(bootstrap, topic, range(30))
    first, second = f"{place}/first", f"{place}/second"
    of_topic = ("--topic", topic, "--to-table", first, "--format", table_format, "--decode", "json")
    of_table = ("--table", first, "--from", "5", "--to-table", second)
    for options, rows in ((of_topic, 30), (of_table, 15)):
        assert run("replay", *options)["rows"] == rows
        assert run("replay", *options)["version"] is None
    [found] = ask(run, "select count(*) n, min(second.offset) low from second", second)
    assert found == {"n": 15, "low": 5}
    again = new_topic(bootstrap, 1)
    assert run("replay", "--table", second, "--from", "8", "--to-topic", again)["rows"] == 6


@FORMATS
def test_stream_resumes_from_checkpoint(
    bootstrap: str, topic: str, run: Run, place: str, table_format: str, tmp_path: Path
) -> None:
    """Rows of a second run replace those with their keys; the checkpoint is local."""
    table, file = f"{place}/counts", tmp_path / "counts.toml"
    file.write_text(STREAM.format(topic=topic, table=table, table_format=table_format))
    command = ("stream", str(file), "--once", "--checkpoint", str(tmp_path / "checkpoint"))
    send(bootstrap, topic, range(30))
    assert run(*command)["rows_out"] == 3
    send(bootstrap, topic, range(30, 31))
    assert run(*command)["rows_out"] == 1
    found = ask(run, "select third, n from counts order by third", table)
    assert found == [{"third": 0, "n": 11}, {"third": 1, "n": 10}, {"third": 2, "n": 10}]
    refused = CliRunner().invoke(cli.pipeline, ["stream", str(file), "--checkpoint", f"{place}/checkpoint"])
    assert (refused.exit_code, "has to be a path of this machine" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("variables", "bucket", "sentence"),
    [
        ({"AWS_ACCESS_KEY_ID": WRONG_KEY}, BUCKET, "403|does not exist in our records"),
        ({}, "none", "The specified bucket does not exist"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, BUCKET, "error sending request"),
    ],
)
def test_store_refusal_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], bucket: str, sentence: str
) -> None:
    """Before any request to a broker, and before Spark starts."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "127.0.0.1:1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    table, file = f"s3://{bucket}/table", tmp_path / "counts.toml"
    file.write_text(STREAM.format(topic="clicks", table=table, table_format="delta"))
    commands = (
        ("load", "-t", "clicks", "--table", table),
        ("snapshot", "-t", "clicks", "--table", table),
        ("sql", "select 1", "--table", table),
        ("sql", "select 1", "--table", table, "--engine", "duckdb"),
        ("push", table, "--topic", "clicks"),
        ("replay", "--topic", "clicks", "--to-table", table),
        ("replay", "--table", table, "--to-topic", "clicks"),
        ("replay", "--table", table, "--to-table", str(tmp_path / "table")),
        ("stream", str(file), "--once", "--checkpoint", str(tmp_path / "checkpoint")),
        ("compact", "--table", table),
        ("vacuum", "--table", table),
        ("status", table),
    )
    is_retriable = "AWS_ENDPOINT_URL" in variables  # nothing answers there
    for arguments in commands:
        with pytest.raises(OttlaError, match=sentence) as caught:
            raise CliRunner().invoke(cli.pipeline, arguments).exception or AssertionError(arguments)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, OperatorError) is not is_retriable
    with pytest.raises(OperatorError, match=f"({sentence}).*; create the bucket if it is missing") as caught:
        doctor.stored_table(table)
    assert "\n" not in str(caught.value)


def test_iceberg_needs_a_catalog(run: Run, topic: str, place: str) -> None:
    for arguments in (
        ("snapshot", "-t", topic, "--table", f"{place}/table", "--format", "iceberg"),
        ("replay", "--topic", topic, "--to-table", f"{place}/table", "--format", "iceberg"),
    ):
        with pytest.raises(OperatorError, match="name a REST catalog with --catalog"):
            raise CliRunner().invoke(cli.pipeline, arguments).exception or AssertionError


def test_the_doctor_looks_at_a_store(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor.stored_table(f"{place}/table")
    assert (
        found
        == f"{place}/table will be created, files can be written and removed, and of two writers one creates a file"
    )
    monkeypatch.setattr(ObjectStore, "create", ObjectStore.replace)
    with pytest.raises(OperatorError, match="lets two writers create the same file"):
        doctor.stored_table(f"{place}/table")
