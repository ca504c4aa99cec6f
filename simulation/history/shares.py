"""History of a share group (KIP-932): acquisitions, acknowledgements and stored states, and the rules they violate.

Acquisitions and stored states are events of the brokers (`simulation.share_observer`), the others of members. A term is
the life of one share partition in the memory of a leader. The rules:

- never-lost: at the end every acknowledged record of a producer was accepted or rejected by a member, or was delivered
  as often as the limit permits;
- at-most-limit: no delivery has a count above the limit, and within a term the count rises by one;
- count-fell: in a later term a record is delivered with a higher count than was stored before;
- count-lost: a later term lost the count of at most one delivery, unless a write of the term before failed;
- back-off: a record that was delivered before is delivered after its back-off: since the delivery failed or, in a later
  term, since the state was loaded;
- rate: a term delivers the records of its rate since the state was loaded, with the burst of a second, and no more;
- one-owner: within a term a record is acquired again only when its lock has ended: by time, by an acknowledgement, or
  with the connection or session of its member;
- lock-lost: an acknowledgement within the lock is not refused as INVALID_RECORD_STATE;
- answered-before-stored: an acknowledgement within the lock is stored before it is answered;
- redelivered: a record that is stored as settled is not delivered again;
- start-offset-monotonic: within a state epoch no leader loads or stores a lower start offset than was stored before;
- state-epoch: no leader loads an older state than was stored;
- fence: nothing is stored for a leader, or in a state epoch, that was replaced when the request was sent, or when it
  arrived, which may be later;
- different-record: all members get the same value at an offset, and the one that its producer was acknowledged;
- acquired-without-record: a response contains the record of each acquired offset.

Permitted, as in Apache Kafka: a replaced leader that does not know it delivers records, and no acknowledgement of them
is stored; counts that were not stored are lost with their leader; records whose acknowledgement failed are delivered
again, unless it was stored all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.common.kafka.share_state import RecordState, StateBatch
from ottla.share.acknowledgements import AcknowledgeType
from ottla.share.retry_backoff import RetryBackoff
from simulation.history.findings import Findings
from simulation.trace import Trace

SharePlace = tuple[bytes, int]
"""Topic id and partition."""
SETTLED = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED)


RESOLUTION_S = 0.002
"""Brokers measure locks in milliseconds."""


class ShareTerm(NamedTuple):
    """A share partition in the memory of a leader."""

    number: int
    leader_epoch: int
    state_epoch: int


class KnownState(NamedTuple):
    """The stored state at a time; -1 for none."""

    state_epoch: int
    start_offset: int
    leader_epoch: int
    at_s: float


class Acknowledgement(NamedTuple):
    """A member's decision about a record that is not answered yet. Without an answer it may be stored or not."""

    offset: int
    type: AcknowledgeType
    in_lock: bool
    """Whether the member held the lock when it sent this."""
    acquired_s: float
    """Time of the acquisition: the same request may acquire the record again."""
    counted: bool
    """Whether it may settle the record."""


class _Record:
    """One record of a partition, as the group has seen it."""

    __slots__ = (
        "acquired_s",
        "count",
        "deliveries",
        "failed_s",
        "highest",
        "is_held",
        "member",
        "released",
        "settling",
        "term",
        "until_s",
        "value",
    )

    def __init__(self) -> None:
        self.term: ShareTerm | None = None
        self.acquired_s = 0.0
        self.failed_s = 0.0
        """The delivery has not failed before this."""
        self.count = 0
        self.highest = 0
        """Highest count of any delivery since the last change of offsets by an administrator."""
        self.deliveries = 0
        self.member = ""
        self.until_s = 0.0
        """The lock does not end by time before this."""
        self.is_held: Callable[[], bool] = lambda: False
        self.released = True
        """Whether the member has sent something that ends the lock."""
        self.settling = 0
        """Accepting and rejecting acknowledgements that may have taken effect."""
        self.value: str | None = None

    def lock_is_open(self, now_s: float) -> bool:
        return now_s < self.until_s and self.is_held()


