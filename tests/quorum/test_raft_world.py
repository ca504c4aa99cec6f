"""Raft's promises under loss, repetition, reordering, crashes, partitions, snapshots and changes of voters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from .raft_world import Entry, Replica, World


@pytest.mark.promise("R3")
@settings(max_examples=size(6, 60), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([3, 3, 5]), st.integers(50, 800))
def test_no_committed_record_is_lost_and_replicas_agree(seed: int, size: int, steps: int) -> None:
    world = World(seed, size)
    for _ in range(steps):
        world.step()
        world.check()
    world.calm()
    assert world.agreed(), "no progress without faults"


@pytest.mark.promise("R7")
@settings(max_examples=size(6, 60), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([3, 3, 5]), st.integers(50, 800))
def test_damage_on_some_voters_loses_nothing_that_was_committed(seed: int, size: int, steps: int) -> None:
    """Of the state of elections, of logs, or of both."""
    world = World(seed, size, voters_change=False)
    for _ in range(steps):
        world.step()
        if world.rng.chance(0.02):
            world.damage()
        world.check()
    world.calm()
    assert world.agreed(), "no progress without faults"


@pytest.mark.parametrize("forgets", ["epoch and vote", "that it must catch up"])
def test_ignored_damage_is_detected(forgets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted defect: without the rule one epoch has two leaders, or a leader that lacks committed records."""
    start = Replica.start

    def planted(self: Replica, *, forgotten: int | None = None) -> None:
        if forgets == "epoch and vote":
            forgotten = None
        else:
            self.must_catch_up = False
        start(self, forgotten=forgotten)

    monkeypatch.setattr(Replica, "start", planted)

    def run(seed: int) -> None:
        world = World(seed, 3, voters_change=False)
        for _ in range(600):
            world.step()
            if world.rng.chance(0.05):
                world.damage()
            world.check()

    with pytest.raises(AssertionError):  # noqa: PT012 - whichever seed finds it first
        for seed in range(300):
            run(seed)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_new_quorum_elects_a_leader_and_commits(size: int) -> None:
    world = World(7, size)
    world.calm()
    leader = world.leader()
    assert leader is not None
    assert leader.raft is not None
    leader.append(Entry(leader.raft.state.epoch, world.next_value()))
    world.calm()
    assert world.agreed()
    assert len(world.committed) >= 2


def test_the_world_can_go_wrong() -> None:
    """Planted defect: votes lost in a crash elect two leaders in one epoch, or lose committed records."""

    def run(seed: int) -> None:
        world = World(seed, 3)
        for _ in range(600):
            world.step()
            if world.rng.chance(0.05):
                node = world.rng.choice(list(world.nodes.values()))
                if node.raft is not None:
                    node.crash()
                    node.stored = None
                    node.start()
            world.check()

    with pytest.raises(AssertionError):  # noqa: PT012 - whichever seed finds it first
        for seed in range(300):
            run(seed)
