"""The package in a job: complete, before an installed one, with the compiled module where a worker can use it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import ottla
from ottla.pipeline.spark.package import write_package
from ottla.record.walk import IMPLEMENTATION

PRINT_FACTS = (
    "import ottla, ottla.client.admin.cluster, ottla.record.batch; from ottla.record import walk;"
    "print(ottla.__file__, ottla.__version__, walk.IMPLEMENTATION)"
)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The package's directory as an executor unpacks it."""
    with zipfile.ZipFile(write_package(tmp_path / "ottla.zip")) as archive:
        archive.extractall(tmp_path / "files" / "ottla")
    return tmp_path / "files" / "ottla"


def worker_facts(package: Path) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PRINT_FACTS],
        env={"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


def compiled_module(package: Path) -> Path:
    if IMPLEMENTATION != "compiled":
        pytest.skip("the compiled module was not built")
    return next((package / "record").glob(f"_batch*{EXTENSION_SUFFIXES[0]}"))


def test_a_worker_runs_the_very_code_of_the_driver(unpacked: Path) -> None:
    assert {path.suffix for path in unpacked.rglob("*") if path.is_file()} <= {".py", ".so"}
    assert worker_facts(unpacked) == [str(unpacked / "__init__.py"), ottla.__version__, IMPLEMENTATION]
    root = Path(ottla.__file__).parent
    sources = {path.relative_to(root) for path in root.rglob("*.py")}
    assert sources == {path.relative_to(unpacked) for path in unpacked.rglob("*.py")}


def test_a_worker_of_another_platform_takes_the_pure_twin(unpacked: Path) -> None:
    module = compiled_module(unpacked)
    module.rename(module.with_name("_batch.cpython-399-other-linux-gnu.so"))
    assert worker_facts(unpacked)[2] == "pure"


def test_unloadable_compiled_module_is_skipped(unpacked: Path) -> None:
    """For example built against a newer C library: the name matches, but loading fails."""
    compiled_module(unpacked).write_bytes(b"\x7fELF")
    assert worker_facts(unpacked)[2] == "pure"
