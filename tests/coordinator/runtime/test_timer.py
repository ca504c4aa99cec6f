"""Timers of a shard: named, moved, retried, cancelled."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult, CoordinatorTimer

from .harness import MapShard, Outcome, Put, Setup


@pytest.fixture
def timer(led: Setup) -> CoordinatorTimer:
    return led.shard().timer


def fired(led: Setup) -> dict[str, int]:
    return led.committed()


def test_due_timer_writes(led: Setup, timer: CoordinatorTimer) -> None:
    timer.schedule("t", 100, lambda: CoordinatorResult((Put("a", 1),)))
    assert led.time.armed == 1
    led.time.advance(0.099)
    assert fired(led) == {}
    led.time.advance(0.002)
    assert fired(led) == {"a": 1}
    assert led.time.armed == 0


def test_a_cancelled_timer_does_nothing(led: Setup, timer: CoordinatorTimer) -> None:
    timer.schedule("t", 100, lambda: CoordinatorResult((Put("a", 1),)))
    timer.cancel("t")
    timer.cancel("t")
    led.time.advance(1)
    assert fired(led) == {}


def test_the_last_schedule_of_a_key_counts(led: Setup, timer: CoordinatorTimer) -> None:
    timer.schedule("t", 100, lambda: CoordinatorResult((Put("first", 1),)))
    timer.schedule("t", 50, lambda: CoordinatorResult((Put("sooner", 1),)))
    timer.schedule("t", 200, lambda: CoordinatorResult((Put("later", 1),)))
    timer.schedule_if_absent("t", 10, lambda: CoordinatorResult((Put("absent", 1),)))
    led.time.advance(0.199)
    assert fired(led) == {}
    led.time.advance(0.002)
    assert fired(led) == {"later": 1}
    timer.schedule_if_absent("t", 10, lambda: CoordinatorResult((Put("absent", 1),)))
    led.time.advance(0.02)
    assert fired(led) == {"later": 1, "absent": 1}


def test_heartbeats_move_a_timer_without_arming_it_each_time(led: Setup, timer: CoordinatorTimer) -> None:
    for _ in range(100):
        timer.schedule("session", 45_000, lambda: CoordinatorResult((Put("expired", 1),)))
        assert led.time.armed == 1
        led.time.advance(3)
    assert fired(led) == {}
    led.time.advance(41.9)
    assert fired(led) == {}
    led.time.advance(0.2)
    assert fired(led) == {"expired": 1}


def test_a_defect_names_its_timer(led: Setup, timer: CoordinatorTimer) -> None:
    def broken() -> CoordinatorResult[Put, None]:
        raise ValueError("a defect")

    timer.schedule("session of m", 100, broken, retry=False)
    led.time.advance(0.2)
    ((where, error),) = led.defects
    assert where == "__numbers: running timer"
    assert error.__notes__ == ["in the timer 'session of m'"]


def test_a_failed_operation_is_retried(led: Setup, timer: CoordinatorTimer) -> None:
    led.log.append_failures.extend([KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)] * 2)
    timer.schedule("t", 100, lambda: CoordinatorResult((Put("a", 1),)))
    led.time.advance(0.101)
    assert fired(led) == {}
    assert led.time.armed == 1
    led.time.advance(0.6)
    assert fired(led) == {}
    led.time.advance(0.6)
    assert fired(led) == {"a": 1}


def test_an_operation_that_is_not_retried(led: Setup, timer: CoordinatorTimer) -> None:
    led.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    timer.schedule("t", 100, lambda: CoordinatorResult((Put("a", 1),)), retry=False)
    led.time.advance(5)
    assert fired(led) == {}
    assert led.time.armed == 0


def test_new_schedule_replaces_a_retry(led: Setup, timer: CoordinatorTimer) -> None:
    led.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    timer.schedule("t", 100, lambda: CoordinatorResult((Put("old", 1),)))
    led.time.now_s += 0.1
    led.time.turn()
    timer.schedule("t", 2000, lambda: CoordinatorResult((Put("new", 1),)))
    led.time.advance(1.9)
    assert fired(led) == {}
    led.time.advance(0.2)
    assert fired(led) == {"new": 1}


def test_a_timer_may_schedule_itself(led: Setup, timer: CoordinatorTimer) -> None:
    def tick() -> CoordinatorResult[Put, None]:
        timer.schedule("tick", 100, tick)
        return CoordinatorResult((Put("ticks", led.shard().numbers.get("ticks", 0) + 1),))

    timer.schedule("tick", 100, tick)
    led.time.advance(1.05)
    assert fired(led) == {"ticks": 10}


@pytest.mark.parametrize("how", ["cancel", "schedule"])
def test_a_timer_that_fired_while_an_operation_ran(led: Setup, timer: CoordinatorTimer, how: str) -> None:
    timer.schedule("t", 100, lambda: CoordinatorResult((Put("stale", 1),)))
    led.time.now_s += 1

    def running(shard: MapShard) -> CoordinatorResult[Put, None]:
        led.time.turn()  # the loop reaches the timer while this operation is still running
        if how == "cancel":
            timer.cancel("t")
        else:
            timer.schedule("t", 2000, lambda: CoordinatorResult((Put("fresh", 1),)))
        return EMPTY_RESULT

    led.runtime.schedule_write("write", 0, running, Outcome())
    led.time.settle()
    assert fired(led) == {}
    led.time.advance(3)
    assert fired(led) == ({} if how == "cancel" else {"fresh": 1})


def test_timers_end_with_their_shard(led: Setup, timer: CoordinatorTimer) -> None:
    for number in range(10):
        timer.schedule(f"t{number}", 100, lambda: CoordinatorResult((Put("a", 1),)))
    led.runtime.resign(0)
    assert led.time.armed == 0
    assert led.time.armed == 0
