"""The replicated cluster in the simulated world: seeds that must hold, and planted defects that must be found."""

from __future__ import annotations

import posixpath
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from simulation.__main__ import main
from simulation.client import Client
from simulation.cluster_simulation import TOPIC_CONFIGS
from simulation.disk import Mount
from simulation.node import DATA_DIR, SimNode
from simulation.replication import TOPIC, ClusterOptions, ClusterOutcome, ReplicationSimulation
from tests.sim.seeds import seeds_of_the_day

from ottla.common.errors import ErrorCode
from ottla.controller.partition_change import PartitionChange
from ottla.coordinator.runtime.loader import Loader
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.registry import ApiKey
from ottla.replica import fetcher
from ottla.replica.leadership import FollowerProgress, Leadership
from ottla.replica.partition import Partition
from ottla.storage.compaction.offset_map import OffsetMap
from ottla.storage.directory.log_events import DirectoryEvents
from ottla.storage.files.checkpoints import LastIncarnation, parse_running
from ottla.storage.files.epochs import LeaderEpochCache
from ottla.storage.files.log_config import MAX_LONG
from ottla.storage.files.names import RUNNING_FILE
from ottla.storage.log.log_cleaning import LogCleaning
from ottla.storage.log.log_writer import LogWriter
from ottla.storage.recovery import loader
from ottla.storage.segment.results import AppendResult
from ottla.storage.segment.segment import Segment

SEEDS = [1, *seeds_of_the_day(3)]
"""More seeds: `make sim-many WORKLOAD=cluster`, with longer runs."""
FAILED_ONCE = [7_000_001]
"""With the options of `make sim`: an epoch with records was missing from leader-epoch-checkpoint."""
MAX_SEEDS = 60
STEADY_S = 8.0
"""Of load between the rounds of a course."""


def run(seed: int, **options: object) -> ClusterOutcome:
    return ReplicationSimulation(seed, ClusterOptions(**options)).run()  # type: ignore[arg-type]


def check(outcome: ClusterOutcome) -> None:
    report = "\n".join(outcome.history[-100:])
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}\n{report}"


@pytest.mark.promise("R1")
@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold(seed: int) -> None:
    outcome = run(seed, faults_s=120.0)
    check(outcome)
    assert outcome.acknowledged
    assert outcome.served


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_seeds_that_failed_once_hold(seed: int) -> None:
    check(run(seed))


@pytest.mark.promise("D11")
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_compacted_topic_keeps_the_latest_of_each_key(seed: int, taken_in: list[str]) -> None:
    outcome = run(seed, faults_s=120.0, compacted=True)
    check(outcome)
    assert outcome.acknowledged > 100
    assert taken_in.count(TOPIC) > 50


def test_logs_of_a_coordinator_are_cleaned_while_things_go_wrong(taken_in: list[str]) -> None:
    check(run(1, faults_s=120.0))
    assert taken_in.count("__consumer_offsets") > 10


@pytest.fixture
def taken_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topic of each group of cleaned segments that a log took in."""
    topics: list[str] = []
    take_in = LogCleaning.take_in

    def noted(cleaning: LogCleaning) -> None:
        take_in(cleaning)
        topics.append(posixpath.basename(cleaning._folder.path).rpartition("-")[0])

    monkeypatch.setattr(LogCleaning, "take_in", noted)
    return topics


def test_a_whole_run_counts() -> None:
    outcome = run(1)
    check(outcome)
    assert outcome.counts
    assert outcome.commits > 100
    assert outcome.rebalances > 100


def test_a_cut_that_the_disk_half_refuses() -> None:
    """A follower's metadata log was truncated, but its replay was not: it applied a record that no other node has."""
    check(run(100389, faults_s=200.0))


def test_a_kill_between_registration_and_note_on_a_full_disk() -> None:
    """Its next start was taken for one that had lost records, and the one that really had was elected."""
    check(run(4, faults_s=200.0))


class Unregistered(ReplicationSimulation):
    """A broker is unregistered while it runs, and dies when it has stored the incarnation of its next registration."""

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._set_up()
        self._wait_for_replicas()
        node = self.nodes[1]
        number = node.config.node_id
        self._finish(self._unregister(number), 10, "no answer")
        path = f"{DATA_DIR}/{RUNNING_FILE}"

        def noted() -> LastIncarnation:
            note = node.disk.names.get(path)
            assert note is not None
            return parse_running(bytes(note.data), f"boot-{node.disk.boots}")

        self._wait("nothing is noted", 60, lambda: noted().incarnation_id is not None)
        incarnation_id = noted().incarnation_id
        node.kill()
        self._wait("it does not come back", 60, lambda: node.running and number in self.view.newest().brokers)
        assert self.view.newest().brokers[number].incarnation_id == incarnation_id

    async def _unregister(self, number: int) -> None:
        client = Client(self.loop, self.network, "admin")
        response = await client.request(ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=number))
        assert response.error_code == ErrorCode.NONE
        client.close()


