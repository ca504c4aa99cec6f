"""Share groups in the simulated cluster: seeds that must hold, and planted defects that must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulation.__main__ import main
from simulation.queues import QueueOptions, QueueOutcome, QueueSimulation
from tests.sim.seeds import seeds_of_the_day

from ottla.common.kafka.share_state import RecordState
from ottla.coordinator.runtime import EMPTY_RESULT
from ottla.coordinator.share import shard
from ottla.coordinator.share.housekeeping import Housekeeping
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.server.coordination.share_partitions import SharePartitions
from ottla.share.delivery_rate import DeliveryBucket
from ottla.share.runs import OffsetRun
from ottla.share.share_partition import SharePartition

SEEDS = list(dict.fromkeys([1, 11, *seeds_of_the_day(1)]))
"""Seed 11 has a back-off and a rate. More seeds, and longer runs: `make sim-many WORKLOAD=queues`."""
FAULTS_S = 40.0
NEWEST_EPOCH = 1 << 30


def run(seed: int, **options: Any) -> QueueOutcome:
    return QueueSimulation(seed, QueueOptions(**{"faults_s": FAULTS_S, **options})).run()


def check(outcome: QueueOutcome) -> None:
    report = "\n".join(outcome.history[-100:])
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}\n{report}"


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold(seed: int) -> None:
    outcome = run(seed)
    check(outcome)
    if seed == SEEDS[0]:
        assert outcome.deliveries > 100
        assert min(outcome.accepted, outcome.released, outcome.rejected, outcome.prunes, outcome.terms) > 1


def test_same_seed_is_the_same_run() -> None:
    first, second = run(3, faults_s=8.0), run(3, faults_s=8.0)
    assert first.trace_hash == second.trace_hash
    assert first.events == second.events


def test_it_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workload", "queues", "--seed", "2", "--faults-s", "5"]) == 0
    output = capsys.readouterr().out
    assert "ok   seed 2: " in output
    assert "deliveries in" in output


# Planted defects, one for each rule.


def archive_released_records(patch: pytest.MonkeyPatch) -> None:
    """A record whose lock ends, or whose member is gone, is not delivered again."""
    original = SharePartition._release

    def release(self: SharePartition, record: OffsetRun, now_ms: int) -> None:
        original(self, record, now_ms)
        record.state = RecordState.ARCHIVED

    patch.setattr(SharePartition, "_release", release)


def deliver_without_limit(patch: pytest.MonkeyPatch) -> None:
    """The end of a lock never archives a record."""
    original = SharePartition._release

    def release(self: SharePartition, record: OffsetRun, now_ms: int) -> None:
        original(self, record, now_ms)
        record.state = RecordState.AVAILABLE

    patch.setattr(SharePartition, "_release", release)
    patch.setattr(SharePartition, "archive_undeliverable", lambda self, record: False)


def release_every_member(patch: pytest.MonkeyPatch) -> None:
    """With the session of one member, the records of others are released, too."""
    original = SharePartition.release_member

    def release_member(self: SharePartition, member_id: str, now_ms: int) -> bool:
        members = {record.member_id for record in self.in_flight() if record.member_id}
        released = [original(self, each, now_ms) for each in sorted(members | {member_id})]
        return any(released)

    patch.setattr(SharePartition, "release_member", release_member)


def end_locks_early(patch: pytest.MonkeyPatch) -> None:
    """Locks end a second before their time."""
    original = SharePartition.expire
    patch.setattr(SharePartition, "expire", lambda self, now_ms: original(self, now_ms + 1_000))


def forget_deliveries_of_released_members(patch: pytest.MonkeyPatch) -> None:
    """The end of a session lowers the delivery count (KAFKA-19972)."""
    original = SharePartition._release

    def release(self: SharePartition, record: OffsetRun, now_ms: int) -> None:
        record.delivery_count -= 1
        original(self, record, now_ms)

    patch.setattr(SharePartition, "_release", release)


def take_the_start_offset_of_a_late_write(patch: pytest.MonkeyPatch) -> None:
    """A write sets the start offset, also to a lower one."""
    patch.setattr(shard, "max", lambda stored, written: written, raising=False)


def admit_old_states(patch: pytest.MonkeyPatch) -> None:
    """A write of an older state epoch is stored."""
    original = ShareCoordinatorShard.write

    def write(self: Any, key: Any, state_epoch: int, *arguments: Any) -> Any:
        return original(self, key, NEWEST_EPOCH, *arguments)

    patch.setattr(ShareCoordinatorShard, "write", write)


def leave_new_batches_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A snapshot contains only the state before it."""
    original = ShareCoordinatorShard._record

    def record(self: Any, key: Any, after: Any, added: Any) -> Any:
        full = after.updates >= self._context.config.updates_per_snapshot
        return original(self, key, after, () if full else added)

    patch.setattr(ShareCoordinatorShard, "_record", record)


