"""The judge of group histories, on histories that are known to be bad: one for each rule, and a good one."""

from __future__ import annotations

import time

import pytest
from group_history import Description, History

MS = 1_000_000


@pytest.fixture
def history() -> History:
    """`a` reads 0 to 10 and commits, then `b` continues."""
    history = History()
    history.assigned("a", [0], at=100 * MS)
    history.read("a", 0, 0, 5, at=110 * MS)
    history.read("a", 0, 5, 10, at=120 * MS)
    return history


def test_a_good_history(history):
    history.committed(0, 10, 130 * MS)
    history.revoked("a", [0])
    history.assigned("b", [0])
    history.read("b", 0, 10, 20)
    assert history.violations({0: 20}) == []
    assert history.owned() == {"b": {0}}
    assert history.read_ends() == {0: 20}


def test_two_owners(history):
    history.assigned("b", [0], at=140 * MS)
    history.revoked("a", [0], at=150 * MS)
    history.read("b", 0, 0, 10, at=160 * MS)
    assert history.violations({0: 10}) == ["0 went to b while a had it until 10.0 ms later"]


def test_an_owner_that_never_gave_up(history):
    history.assigned("b", [0], at=140 * MS)
    assert history.violations({0: 10}) == ["0 went to b while a had it until now"]


def test_a_read_without_ownership(history):
    history.read("b", 0, 10, 20)
    assert "b read 0@10 without owning it" in history.violations({0: 10})


def test_a_gap_within_an_ownership(history):
    history.read("a", 0, 11, 12)
    assert "a jumped in 0 from 10 to 11" in history.violations({0: 10})


@pytest.mark.parametrize(("first", "word"), [(0, "lost a commit"), (12, "skipped records")])
def test_a_wrong_start(history, first, word):
    history.committed(0, 10, 130 * MS)
    history.revoked("a", [0])
    history.assigned("b", [0])
    history.read("b", 0, first, 20)
    assert history.violations({0: 10})[:1] == [f"b began 0 at {first}, committed was 10: {word}"]


def test_a_commit_of_unknown_outcome_may_count_or_not(history):
    history.committed(0, 10, 130 * MS, known=False)
    history.revoked("a", [0])
    for member, first in (("b", 0), ("c", 10)):
        history.assigned(member, [0])
        history.read(member, 0, first, 20)
        history.revoked(member, [0])
    assert history.violations({0: 20}) == []


def test_unread_records(history):
    assert history.violations({0: 11, 1: 3}) == ["0: no member read 10 to 11", "1: no member read 0 to 3"]


def test_the_longest_stall(history):
    history.read("a", 0, 10, 11, at=2_120 * MS)
    assert history.longest_stall_s() == 2.0


def describe(history: History, at: int, *members: str, settled: bool = False, partition: int = 0) -> None:
    history.described(Description(at, {each: frozenset({partition}) for each in members}, settled))


def test_waiting_for_a_silent_member_is_not_a_stall():
    history = History()
    history.ended("a")
    now = time.time_ns()
    history.read("b", 0, 10, 11, at=now)
    for tenths in range(1, 60):
        describe(history, now + tenths * 100 * MS, "a", "b")
    for tenths in range(60, 70):
        describe(history, now + tenths * 100 * MS, "b")
    history.read("b", 0, 11, 12, at=now + 7_000 * MS)
    assert history.longest_stall_s() == 1.1
    assert history.longest_wait_for_ghosts_s() == 5.8


def test_waiting_for_a_member_that_lives_is_a_stall():
    history = History()
    history.read("a", 0, 0, 1, at=0)
    for second in range(1, 9):
        describe(history, second * 1_000 * MS, "a")
    history.read("a", 0, 1, 2, at=9_000 * MS)
    assert history.longest_stall_s() == 9.0
    assert history.longest_wait_for_ghosts_s() == 0


def test_ghosts_that_follow_each_other():
    history = History()
    for name in ("x", "y"):
        history.ended(name)
    now = time.time_ns()
    for second, members in enumerate([("x",), ("x", "y"), ("x", "y"), ("y",), ("y",), ()], start=1):
        describe(history, now + second * 1_000 * MS, *members)
    assert history.longest_wait_for_ghosts_s() == 2.0, "from x alone until x is gone; y came later"


def test_two_owners_by_the_coordinator(history):
    describe(history, 1, "a", "b")
    assert history.violations({0: 10}) == [], "while it moves, no description contains both"
    describe(history, 2, "a", "b", settled=True)
    describe(history, 3, "a", "b", settled=True)
    assert history.violations({0: 10}) == ["0 was described as a's and b's"]