def test_broker_dies_after_registering_with_same_incarnation() -> None:
    check(Unregistered(1, ClusterOptions(nodes=3)).run())


class DamagedLeader(ReplicationSimulation):
    """All nodes are killed at once, and what one of them led has a flipped bit when it comes back."""

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._set_up()
        self._wait_for_replicas()
        watch = self._begin(self._watch())
        self._begin_clients()
        self.loop.run_until(self.loop.time() + 20.0)
        node = self.nodes[1]
        number = node.config.node_id
        partitions = self.view.newest().topics[TOPIC].partitions
        led = [index for index, state in partitions.items() if state.leader == number]
        for each in self.nodes:
            each.kill()
        for index in led:
            inode = node.disk.names[f"{DATA_DIR}/{TOPIC}-{index}/{0:020d}.log"]
            assert inode is not None
            if inode.data:
                inode.data[-10] ^= 1
        self._calm()
        self._recover()
        watch.cancel()
        self._compare_replicas()


@pytest.mark.promise("R5")
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_damaged_log_wins_no_election(seed: int) -> None:
    """Cut where the damage was, it passed for one that had lost nothing, led, and the others followed."""
    check(DamagedLeader(seed, ClusterOptions(nodes=3)).run())


@pytest.mark.parametrize("seed", range(2, 5))
def test_promises_hold_where_files_are_damaged(seed: int) -> None:
    """Segments, indexes, producer snapshots, checkpoints, the metadata log and quorum-state."""
    simulation = ReplicationSimulation(seed, ClusterOptions(faults_s=180.0, damage=True))
    outcome = simulation.run()
    check(outcome)
    assert sum(node.damaged_kinds.total() for node in simulation.nodes)
    assert outcome.acknowledged > 100


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_scrubber_finds_nothing_where_nothing_is_damaged(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under kills, power failures, truncation and moves: a finding would be a defect of the node."""
    monkeypatch.setitem(TOPIC_CONFIGS, "internal.segment.bytes", "300")
    simulation = ReplicationSimulation(seed, ClusterOptions(faults_s=300.0))
    check(simulation.run())
    assert sum(node.scrubbed_bytes for node in simulation.nodes) > 100_000


class OnePowerFailure(ReplicationSimulation):
    """All nodes die at once, repeatedly, and one of them, in turn, loses its unsynced data."""

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._set_up()
        self._wait_for_replicas()
        watch = self._begin(self._watch())
        self._begin_clients()
        for unlucky in (*self.nodes, self.nodes[0]):
            self.loop.run_until(self.loop.time() + STEADY_S)
            self._wait_for_replicas()
            for node in self.nodes:
                node.kill(power=node is unlucky)
        self._calm()
        self._recover()
        watch.cancel()
        self._compare_replicas()


def fail_power_of_one(seed: int) -> ClusterOutcome:
    return OnePowerFailure(seed, ClusterOptions(nodes=3, partitions=6, members=0)).run()


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_power_failure_of_one_where_all_die_takes_nothing(seed: int) -> None:
    outcome = fail_power_of_one(seed)
    check(outcome)
    assert outcome.acknowledged > 50


def test_replica_with_an_unnoticed_lost_tail_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    take_every_boot_for_the_same(monkeypatch)
    assert any(fail_power_of_one(seed).violation is not None for seed in range(1, MAX_SEEDS))


class PowerFailsAfterRolls(ReplicationSimulation):
    """Repeated power failures of a node that has rolled a segment and not flushed it yet.

    The name of the new segment was on disk by then, and the older one up to its last flush.
    """

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._set_up()
        self._wait_for_replicas()
        watch = self._begin(self._watch())
        self._begin_clients()
        node = self.nodes[1]
        for _ in range(4):
            self.loop.run_until(self.loop.time() + STEADY_S)
            self._wait("no segment waits for its flush", 60, lambda: bool(self._unflushed(node)))
            older = [segment.data.path for segment in self._unflushed(node)]
            durable = [node.disk.names[path].durable for path in older]
            for path in older:
                node.disk.sync_directory(posixpath.dirname(path))
            node.kill(power=True)
            for path, data in zip(older, durable, strict=True):
                node.disk.names[path].data[:] = data
            self._wait_for_replicas()
        self._calm()
        self._recover()
        watch.cancel()
        self._compare_replicas()

    def _unflushed(self, node: SimNode) -> list[Segment]:
        """Complete segments that a power failure would take something of."""
        if node.broker is None or not node.running:
            return []
        replicas = node.broker.parts.replicas
        logs = [replicas.find(TOPIC, index).log for index in range(self.options.partitions)]
        return [log.segments[-2] for log in logs if log.recovery_point < log.active_segment.base_offset]


@pytest.mark.parametrize("defective", [False, True])
def test_compacted_log_is_truncated_at_a_lost_segment_end(defective: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap passed for one of the cleaner, and that replica lacked acknowledged records for good."""
    if defective:
        monkeypatch.setattr(loader, "_gaps_end", lambda options, listing: MAX_LONG)
    outcome = PowerFailsAfterRolls(3, ClusterOptions(nodes=3, compacted=True)).run()
    if defective:
        assert outcome.violation is not None
    else:
        check(outcome)


def test_a_full_disk_while_a_flush_ends() -> None:
    """The data was synced and the file of leader epochs refused: the follower was offline for good."""
    check(run(100435, faults_s=200.0))


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(3, faults_s=60.0), run(3, faults_s=60.0)
    assert first.trace_hash == second.trace_hash
    assert first.events == second.events


def test_losses_beyond_the_guarantees_are_reported() -> None:
    """Power failures wherever they like: with nothing flushed, some acknowledged records must go."""
    for seed in range(1, 7):
        outcome = run(seed, beyond=True, faults_s=300.0)
        check(outcome)
        if outcome.losses.acknowledged:
            return
    pytest.fail("nothing was lost")


def test_it_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workload", "cluster", "--seed", "2", "--faults-s", "10"]) == 0
    output = capsys.readouterr().out
    assert "ok   seed 2: 3 nodes" in output
    assert "not counted: 2" in output
    assert "1 of 1 seeds held, 0 counted" in output


def test_several_processes_print_what_one_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--workload", "cluster", "--seed", "2", "--many", "3", "--faults-s", "5"]
    assert main(command) == 0
    of_one = capsys.readouterr().out.splitlines()[:-1]
    several = [sys.executable, "-m", "simulation", *command, "--jobs", "2"]
    of_two = subprocess.run(several, capture_output=True, text=True, check=True, timeout=200).stdout.splitlines()[:-1]
    assert of_one == of_two
    assert sum(line.startswith("ok   seed") for line in of_one) == 3


def test_the_others_run_on_after_a_seed_that_fails(
    planted: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--workload", "cluster", "--seed", "1", "--many", "2", "--faults-s", "120", "--history", "5"]
    with planted.acknowledged_before_append():
        assert main(command) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("FAIL seed", "ok   seed")) for line in lines) == 2
    failed = [line for line in lines if line.startswith("failed: ")]
    assert failed[0].startswith("failed: python -m simulation --workload cluster --seed ")
    assert " --faults-s 120  # Violation: " in failed[0]
    assert f"{2 - len(failed)} of 2 seeds held" in last


