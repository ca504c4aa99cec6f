"""The rules of share groups, one violation each."""

from __future__ import annotations

import pytest
from simulation.checkers import Violation
from simulation.history.shares import ShareHistory, ShareTerm
from simulation.share_state_logs import States, apply_record
from simulation.trace import Trace

from ottla.common.kafka.share_state import RecordState, SharePartitionKey, StateBatch
from ottla.coordinator.share.state import ShareSnapshot, ShareUpdate
from ottla.share.acknowledgements import AcknowledgeType
from ottla.share.retry_backoff import RetryBackoff

PLACE = (b"t" * 16, 0)
KEY = SharePartitionKey("g", *PLACE)
LOCK_S = 10.0


class Clock:
    """Time of the history."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


class Group:
    """A history, and the leader's part of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.history = ShareHistory(Trace(self.clock), limit=2, lock_s=LOCK_S)
        self.term = self.lead(1)
        self.is_held = True

    def lead(self, leader_epoch: int, state_epoch: int = 1, start_offset: int = 0) -> ShareTerm:
        self.history.loaded(PLACE, leader_epoch, state_epoch, start_offset, self.history.known(PLACE))
        self.term = self.history.begun(leader_epoch, state_epoch)
        return self.term

    def acquire(self, member: str, count: int = 1, *, offset: int = 0, term: ShareTerm | None = None) -> None:
        self.history.acquired(PLACE, term or self.term, member, [(offset, offset, count)], lambda: self.is_held)

    def store(self, state: RecordState, count: int = 1, *, start_offset: int = 0) -> None:
        before = self.history.storing(PLACE, self.term.leader_epoch)
        batch = StateBatch(0, 0, state, count)
        self.history.stored(PLACE, self.term.leader_epoch, 1, start_offset, [batch], before)

    def accept(self, member: str) -> None:
        sent = self.history.acknowledging(member, PLACE, [(0, AcknowledgeType.ACCEPT)])
        self.history.answered(member, PLACE, sent, self.clock.now_s)


@pytest.fixture
def group() -> Group:
    return Group()


def test_records_are_delivered_settled_and_counted(group: Group) -> None:
    group.history.produced(PLACE, 0, "a")
    group.acquire("m")
    group.history.received("m", PLACE, 0, "a")
    group.store(RecordState.ACKNOWLEDGED)
    group.accept("m")
    group.store(RecordState.ACKNOWLEDGED, start_offset=1)
    assert group.history.is_settled(PLACE)
    group.history.finish([PLACE])
    assert group.history.acknowledged[AcknowledgeType.ACCEPT] == 1


def test_locked_record_of_another_member_is_not_acquired(group: Group) -> None:
    group.acquire("m")
    with pytest.raises(Violation, match=r"^one-owner: "):
        group.acquire("n", 2)


@pytest.mark.parametrize("end", ["time", "connection", "acknowledgement"])
def test_record_is_acquired_after_the_end_of_its_lock(group: Group, end: str) -> None:
    group.acquire("m")
    if end == "time":
        group.clock.now_s = LOCK_S
    elif end == "connection":
        group.is_held = False
    else:
        group.history.acknowledging("m", PLACE, [(0, AcknowledgeType.RELEASE)])
    group.acquire("n", 2)


def test_renewed_lock_lasts_longer(group: Group) -> None:
    group.acquire("m")
    group.clock.now_s = 8.0
    sent = group.history.acknowledging("m", PLACE, [(0, AcknowledgeType.RENEW)])
    group.history.answered("m", PLACE, sent, 8.0)
    group.clock.now_s = 15.0
    with pytest.raises(Violation, match=r"^one-owner: "):
        group.acquire("n", 2)


@pytest.mark.parametrize("count", [1, 3])
def test_count_rises_by_one_up_to_the_limit(group: Group, count: int) -> None:
    group.acquire("m")
    group.is_held = False
    with pytest.raises(Violation, match=r"^at-most-limit: "):
        group.acquire("m", count)


