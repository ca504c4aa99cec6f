"""What holds for all tests."""

from __future__ import annotations

import gc
import signal

import pytest
from hypothesis import HealthCheck, settings

# An example that takes long to run, or to make, says something about the machine, not about the code.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

# Who ignores signals, as a shell does with SIGINT for a job in the background and nohup with SIGHUP, would hand this on
# to each process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

LONGEST_FIRST = (
    "tests/pipeline/test_standalone.py",
    "tests/pipeline/test_readme.py",
    "tests/pipeline/stream/test_kills.py",
    "tests/pipeline/test_sink_kills.py",
    "tests/pipeline/page_views/test_page_views.py",
    "tests/pipeline/page_views/test_readme.py",
    "tests/pipeline/test_connect.py",
    "tests/pipeline/stream/test_command.py",
    "tests/modes/test_modes.py",
    "tests/cluster/test_three_hosts.py",
    "tests/chaos/test_run.py",
    "tests/sim/test_replication.py",
    "tests/sim/test_transactions.py",
)
"""Files of tests that take more than half a minute each: one that came last would leave the other workers idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long; within a file, and for all others, the order stays."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
