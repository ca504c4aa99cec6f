"""The replicated cluster in the simulated world: seeds that must hold, and planted defects that must be found."""

from __future__ import annotations

import pytest

from ottla.controller.partition_change import PartitionChange
from ottla.replica import fetcher
from ottla.replica.leadership import FollowerProgress, Leadership
from ottla.replica.partition import Partition
from ottla.sim.__main__ import main
from ottla.sim.replication import ClusterOptions, ClusterOutcome, ReplicationSimulation

SEEDS = range(1, 13)
FAILED_ONCE = [1, 6, 12, 16, 17, 20]
"""1, 12: a full disk ended a follower's metadata log for good, and the node stayed. 6, 16, 17, 20: all nodes were
killed after one had lost its unflushed tail in a power failure, and nothing told its loss from their mere deaths."""
MAX_SEEDS = 30


def run(seed: int, **options: object) -> ClusterOutcome:
    return ReplicationSimulation(seed, ClusterOptions(**options)).run()  # type: ignore[arg-type]


def check(outcome: ClusterOutcome) -> None:
    report = "\n".join(outcome.history[-100:])
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}\n{report}"


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold(seed: int) -> None:
    outcome = run(seed, faults_s=120.0)
    check(outcome)
    assert outcome.acknowledged > 100
    assert outcome.served > 100


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_what_failed_once_holds(seed: int) -> None:
    outcome = run(seed)
    check(outcome)
    assert outcome.counts


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(3, faults_s=60.0), run(3, faults_s=60.0)
    assert first.trace_hash == second.trace_hash
    assert first.events == second.events


def test_more_than_is_promised_is_lost_and_told() -> None:
    """Power failures wherever they like: with nothing flushed, some acknowledged records must go."""
    outcomes = [run(seed, beyond=True, faults_s=300.0) for seed in range(1, 7)]
    for outcome in outcomes:
        check(outcome)
    assert sum(outcome.losses.acknowledged for outcome in outcomes) > 0


def test_it_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workload", "cluster", "--seed", "2", "--faults-s", "10"]) == 0
    output = capsys.readouterr().out
    assert "ok   seed 2: 3 nodes" in output
    assert "not counted: 2" in output


def skip_epoch_truncation(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader does not have."""
    patch.setattr(fetcher, "truncation_offset", lambda leader, own, log_end_offset, fetch_offset: log_end_offset)


def count_a_lagging_replica(patch: pytest.MonkeyPatch) -> None:
    """Who lags is in sync, and the high watermark does not wait for it."""
    patch.setattr(FollowerProgress, "caught_up", lambda self, end, now_s, max_lag_s: True)
    patch.setattr(Leadership, "committed_end", lambda self, own_end, leader_end, min_insync, now_s: own_end)


def acknowledge_before_the_isr_has_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "acknowledged", lambda self, result, acks_all: True)


def forget_fencing(patch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced commits by itself what nobody else has."""
    patch.setattr(Leadership, "min_isr", lambda self, min_insync_replicas: 1)
    patch.setattr(Leadership, "maximal_isr", property(lambda self: (self._node_id,)))


def elect_outside_the_isr(patch: pytest.MonkeyPatch) -> None:
    """Any replica that is alive may lead, whatever it lacks."""
    patch.setattr(PartitionChange, "_may_lead", lambda self, broker_id: self._acceptable(broker_id))


@pytest.mark.parametrize(
    "plant",
    [
        skip_epoch_truncation,
        count_a_lagging_replica,
        acknowledge_before_the_isr_has_it,
        forget_fencing,
        elect_outside_the_isr,
    ],
)
def test_a_planted_defect_is_found(plant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(plant)
    plant(monkeypatch)
    assert any(run(seed, faults_s=300.0).violation is not None for seed in range(1, MAX_SEEDS))
