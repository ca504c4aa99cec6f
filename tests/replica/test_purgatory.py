"""Purgatory: one wake-up for many, each operation once, timeouts, isolated defects."""

from __future__ import annotations

import pytest

from ottla.common.errors import InvariantError
from ottla.replica.purgatory import DelayedOperation, Purgatory, Watch

from .manual_loop import ManualLoop


class Waiter(DelayedOperation):
    __slots__ = ("events", "ready")

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.events: list[str] = []

    def try_complete(self, force: bool) -> bool:
        self.events.append("forced" if force else "tried")
        return self.ready or force

    def expire(self) -> None:
        self.events.append("expired")

    def fail(self, error: Exception) -> None:
        self.events.append(f"failed: {error}")


class Broken(Waiter):
    __slots__ = ()

    def try_complete(self, force: bool) -> bool:
        raise ValueError("defect")


class Fixture:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.failures: list[str] = []
        self.purgatory = Purgatory(self.loop, lambda where, error: self.failures.append(f"{where}: {error}"))


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def test_touches_share_one_sweep_with_one_try_each(fixture: Fixture) -> None:
    watches = [Watch() for _ in range(3)]
    waiters = [Waiter() for _ in range(5)]
    for waiter in waiters:
        waiter.ready = True
        fixture.purgatory.park(waiter, watches, 1.0)
    for _ in range(4):
        for watch in watches:
            fixture.purgatory.touch(watch)
    assert fixture.loop.turn() == 1
    assert [waiter.events for waiter in waiters] == [["tried"]] * 5
    assert len(fixture.purgatory) == 0
    assert not any(watch.waiters for watch in watches)
    assert all(timer.cancelled for timer in fixture.loop.later)


def test_touch_without_operations_schedules_nothing(fixture: Fixture) -> None:
    fixture.purgatory.touch(Watch())
    assert fixture.loop.turn() == 0


def test_incomplete_operation_stays_parked(fixture: Fixture) -> None:
    watch, waiter = Watch(), Waiter()
    fixture.purgatory.park(waiter, [watch], 1.0)
    fixture.purgatory.touch(watch)
    fixture.loop.turn()
    assert len(fixture.purgatory) == 1
    waiter.ready = True
    fixture.purgatory.touch(watch)
    fixture.loop.turn()
    assert waiter.events == ["tried", "tried"]
    assert len(fixture.purgatory) == 0


def test_force_reaches_the_operation_once(fixture: Fixture) -> None:
    watch, other, waiter = Watch(), Watch(), Waiter()
    fixture.purgatory.park(waiter, [watch, other], 1.0)
    fixture.purgatory.touch(watch)
    fixture.purgatory.touch(other, force=True)
    fixture.loop.turn()
    assert waiter.events == ["forced"]


def test_force_does_not_apply_to_later_operations(fixture: Fixture) -> None:
    watch, waiter = Watch(), Waiter()
    fixture.purgatory.touch(watch, force=True)
    fixture.purgatory.park(waiter, [watch], 1.0)
    fixture.purgatory.touch(watch)
    fixture.loop.turn()
    assert waiter.events == ["tried"]


def test_expiry_answers_once_and_forgets(fixture: Fixture) -> None:
    watch, waiter = Watch(), Waiter()
    fixture.purgatory.park(waiter, [watch], 1.0)
    fixture.loop.let_time_pass()
    fixture.purgatory.touch(watch)
    fixture.loop.turn()
    assert waiter.events == ["expired"]


def test_cancelled_is_never_answered(fixture: Fixture) -> None:
    watch, waiter = Watch(), Waiter()
    fixture.purgatory.park(waiter, [watch], 1.0)
    fixture.purgatory.touch(watch)
    fixture.purgatory.cancel(waiter)
    fixture.loop.turn()
    fixture.loop.let_time_pass()
    assert waiter.events == []


def test_defect_in_one_operation_does_not_affect_others(fixture: Fixture) -> None:
    watch = Watch()
    broken, sound = Broken(), Waiter()
    sound.ready = True
    fixture.purgatory.park(broken, [watch], 1.0)
    fixture.purgatory.park(sound, [watch], 1.0)
    fixture.purgatory.touch(watch)
    fixture.loop.turn()
    assert fixture.failures == ["Broken: defect"]
    assert broken.events == ["failed: defect"]
    assert sound.events == ["tried"]
    assert len(fixture.purgatory) == 0


def test_an_operation_is_parked_once(fixture: Fixture) -> None:
    watch, waiter = Watch(), Waiter()
    fixture.purgatory.park(waiter, [watch], 1.0)
    with pytest.raises(InvariantError):
        fixture.purgatory.park(waiter, [watch], 1.0)


def test_shutdown_answers_everything(fixture: Fixture) -> None:
    waiters = [Waiter() for _ in range(3)]
    for waiter in waiters:
        fixture.purgatory.park(waiter, [Watch()], 1.0)
    fixture.purgatory.expire_all()
    assert [waiter.events for waiter in waiters] == [["expired"]] * 3