def prune_to_the_newest_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Snapshots that are still needed are deleted."""

    def first_needed_offset(self: Any) -> int:
        return max((state.snapshot_offset for state in self._states.values()), default=self._next_offset.value)

    patch.setattr(Housekeeping, "first_needed_offset", first_needed_offset)


def answer_before_storing(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements are answered at once."""
    original = SharePartitions.acknowledge

    def acknowledge(self: Any, led: Any, member_id: str, decisions: Any, done: Any) -> None:
        outcomes: list[Any] = []
        original(self, led, member_id, decisions, outcomes.append)
        done(outcomes[0] if outcomes else None)

    patch.setattr(SharePartitions, "acknowledge", acknowledge)


def keep_states_of_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    """Nothing deletes them."""
    patch.setattr(ShareCoordinatorShard, "delete", lambda *arguments: EMPTY_RESULT)
    patch.setattr(ShareCoordinatorShard, "topics_deleted", lambda *arguments: EMPTY_RESULT)
    patch.setattr(Housekeeping, "snapshot_cold_partitions", lambda self: EMPTY_RESULT)


def skip_the_backoff_after_a_leader_change(patch: pytest.MonkeyPatch) -> None:
    """Records of a loaded state are available at once."""
    original = SharePartition.__init__

    def load(self: Any, key: Any, state: Any, start: int, epoch: int, settings: Any, now_ms: int) -> None:
        original(self, key, state, start, epoch, settings._replace(retry=None), now_ms)
        self.settings = settings

    patch.setattr(SharePartition, "__init__", load)


def back_off_from_the_acquisition(patch: pytest.MonkeyPatch) -> None:
    """The time of a delivery that failed is part of the back-off."""
    original = SharePartition._back_off

    def back_off(self: Any, record: OffsetRun, now_ms: int) -> None:
        original(self, record, now_ms - self.settings.lock_duration_ms)

    patch.setattr(SharePartition, "_back_off", back_off)


def forget_delivered_records(patch: pytest.MonkeyPatch) -> None:
    """A bucket does not count deliveries."""
    patch.setattr(DeliveryBucket, "take", lambda self, count: None)


def start_with_a_full_bucket(patch: pytest.MonkeyPatch) -> None:
    """Each new leader delivers a burst."""
    original = DeliveryBucket.__init__
    patch.setattr(DeliveryBucket, "__init__", lambda self, rate, now_ms: original(self, rate, now_ms - 60_000))


@pytest.mark.parametrize(
    ("plant", "rules", "seed"),
    [
        (archive_released_records, ("never-lost",), 1),
        (deliver_without_limit, ("at-most-limit",), 1),
        (forget_deliveries_of_released_members, ("at-most-limit",), 1),
        (release_every_member, ("one-owner", "lock-lost"), 1),
        (end_locks_early, ("one-owner", "lock-lost"), 1),
        (take_the_start_offset_of_a_late_write, ("start-offset-monotonic",), 3),
        (admit_old_states, ("fence",), 16),
        (leave_new_batches_out_of_snapshots, ("count-lost", "coordinator-state"), 5),
        (prune_to_the_newest_snapshot, ("prune",), 1),
        (keep_states_of_deleted_topics, ("states of deleted topics",), 1),
        (answer_before_storing, ("answered-before-stored",), 1),
        (skip_the_backoff_after_a_leader_change, ("back-off",), 12),
        (back_off_from_the_acquisition, ("back-off",), 12),
        (forget_delivered_records, ("rate",), 7),
        (start_with_a_full_bucket, ("rate",), 7),
    ],
)
def test_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rules: tuple[str, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the seed that finds it today: where that changes, another one does."""
    plant(monkeypatch)
    violation = run(seed).violation or ""
    assert any(rule in violation for rule in rules), violation
