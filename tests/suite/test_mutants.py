"""The mutation trial: excluded code, chosen tests, and outcomes in a copy."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .dependencies import Steps, dependencies, source_files
from .mutants import AREAS, Copy, Mutant, Outcome, described, excluded, is_light, nearest, table

SOURCE = '''"""Adds 1."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    LIMIT = 1


@dataclass(frozen=True)
class Adder:
    __slots__ = ("a" * 1,)
    step: Literal[1] = 2

    def add(self, value: Literal[1]) -> Literal[1]:
        assert value > 1
        logger.info("adds %d", 1)
        if value > self.step:
            raise ValueError(f"{value - 1} is too large")
        return value + self.step
'''


@pytest.fixture(scope="module")
def steps() -> Steps:
    return dependencies(source_files())


def test_code_without_effect_is_excluded() -> None:
    spans = list(excluded(ast.parse(SOURCE)))
    lines = {line for start, end in spans for line in range(start[0], end[0] + 1)}
    assert lines == {5, 6, 9, 11, 12, 14, 15, 16, 18}


def test_nearest_tests_are_chosen_within_the_limit() -> None:
    distances = {
        "tests/storage/test_far.py": 3,
        "tests/storage/test_near.py": 1,
        "tests/storage/test_log_parts.py": 3,
        "tests/storage/test_long.py": 1,
        "tests/cluster/test_near.py": 1,
        "tests/cluster/test_far.py": 2,
    }
    durations = dict.fromkeys(distances, 10.0) | {"tests/storage/test_long.py": 50.0}
    files = {path: "cluster" not in path for path in [*distances, "tests/net/test_other.py"]}
    assert nearest("src/log.py", files, distances, durations, 40) == [
        "tests/cluster/test_near.py",
        "tests/storage/test_near.py",
        "tests/storage/test_log_parts.py",
        "tests/storage/test_far.py",
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/storage/test_append.py", True),
        ("tests/cluster/test_damage.py", False),
        ("tests/pipeline/sinks/test_delta.py", True),
        ("tests/pipeline/test_load.py", False),
        ("tests/pipeline/stream/test_letters.py", False),
    ],
)
def test_tests_without_processes_are_light(steps: Steps, path: str, expected: bool) -> None:
    assert is_light(path, steps) == expected


def test_description_has_the_changed_line() -> None:
    mutant = Mutant("src/a.py", (2, 4), "NumberReplacer", 0)
    assert described(mutant, "a = 1\nb = 2\n", "a = 1\nb = 3\n") == "src/a.py:2: NumberReplacer\n  - b = 2\n  + b = 3"


def test_table_counts_a_hang_as_found() -> None:
    assert table({"storage": {"found": 2, "hang": 1, "survived": 4}}).splitlines()[1].split() == [
        "storage",
        "3",
        "4",
        "0",
    ]


TESTS = """
import time
from adder import add

def test_adds(): assert add(1, 2) == 3
def test_fails_always(): assert False
"""


@pytest.mark.parametrize(
    ("text", "limit_s", "outcome"),
    [
        ("def add(a, b): return b + a\n", 60, Outcome("survived")),
        ("def add(a, b): return a - b\n", 60, Outcome("found", ("tests/test_adder.py::test_adds",))),
        ("def add(a, b):\n    while True: pass\n", 3, Outcome("hang")),
        ("add = None + 1\n", 60, Outcome("found", ("tests/test_adder.py",))),
    ],
)
def test_copy_has_the_outcome_of_tests_that_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, limit_s: float, outcome: Outcome
) -> None:
    root, folder = tmp_path / "root", tmp_path / "copy"
    for path, content in {
        "src/adder.py": "def add(a, b): return a + b\n",
        "tests/test_adder.py": TESTS,
        "tests/suite/durations.json": "{}",
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    monkeypatch.setattr("tests.suite.mutants.ROOT", root)
    monkeypatch.setattr(
        "tests.suite.mutants.git", lambda *_: "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    )
    copy = Copy(folder)
    assert copy.outcome("src/adder.py", text, ["tests/test_adder.py"], limit_s) == outcome
    assert (folder / "src/adder.py").read_text() == "def add(a, b): return a + b\n"


def test_areas_exist() -> None:
    source = Path(__file__).resolve().parents[2] / "src/ottla"
    assert all(list(source.glob(pattern)) for patterns in AREAS.values() for pattern in patterns)
