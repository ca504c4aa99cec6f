"""The transaction history detects each kind of violation, one test per rule, and accepts all allowed histories."""

from __future__ import annotations

import pytest
from simulation.checkers import Violation
from simulation.history import (
    Findings,
    LogHistory,
    Progress,
    Transactions,
    judge_copies,
    judge_stable_offsets,
)
from simulation.loop import SimLoop
from simulation.trace import Trace

ALL = {0: {0: "p:0", 1: "p:1", 3: "p:2", 5: "p:3"}}
"""`t1` wrote p:0 and p:1, `t2` p:2, `t3` p:3; each has its marker behind it."""


class World:
    """A producer `p` with three transactions, of which the second is aborted."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.transactions = Transactions(Findings())
        self.history = LogHistory(Trace(self.loop), transactions=self.transactions)
        for number, transaction in enumerate(("t1", "t1", "t2", "t3")):
            self.history.sent(0, f"p:{number}", transaction)

    def end(self) -> None:
        for transaction in ("t1", "t3"):
            self.transactions.asked(transaction)
            self.transactions.committed(transaction)
        self.transactions.aborted("t2")

    def finish(self, *offsets: int, readers: dict[str, bool] | None = None) -> None:
        """Finish with a read_committed content of only these offsets."""
        committed = {0: {offset: ALL[0][offset] for offset in offsets}}
        self.history.finish(ALL, (), committed, readers)
        self.transactions.finish(frozenset(committed[0].values()))


@pytest.fixture
def world() -> World:
    return World()


def test_a_true_history_holds(world: World) -> None:
    world.history.acknowledged("p", 0, 0, ["p:0", "p:1"])
    world.end()
    for poll, offset in enumerate((0, 1, 5)):
        world.history.polled("c", 0, offset, ALL[0][offset], committed=True, poll=poll)
    for offset in ALL[0]:
        world.history.polled("u", 0, offset, ALL[0][offset], poll=0)
    world.finish(0, 1, 5, readers={"c": True, "u": False})
    assert (world.transactions.committed_count, world.transactions.aborted_count) == (2, 1)


def test_an_aborted_record_is_read(world: World) -> None:
    world.end()
    with pytest.raises(Violation, match="G1a: c read p:2, which t2 wrote and was aborted"):
        world.history.polled("c", 0, 3, "p:2", committed=True)


def test_record_read_before_its_transaction_is_aborted(world: World) -> None:
    world.transactions.asked("t2")
    world.history.served("c", 0, 3, "p:2", committed=True)
    with pytest.raises(Violation, match="G1a: c read something of t2, which was aborted"):
        world.transactions.aborted("t2")


def test_an_aborted_record_is_there_at_the_end(world: World) -> None:
    world.end()
    with pytest.raises(Violation, match="G1a: the end read p:2"):
        world.finish(0, 1, 3, 5)
    with pytest.raises(Violation, match="G1a: p:2 of t2, which is aborted, is there at the end"):
        world.transactions.finish(frozenset(ALL[0].values()))


def test_a_record_is_read_before_its_commit(world: World) -> None:
    with pytest.raises(Violation, match="precommitted-read: c read p:0 before the commit request of t1"):
        world.history.polled("c", 0, 0, "p:0", committed=True)


def test_an_abandoned_transaction_is_committed(world: World) -> None:
    with pytest.raises(Violation, match="precommitted-read: p:0 of t1, which is open, is there at the end"):
        world.transactions.finish(frozenset({"p:0"}))


def test_transaction_committed_without_a_request(world: World) -> None:
    with pytest.raises(Violation, match="precommitted-read: t1 was acknowledged as committed without a commit request"):
        world.transactions.committed("t1")


def test_read_uncommitted_may_read_anything(world: World) -> None:
    world.history.polled("u", 0, 0, "p:0")


def test_a_committed_record_is_left_out(world: World) -> None:
    world.end()
    with pytest.raises(Violation, match="lost-write: p:3 at 0@5 is committed, and read_committed leaves it out"):
        world.finish(0, 1)
    with pytest.raises(Violation, match="lost-write: p:3 of t3, which was committed, is not there"):
        world.transactions.finish(frozenset({"p:0", "p:1"}))


def test_a_record_outside_of_transactions_is_left_out(world: World) -> None:
    world.history.sent(0, "q:0")
    with pytest.raises(Violation, match="lost-write: q:0 at 0@0 is committed"):
        world.history.finish({0: {0: "q:0"}}, (), {0: {}})


@pytest.mark.parametrize("there", [frozenset({"p:0"}), frozenset({"p:1"})])
def test_a_transaction_is_torn(world: World, there: frozenset[str]) -> None:
    world.transactions.asked("t1")
    with pytest.raises(Violation, match="torn-transaction: a part of t1"):
        world.transactions.finish(there)


@pytest.mark.parametrize("there", [frozenset(), frozenset({"p:0", "p:1"})])
def test_a_commit_without_an_answer_is_there_or_not(world: World, there: frozenset[str]) -> None:
    world.transactions.asked("t1")
    world.transactions.finish(there)


def test_two_answers_differ(world: World) -> None:
    world.end()
    with pytest.raises(Violation, match="lost-write: t1 was acknowledged as aborted after it was committed"):
        world.transactions.aborted("t1")
    with pytest.raises(Violation, match="G1a: t2 was acknowledged as committed after it was acknowledged as aborted"):
        world.transactions.committed("t2")


def test_something_is_there_for_read_committed_only(world: World) -> None:
    with pytest.raises(Violation, match="inconsistent-offsets: p:0 at 0@9 is to be read by read_committed only"):
        world.history.finish(ALL, (), {0: {9: "p:0"}})


@pytest.mark.parametrize(("poll", "rule"), [(1, "poll-skip"), (0, "int-poll-skip")])
def test_a_poll_leaves_a_committed_record_out(world: World, poll: int, rule: str) -> None:
    world.end()
    world.history.polled("c", 0, 0, "p:0", committed=True, poll=0)
    world.history.polled("c", 0, 5, "p:3", committed=True, poll=poll)
    with pytest.raises(Violation, match=f"^{rule}: c read 0@5 after 0, and p:1 is at 1"):
        world.finish(0, 1, 5)


def test_read_uncommitted_leaves_an_aborted_record_out(world: World) -> None:
    world.end()
    for offset in (0, 1, 5):
        world.history.polled("u", 0, offset, ALL[0][offset])
    with pytest.raises(Violation, match=r"^poll-skip: u read 0@5 after 1, and p:2 is at 3"):
        world.finish(0, 1, 5)


@pytest.mark.parametrize(("poll", "rule"), [(1, "nonmonotonic-poll"), (0, "int-nonmonotonic-poll")])
def test_a_poll_goes_back(world: World, poll: int, rule: str) -> None:
    world.history.polled("u", 0, 1, "p:1", poll=0)
    with pytest.raises(Violation, match=f"^{rule}: u read 0@0 after 1"):
        world.history.polled("u", 0, 0, "p:0", poll=poll)


def test_subscribed_reader_may_move_but_not_within_one_poll(world: World) -> None:
    world.end()
    for poll, offset in enumerate((1, 5, 0)):
        world.history.polled("m", 0, offset, ALL[0][offset], poll=poll, subscribed=True)
    world.finish(0, 1, 5)
    with pytest.raises(Violation, match=r"^int-nonmonotonic-poll"):
        world.history.polled("m", 0, 0, "p:0", poll=2, subscribed=True)


@pytest.mark.parametrize(
    ("values", "rule"), [(("p:1", "p:0"), "int-nonmonotonic-send"), (("p:2", "p:0"), "nonmonotonic-send")]
)
def test_records_are_reordered(world: World, values: tuple[str, str], rule: str) -> None:
    with pytest.raises(Violation, match=f"^{rule}: p:0 at 0@1 comes after number"):
        world.history.finish({0: dict(enumerate(values))})


def test_other_transactions_may_write_between(world: World) -> None:
    """G0 and int-send-skip are allowed."""
    world.history.sent(0, "q:0", "t9")
    for transaction in ("t1", "t9"):
        world.transactions.asked(transaction)
        world.transactions.committed(transaction)
    world.history.finish({0: {0: "p:0", 1: "q:0", 2: "p:1"}}, (), {0: {0: "p:0", 1: "q:0", 2: "p:1"}})


def test_a_doubled_record(world: World) -> None:
    with pytest.raises(Violation, match=r"^duplicate: p:0 is at 0@0 and at 1"):
        world.history.finish({0: {0: "p:0", 1: "p:0"}})


def test_a_committed_record_was_never_read(world: World) -> None:
    world.end()
    world.history.polled("c", 0, 0, "p:0", committed=True)
    with pytest.raises(Violation, match=r"^unseen: c never read p:1 at 0@1"):
        world.finish(0, 1, 5, readers={"c": True})


def test_the_worst_lag_of_a_reader(world: World) -> None:
    world.history.acknowledged("p", 0, 0, ["p:0", "p:1"])
    world.loop.run_until(4.0)
    world.history.polled("c", 0, 0, "p:0")
    world.loop.run_until(9.0)
    world.history.polled("m", 0, 0, "p:0", subscribed=True)
    assert world.history.worst_lag == (0.0, 4.0, "c 0@0")
    assert world.history.worst_lag.seconds == 4.0


@pytest.mark.parametrize(
    ("outputs", "rule"),
    [
        ({0: [("k:0", "a"), ("k:1", "b")]}, "lost-copy: c in 1 was not copied"),
        ({0: [("k:0", "a"), ("k:1", "b"), ("k:2", "a")], 1: [("k:3", "c")]}, "duplicate-copy: a in 0 was copied as"),
        ({0: [("k:0", "b"), ("k:1", "a")], 1: [("k:2", "c")]}, "reordered-copy: k:1 in 0, of a"),
        ({0: [("k:0", "a"), ("k:1", "b")], 1: [("k:2", "x")]}, "phantom: k:2 in 1 is a copy of x"),
    ],
)
def test_a_copy_that_is_not_exactly_once(outputs: dict[int, list[tuple[str, str]]], rule: str) -> None:
    with pytest.raises(Violation, match=f"^{rule}"):
        judge_copies(Findings(), {0: ["a", "b"], 1: ["c"]}, outputs)


def test_copies_that_are_exactly_once() -> None:
    judge_copies(Findings(), {0: ["a", "b"], 1: ["c"]}, {0: [("k:0", "a"), ("k:9", "b")], 1: [("k:2", "c")]})


def test_a_source_that_was_sent_twice_is_copied_twice() -> None:
    sources = {0: ["a", "b", "a"]}
    judge_copies(Findings(), sources, {0: [("k:0", "a"), ("k:1", "b"), ("k:2", "a")]})
    with pytest.raises(Violation, match=r"^lost-copy: a in 0 was not copied"):
        judge_copies(Findings(), sources, {0: [("k:0", "a"), ("k:1", "b")]})


def test_a_transaction_that_hangs() -> None:
    judge_stable_offsets(Findings(), {"t-0": Progress(7, 7)}, 30.0)
    with pytest.raises(Violation, match=r"^hanging-transaction: 30 s after the last fault t-1 is stable to 3 of 5"):
        judge_stable_offsets(Findings(), {"t-0": Progress(7, 7), "t-1": Progress(3, 5)}, 30.0)
