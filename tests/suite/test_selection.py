"""The selection of test files by change, day and duration."""

from __future__ import annotations

from pathlib import Path

import pytest

from .dependencies import ROOT, dependencies, distances_to
from .selection import (
    NOT_UNIT,
    PARTS,
    REPRESENTATIVES,
    durations_in,
    recorded,
    select,
    short_form,
    sixths,
    test_files,
    touched,
)

test_files.__test__ = False  # type: ignore[attr-defined]

TREE = {
    "src/ottla/__init__.py": "",
    "src/ottla/app/__init__.py": "",
    "src/ottla/app/start.py": "from ottla.storage import log",
    "src/ottla/app/main.py": "COMMANDS = {'topic': 'ottla.cli.topic'}",
    "src/ottla/cli/__init__.py": "",
    "src/ottla/cli/topic.py": "def f():\n    import ottla.client",
    "src/ottla/client/__init__.py": "from ottla.client.wire import x",
    "src/ottla/client/wire.py": "",
    "src/ottla/storage/__init__.py": "",
    "src/ottla/storage/log.py": "from ottla.storage.files import names",
    "src/ottla/storage/files.py": "",
    "tests/conftest.py": "",
    "tests/storage/conftest.py": "from ottla.storage.files import names",
    "tests/storage/test_log.py": "from ottla.storage.log import Log",
    "tests/cli/test_topic.py": "from ottla.app.main import main",
    "tests/cluster/nodes.py": "import subprocess\nsubprocess.run(['python', '-m', 'ottla', 'start'])",
    "tests/cluster/test_nodes.py": "from .nodes import start",
    "tests/cluster/test_driver.py": "DRIVER = 'driver.py'",
    "tests/cluster/driver.py": "import ottla.client",
    "compat/fetch.py": "",
    "compat/java/test_tools.py": "import fetch",
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            "src/ottla/storage/files.py",
            {"tests/storage/test_log.py": 2, "tests/cluster/test_nodes.py": 6},
        ),
        ("src/ottla/client/wire.py", {"tests/cli/test_topic.py": 6, "tests/cluster/test_driver.py": 5}),
        ("compat/fetch.py", {"compat/java/test_tools.py": 1}),
        ("tests/cluster/nodes.py", {"tests/cluster/test_nodes.py": 1}),
    ],
)
def test_distance_counts_imports_strings_and_processes(changed: str, expected: dict[str, int]) -> None:
    found = distances_to([changed], dependencies(TREE, TREE))
    assert {path: length for path, length in found.items() if "/test_" in path} == expected


def test_change_of_common_conftest_touches_all_tests() -> None:
    found = distances_to(["tests/conftest.py"], dependencies(TREE, TREE))
    assert {path for path in TREE if path.startswith("tests/")} == found.keys()


def test_document_touches_tests_that_name_it() -> None:
    texts = {"tests/a/test_a.py": "page = 'docs/guides/mirror.md'", "tests/b/test_b.py": ""}
    assert touched(["docs/guides/mirror.md"], {path: {} for path in texts}, texts) == {"tests/a/test_a.py": 0}


def test_changed_pins_touch_every_test_as_the_farthest() -> None:
    texts = {"tests/a/test_a.py": "", "tests/b/test_b.py": ""}
    steps = {"src/x.py": {}, "tests/a/test_a.py": {"src/x.py": 1}, "tests/b/test_b.py": {}}
    found = touched(["constraints.txt", "src/x.py"], steps, texts)
    assert {path: found[path] for path in texts} == {"tests/a/test_a.py": 1, "tests/b/test_b.py": 2}


def test_every_file_runs_within_six_days() -> None:
    durations = {f"tests/a/test_{number}.py": float(number * 7 % 50) for number in range(40)}
    chosen = [select(durations, durations, {}, day, 1_000).chosen for day in range(100, 100 + PARTS)]
    assert set().union(*chosen) == durations.keys()
    assert sum(map(len, chosen)) == len(durations)


def test_the_sixth_and_changed_tests_come_before_dependents() -> None:
    files = [f"tests/a/test_{number}.py" for number in range(12)]
    durations = dict.fromkeys(files, 10.0)
    daily = sixths(files, durations)[5]
    others = [path for path in files if path not in daily]
    distances = {others[0]: 0, others[1]: 4, others[2]: 2}
    selection = select(files, durations, distances, 5, 40)
    assert list(selection.chosen) == [*daily, others[0], others[2]]
    assert selection.left_out == {others[1]: "depends on the change, distance 4"}
    assert selection.seconds == 40


def test_report_of_pytest_gives_seconds_of_a_file(tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text(
        '<testsuite><testcase classname="tests.suite.test_selection" time="1.5"/>'
        '<testcase classname="tests.suite.test_selection.TestClass" time="2"/>'
        '<testcase classname="gone" time="9"/></testsuite>'
    )
    assert durations_in([report]) == {"tests/suite/test_selection.py": 3.5}


@pytest.mark.parametrize("family", REPRESENTATIVES)
def test_each_directory_has_a_representative(family: str) -> None:
    files = test_files(family)
    assert set(REPRESENTATIVES[family]) <= set(files)
    directories = {path.split("/")[1] for path in files if path.count("/") > 1}
    chosen = short_form(family, files)
    assert directories <= {path.split("/")[1] for path in chosen}
    assert not {path.split("/")[1] for path in REPRESENTATIVES["tests"]} - NOT_UNIT


def test_recorded_durations_are_of_existing_files() -> None:
    assert not [path for path in recorded() if not (ROOT / path).exists()]
