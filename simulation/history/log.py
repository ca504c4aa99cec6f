"""Client history of one topic, and the rules that it violates."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from simulation.history.findings import Findings
from simulation.history.transactions import Outcome, Transactions
from simulation.trace import Trace

Place = tuple[int, int]
"""Partition and offset."""
Contents = Mapping[int, Mapping[int, str]]
"""The value at each offset, by partition."""
DIFFERENT = "inconsistent-offsets"


class Losses(NamedTuple):
    """Values lost in a run with allowed losses: at the end no offset of their partition has them."""

    acknowledged: int
    served: int


class Lag(NamedTuple):
    """Time from a record's acknowledgement until a reader got to it, by the clock of the trace."""

    start_s: float
    end_s: float
    what: str

    @property
    def seconds(self) -> float:
        """Duration of the lag."""
        return self.end_s - self.start_s


class Gap(NamedTuple):
    """Offsets between two consecutive records of a reader; they must contain no record visible to it."""

    client: str
    partition: int
    start: int
    end: int
    committed: bool
    rule: str


class _Position(NamedTuple):
    """The next offset of a reader, and its last poll."""

    offset: int
    poll: int | None


class LogHistory:
    """Client history of one topic."""

    def __init__(
        self, trace: Trace, *, allow_loss: bool = False, transactions: Transactions | None = None, named: str = ""
    ) -> None:
        """With `transactions` there are offsets without a record, so skipped offsets are checked at the end.

        `named` is the prefix of partitions in findings, if there are several topics.
        """
        self._trace = trace
        self._transactions = transactions
        self._named = named
        self._findings = Findings(allow_loss=allow_loss)
        self._acknowledged: dict[Place, str] = {}
        self._served: dict[Place, str] = {}
        self._without_offset: list[str] = []
        """Acknowledged values, by offset."""
        self._acknowledged_values: dict[str, int] = {}
        """The partition of each acknowledged value; unlike offsets never overwritten by records after a loss."""
        self._acknowledged_at: dict[str, float] = {}
        self._served_values: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        """The partition of each value that was ever sent."""
        self._served_end: dict[int, int] = {}
        self._next: dict[tuple[str, int], _Position] = {}
        """Positions, by reader and partition."""
        self._gaps: list[Gap] = []
        self._seen: dict[str, set[str]] = {}
        """Values read by each reader."""
        self.acknowledged_count = 0
        self.served_count = 0
        self.worst_lag = Lag(0.0, 0.0, "nothing was read")

    @property
    def forgiven(self) -> Counter[str]:
        """Violations excused by `allow_loss`, by rule."""
        return self._findings.forgiven

    def key_of(self, value: str) -> bytes | None:
        """The key of a value."""
        return None

    def sent(self, partition: int, value: str, transaction: str | None = None) -> None:
        """A producer is about to send this value, perhaps several times."""
        self._sent[value] = partition
        if transaction is not None and self._transactions is not None:
            self._transactions.wrote(transaction, value)

    def acknowledged(self, client: str, partition: int, base_offset: int, values: list[str]) -> None:
        """`client` received an acknowledgement with `base_offset`."""
        self.acknowledged_count += len(values)
        self._trace.note(client, f"acknowledged {self._named}{partition}@{base_offset} {values[0]}+{len(values)}")
        now = self._trace.time()
        for offset, value in enumerate(values, base_offset):
            self._acknowledged_values[value] = partition
            self._acknowledged_at[value] = now
            self._claim(self._acknowledged, (partition, offset), value, f"{client} was acknowledged")
            self._agree(self._served, (partition, offset), value, f"{client} was acknowledged")

    def acknowledged_somewhere(self, partition: int, value: str) -> None:
        """Its producer got DUPLICATE_SEQUENCE_NUMBER: the value is in the log at an unknown offset."""
        self.acknowledged_count += 1
        self._acknowledged_values[value] = partition
        self._acknowledged_at[value] = self._trace.time()
        self._without_offset.append(value)

    def served(self, client: str, partition: int, offset: int, value: str, *, committed: bool = False) -> None:
        """`client` read this value; `committed` by read_committed."""
        self.served_count += 1
        if self._sent.get(value) != partition:
            self.broken(
                "phantom", f"{client} read {value!r} at {self._at(partition, offset)}, which no producer sent there"
            )
        if committed and self._transactions is not None:
            self._transactions.read(client, value)
        self._served_values[value] = partition
        self._claim(self._served, (partition, offset), value, f"{client} read")
        self._agree(self._acknowledged, (partition, offset), value, f"{client} read")
        self._served_end[partition] = max(offset + 1, self._served_end.get(partition, 0))
        self._seen.setdefault(client, set()).add(value)

    def polled(
        self,
        client: str,
        partition: int,
        offset: int,
        value: str,
        *,
        committed: bool = False,
        poll: int | None = None,
        subscribed: bool = False,
    ) -> None:
        """`client` read this value: by read_committed if `committed`, in `poll` if that is known.

        `subscribed`: its partitions are assigned by a group; otherwise it started at the first offset of the partition.
        """
        expected, before = self._next.get((client, partition), _Position(offset if subscribed else 0, None))
        internal = poll is not None and poll == before
        self._next[client, partition] = _Position(offset + 1, poll)
        if internal or not subscribed:
            form = "int-" if internal else ""
            place = self._at(partition, offset)
            if offset < expected:
                self.broken(f"{form}nonmonotonic-poll", f"{client} read {place} after {expected - 1}")
            elif offset > expected:
                self._passed_over(Gap(client, partition, expected, offset, committed, f"{form}poll-skip"))
        if not subscribed:
            self._note_lag(client, partition, offset, value)
        self.served(client, partition, offset, value, committed=committed)

    def _passed_over(self, gap: Gap) -> None:
        """Without transactions no record may be skipped."""
        if self._transactions is None:
            place = self._at(gap.partition, gap.end)
            self.broken(gap.rule, f"{gap.client} read {place} where {gap.start} came next")
        else:
            self._gaps.append(gap)

    def _note_lag(self, client: str, partition: int, offset: int, value: str) -> None:
        """Only the first time that `client` gets to it counts."""
        start_s, now = self._acknowledged_at.get(value), self._trace.time()
        if start_s is not None and now - start_s > self.worst_lag.seconds and value not in self.seen(client):
            self.worst_lag = Lag(start_s, now, f"{client} {self._at(partition, offset)}")

    def served_end(self, partition: int) -> int:
        """End of the offsets that any reader has read."""
        return self._served_end.get(partition, 0)

    def seen(self, client: str) -> Collection[str]:
        """Values that this reader has read."""
        return self._seen.get(client, frozenset())

    def acknowledged_ends(self) -> dict[int, int]:
        """The end of the acknowledged records of each partition."""
        ends: dict[int, int] = {}
        for partition, offset in self._acknowledged:
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        return ends

    def acknowledged_places(self) -> Mapping[Place, str]:
        """The acknowledged values whose offset is known."""
        return self._acknowledged

    def latest_offset_listed(self, client: str, partition: int, offset: int, served_before: int) -> None:
        """ListOffsets returned the latest offset to `client`; `served_before` is `served_end` at the time of the
        request."""
        if offset < served_before:
            self.broken(
                "end-went-back",
                f"{client} got log end {offset} of {self._named}{partition}, after {served_before} had been served",
            )

    # -- the end

    def finish(
        self,
        contents: Contents,
        resent: Collection[Place] = (),
        committed: Contents | None = None,
        readers: Mapping[str, bool] | None = None,
    ) -> Losses:
        """Compare with the content of every partition at the end. Raises Violation unless allowed.

        `resent` are second copies in another producer epoch: a restarted producer sent them again, and no broker can
        detect these as duplicates. `committed` is the part of `contents` that read_committed returns; all of it if
        None. `readers` have read to the end, by read_committed if True.
        """
        committed = contents if committed is None else committed
        for partition, records in contents.items():
            self._check_order(
                partition, {offset: value for offset, value in records.items() if (partition, offset) not in resent}
            )
        self._check_committed(contents, committed)
        self._check_places(contents, self._acknowledged, "lost-write", "acknowledged")
        self._check_places(contents, self._served, "lost-read", "served")
        for gap in self._gaps:
            self._check_gap(gap, (committed if gap.committed else contents).get(gap.partition, {}))
        for reader, by_commit in (readers or {}).items():
            self._check_unseen(reader, committed if by_commit else contents)
        present = {(partition, value) for partition, records in contents.items() for value in records.values()}
        for value in self._without_offset:
            if (self._acknowledged_values[value], value) not in present:
                self.broken("lost-write", f"{value} was acknowledged and is not in the log at the end")
        acknowledged, served = (
            sum((partition, value) not in present for value, partition in values.items())
            for values in (self._acknowledged_values, self._served_values)
        )
        return Losses(acknowledged, served)

    def _check_places(self, contents: Contents, places: dict[Place, str], rule: str, what: str) -> None:
        for (partition, offset), value in places.items():
            found = contents.get(partition, {}).get(offset)
            if found != value:
                place = self._at(partition, offset)
                self.broken(rule, f"{value} was {what} at {place}, where {found!r} is at the end")

    def _check_committed(self, contents: Contents, committed: Contents) -> None:
        """Check that read_committed returns the whole log except records of transactions that are not committed."""
        if committed is contents or self._transactions is None:
            return
        for partition, records in committed.items():
            for offset, value in records.items():
                place = self._at(partition, offset)
                if contents.get(partition, {}).get(offset) != value:
                    self.broken(DIFFERENT, f"{value} at {place} is to be read by read_committed only")
                self._transactions.read("the end", value)
        for partition, records in contents.items():
            for offset, value in records.items():
                transaction = self._transactions.of(value)
                wanted = transaction is None or self._transactions.outcome(transaction) is Outcome.COMMITTED
                if wanted and offset not in committed.get(partition, {}):
                    place = self._at(partition, offset)
                    self.broken("lost-write", f"{value} at {place} is committed, and read_committed leaves it out")

    def _check_gap(self, gap: Gap, records: Mapping[int, str]) -> None:
        offsets = sorted(records)
        first = bisect_left(offsets, gap.start)
        if first < len(offsets) and offsets[first] < gap.end:
            self.broken(
                gap.rule,
                f"{gap.client} read {self._at(gap.partition, gap.end)} after {gap.start - 1}, and "
                f"{records[offsets[first]]} is at {offsets[first]}",
            )

    def _check_unseen(self, reader: str, view: Contents) -> None:
        seen = self.seen(reader)
        for partition, records in view.items():
            for offset, value in records.items():
                if value not in seen:
                    self.broken("unseen", f"{reader} never read {value} at {self._at(partition, offset)}")

    def _check_order(self, partition: int, records: Mapping[int, str]) -> None:
        """Check that each value exists once, in rising order for each producer: a value is `producer:number`."""
        newest: dict[str, tuple[int, str, int]] = {}
        places: dict[str, int] = {}
        for offset in sorted(records):
            value = records[offset]
            producer, _, number = value.rpartition(":")
            before = newest.get(producer)
            first = places.setdefault(value, offset)
            if first != offset:
                self.broken("duplicate", f"{value} is at {self._at(partition, first)} and at {offset}")
            elif before is not None and int(number) < before[0]:
                self.broken(
                    f"{self._form((value, before[1]))}nonmonotonic-send",
                    f"{value} at {self._at(partition, offset)} comes after number {before[0]} at {before[2]}",
                )
            newest[producer] = (int(number), value, offset)

    def _form(self, values: Iterable[str]) -> str:
        """The prefix of a rule that two values of one transaction violate."""
        if self._transactions is None:
            return ""
        found = {self._transactions.of(value) for value in values}
        return "int-" if len(found) == 1 and None not in found else ""

    def _claim(self, known: dict[Place, str], place: Place, value: str, how: str) -> None:
        before = known.setdefault(place, value)
        if before != value:
            self.broken(DIFFERENT, f"{how} that {self._at(*place)} is {value}, where {before} was before")
            known[place] = value

    def _agree(self, other: dict[Place, str], place: Place, value: str, how: str) -> None:
        known = other.get(place)
        if known is not None and known != value:
            self.broken(DIFFERENT, f"{how} that {self._at(*place)} is {value}, where another client got {known}")

    def _at(self, partition: int, offset: int) -> str:
        return f"{self._named}{partition}@{offset}"

    def broken(self, rule: str, what: str) -> None:
        """A rule was violated. Raises Violation, unless losses are allowed and may explain it: then it is counted."""
        self._findings.broken(rule, what)
