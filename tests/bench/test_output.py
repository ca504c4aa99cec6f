"""`--output` of the benchmarks: an unwritable path is reported before any measurement."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cleaner
import groups
import micro_batch
import pytest
import size
from harness.output import MEASURED, add_output, write_result

import client
import pipeline

PROGRAMS = (cleaner, client, groups, micro_batch, pipeline, size)


def parsed(*options: str) -> Path:
    parser = argparse.ArgumentParser()
    add_output(parser, "some")
    output: Path = parser.parse_args(options).output
    return output


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_of_them_refuses_a_directory_at_its_start(
    program: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["measure", "--output", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        program.main()  # type: ignore[attr-defined]
    assert ended.value.code == 2
    assert f"{tmp_path} is a directory: name a file in it" in capsys.readouterr().err


def test_a_file_where_a_directory_has_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        parsed("--output", str(tmp_path / "file" / "deeper" / "figures.json"))
    assert f"{tmp_path / 'file'} is not a directory" in capsys.readouterr().err


def test_directories_are_made(tmp_path: Path) -> None:
    path = parsed("--output", str(tmp_path / "a" / "b" / "figures.json"))
    write_result(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    write_result(parsed("--output", str(path)), {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}


def test_the_default() -> None:
    assert parsed() == MEASURED / "some.json"
