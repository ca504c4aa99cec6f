"""What holds for the tests of every directory: long ones come first, and the last limit of a test lies behind its own.

Pytest ends the whole process at `faulthandler_timeout`, for a test that no signal reaches. That is one figure for all
tests, so one that may take longer would end the run before its own limit.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path

import pytest

DURATIONS = Path(__file__).parent / "tests" / "suite" / "durations.json"
LONG_S = 15
"""A file of this duration that came last would leave the other workers idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what took long in the recorded run; within a file, and for all others, the order stays."""
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    long = {path: -duration for path, duration in seconds.items() if duration >= LONG_S}
    items.sort(key=lambda item: long.get(item.nodeid.partition("::")[0], 0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Put the end of the process off for a test that has a longer limit than the others."""
    marker = item.get_closest_marker("timeout")
    last = float(item.config.getini("faulthandler_timeout") or 0)
    usual = float(item.config.getini("timeout") or 0)
    if marker is not None and last and (own := float(marker.args[0])) > usual:
        faulthandler.dump_traceback_later(own + last - usual, exit=True, file=sys.__stderr__ or sys.stderr)
