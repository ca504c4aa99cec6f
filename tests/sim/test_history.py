"""The history of a simulated cluster finds each kind of lie: a checker that can't fail proves nothing."""

from __future__ import annotations

import pytest
from simulation.checkers import Violation
from simulation.history import LogHistory, Losses
from simulation.loop import SimLoop
from simulation.trace import Trace


@pytest.fixture
def history() -> LogHistory:
    return made()


def made(*, allow_loss: bool = False) -> LogHistory:
    found = LogHistory(Trace(SimLoop()), allow_loss=allow_loss)
    for number in range(4):
        found.sent(0, f"p:{number}")
    return found


def test_a_true_history_holds(history: LogHistory) -> None:
    history.acknowledged("p", 0, 0, ["p:0", "p:1"])
    history.served("c", 0, 0, "p:0")
    history.served("d", 0, 0, "p:0")
    history.latest_offset_listed("c", 0, 1, history.served_end(0))
    assert history.finish({0: {0: "p:0", 1: "p:1", 2: "p:2"}}) == Losses(0, 0)


def test_an_acknowledged_record_is_missing(history: LogHistory) -> None:
    history.acknowledged("p", 0, 0, ["p:0"])
    with pytest.raises(Violation, match="lost-write: p:0 was acknowledged at 0@0"):
        history.finish({0: {}})


def test_a_record_that_was_acknowledged_without_an_offset(history: LogHistory) -> None:
    history.acknowledged_somewhere(0, "p:0")
    assert history.finish({0: {5: "p:0"}}) == Losses(0, 0)
    with pytest.raises(Violation, match="lost-write: p:0 was acknowledged and is not in the log"):
        history.finish({0: {5: "p:1"}})


def test_a_served_record_is_missing(history: LogHistory) -> None:
    history.served("c", 0, 0, "p:0")
    with pytest.raises(Violation, match="lost-read: p:0 was served at 0@0"):
        history.finish({0: {0: "p:1"}})


def test_two_records_are_acknowledged_at_one_offset(history: LogHistory) -> None:
    history.acknowledged("p", 0, 0, ["p:0"])
    with pytest.raises(Violation, match=r"inconsistent-offsets: .* where p:0 was before"):
        history.acknowledged("q", 0, 0, ["p:1"])


def test_an_offset_is_served_with_two_values(history: LogHistory) -> None:
    history.served("c", 0, 0, "p:0")
    with pytest.raises(Violation, match=r"inconsistent-offsets: .* where p:0 was before"):
        history.served("d", 0, 0, "p:1")


def test_served_value_differs_from_the_acknowledged_one(history: LogHistory) -> None:
    history.acknowledged("p", 0, 0, ["p:0"])
    with pytest.raises(Violation, match=r"inconsistent-offsets: .* another client got p:0"):
        history.served("c", 0, 0, "p:1")


def test_record_without_a_producer_is_served(history: LogHistory) -> None:
    with pytest.raises(Violation, match=r"phantom: .* no producer sent"):
        history.served("c", 0, 0, "q:7")


@pytest.mark.parametrize("contents", [["p:0", "p:0"], ["p:0", "p:1", "p:0"]])
def test_a_record_is_doubled(history: LogHistory, contents: list[str]) -> None:
    with pytest.raises(Violation, match=r"duplicate: p:0 is at 0@0 and at"):
        history.finish({0: dict(enumerate(contents))})


def test_a_copy_that_its_producer_sent_again_in_another_epoch(history: LogHistory) -> None:
    history.acknowledged("p", 0, 2, ["p:0"])
    assert history.finish({0: {0: "p:0", 1: "p:1", 2: "p:0"}}, {(0, 2)}) == Losses(0, 0)


def test_records_are_reordered(history: LogHistory) -> None:
    with pytest.raises(Violation, match=r"nonmonotonic-send: p:0 at 0@1 comes after number 1 at 0"):
        history.finish({0: {0: "p:1", 1: "p:0"}})


def test_a_consumer_reads_in_order(history: LogHistory) -> None:
    for client in ("c", "d"):
        history.polled(client, 0, 0, "p:0")
        history.polled(client, 0, 1, "p:1")
    history.polled("c", 0, 2, "p:2")


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (0, "p:0", "nonmonotonic-poll: c read 0@0 after 0"),
        (2, "p:2", "poll-skip: c read 0@2 where 1 came next"),
    ],
)
def test_a_consumer_goes_back_or_leaves_something_out(history: LogHistory, offset: int, value: str, words: str) -> None:
    history.polled("c", 0, 0, "p:0")
    with pytest.raises(Violation, match=words):
        history.polled("c", 0, offset, value)


def test_a_consumer_leaves_the_first_record_out(history: LogHistory) -> None:
    with pytest.raises(Violation, match="poll-skip: c read 0@1 where 0 came next"):
        history.polled("c", 0, 1, "p:1")


def test_the_end_goes_back(history: LogHistory) -> None:
    history.served("c", 0, 3, "p:3")
    with pytest.raises(Violation, match=r"end-went-back: c got log end 2 of 0, after 4"):
        history.latest_offset_listed("c", 0, 2, history.served_end(0))


def test_where_losses_are_allowed_they_are_counted() -> None:
    history = made(allow_loss=True)
    history.acknowledged("p", 0, 0, ["p:0", "p:1"])
    history.served("c", 0, 0, "p:0")
    assert history.finish({0: {0: "p:0"}}) == Losses(1, 0)
    assert history.finish({0: {}}) == Losses(2, 1)
    assert history.forgiven == {"lost-write": 3, "lost-read": 1}


def test_loss_with_a_reused_offset_is_counted() -> None:
    history = made(allow_loss=True)
    history.acknowledged("p", 0, 0, ["p:0"])
    history.acknowledged("p", 0, 0, ["p:1"])
    assert history.finish({0: {0: "p:1"}}) == Losses(1, 0)
    assert history.forgiven == {"inconsistent-offsets": 1}


def test_no_loss_explains_a_record_without_a_producer() -> None:
    with pytest.raises(Violation, match="phantom"):
        made(allow_loss=True).served("c", 0, 0, "q:7")
