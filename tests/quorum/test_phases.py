"""The phases of a replica: every state and every event, and what holds after any of them in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.quorum.phases import PHASES, TAKING_PART, TENURES, Event, Phase, ReplicaState, Tenure

FAILED = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "failed")
CLOSED = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "closed")
EPOCH = 7
CALLS: Mapping[Event, Callable[[ReplicaState], None]] = {
    Event.OPEN: ReplicaState.open,
    Event.OPENED: ReplicaState.opened,
    Event.STOP: ReplicaState.stop,
    Event.FAIL: lambda state: state.fail(FAILED),
    Event.CLOSE: lambda state: state.close(CLOSED),
    Event.ELECTED: lambda state: state.elected(EPOCH),
    Event.COMMITTED: ReplicaState.committed,
    Event.UNSEATED: ReplicaState.unseated,
}
WAYS_TO_PHASES = {
    Phase.NEW: [],
    Phase.OPENING: [Event.OPEN],
    Phase.RUNNING: [Event.OPEN, Event.OPENED],
    Phase.DRAINING: [Event.OPEN, Event.OPENED, Event.STOP],
    Phase.FAILED: [Event.OPEN, Event.FAIL],
    Phase.CLOSED: [Event.CLOSE],
}
WAYS_TO_TENURES = {
    Tenure.FOLLOWING: [],
    Tenure.TAKING_OVER: [Event.ELECTED],
    Tenure.LEADING: [Event.ELECTED, Event.COMMITTED],
}
STATES = [(phase, tenure) for phase in Phase for tenure in (Tenure if phase in TAKING_PART else [Tenure.FOLLOWING])]


def state_of(phase: Phase, tenure: Tenure) -> ReplicaState:
    """A replica that came there by the shortest way."""
    state = ReplicaState()
    for event in WAYS_TO_PHASES[phase] + WAYS_TO_TENURES[tenure]:
        CALLS[event](state)
    assert (state.phase, state.tenure) == (phase, tenure)
    return state


def successor(phase: Phase, tenure: Tenure, event: Event) -> tuple[Phase, Tenure] | None:
    """The next state by the tables; None if the event is not allowed."""
    if event in PHASES[phase]:
        after = PHASES[phase][event]
        return after, tenure if after in TAKING_PART else Tenure.FOLLOWING
    if phase in TAKING_PART and event in TENURES[tenure]:
        return phase, TENURES[tenure][event]
    return None


def allowed(state: ReplicaState) -> list[Event]:
    return [event for event in Event if successor(state.phase, state.tenure, event) is not None]


def facts(state: ReplicaState) -> tuple[object, ...]:
    return state.phase, state.tenure, state.failure, state.takes_part


@pytest.mark.promise("R3")
@pytest.mark.parametrize(("phase", "tenure", "event"), [(*state, event) for state, event in product(STATES, Event)])
def test_every_event_follows_the_tables_or_is_refused(phase: Phase, tenure: Tenure, event: Event) -> None:
    expected = successor(phase, tenure, event)
    state = state_of(phase, tenure)
    before = facts(state)
    call = CALLS[event] if event is not Event.ELECTED else lambda state: state.elected(EPOCH + 1)
    if expected is None:
        with pytest.raises(InvariantError):
            call(state)
        assert facts(state) == before
    else:
        call(state)
        assert (state.phase, state.tenure) == expected


def test_tables_cover_each_state_with_disjoint_events() -> None:
    assert set(PHASES) == set(Phase)
    assert set(TENURES) == set(Tenure)
    of_phases = {event for row in PHASES.values() for event in row}
    of_tenures = {event for row in TENURES.values() for event in row}
    assert of_phases | of_tenures == set(Event)
    assert not of_phases & of_tenures


def test_every_life_can_end() -> None:
    for phase in Phase:
        reached, last = {phase}, set()
        while reached != last:
            last = set(reached)
            reached |= {after for each in last for after in PHASES[each].values()}
        assert Phase.CLOSED in reached


def test_an_epoch_is_led_once_and_none_before_it() -> None:
    state = state_of(Phase.RUNNING, Tenure.LEADING)
    state.unseated()
    for epoch in (EPOCH - 1, EPOCH):
        with pytest.raises(InvariantError):
            state.elected(epoch)
        assert state.tenure is Tenure.FOLLOWING
    state.elected(EPOCH + 1)
    assert state.led_epoch == EPOCH + 1


def test_failure_is_kept_after_close() -> None:
    state = state_of(Phase.FAILED, Tenure.FOLLOWING)
    state.close(CLOSED)
    assert state.failure is FAILED
    assert state_of(Phase.CLOSED, Tenure.FOLLOWING).failure is CLOSED


@given(st.lists(st.tuples(st.sampled_from(Event), st.integers(0, 5)), max_size=60))
def test_invariants_hold_after_any_events(events: list[tuple[Event, int]]) -> None:
    state = ReplicaState()
    led: list[int] = []
    failure: KafkaError | None = None
    for event, epoch in events:
        before = facts(state)
        try:
            if event is Event.ELECTED:
                state.elected(epoch)
                led.append(epoch)
            else:
                CALLS[event](state)
        except InvariantError:
            assert facts(state) == before, "an event that is refused changes nothing"
        assert state.takes_part == (state.phase in TAKING_PART)
        if state.tenure is Tenure.FOLLOWING:
            with pytest.raises(InvariantError):
                _ = state.led_epoch
        else:
            assert state.takes_part, "only a participating replica leads"
            assert state.led_epoch == led[-1]
        assert (state.failure is not None) == (state.phase in (Phase.FAILED, Phase.CLOSED))
        if failure is not None:
            assert state.failure is failure, "the first reason stays"
        failure = state.failure
    assert led == sorted(set(led)), "each epoch once, each newer than the last"


@given(st.data())
def test_any_way_through_the_tables_is_taken(data: st.DataObject) -> None:
    state = ReplicaState()
    for epoch in range(30):
        events = allowed(state)
        if not events:
            assert state.phase is Phase.CLOSED
            break
        event = data.draw(st.sampled_from(events))
        expected = successor(state.phase, state.tenure, event)
        if event is Event.ELECTED:
            state.elected(epoch)
        else:
            CALLS[event](state)
        assert (state.phase, state.tenure) == expected
