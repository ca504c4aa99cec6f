"""The model of transactions: nothing wrong in any order of its steps, and each planted defect is found."""

from __future__ import annotations

import pytest
from simulation.__main__ import main
from simulation.transaction_explorer import describe, explore
from simulation.transaction_model import BOUNDS, Bounds, Rules

ONE_PRODUCER = Bounds(transactions=(2, 0), batches=(1,), moves=0, timeouts=0)
DEPTH_OF_A_LATE_MARKER = 13


@pytest.mark.promise("T1")
@pytest.mark.parametrize(
    ("depth", "bounds"),
    [
        (8, Bounds()),
        (DEPTH_OF_A_LATE_MARKER, ONE_PRODUCER),
        (11, ONE_PRODUCER._replace(batches=(2,))),
        (11, BOUNDS["last-epoch"]),
    ],
)
def test_nothing_is_wrong_in_any_order(depth: int, bounds: Bounds) -> None:
    found = explore(depth, bounds, Rules())
    assert found.wrong is None, [describe(step) for step in found.trace]
    assert found.depth == depth


@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        (Rules(verifies=False), "for ever"),
        (Rules(strict_markers=False), "shows abort of"),
        (Rules(bumps=False), "for ever"),
        (Rules(bumps=False, strict_markers=False), "is not in partition"),
    ],
)
def test_a_planted_defect_is_found(rules: Rules, wrong: str) -> None:
    found = explore(DEPTH_OF_A_LATE_MARKER, ONE_PRODUCER, rules)
    assert found.wrong is not None
    assert wrong in found.wrong
    assert len(found.trace) == found.depth


def test_a_walk_that_reaches_all_there_is_says_so() -> None:
    found = explore(50, Bounds(transactions=(1, 0), batches=(1,), faults=0, moves=0, timeouts=0), Rules())
    assert found.complete
    assert found.wrong is None


def test_the_command_says_how_many_states_there_were(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "3", "--bounds", "zombie"]) == 0
    assert "states in 3 steps, more exist beyond this depth" in capsys.readouterr().out
