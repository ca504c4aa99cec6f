"""The seed, shown once at the end: a failure replays with it."""

from __future__ import annotations

import pytest

from .generator import INPUTS, SEED

REPLAY = f"OTTLA_FUZZ_SEED={SEED} OTTLA_FUZZ_INPUTS={INPUTS}"
_used = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def fuzz_seed(request: pytest.FixtureRequest) -> str:
    """How to run the same inputs again."""
    request.config.stash[_used] = True
    return REPLAY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line."""
    if config.stash.get(_used, False):
        terminalreporter.write_line(f"fuzzed with {REPLAY}")
