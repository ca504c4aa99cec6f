"""The commands' interface without Spark: options, messages, values of results, the progress line."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

import pyarrow as pa

from ottla.app import main
from ottla.cli.command import Command
from ottla.common.errors import OperatorError
from ottla.pipeline import cli
from ottla.pipeline.cli.sql import SMALL_RESULT_ROWS, duckdb_hint, sql
from ottla.pipeline.cli.table_loads import summary_text
from ottla.pipeline.load.driver import LoadSummary
from ottla.pipeline.model.plan import LoadPlan, OffsetRange
from ottla.pipeline.model.results import ResultFile, as_records, printable, write_csv
from ottla.pipeline.model.retriable import as_retriable
from ottla.pipeline.operations.progress import ProgressLine, progress_text
from ottla.pipeline.sinks.delta import DeltaTarget
from ottla.pipeline.spark import session
from ottla.pipeline.sql.query import view_name, view_names


@pytest.mark.parametrize(
    "command", ["load", "snapshot", "sql", "demo", "doctor", "redrive", "compact", "vacuum", "package"]
)
def test_help_has_examples(command: str) -> None:
    result = CliRunner().invoke(cli.pipeline, [command, "--help"])
    assert result.exit_code == 0
    assert f"ottla pipeline {command} " in result.output.split("Examples:")[1]


def test_help_examples_are_safe_in_a_shell() -> None:
    """Outside of single quotes and comments a shell would run the text between backticks."""
    for command in cli.pipeline.commands.values():
        assert isinstance(command, Command)
        for example in command.examples:
            assert "`" not in re.sub("'[^']*'|#.*", "", example)


@pytest.mark.parametrize(
    ("options", "row_count", "is_hinted"),
    [
        ((), SMALL_RESULT_ROWS, True),
        ((), SMALL_RESULT_ROWS + 1, False),
        (("--engine", "spark"), 1, False),
        (("--master", "spark://host:7077"), 1, False),
    ],
    ids=["small", "large", "engine chosen", "cluster chosen"],
)
def test_small_result_of_spark_suggests_duckdb(
    tmp_path: Path, options: tuple[str, ...], row_count: int, is_hinted: bool
) -> None:
    context = sql.make_context("sql", ["select 1", "--table", str(tmp_path), *options])
    hint = duckdb_hint(context, row_count)
    assert (hint is not None and "--engine duckdb" in hint) == is_hinted


@pytest.mark.parametrize(
    "size", ["0", "-1", "x", "1tb", "", "b1", "1.5m", "8589934592g", "9" * 19 + "g", "9" * 5_000, "\u0663m", "nan"]
)
def test_invalid_sizes_are_refused(size: str) -> None:
    arguments = ["load", "-t", "a", "--table", "t", "--max-bytes-per-task", size]
    result = CliRunner().invoke(cli.pipeline, arguments)
    assert result.exit_code == 2
    assert "is not a size" in result.output


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    arguments = ["load", "-t", "a", "--table", str(tmp_path / "t"), "-b", "127.0.0.1:1"]
    result = CliRunner().invoke(main.cli, ["pipeline", *arguments])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output
    assert not (tmp_path / "t").exists()
    found = json.loads(CliRunner().invoke(main.cli, ["pipeline", *arguments, "--json"]).stdout)
    assert "127.0.0.1:1" in found.pop("error")
    assert found == {"exit_code": 1, "retriable": True}


def test_error_of_operator_is_json_object_too(tmp_path: Path) -> None:
    arguments = ["compact", "--table", str(tmp_path / "t"), "--json"]
    result = CliRunner().invoke(main.cli, ["pipeline", *arguments])
    assert json.loads(result.stdout) | {"error": ""} == {"error": "", "exit_code": 2, "retriable": False}
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("cause", "is_retriable"),
    [
        (ConnectionRefusedError(), True),
        (OSError(errno.EHOSTUNREACH, "no route"), True),
        (OSError("AWS Error NETWORK_CONNECTION during HeadObject: curlCode: 7, Couldn't connect to server"), True),
        (FileNotFoundError(), False),
        (None, False),
    ],
)
def test_unreachable_store_is_retriable(cause: Exception | None, is_retriable: bool) -> None:
    error = OperatorError("the table can't be read")
    error.__cause__ = cause
    assert isinstance(as_retriable(error), OperatorError) is not is_retriable


@pytest.mark.parametrize(
    "arguments",
    [
        ["load", "-t", "a", "--table", "t", "--from", "offset:" + "9" * 5_000],
        ["load", "-t", "a", "--table", "t", "--from", "offset:-1"],
        ["load", "-t", "a", "--table", "t", "--to", "9" * 5_000],
        ["load", "-t", "a", "--table", "t", "--from", "1969-12-31"],
        ["load", "-t", "a", "--table", "t", "--from", "offset:2", "--to", "offset:1"],
        ["load", "-t", "a", "--table", "t", "--from", "2026-01-02", "--to", "2026-01-01T23:00"],
        ["load", "-t", "a", "--table", "t", "--master", "local[0]"],
        ["load", "-t", "a", "--table", "t", "--master", "local[\u0663]"],
        ["load", "-t", "a", "--table", "t", "--engine", "local", "--master", "spark://a:1"],
        ["load", "-t", "a", "--table", "t", "--engine", "local", "--conf", "a=b"],
        ["load", "-t", "a", "--table", "t", "--pipeline-id", "a\nb"],
        ["load", "-t", "a", "--table", ""],
        ["load", "--table", "t"],
        ["load", "-t", "a", "--topics-pattern", "a", "--table", "t"],
        ["load", "--topics-pattern", "(", "--table", "{topic}"],
        ["load", "-t", "a", "--table", "t", "--parallel-tables", "2"],
        ["load", "-t", "a,b", "--table", "{topic}", "--decode", "avro"],
        ["sql", "select 1", "--table", ""],
        ["sql", " ; "],
        ["status", ""],
        ["compact", "--table", ""],
        ["compact", "--table", "t", "--target-size", "9" * 30],
        ["vacuum", "--table", ""],
        ["vacuum", "--table", "t", "--retention-hours", "9" * 30],
        ["vacuum", "--table", "t", "--retention-hours", "9" * 5_000],
        ["push", "", "--topic", "a"],
        ["replay", "--topic", "a:" + "9" * 5_000, "--to-topic", "b"],
        ["replay", "--topic", "a", "--to-topic", "b", "--from", "9" * 5_000],
        ["replay", "--topic", "a", "--to-topic", "b", "--from", "20", "--to", "10"],
        ["replay", "--topic", "a", "--to-topic", "b", "--from", "latest", "--to", "2026-01-01"],
        ["doctor", "--table", ""],
        ["package", "--output", ""],
        ["demo", "--dir", ""],
        ["demo", "--master", "nonsense"],
        ["demo", "--events", "9" * 5_000],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_invalid_commands_are_refused_before_any_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "127.0.0.1:1")
    result = CliRunner().invoke(main.cli, ["pipeline", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "127.0.0.1:1" not in result.stderr
    assert len(result.stderr.splitlines()[-1]) < 12_000
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_load_without_java_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(environment: object = None) -> None:
        raise OperatorError("Spark needs Java 17 or newer")

    monkeypatch.setattr(session, "find_java", no_java)
    for arguments in (["load", "-t", "a", "--table", "t", "--engine", "spark"], ["demo", "--dir", "d"]):
        monkeypatch.chdir(tmp_path)
        result = CliRunner().invoke(main.cli, ["pipeline", *arguments])
        assert (result.exit_code, result.stderr) == (2, "ottla: Spark needs Java 17 or newer\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "schedule",
    ["", "weekly", "61 * * * *", "* * * *", "*/" + "9" * 5_000 + " * * * *", "* * * * 5L/2", "\u0663 * * * *"],
)
def test_invalid_schedules_are_refused(tmp_path: Path, schedule: str) -> None:
    arguments = ["load", "-t", "a", "--table", str(tmp_path / "t"), "--schedule", schedule, "-b", "127.0.0.1:1"]
    result = CliRunner().invoke(main.cli, ["pipeline", *arguments])
    assert result.exit_code == 2
    assert "is neither one of hourly, daily nor a cron expression" in result.output


def test_summary_text() -> None:
    nothing = LoadSummary(table="/t", topics=["a", "b"], pipeline_id="default")
    assert summary_text(nothing) == "Nothing new in a, b; /t is unchanged."
    some = LoadSummary(
        table="/t", topics=["a"], pipeline_id="default", version=3, rows=1_000, partitions=2, land_s=0.5, files=2
    )
    assert summary_text(some).startswith("Loaded 1,000 rows from 2 partitions of a into /t as version 3: 0.5 s, 2,000")
    assert some.to_json()["rows_per_s"] == 2_000


def test_non_json_numbers_are_text() -> None:
    assert printable([float("nan"), float("inf"), {"a": float("-inf")}]) == ["NaN", "Infinity", {"a": "-Infinity"}]


def test_duplicate_result_columns_are_refused() -> None:
    result = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(OperatorError, match="two columns of the result are called 'a'"):
        as_records(result)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_a_result_file_appears_whole_or_not_at_all(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    with ResultFile(path) as file:
        assert not path.exists()
        file.write(pa.table({"a": [1, None]}))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), ResultFile(path):
        raise KeyboardInterrupt
    assert ([one.name for one in tmp_path.iterdir()], path.read_bytes()) == ([path.name], before)


def test_signal_while_a_result_is_created_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, mode: str) -> None:
        path.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), ResultFile(tmp_path / "out.csv"):
        pass
    assert not list(tmp_path.iterdir())


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_unwritable_output_is_reported_first(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "out.csv", Path("/proc/out.csv")):
        message = r"out.csv can't be written: .*; name another file with --output"
        with pytest.raises(OperatorError, match=message), ResultFile(path):
            pass


def test_a_result_that_parquet_can_not_hold(tmp_path: Path) -> None:
    result = pa.table({"a": pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval())])})
    with ResultFile(tmp_path / "out.parquet") as file, pytest.raises(OperatorError, match="Parquet can't hold"):
        file.write(result)
    assert list(tmp_path.iterdir()) == []


def test_table_names_differing_in_case_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="two tables would be named 'Clicks'"):
        view_names([DeltaTarget(tmp_path / "a" / "Clicks"), DeltaTarget(tmp_path / "b" / "clicks")])


def test_maps_of_results_are_objects() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.struct([("m", pa.map_(pa.int64(), pa.string()))])))
    found = pa.table({"m": pa.array([[("a", [{"m": [(1, "x")]}, None])], [], None], kind)})
    values = [{"a": [{"m": {"1": "x"}}, None]}, {}, None]
    assert as_records(found) == [{"m": value} for value in values]
    stream = io.StringIO()
    write_csv(found, stream)
    assert stream.getvalue().splitlines()[1] == '"{""a"": [{""m"": {""1"": ""x""}}, null]}"'


def test_values_of_results() -> None:
    assert printable(b"caf\xc3\xa9 \xff") == "caf\u00e9 \\xff"
    assert printable([{"key": "a", "value": b"1"}, None]) == [{"key": "a", "value": "1"}, None]
    assert printable(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00+00:00"


@pytest.mark.parametrize(("name", "view"), [("clicks", "clicks"), ("page-views", "page_views"), ("2026", "t_2026")])
def test_names_of_views(tmp_path: Path, name: str, view: str) -> None:
    assert view_name(DeltaTarget(tmp_path / name)) == view


def test_the_progress_line() -> None:
    part = OffsetRange("a", "id", 0, 0, 1_000, 10)
    plan = LoadPlan("default", "read_committed", ranges=[part], tasks=[part, part])
    assert progress_text(plan, 1, 400, 500, 2.0) == "tasks 1/2 · 400 rows · 200 rows/s · lag 500 · 2 s left"
    assert progress_text(plan, 0, 0, 0, 1.0) == "tasks 0/2 · 0 rows · 0 rows/s · lag 1,000"
    stream = io.StringIO()
    line = ProgressLine(stream)
    line.planned(plan)
    line.landing(plan, None)
    line.landed([])
    line.close()


@pytest.mark.parametrize("command", ["load", "snapshot", "doctor"])
def test_pattern_in_place_of_topic_is_refused(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.pipeline, [command, "-t", "orders,clicks.*", "--table", str(tmp_path / "lake")])
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    assert "'clicks.*' is not a topic name, and --topics takes no pattern" in " ".join(result.output.split())
    assert "topic_pattern of a source of 'ottla pipeline stream'" in " ".join(result.output.split())
