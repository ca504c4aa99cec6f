"""What holds for the tests of every directory: long ones come first, and the last limit of a test lies behind its own.

Pytest ends the whole process at `faulthandler_timeout`, for a test that no signal reaches. That is one figure for all
tests, so one that may take longer would end the run before its own limit.
"""

from __future__ import annotations

import faulthandler
import sys

import pytest

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
    "compat/java/test_zookeeper_suite.py",
    "compat/java/test_zookeeper_clients.py",
    "compat/java/test_zookeeper_chaos.py",
    "compat/java/test_zookeeper_ensemble.py",
    "compat/java/test_differential.py",
    "compat/java/test_transactions.py",
    "compat/java/test_zookeeper_migration.py",
    "compat/java/test_connect.py",
    "compat/java/test_mirror.py",
    "compat/java/test_legacy_churn.py",
)
"""Files that take from half a minute on each: one that came last would leave the other workers idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long; within a file, and for all others, the order stays."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Put the end of the process off for a test that has a longer limit than the others."""
    marker = item.get_closest_marker("timeout")
    last = float(item.config.getini("faulthandler_timeout") or 0)
    usual = float(item.config.getini("timeout") or 0)
    if marker is not None and last and (own := float(marker.args[0])) > usual:
        faulthandler.dump_traceback_later(own + last - usual, exit=True, file=sys.__stderr__ or sys.stderr)
