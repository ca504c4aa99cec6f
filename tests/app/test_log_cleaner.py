"""`ottla log cleaner`: progress from checkpoint and segments of a directory, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.storage.directory.cleaner_report import CleanerReport, LogReport, format_report
from ottla.storage.directory.log_cleaner import PassReport

NOTHING = ["no", "report", "from", "its", "broker"]


def cleaner(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["log", "cleaner", str(directory), *arguments])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n3\ngone 0 7\nclean 0 20\ndirty 3 15\n")
    for name in ("clean-0", "dirty-3"):
        (tmp_path / name).mkdir()
        for offset, size in ((0, 100), (10, 300), (20, 50)):
            (tmp_path / name / f"{offset:020d}.log").write_bytes(bytes(size))
            (tmp_path / name / f"{offset:020d}.index").write_bytes(bytes(8))
    return tmp_path


def test_the_dirtiest_comes_first_and_segments_count_as_a_whole(directory: Path) -> None:
    found = json.loads(cleaner(directory, "--json").output)
    assert [(each["topic"], each["partition"], each["cleaned_to"]) for each in found] == [
        ("dirty", 3, 15),
        ("clean", 0, 20),
    ]
    assert [(each["clean_bytes"], each["dirty_bytes"], each["active_bytes"]) for each in found] == [
        (100, 300, 50),
        (400, 0, 50),
    ]
    assert [each["dirty_ratio"] for each in found] == [0.75, 0.0]


def test_the_table_says_the_same(directory: Path) -> None:
    lines = cleaner(directory).output.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["dirty", "3", "0.75", "300", "100", "50", "15", "-", "-", "-", "-", *NOTHING],
        ["clean", "0", "0.00", "0", "400", "50", "20", "-", "-", "-", "-", *NOTHING],
    ]


def test_broker_report_is_included(directory: Path) -> None:
    done = PassReport(1_700_000_000_000, 2.0, 5_000_000, 1_000_000, 4_000_000, 0.5)
    logs = [
        LogReport("clean", 0, "waiting", "complete segments wait for the last stable offset", -1, done),
        LogReport(
            "dirty", 3, "uncleanable", "the CRC of the batch at offset 4 does not match", 1_700_000_600_000, None
        ),
        LogReport("never", 0, "due", "", -1, None),
        LogReport("moved", 0, "due", "", -1, None),
    ]
    (directory / "never-0").mkdir()
    (directory / ".ottla_cleaner").write_bytes(format_report(CleanerReport(1_700_000_001_000, logs)))
    found = {each["topic"]: each for each in json.loads(cleaner(directory, "--json").output)}
    assert list(found) == ["dirty", "clean", "never"]
    assert (found["clean"]["last_pass"]["mb_per_second"], found["clean"]["last_pass"]["dropped_bytes"]) == (2.5, 10**6)
    assert (found["dirty"]["state"], found["dirty"]["retry_ms"]) == ("uncleanable", 1_700_000_600_000)
    assert (found["never"]["cleaned_to"], found["never"]["state"]) == (None, "due")
    dirty, clean, never = cleaner(directory).output.splitlines()[1:]
    assert dirty.endswith(
        "uncleanable, retry at 2023-11-14T22:23:20.000Z: the CRC of the batch at offset 4 does not match"
    )
    assert clean.split()[7:11] == ["2023-11-14T22:13:20.000Z", "5000000", "1000000", "2.5"]
    assert clean.endswith("waiting: complete segments wait for the last stable offset")
    assert never.split()[6:] == ["never", "-", "-", "-", "-", "due"]


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"version":1}', b'{"version":0,"time_ms":1,"logs":[{"topic":1}]}', b"[" * 100_000, b"\xff"],
)
def test_a_damaged_report_is_named(directory: Path, data: bytes) -> None:
    (directory / ".ottla_cleaner").write_bytes(data)
    result = cleaner(directory)
    assert result.exit_code == 2
    assert ".ottla_cleaner" in str(result.exception) + result.output


def test_bytes_below_log_start_are_not_dirty(directory: Path) -> None:
    (directory / "log-start-offset-checkpoint").write_text("0\n2\nclean 0 3\ndirty 3 21\n")
    found = {each["topic"]: each for each in json.loads(cleaner(directory, "--json").output)}
    assert {topic: (each["clean_bytes"], each["dirty_bytes"]) for topic, each in found.items()} == {
        "dirty": (400, 0),
        "clean": (400, 0),
    }
    assert found["dirty"]["cleaned_to"] == 15


def test_a_directory_that_was_never_cleaned_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    assert json.loads(cleaner(tmp_path, "--json").output) == []


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nnonsense\n")
    result = cleaner(tmp_path)
    assert result.exit_code == 2
    assert "cleaner-offset-checkpoint, line 3" in result.output
    assert "restart the broker, which replaces the file" in result.output


def test_directory_without_logs_is_rejected(tmp_path: Path) -> None:
    """Not an empty table, as of a broker that has nothing to compact."""
    (tmp_path / "pictures").mkdir()
    result = cleaner(tmp_path)
    assert result.exit_code == 2
    assert "is not a data directory: give one of --data-dir or log.dirs" in result.stderr
