"""`ottla log restore`: quarantined directories get their name back, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.app.disk import RealDisk
from ottla.app.main import cli

STRAYS = {
    "t-0": f"t-0.{'1' * 32}-stray",
    "with.dots-and-dashes-12": f"with.dots-and-dashes-12.{'2' * 32}-stray",
    "broker-1": f"broker-1.{'3' * 32}-stray",
}
OTHERS = ("u-0", f"u-1.{'4' * 32}-delete", "x-stray", f"no-partition.{'5' * 32}-stray", "__cluster_metadata-0")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in (*STRAYS.values(), *OTHERS):
        (tmp_path / name).mkdir()
        (tmp_path / name / "holds").write_text(name)
    (tmp_path / f"file-0.{'6' * 32}-stray").write_text("a file")
    return tmp_path


def restore(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["log", "restore", str(directory), *arguments])


def held(directory: Path) -> dict[str, str]:
    """The origin that each directory contains, by its current name."""
    return {path.parent.name: path.read_text() for path in directory.glob("*/holds")}


def test_all_come_back_and_the_others_stay(directory: Path) -> None:
    done = restore(directory, "--execute")
    assert done.exit_code == 0, done.output
    assert held(directory) == STRAYS | {name: name for name in OTHERS}
    assert (directory / f"file-0.{'6' * 32}-stray").is_file()
    assert done.output.count(" restored") == len(STRAYS)
    assert "No quarantined directories" in restore(directory).output


def test_without_execute_nothing_changes(directory: Path) -> None:
    before = held(directory)
    done = restore(directory, "--json")
    assert done.exit_code == 0, done.output
    assert held(directory) == before
    rows = json.loads(done.output)
    assert {row["directory"]: row["name"] for row in rows} == {now: was for was, now in STRAYS.items()}
    assert {(row["restored"], row["state"]) for row in rows} == {(False, "can be restored")}


@pytest.mark.promise("D15")
def test_a_name_that_exists_is_not_taken(directory: Path) -> None:
    """Not even an empty directory, which rename(2) would replace."""
    (directory / "t-0").mkdir()
    looked = restore(directory)
    assert looked.exit_code == 1
    assert "1 of 3 directories can't be restored" in looked.output
    assert "the column `state` has the reasons" in looked.output
    done = restore(directory, "--execute", "--json")
    assert done.exit_code == 1
    assert "directories were not restored" in done.output
    assert (directory / STRAYS["t-0"]).is_dir()
    assert not list((directory / "t-0").iterdir())
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert "t-0 exists" in rows["t-0"]["state"]
    assert [name for name, row in rows.items() if row["restored"]] == sorted(STRAYS.keys() - {"t-0"})


def test_of_two_with_one_name_the_operator_chooses(directory: Path) -> None:
    second = f"t-0.{'f' * 32}-stray"
    (directory / second).mkdir()
    done = restore(directory, "--execute")
    assert done.exit_code == 1
    assert "select one" in done.output
    assert not (directory / "t-0").exists()
    assert restore(directory, second, "--execute").exit_code == 0
    assert not (directory / second).exists()
    assert (directory / STRAYS["t-0"]).is_dir()


def test_truncated_name_is_reported(directory: Path) -> None:
    tail = f"-0.{'7' * 32}-stray"
    name = "x" * (255 - len(tail)) + tail
    (directory / name).mkdir()
    done = restore(directory, name, "--execute")
    assert done.exit_code == 1
    assert "by hand" in done.output
    assert (directory / name).is_dir()


@pytest.mark.parametrize("name", ["u-0", "missing", f"file-0.{'6' * 32}-stray"])
def test_name_that_is_not_quarantined_is_rejected(directory: Path, name: str) -> None:
    before = held(directory)
    done = restore(directory, STRAYS["t-0"], name, "--execute")
    assert done.exit_code == 2
    assert name in done.output
    assert held(directory) == before


@pytest.mark.parametrize("arguments", [(), ("--execute",)])
def test_directory_of_running_broker_is_rejected(directory: Path, arguments: tuple[str, ...]) -> None:
    before = held(directory)
    lock = RealDisk().lock(str(directory / ".lock"))
    try:
        done = restore(directory, *arguments)
    finally:
        lock.release()
    assert done.exit_code == 2
    assert "stop the broker first" in done.output
    assert held(directory) == before