def patient_group() -> Group:
    """The first back-off is 4 seconds, and the rate is 2 records per second."""
    group = Group()
    retry = RetryBackoff(first_ms=4_000, multiplier=2.0, max_ms=60_000)
    group.history = ShareHistory(Trace(group.clock), limit=9, lock_s=LOCK_S, retry=retry, rate=lambda place: 2.0)
    group.lead(1)
    group.clock.now_s = 1.0
    return group


@pytest.mark.parametrize("end", ["connection", "acknowledgement", "lock", "leader"])
@pytest.mark.parametrize("waited_s", [3.9, 4.0])
def test_record_is_delivered_after_its_backoff(end: str, waited_s: float) -> None:
    group = patient_group()
    group.acquire("m")
    if end == "connection":
        group.is_held = False
    elif end == "acknowledgement":
        group.clock.now_s = 3.0
        sent = group.history.acknowledging("m", PLACE, [(0, AcknowledgeType.RELEASE)])
        group.store(RecordState.AVAILABLE)
        group.history.answered("m", PLACE, sent, 3.0)
    elif end == "lock":
        group.clock.now_s += LOCK_S
    else:
        group.clock.now_s = 20.0
        group.lead(2)
    group.clock.now_s += waited_s
    if waited_s >= 4.0:
        group.acquire("m", 2)
        return
    with pytest.raises(Violation, match=r"^back-off: "):
        group.acquire("m", 2)


@pytest.mark.parametrize(("pause_s", "permitted"), [(0.0, 2), (60.0, 2)])
def test_deliveries_are_within_the_rate_and_a_burst(pause_s: float, permitted: int) -> None:
    group = patient_group()
    group.clock.now_s += pause_s
    for offset in range(permitted):
        group.acquire("m", offset=offset)
    with pytest.raises(Violation, match=r"^rate: "):
        group.acquire("m", offset=permitted)


def test_stored_count_survives_a_change_of_leaders(group: Group) -> None:
    group.acquire("m")
    group.store(RecordState.AVAILABLE)
    group.lead(2)
    with pytest.raises(Violation, match=r"^count-fell: "):
        group.acquire("m")


def test_count_of_one_delivery_may_be_lost_with_a_leader(group: Group) -> None:
    group.acquire("m")
    group.clock.now_s = 1.0
    group.lead(2)
    group.acquire("n")


@pytest.mark.parametrize("write_fails", [False, True])
def test_further_counts_are_lost_only_with_a_failed_write(group: Group, write_fails: bool) -> None:
    group.is_held = False
    group.acquire("m")
    group.acquire("m", 2)
    if write_fails:
        group.history.storing(PLACE, 1)
    group.clock.now_s = 1.0
    group.lead(2)
    if write_fails:
        group.acquire("n")
    else:
        with pytest.raises(Violation, match=r"^count-lost: "):
            group.acquire("n")


def test_settled_record_is_not_delivered_by_a_new_leader(group: Group) -> None:
    old = group.term
    group.acquire("m")
    group.store(RecordState.ACKNOWLEDGED)
    group.lead(2)
    group.is_held = False
    group.acquire("m", 2, term=old)  # which does not know that it was replaced
    with pytest.raises(Violation, match=r"^redelivered: "):
        group.acquire("m", 2)


def test_answer_before_the_state_is_stored_is_found(group: Group) -> None:
    group.acquire("m")
    group.store(RecordState.AVAILABLE)
    with pytest.raises(Violation, match=r"^answered-before-stored: "):
        group.accept("m")


def test_refusal_within_the_lock_is_found(group: Group) -> None:
    group.acquire("m")
    sent = group.history.acknowledging("m", PLACE, [(0, AcknowledgeType.ACCEPT)])
    with pytest.raises(Violation, match=r"^lock-lost: "):
        group.history.refused("m", PLACE, sent, invalid_state=True)