def skip_epoch_truncation(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps records that its leader does not have."""
    patch.setattr(fetcher, "truncation_offset", lambda leader, own, log_end_offset, fetch_offset: log_end_offset)


def count_a_lagging_replica(patch: pytest.MonkeyPatch) -> None:
    """A lagging replica counts as in sync, and the high watermark does not wait for it."""
    patch.setattr(FollowerProgress, "caught_up", lambda self, end, now_s, max_lag_s: True)
    patch.setattr(Leadership, "next_high_watermark", lambda self, own_end, leader_end, min_insync, now_s: own_end)


def acknowledge_before_the_isr_has_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "acknowledged", lambda self, result, acks_all: True)


def forget_fencing(patch: pytest.MonkeyPatch) -> None:
    """A replaced leader commits records that no other replica has."""
    patch.setattr(Leadership, "min_isr", lambda self, min_insync_replicas: 1)
    patch.setattr(Leadership, "maximal_isr", property(lambda self: (self._node_id,)))


def elect_outside_the_isr(patch: pytest.MonkeyPatch) -> None:
    """Any live replica may lead, even if it lacks records."""
    patch.setattr(PartitionChange, "_may_lead", lambda self, broker_id: self._acceptable(broker_id))


def take_every_boot_for_the_same(patch: pytest.MonkeyPatch) -> None:
    """A replica that lost its unflushed tail in a power failure returns as after a kill.

    A start that finds a log shorter than its checkpoints changes its incarnation, and would hide nearly all of it.
    """
    patch.setattr(Mount, "boot_id", lambda self: "boot")
    patch.setattr(DirectoryEvents, "records_lost", lambda self, partition, proved: None)


def forget_epochs_in_the_file(patch: pytest.MonkeyPatch) -> None:
    """An epoch that began without a record is not in the file, also when it has records and another one follows."""
    must_be_written = LeaderEpochCache.must_be_written

    def forgetful(cache: LeaderEpochCache, log_end_offset: int) -> bool:
        known = [entry for entry in cache.entries() if entry[1] < log_end_offset][-1:]
        return must_be_written(cache, log_end_offset) if known and known[0][0] == cache.latest_epoch else False

    patch.setattr(LeaderEpochCache, "must_be_written", forgetful)


@pytest.mark.promise("R1")
@pytest.mark.parametrize(
    ("plant", "first", "faults_s"),
    [
        (forget_epochs_in_the_file, 1, 120.0),
        (skip_epoch_truncation, 1, 120.0),
        (count_a_lagging_replica, 4, 120.0),
        (acknowledge_before_the_isr_has_it, 7, 120.0),
        (forget_fencing, 4, 300.0),
        (elect_outside_the_isr, 2, 120.0),
    ],
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first: int, faults_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the seed on that finds it today: where it takes long, another one is quicker now."""
    plant(monkeypatch)
    small = {"nodes": 3, "partitions": 6, "members": 0, "faults_s": faults_s}
    assert any(run(seed, **small).violation is not None for seed in range(first, first + MAX_SEEDS))


@pytest.mark.promise("R4")
def test_in_sync_replicas_that_disagree_on_epochs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower notes each new leader epoch one offset late; nothing else notices that while it follows."""
    append, assign = LogWriter.append_as_follower, LeaderEpochCache.assign
    late = 0

    def append_late(writer: LogWriter, *of: Any, **options: Any) -> AppendResult:
        nonlocal late
        late = 1
        try:
            return append(writer, *of, **options)
        finally:
            late = 0

    def assign_late(cache: LeaderEpochCache, epoch: int, start_offset: int) -> None:
        assign(cache, epoch, start_offset + late)

    monkeypatch.setattr(LogWriter, "append_as_follower", append_late)
    monkeypatch.setattr(LeaderEpochCache, "assign", assign_late)
    small = {"nodes": 3, "partitions": 6, "members": 0, "faults_s": 120.0}
    found = [run(seed, **small).violation or "" for seed in range(1, 4)]
    assert any("disagree on the leader epochs of" in violation for violation in found), found


def drop_the_last_retained_record(patch: pytest.MonkeyPatch) -> None:
    """The cleaner takes the latest of a key away."""
    surviving = OffsetMap.surviving

    def fewer(offset_map: OffsetMap, *of: Any, keeps_tombstones: bool) -> tuple[Any, int, int]:
        kept, keyless, tombstones = surviving(offset_map, *of, keeps_tombstones=keeps_tombstones)
        return kept[:-1] if len(kept) > 2 else kept, keyless, tombstones

    patch.setattr(OffsetMap, "surviving", fewer)


@pytest.mark.parametrize("compacted", [True, False])
def test_a_planted_defect_of_the_cleaner_is_found(compacted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clients of a compacted topic, and by the members of a group, which stores its offsets in one."""
    drop_the_last_retained_record(monkeypatch)
    small = {"nodes": 3, "partitions": 6, "faults_s": 120.0, "compacted": compacted}
    assert any(run(seed, **small).violation is not None for seed in range(1, MAX_SEEDS))


@contextmanager
def forgotten_by_a_new_coordinator() -> Iterator[None]:
    """A new coordinator of a group loads no committed offsets."""
    with mock.patch.object(Loader, "_replay_batch", return_value=()):
        yield


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("acknowledged_before_append", 1),
        ("generation_not_checked_on_commit", 24),
        ("sessions_never_expire", 26),
        ("forgotten_by_a_new_coordinator", 1),
    ],
)
def test_a_planted_defect_of_the_coordinator_is_found(planted: SimpleNamespace, name: str, first: int) -> None:
    """From the seed on that finds it today."""
    plant = getattr(planted, name, None) or forgotten_by_a_new_coordinator
    with plant():
        assert any(run(seed, faults_s=120.0).violation is not None for seed in range(first, first + MAX_SEEDS))
