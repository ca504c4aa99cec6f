"""`ottla pipeline replay --to-table`: the rows of a range once, in a table of its own, despite kills and races."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

import pyarrow.parquet as pq

from ottla.pipeline.cli import pipeline
from ottla.pipeline.load.land import land
from ottla.pipeline.sinks.open_table import open_table

from .limits import RUN_S
from .topics import new_topic, produce

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("table_replay_driver.py")
FIRST_MS = 1_700_000_000_000
ROWS = 300
LATE = ("--from", "2023-11-14T22:13:30", "--to", "2023-11-14T22:13:40")
"""Rows 10 to 19."""
FORMATS = ("delta", "iceberg", "parquet")

Run = Callable[..., Result]


@pytest.fixture
def topic(bootstrap: str) -> str:
    """ROWS records `{"row": N}` in three partitions, in turn, one a second by their times; 100 to 199 were sent
    first."""
    name = new_topic(bootstrap, 3)
    produce_rows(bootstrap, name, range(ROWS))
    return name


def produce_rows(bootstrap: str, topic: str, rows: range) -> None:
    ordered = sorted(rows, key=lambda row: row // 100 % 2, reverse=True)
    produce(
        bootstrap,
        topic,
        ({"value": b'{"row": %d}' % row, "partition": row % 3, "timestamp": FIRST_MS + row * 1_000} for row in ordered),
    )


@pytest.fixture
def run(bootstrap: str, commands_in_session: None) -> Run:
    """Run a command in this process and its session."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(pipeline, [*map(str, arguments), "-b", bootstrap])

    return run


def rows(table: Path) -> list[int]:
    """Rows, read by another library."""
    files = open_table(table).files()
    return sorted(
        json.loads(value)["row"] for file in files for value in pq.ParquetFile(file).read(["value"])[0].to_pylist()
    )


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    return str(request.param)


def test_a_range_of_time_of_a_topic(run: Run, topic: str, tmp_path: Path, kind: str) -> None:
    """Records out of order by time, decoded as a load decodes them; run again it adds nothing."""
    table = tmp_path / "table"
    arguments = ("replay", "--topic", topic, *LATE, "--to-table", table, "--format", kind, "--decode", "json")
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert (json.loads(result.stdout)["rows"], json.loads(result.stdout)["version"]) == (
        10,
        open_table(table).version(),
    )
    assert rows(table) == list(range(10, 20))
    assert "row" in open_table(table).schema().names
    again = run(*arguments)
    assert (again.exit_code, again.stdout) == (0, f"Nothing to add to {table}.\n")
    assert rows(table) == list(range(10, 20))


def test_replay_of_partition_with_open_and_fixed_end(run: Run, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """An open end grows with the log; a fixed end stays."""
    fixed, growing = tmp_path / "fixed", tmp_path / "growing"
    for _ in range(2):
        assert run("replay", "--topic", f"{topic}:1", "--from", "20", "--to", "30", "--to-table", fixed).exit_code == 0
        assert run("replay", "--topic", f"{topic}:1", "--from", "90", "--to-table", growing).exit_code == 0
        produce_rows(bootstrap, topic, range(ROWS, ROWS + 30))
    assert len(rows(fixed)) == 10
    assert len(rows(growing)) == 20
    assert set(rows(growing)) >= set(range(ROWS + 1, ROWS + 30, 3))


def test_rows_of_a_table_with_all_their_columns(run: Run, topic: str, tmp_path: Path, kind: str) -> None:
    """From a partitioned table into an unpartitioned one; format and columns are the defaults of the source."""
    source, table = tmp_path / "source", tmp_path / "table"
    load = run(
        "load", "-t", topic, "--table", source, "--decode", "json", "--partition-by", "partition", "--format", kind
    )
    assert load.exit_code == 0, load.output
    arguments = ("replay", "--table", source, *LATE, "--to-table", table)
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["source_version"]) == (10, open_table(source).version())
    assert rows(table) == list(range(10, 20))
    assert open_table(table).schema().names == open_table(source).schema().names
    assert open_table(table).layout().partition_columns == ("partition",)
    assert "Nothing to add" in run(*arguments).stdout
    every = run("replay", "--table", source, "--from", "98", "--to-table", tmp_path / "offsets")
    assert every.exit_code == 0, every.output
    assert len(rows(tmp_path / "offsets")) == 6


