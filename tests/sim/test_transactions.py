"""Transactions in the simulated cluster: seeds that must hold, and planted defects that must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulation import proxy
from simulation.__main__ import main
from simulation.transactions import TransactionOptions, TransactionOutcome, TransactionSimulation
from tests.sim.seeds import seeds_of_the_day

from ottla.coordinator.group.offsets.offsets import Offsets
from ottla.record.batch import NO_PRODUCER_ID
from ottla.storage.log.log import Log
from ottla.storage.log.producer_state import ProducerState
from ottla.timeline import SnapshotRegistry

SEEDS = [1, *seeds_of_the_day(2)]
"""More seeds: `make sim-many WORKLOAD=transactions`."""
FAILED_ONCE = [39, 329, 805, 905]
"""39: a marker that a coordinator wrote while a follower's fetch was served waited for that fetch's time to be over.
329: a client that went over to the second version in the epoch of its last transaction joined that one.
805: a zombie of the second version that asked for an end was given the epoch of a successor of the first version.
905: a marker left the guard of a producer of the first version, since one of the second had asked before."""
MAX_SEEDS = 30


def run(seed: int, **options: Any) -> TransactionOutcome:
    return TransactionSimulation(seed, TransactionOptions(**options)).run()


def check(outcome: TransactionOutcome) -> None:
    report = "\n".join(outcome.history[-100:])
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}\n{report}"


@pytest.mark.parametrize("seed", [*SEEDS, *FAILED_ONCE])
def test_promises_hold(seed: int) -> None:
    outcome = run(seed)
    check(outcome)
    if seed == SEEDS[0]:
        assert outcome.counts
        assert outcome.copied > 200
        assert outcome.aborted > 10
        assert outcome.late > 10


@pytest.mark.parametrize("level", [0, 1, 2])
def test_promises_hold_at_every_level(level: int) -> None:
    check(run(100 + level, level=level, faults_s=60.0))


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(3, faults_s=30.0), run(3, faults_s=30.0)
    assert first.trace_hash == second.trace_hash
    assert first.events == second.events


def test_it_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workload", "transactions", "--seed", "2", "--faults-s", "5"]) == 0
    output = capsys.readouterr().out
    assert "ok   seed 2: 3 nodes" in output
    assert "transactions committed and" in output
    assert "not counted: 2" in output


def believe_every_marker(patch: pytest.MonkeyPatch) -> None:
    """One that arrives after the next transaction began ends that one."""
    patch.setattr(ProducerState, "check_marker", lambda *arguments: None)


def skip_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)


def show_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    """Offsets of a transaction are visible before its marker."""
    original = Offsets.replay_offset_commit

    def replay(self: Offsets, offset: int, key: Any, value: bytes | None, producer_id: int) -> None:
        original(self, offset, key, value, NO_PRODUCER_ID)

    patch.setattr(Offsets, "replay_offset_commit", replay)


def keep_what_was_not_appended(patch: pytest.MonkeyPatch) -> None:
    """An epoch rises in memory though the append failed."""
    patch.setattr(SnapshotRegistry, "revert_to", lambda self, offset: None)


@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (believe_every_marker, 10),
        (skip_open_transactions, 1),
        (show_pending_offsets, 7),
        (keep_what_was_not_appended, 4),
    ],
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the seed on that finds it today: where it takes long, another one is quicker now."""
    plant(monkeypatch)
    assert any(run(seed, faults_s=60.0).violation is not None for seed in range(first, first + MAX_SEEDS))


def test_missing_verification_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without verification a late batch begins a transaction without an end, or joins the next one.

    More requests are late than in other runs, or it would need many seeds.
    """
    monkeypatch.setattr(proxy, "CHANCE", 0.3)
    unverified: dict[str, Any] = {"settings": (("transaction.partition.verification.enable", "false"),)}
    seeds = range(31, 31 + MAX_SEEDS)
    assert any(run(seed, level=1, faults_s=30.0, **unverified).violation is not None for seed in seeds)
