"""The commands' surface without Spark: options, words, values of results, the progress line."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.app import main
from ottla.pipeline import cli
from ottla.pipeline.cli.load import summary_text
from ottla.pipeline.load import LoadSummary
from ottla.pipeline.plan import LoadPlan, OffsetRange
from ottla.pipeline.progress import ProgressLine, progress_text
from ottla.pipeline.query import view_name
from ottla.pipeline.results import printable
from ottla.pipeline.sinks.delta import DeltaTarget


@pytest.mark.parametrize("command", ["load", "sql", "demo", "doctor", "compact", "vacuum", "package"])
def test_help_has_examples(command: str) -> None:
    result = CliRunner().invoke(cli.pipeline, [command, "--help"])
    assert result.exit_code == 0
    assert f"ottla pipeline {command} " in result.output.split("Examples:")[1]


@pytest.mark.parametrize("size", ["0", "-1", "x", "1tb", "", "b1", "1.5m"])
def test_sizes_that_are_none(size: str) -> None:
    arguments = ["load", "-t", "a", "--table", "t", "--max-bytes-per-task", size]
    result = CliRunner().invoke(cli.pipeline, arguments)
    assert result.exit_code == 2
    assert "is not a size" in result.output


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    arguments = ["load", "-t", "a", "--table", str(tmp_path / "t"), "-b", "127.0.0.1:1"]
    result = CliRunner().invoke(main.cli, ["pipeline", *arguments])
    assert result.exit_code == 2
    assert "127.0.0.1:1" in result.output
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("schedule", ["", "weekly", "61 * * * *", "* * * *"])
def test_schedules_that_are_none(tmp_path: Path, schedule: str) -> None:
    arguments = ["load", "-t", "a", "--table", str(tmp_path / "t"), "--schedule", schedule, "-b", "127.0.0.1:1"]
    result = CliRunner().invoke(main.cli, ["pipeline", *arguments])
    assert result.exit_code == 2
    assert "is none of hourly, daily and no cron expression" in result.output


def test_what_a_summary_says() -> None:
    nothing = LoadSummary(table="/t", topics=["a", "b"], pipeline_id="default")
    assert summary_text(nothing) == "Nothing new in a, b; /t is unchanged."
    some = LoadSummary(
        table="/t", topics=["a"], pipeline_id="default", version=3, rows=1_000, partitions=2, land_s=0.5, files=2
    )
    assert summary_text(some).startswith("Loaded 1,000 rows from 2 partitions of a into /t as version 3: 0.5 s, 2,000")
    assert some.to_json()["rows_per_s"] == 2_000


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
