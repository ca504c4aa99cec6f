"""What holds for all tests."""

from __future__ import annotations

import gc
import logging
import signal

from hypothesis import HealthCheck, settings

# An example that takes long to run, or to make, says something about the machine, not about the code.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

# Each process of a test would inherit ignored signals: a shell ignores SIGINT in background jobs, nohup ignores SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logstart() -> None:
    """Undo the logging set-up of `ottla start` in this process: its rate limit would change messages of later tests."""
    root = logging.getLogger()
    root.handlers[:] = [each for each in root.handlers if not type(each).__module__.startswith("ottla.")]
    root.setLevel(logging.WARNING)
