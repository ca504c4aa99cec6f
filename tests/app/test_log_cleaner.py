"""`ottla log cleaner`: what the checkpoint and the segments of a directory say, and what it makes of damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli


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
        ["dirty", "3", "0.75", "300", "100", "50", "15"],
        ["clean", "0", "0.00", "0", "400", "50", "20"],
    ]


def test_a_directory_that_was_never_cleaned_has_no_rows(tmp_path: Path) -> None:
    assert json.loads(cleaner(tmp_path, "--json").output) == []


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nnonsense\n")
    result = cleaner(tmp_path)
    assert result.exit_code == 2
    assert "cleaner-offset-checkpoint, line 3" in str(result.exception) + result.output
