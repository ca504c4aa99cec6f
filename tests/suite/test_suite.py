"""The suite itself: a test that hangs ends alone, and the shell that it runs in does not matter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HANGING = """
import signal, threading

def test_before(): pass

def test_hangs():
    {where}
    threading.Event().wait()

def test_after(): pass
"""

PATIENT = """
import threading
import pytest

@pytest.mark.timeout(3)
def test_that_may_take_longer():
    threading.Event().wait()

def test_after(): pass
"""

CHILD_IS_INTERRUPTED = """
import signal, subprocess, sys

def test_a_child_can_be_interrupted():
    child = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == -signal.SIGINT
"""

CONFIGURES_LOGGING = """
import logging
from ottla.app.logging import configure_logging

def test_starts_a_node():
    configure_logging("info", "text")

def test_next():
    assert not [each for each in logging.getLogger().handlers if each.filters]
"""


def run_pytest(folder: Path, content: str, *arguments: str, shell: str = "") -> str:
    """The output of a run of one module, with the settings and the conftests of this suite."""
    (folder / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (folder / "tests").mkdir()
    (folder / "tests" / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "tests" / "test_it.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", str(folder), *arguments]
    result = subprocess.run(
        ["sh", "-c", f'{shell} exec "$@"', "sh", *command], capture_output=True, text=True, timeout=120, check=False
    )
    return result.stdout


@pytest.mark.parametrize(
    ("where", "limit"),
    [
        ("pass", ["--timeout", "1"]),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())", ["-o", "faulthandler_timeout=1"]),
    ],
    ids=["in Python", "where no signal gets through"],
)
def test_a_test_that_hangs_takes_no_other_with_it(tmp_path: Path, where: str, limit: list[str]) -> None:
    printed = run_pytest(tmp_path, HANGING.format(where=where), "--numprocesses", "1", "--dist", "worksteal", *limit)
    assert "1 failed, 2 passed" in printed
    assert "test_hangs" in printed


def test_a_test_with_a_longer_limit_of_its_own_reaches_it(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, PATIENT, "-o", "timeout=0.5", "-o", "faulthandler_timeout=1.5")
    assert "1 failed, 1 passed" in printed
    assert "Timeout (>3.0s)" in printed


def test_a_shell_that_ignores_interrupts_does_not_matter(tmp_path: Path) -> None:
    assert "1 passed" in run_pytest(tmp_path, CHILD_IS_INTERRUPTED, "-v", shell="trap '' INT;")


def test_logging_set_up_by_one_test_ends_with_it(tmp_path: Path) -> None:
    """The rate limit of a node changes messages, which tests of log lines compare."""
    assert "2 passed" in run_pytest(tmp_path, CONFIGURES_LOGGING)