class _Stored:
    """State of a share partition that was certainly stored, in one state epoch."""

    __slots__ = ("leader_epoch", "loading_s", "records", "start_offset", "state_epoch")

    def __init__(self, state_epoch: int) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = -1
        """Highest epoch of a leader that has loaded or stored anything."""
        self.loading_s = 0.0
        """Time when the leader of that epoch began to load."""
        self.start_offset = -1
        self.records: dict[int, tuple[int, int]] = {}
        """Delivery count and state by offset."""


class ShareHistory:
    """One share group."""

    def __init__(
        self,
        trace: Trace,
        *,
        limit: int,
        lock_s: float,
        retry: RetryBackoff | None = None,
        rate: Callable[[SharePlace], float] | None = None,
    ) -> None:
        """`limit` deliveries of a record; a lock lasts for `lock_s`; `rate` of a partition in records per second."""
        self._trace = trace
        self._limit = limit
        self._lock_s = lock_s - RESOLUTION_S
        self._retry = retry
        self._rate = rate
        self._loaded_s: dict[tuple[SharePlace, int], float] = {}
        """Time when the leader of an epoch has read the state, for the last time."""
        self._tokens: dict[ShareTerm, tuple[float, float]] = {}
        """Records that a term may deliver, and the time of its last delivery."""
        self._findings = Findings()
        self._records: dict[SharePlace, dict[int, _Record]] = {}
        self._stored: dict[SharePlace, _Stored] = {}
        self._produced: dict[SharePlace, dict[int, str]] = {}
        self._unsure: Counter[tuple[SharePlace, int]] = Counter()
        """Writes that failed or were not answered, by partition and leader epoch."""
        self.acknowledged: Counter[AcknowledgeType] = Counter()
        """Records by the type of their acknowledgement, if it was answered."""
        self.deliveries = 0
        self.most_deliveries = 0
        """Highest number of deliveries of one record."""
        self.terms = 0

    def _record(self, place: SharePlace, offset: int) -> _Record:
        records = self._records.setdefault(place, {})
        record = records.get(offset)
        if record is None:
            record = records[offset] = _Record()
        return record

    # -- producers

    def produced(self, place: SharePlace, offset: int, value: str) -> None:
        """A producer was acknowledged."""
        self._produced.setdefault(place, {})[offset] = value

    def end(self, place: SharePlace) -> int:
        """End of the acknowledged records of a partition."""
        return max(self._produced.get(place, {}), default=-1) + 1

    # -- brokers

    def known(self, place: SharePlace) -> KnownState:
        """The certainly stored state."""
        stored = self._stored.get(place)
        if stored is None:
            return KnownState(-1, -1, -1, self._trace.time())
        return KnownState(stored.state_epoch, stored.start_offset, stored.leader_epoch, self._trace.time())

    def loaded(
        self, place: SharePlace, leader_epoch: int, state_epoch: int, start_offset: int, before: KnownState
    ) -> None:
        """A leader has read the state; `before` was known when it asked."""
        self._trace.note("share", f"{_name(place)} loaded by leader {leader_epoch}: {state_epoch}, {start_offset}")
        if state_epoch < before.state_epoch:
            self._broken("state-epoch", f"{_name(place)} is loaded in {state_epoch}, after {before.state_epoch}")
        if state_epoch == before.state_epoch and start_offset < before.start_offset:
            self._broken(
                "start-offset-monotonic", f"{_name(place)} is loaded from {start_offset}, after {before.start_offset}"
            )
        self._loaded_s[place, leader_epoch] = self._trace.time()
        known = self._stored.get(place)
        if known is None or state_epoch > known.state_epoch:
            known = self._stored[place] = _Stored(state_epoch)
        if state_epoch == known.state_epoch:
            known.start_offset = max(known.start_offset, start_offset)
        for unsure in [key for key, count in self._unsure.items() if key[0] == place and count]:
            self._unsure[unsure] += 1  # for good: changes may have waited for that write
        if leader_epoch > known.leader_epoch:
            known.leader_epoch, known.loading_s = leader_epoch, before.at_s

    def begun(self, leader_epoch: int, state_epoch: int) -> ShareTerm:
        """A leader begins to deliver records of a loaded share partition."""
        self.terms += 1
        return ShareTerm(self.terms, leader_epoch, state_epoch)

    def acquired(
        self,
        place: SharePlace,
        term: ShareTerm,
        member: str,
        ranges: Iterable[tuple[int, int, int]],
        is_held: Callable[[], bool],
    ) -> None:
        """A leader acquired (first offset, last offset, count) for a member.

        `is_held` returns whether the member's session still exists on the connection to which the response goes.
        """
        for first, last, count in ranges:
            self._trace.note(member, f"acquires {_name(place)}@{first}-{last} x{count} in term {term.number}")
            for offset in range(first, last + 1):
                self._acquired_one(place, term, member, offset, count)
                self._record(place, offset).is_held = is_held
            if self._rate is not None:
                self._check_rate(place, term, self._rate(place), last - first + 1)

    def _acquired_one(self, place: SharePlace, term: ShareTerm, member: str, offset: int, count: int) -> None:
        record, now_s, at = self._record(place, offset), self._trace.time(), f"{_name(place)}@{offset}"
        if count > self._limit:
            self._broken("at-most-limit", f"{at} is delivered with count {count} of {self._limit}")
        if record.term == term:
            if count != record.count + 1:
                self._broken("at-most-limit", f"{at} has count {count} after {record.count} in one term")
            if record.lock_is_open(now_s) and not record.released:
                self._broken(
                    "one-owner", f"{member} acquires {at}, which {record.member} has until {record.until_s:.3f}"
                )
        elif record.term is not None:
            self._check_lost(place, record, term, record.term, at, count)
        self._check_stored(place, term, offset, count)
        self._check_backoff(place, record, term, at, count)
        self.deliveries += 1
        record.deliveries += 1
        self.most_deliveries = max(self.most_deliveries, record.deliveries)
        record.term, record.count, record.member = term, count, member
        record.highest = max(record.highest, count)
        record.until_s = now_s + self._lock_s
        record.acquired_s, record.failed_s, record.released = now_s, now_s, False

    def _check_backoff(self, place: SharePlace, record: _Record, term: ShareTerm, at: str, count: int) -> None:
        if self._retry is None or count == 1:
            return
        if record.term != term:
            since_s = self._loaded_s[place, term.leader_epoch]
        elif record.is_held() and not record.released:
            since_s = record.until_s
        else:
            since_s = record.failed_s
        waited_s = self._trace.time() - since_s
        if waited_s < self._retry.base_ms(count - 1) / 1000 - RESOLUTION_S:
            self._broken("back-off", f"{at} is delivered with count {count} after {waited_s:.3f} s")

    def _check_rate(self, place: SharePlace, term: ShareTerm, rate: float, count: int) -> None:
        now_s = self._trace.time()
        tokens, at_s = self._tokens.get(term, (0.0, self._loaded_s[place, term.leader_epoch]))
        tokens = min(max(1.0, rate), tokens + (now_s - at_s) * rate) - count
        self._tokens[term] = tokens, now_s
        if tokens < -rate * RESOLUTION_S:
            self._broken("rate", f"{_name(place)} has {-tokens:.3f} records above {rate:.3f} per second")

    def _check_lost(
        self, place: SharePlace, record: _Record, term: ShareTerm, before: ShareTerm, at: str, count: int
    ) -> None:
        """Compare with the last delivery by a former leader, if that one was certain to store everything."""
        known = self._stored.get(place)
        if known is None or not term.state_epoch == before.state_epoch == known.state_epoch:
            return
        is_comparable = before.leader_epoch <= term.leader_epoch == known.leader_epoch
        is_certain = not self._unsure[place, before.leader_epoch]
        if is_comparable and is_certain and record.acquired_s < known.loading_s and count < record.count:
            self._broken("count-lost", f"{at} has count {count} after {record.count} with the last leader")

    def _check_stored(self, place: SharePlace, term: ShareTerm, offset: int, count: int) -> None:
        """Compare with the stored state, unless this leader was replaced or has an older state."""
        known = self._stored.get(place)
        if known is None or term.state_epoch != known.state_epoch or term.leader_epoch < known.leader_epoch:
            return
        at = f"{_name(place)}@{offset}"
        if offset < known.start_offset:
            self._broken("redelivered", f"{at} is delivered, below the stored start offset {known.start_offset}")
        stored_count, state = known.records.get(offset, (0, RecordState.AVAILABLE))
        if state in SETTLED:
            self._broken("redelivered", f"{at} is delivered, and is stored as {RecordState(state).name}")
        if count <= stored_count:
            self._broken("count-fell", f"{at} is delivered with count {count}, and {stored_count} is stored")

    def storing(self, place: SharePlace, leader_epoch: int) -> KnownState:
        """A leader asks to store a change: it is uncertain until `stored`, and if that never follows."""
        self._unsure[place, leader_epoch] += 1
        return self.known(place)

    def accepted(self, place: SharePlace, leader_epoch: int, state_epoch: int, before: KnownState) -> None:
        """A share coordinator has accepted a change; `before` was known when the request arrived."""
        if leader_epoch < before.leader_epoch or state_epoch < before.state_epoch:
            self._broken(
                "fence",
                f"{_name(place)} is stored by leader {leader_epoch} in {state_epoch}, after leader "
                f"{before.leader_epoch} has loaded it in {before.state_epoch}",
            )

    def stored(
        self,
        place: SharePlace,
        leader_epoch: int,
        state_epoch: int,
        start_offset: int,
        batches: Iterable[StateBatch],
        before: KnownState,
    ) -> None:
        """The share coordinator has stored the change of a `storing`, which returned `before`."""
        self._unsure[place, leader_epoch] -= 1
        self.accepted(place, leader_epoch, state_epoch, before)
        self._trace.note("share", f"{_name(place)} stored by leader {leader_epoch}: {state_epoch}, {start_offset}")
        known = self._stored.get(place)
        if known is None or state_epoch > known.state_epoch:
            known = self._stored[place] = _Stored(state_epoch)
        if state_epoch < known.state_epoch:
            return
        if start_offset < known.start_offset and leader_epoch >= known.leader_epoch:
            self._broken(
                "start-offset-monotonic", f"{_name(place)} is stored from {start_offset}, after {known.start_offset}"
            )
        known.leader_epoch = max(known.leader_epoch, leader_epoch)
        known.start_offset = max(known.start_offset, start_offset)
        for first, last, state, count in (
            (each.first_offset, each.last_offset, each.state, each.delivery_count) for each in batches
        ):
            for offset in range(max(first, known.start_offset), last + 1):
                known.records[offset] = max(known.records.get(offset, (0, 0)), (count, int(state)))
        for offset in [offset for offset in known.records if offset < known.start_offset]:
            del known.records[offset]

    def is_settled(self, place: SharePlace) -> bool:
        """Whether the stored start offset has reached the end of the acknowledged records."""
        return self.known(place).start_offset >= self.end(place) or not self.end(place)

    # -- members

    def received(self, member: str, place: SharePlace, offset: int, value: str | None) -> None:
        """A response has an acquired offset, with the value of its record."""
        record, at = self._record(place, offset), f"{_name(place)}@{offset}"
        if value is None:
            self._broken("acquired-without-record", f"{member} acquired {at} and got no record of it")
            return
        known = self._produced.get(place, {}).get(offset, record.value)
        if known is not None and known != value:
            self._broken("different-record", f"{member} got {value} at {at}, where {known} was before")
        record.value = value

    def acknowledging(
        self, member: str, place: SharePlace, decisions: Iterable[tuple[int, AcknowledgeType]]
    ) -> list[Acknowledgement]:
        """A member sends decisions about records."""
        now_s = self._trace.time()
        sent = []
        for offset, kind in decisions:
            record = self._record(place, offset)
            in_lock = record.member == member and record.lock_is_open(now_s) and not record.released
            counted = kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
            record.settling += counted
            if record.member == member and kind is not AcknowledgeType.RENEW:
                record.released = True
            sent.append(Acknowledgement(offset, kind, in_lock, record.acquired_s, counted))
        return sent

    def answered(self, member: str, place: SharePlace, sent: Iterable[Acknowledgement], sent_s: float) -> None:
        """The acknowledgements that were sent at `sent_s` were answered without an error."""
        for each in sent:
            self.acknowledged[each.type] += 1
            record = self._record(place, each.offset)
            if each.type is not AcknowledgeType.RENEW:
                self._check_answer(place, each)
                if record.acquired_s == each.acquired_s and each.in_lock:
                    record.failed_s = max(record.failed_s, sent_s)
            elif record.acquired_s == each.acquired_s and record.member == member:
                record.until_s = max(record.until_s, sent_s + self._lock_s)

    def _check_answer(self, place: SharePlace, each: Acknowledgement) -> None:
        known = self._stored.get(place)
        is_stored = known is not None and (each.offset < known.start_offset or each.offset in known.records)
        if is_stored and each.counted and known is not None and each.offset >= known.start_offset:
            is_stored = known.records[each.offset][1] in SETTLED
        if each.in_lock and not is_stored:
            at = f"{_name(place)}@{each.offset}"
            self._broken("answered-before-stored", f"{each.type.name} of {at} was answered, and is not stored")

    def released(self, member: str, place: SharePlace, offsets: Iterable[int]) -> None:
        """A member ends its session or connection: the leader may give its records to others."""
        for offset in offsets:
            record = self._record(place, offset)
            if record.member == member:
                record.released = True

    def refused(self, member: str, place: SharePlace, sent: Iterable[Acknowledgement], *, invalid_state: bool) -> None:
        """Acknowledgements have certainly not taken effect. `invalid_state`: the code is INVALID_RECORD_STATE."""
        sent = list(sent)
        for each in sent:
            self._record(place, each.offset).settling -= each.counted
        now_s = self._trace.time()
        held = [
            each
            for each in sent
            if each.in_lock
            and self._record(place, each.offset).acquired_s == each.acquired_s
            and self._record(place, each.offset).lock_is_open(now_s)
        ]
        # The decisions about a partition are applied all or none: one without a lock refuses the others.
        if invalid_state and sent and len(held) == len(sent):
            offsets = [each.offset for each in held]
            self._broken("lock-lost", f"{member} has no lock of {_name(place)}@{offsets}, which it acquired")

    def rewound(self, place: SharePlace, offset: int) -> None:
        """An administrator has set the start offset: the group gets all records from there on again."""
        self._trace.note("admin", f"rewound {_name(place)} to {offset}")
        for at, record in self._records.get(place, {}).items():
            if at >= offset:
                record.settling = record.highest = 0
        known = self._stored.get(place)
        if known is not None:
            self._stored[place] = _Stored(known.state_epoch + 1)

    # -- the end

    def unsettled(self, place: SharePlace) -> list[int]:
        """Acknowledged records of producers that the group neither settled nor got as often as the limit permits."""
        return [
            offset
            for offset in sorted(self._produced.get(place, {}))
            if not self._record(place, offset).settling and self._record(place, offset).highest < self._limit
        ]

    def finish(self, places: Iterable[SharePlace]) -> None:
        """Check that no record of these partitions is lost. Raises Violation."""
        for place in places:
            lost = self.unsettled(place)
            if lost:
                deliveries = [self._record(place, offset).deliveries for offset in lost]
                self._broken("never-lost", f"{_name(place)} is settled without {lost}, delivered {deliveries} times")

    def _broken(self, rule: str, what: str) -> None:
        self._findings.broken(rule, what)


def _name(place: SharePlace) -> str:
    return f"{place[0].hex()[:6]}-{place[1]}"