def test_refusal_after_the_lock_is_permitted(group: Group) -> None:
    group.acquire("m")
    group.clock.now_s = LOCK_S
    sent = group.history.acknowledging("m", PLACE, [(0, AcknowledgeType.ACCEPT)])
    group.history.refused("m", PLACE, sent, invalid_state=True)
    group.history.produced(PLACE, 0, "a")
    assert group.history.unsettled(PLACE) == [0]


def test_refusal_is_permitted_if_the_request_acquired_the_record_again(group: Group) -> None:
    group.acquire("m")
    sent = group.history.acknowledging("m", PLACE, [(0, AcknowledgeType.ACCEPT)])
    group.clock.now_s = LOCK_S + 1
    group.acquire("m", 2)
    group.history.refused("m", PLACE, sent, invalid_state=True)


def test_unsettled_record_is_lost(group: Group) -> None:
    group.history.produced(PLACE, 0, "a")
    with pytest.raises(Violation, match=r"^never-lost: "):
        group.history.finish([PLACE])


def test_record_that_reached_the_limit_is_not_lost(group: Group) -> None:
    group.history.produced(PLACE, 0, "a")
    group.acquire("m")
    group.is_held = False
    group.acquire("m", 2)
    group.history.finish([PLACE])


def test_rewound_records_are_to_be_settled_again(group: Group) -> None:
    group.history.produced(PLACE, 0, "a")
    group.acquire("m")
    group.store(RecordState.ACKNOWLEDGED, start_offset=1)
    group.accept("m")
    group.history.rewound(PLACE, 0)
    assert group.history.unsettled(PLACE) == [0]
    assert not group.history.is_settled(PLACE)
    group.lead(1, state_epoch=5)
    group.is_held = False
    group.acquire("m")


def test_start_offset_and_state_epoch_never_fall(group: Group) -> None:
    group.store(RecordState.ACKNOWLEDGED, start_offset=7)
    with pytest.raises(Violation, match=r"^start-offset-monotonic: "):
        group.lead(2, start_offset=6)
    with pytest.raises(Violation, match=r"^state-epoch: "):
        group.lead(2, state_epoch=0)


@pytest.mark.parametrize("replaced", ["leader", "state"])
def test_nothing_is_stored_for_a_replaced_leader_or_state(group: Group, replaced: str) -> None:
    old = group.term
    group.lead(2, state_epoch=2 if replaced == "state" else 1)
    if replaced == "leader":
        group.term = old
    with pytest.raises(Violation, match=r"^fence: "):
        group.store(RecordState.ACKNOWLEDGED)


def test_members_get_the_same_records(group: Group) -> None:
    group.history.received("m", PLACE, 0, "a")
    with pytest.raises(Violation, match=r"^different-record: "):
        group.history.received("n", PLACE, 0, "b")
    with pytest.raises(Violation, match=r"^acquired-without-record: "):
        group.history.received("n", PLACE, 1, None)


def snapshot(start_offset: int = 0, leader_epoch: int = 1, *batches: StateBatch) -> ShareSnapshot:
    return ShareSnapshot(KEY, 1, 1, leader_epoch, start_offset, 0, 0, 0, batches)


@pytest.mark.parametrize(
    ("rule", "record"),
    [
        ("snapshot-loses-state", snapshot()),
        ("start-offset-monotonic", snapshot(-1, 1, StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1))),
        ("leader-epoch", ShareUpdate(KEY, 1, 0, 0, 0, ())),
        ("coordinator-state", ShareUpdate(KEY, 0, 1, 0, 0, ())),
    ],
)
def test_record_that_loses_state_is_found(rule: str, record: ShareSnapshot | ShareUpdate) -> None:
    states: States = {}
    apply_record(states, snapshot(0, 1, StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1)))
    with pytest.raises(Violation, match=f"^{rule}: "):
        apply_record(states, record)