def test_odd_column_names_and_small_integers_are_copied(run: Run, bootstrap: str, tmp_path: Path) -> None:
    """Spark takes a dot in a name for a path, and Iceberg has no small integers."""
    topic, source, schema = new_topic(bootstrap, 1), tmp_path / "source", tmp_path / "schema.json"
    produce(bootstrap, topic, [{"value": b'{"a.b": 7, "a": 1, "`": "x"}'}])
    fields = [("a.b", "byte"), ("a", "long"), ("`", "string")]
    described = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    schema.write_text(json.dumps({"type": "struct", "fields": described}))
    loaded = run("load", "-t", topic, "--table", source, "--decode", "json", "--schema", schema)
    assert loaded.exit_code == 0, loaded.output
    pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    copied = run("replay", "--table", source, "--to-table", tmp_path / "table", "--format", "iceberg", "--json")
    assert copied.exit_code == 0, copied.output
    (file,) = open_table(tmp_path / "table").files()
    assert pq.ParquetFile(file).read([name for name, _ in fields]).to_pylist() == [{"a.b": 7, "a": 1, "`": "x"}]


def test_target_table_with_other_rows_is_refused(run: Run, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    assert run("load", "-t", topic, "--table", table).exit_code == 0
    sentence = "has rows that are not of the replay"
    assert sentence in str(run("replay", "--topic", topic, *LATE, "--to-table", table).exception)
    assert sentence in str(run("replay", "--table", table, *LATE, "--to-table", table).exception)
    other = tmp_path / "other"
    assert run("replay", "--topic", topic, "--to", "20", "--to-table", other).exit_code == 0
    assert sentence in str(run("replay", "--topic", topic, "--to", "21", "--to-table", other).exception)
    assert len(rows(other)) == 60


def test_two_replays_at_once_do_not_mix(run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replay commits after this one has checked the owner of the table."""
    table = tmp_path / "table"

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr("ottla.pipeline.load.driver.land", land)
        assert run("replay", "--topic", topic, "--to", "20", "--to-table", table).exit_code == 0
        return land(*given)

    monkeypatch.setattr("ottla.pipeline.load.driver.land", overtaken)
    result = run("replay", "--topic", topic, "--to", "30", "--to-table", table)
    assert "in the meantime; nothing of this load was committed" in str(result.exception)
    assert len(rows(table)) == 60


@pytest.mark.promise("P11")
@pytest.mark.parametrize(("what", "step"), [("topic", "after"), ("table", "before")])
def test_killed_replay_resumes(run: Run, bootstrap: str, topic: str, tmp_path: Path, what: str, step: str) -> None:
    source, table, scratch = tmp_path / "source", tmp_path / "table", tmp_path / "scratch"
    scratch.mkdir()
    chosen: list[str | Path] = ["--topic", topic]
    if what == "table":
        assert run("load", "-t", topic, "--table", source).exit_code == 0
        chosen = ["--table", source]
    arguments = ["replay", *chosen, *LATE, "--to-table", table, "--master", "local[2]", "-b", bootstrap]
    command = [sys.executable, str(DRIVER), step, *map(str, arguments)]
    environment = os.environ | {"TMPDIR": str(scratch)}  # for the leftovers of a killed Spark
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert rows(table) == (list(range(10, 20)) if step == "after" else [])
    result = run("replay", *chosen, *LATE, "--to-table", table)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Nothing to add" if step == "after" else "Replayed 10 rows")
    assert rows(table) == list(range(10, 20))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--topic", "a", "--to-topic", "b", "--to-table", "c"), "name the target"),
        (
            ("--topic", "a", "--to-table", "c", "--keep-timestamps"),
            "--keep-timestamps has no effect without --to-topic",
        ),
        (("--topic", "a", "--to-topic", "c", "--format", "delta"), "--format has no effect without --to-table"),
        (("--table", ".", "--to-table", "c", "--decode", "json"), "--decode has no effect without --topic"),
        (("--topic", "a", "--to-table", "c", "--from", "x"), "is not a time: give an ISO 8601 time"),
    ],
)
def test_ambiguous_requests_are_refused(arguments: tuple[str, ...], sentence: str) -> None:
    result = CliRunner().invoke(pipeline, ["replay", *arguments, "-b", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert sentence in result.stderr
