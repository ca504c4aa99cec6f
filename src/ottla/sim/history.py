"""What producers were promised and what consumers saw, checked while it happens (SAFETY.md).

Every value is written once in the intention of its producer, so it identifies its record. The rules, by the names of
Jepsen's workload for Kafka where it has one:

- lost-write: an acknowledged record is at its offset at the end; lost-read: so is one that was served;
- inconsistent-offsets: at an offset everybody is told of and reads the same value;
- duplicate: a value is never at two offsets;
- nonmonotonic-send: the values of one producer stand in the order in which it sent them;
- nonmonotonic-poll, poll-skip: who chose its partitions reads each offset after the one before;
- phantom: nobody reads what nobody sent;
- end-went-back: the latest offset that ListOffsets tells is never below one whose record was served.

Simulated and real clusters are judged by it (`sim.replication`, `tests/chaos`). `allow_loss` is for runs that take more
replicas than the promises cover: then what was broken is counted by rule, but for a phantom, which no loss explains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ottla.sim.checkers import Violation
from ottla.sim.trace import Trace

Place = tuple[int, int]
"""Partition and offset."""
DIFFERENT = "inconsistent-offsets"


class Losses(NamedTuple):
    """Values that did not survive a run that allowed it: they are nowhere in their partition at the end."""

    acknowledged: int
    served: int


class LogHistory:
    """All that clients know of one topic."""

    def __init__(self, trace: Trace, *, allow_loss: bool = False) -> None:
        self._trace = trace
        self._allow_loss = allow_loss
        self._acknowledged: dict[Place, str] = {}
        self._served: dict[Place, str] = {}
        self._without_offset: list[str] = []
        """Values that were acknowledged so."""
        self._acknowledged_values: dict[str, int] = {}
        """The partition of each; unlike their offsets these are never overwritten by what came after a loss."""
        self._served_values: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        """The partition of each value that was ever sent."""
        self._served_end: dict[int, int] = {}
        self._next: dict[tuple[str, int], int] = {}
        """Where each consumer goes on, by its name and the partition."""
        self.acknowledged_count = 0
        self.served_count = 0
        self.forgiven: Counter[str] = Counter()
        """Violations that `allow_loss` forgave, by rule."""

    def sent(self, partition: int, value: str) -> None:
        """A producer is about to send it, perhaps several times."""
        self._sent[value] = partition

    def acknowledged(self, who: str, partition: int, base_offset: int, values: list[str]) -> None:
        """`who` was told that its batch begins at `base_offset`."""
        self.acknowledged_count += len(values)
        self._trace.note(who, f"acknowledged {partition}@{base_offset} {values[0]}+{len(values)}")
        for offset, value in enumerate(values, base_offset):
            self._acknowledged_values[value] = partition
            self._claim(self._acknowledged, (partition, offset), value, f"{who} was told")
            self._agree(self._served, (partition, offset), value, f"{who} was told")

    def acknowledged_somewhere(self, partition: int, value: str) -> None:
        """Its producer was told that it is there (DUPLICATE_SEQUENCE_NUMBER), but not at which offset."""
        self.acknowledged_count += 1
        self._acknowledged_values[value] = partition
        self._without_offset.append(value)

    def served(self, who: str, partition: int, offset: int, value: str) -> None:
        """`who` read it."""
        self.served_count += 1
        if self._sent.get(value) != partition:
            self.broken("phantom", f"{who} read {value!r} at {partition}@{offset}, which nobody sent there")
        self._served_values[value] = partition
        self._claim(self._served, (partition, offset), value, f"{who} read")
        self._agree(self._acknowledged, (partition, offset), value, f"{who} read")
        self._served_end[partition] = max(offset + 1, self._served_end.get(partition, 0))

    def polled(self, who: str, partition: int, offset: int, value: str) -> None:
        """`who`, which began the partition at its first offset by its own choice, read it."""
        expected = self._next.get((who, partition), 0)
        self._next[who, partition] = offset + 1
        if offset < expected:
            self.broken("nonmonotonic-poll", f"{who} read {partition}@{offset} after {expected - 1}")
        elif offset > expected:
            self.broken("poll-skip", f"{who} read {partition}@{offset} where {expected} came next")
        self.served(who, partition, offset, value)

    def served_end(self, partition: int) -> int:
        """The end of what anybody has read."""
        return self._served_end.get(partition, 0)

    def acknowledged_ends(self) -> dict[int, int]:
        """For each partition the end of what was acknowledged there."""
        ends: dict[int, int] = {}
        for partition, offset in self._acknowledged:
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        return ends

    def told_latest(self, who: str, partition: int, offset: int, served_before: int) -> None:
        """ListOffsets told `who` the latest offset; `served_before` is `served_end` from before the request."""
        if offset < served_before:
            self.broken(
                "end-went-back",
                f"{who} was told that {partition} ends at {offset}, after {served_before} had been served",
            )

    def finish(self, contents: dict[int, dict[int, str]], resent: Collection[Place] = ()) -> Losses:
        """Compare with what every partition holds at the end: offset to value. Raises Violation unless allowed.

        `resent` are second copies in another producer epoch: their producer began anew and sent again what had arrived,
        which no broker can know for duplicates.
        """
        for partition, records in contents.items():
            self._check_order(
                partition, {offset: value for offset, value in records.items() if (partition, offset) not in resent}
            )
        self._check_places(contents, self._acknowledged, "lost-write", "acknowledged")
        self._check_places(contents, self._served, "lost-read", "served")
        present = {(partition, value) for partition, records in contents.items() for value in records.values()}
        for value in self._without_offset:
            if (self._acknowledged_values[value], value) not in present:
                self.broken("lost-write", f"{value} was acknowledged and is nowhere at the end")
        acknowledged, served = (
            sum((partition, value) not in present for value, partition in values.items())
            for values in (self._acknowledged_values, self._served_values)
        )
        return Losses(acknowledged, served)

    def _check_places(
        self, contents: dict[int, dict[int, str]], places: dict[Place, str], rule: str, what: str
    ) -> None:
        for (partition, offset), value in places.items():
            found = contents.get(partition, {}).get(offset)
            if found != value:
                self.broken(rule, f"{value} was {what} at {partition}@{offset}, where {found!r} is at the end")

    def _check_order(self, partition: int, records: dict[int, str]) -> None:
        """Once each, and by rising number for each producer: a value is `producer:number`."""
        newest: dict[str, tuple[int, int]] = {}
        places: dict[str, int] = {}
        for offset in sorted(records):
            value = records[offset]
            producer, _, number = value.rpartition(":")
            before = newest.get(producer)
            first = places.setdefault(value, offset)
            if first != offset:
                self.broken("duplicate", f"{value} is at {partition}@{first} and at {offset}")
            elif before is not None and int(number) < before[0]:
                self.broken(
                    "nonmonotonic-send",
                    f"{value} at {partition}@{offset} comes after number {before[0]} at {before[1]}",
                )
            newest[producer] = (int(number), offset)

    def _claim(self, known: dict[Place, str], place: Place, value: str, how: str) -> None:
        before = known.setdefault(place, value)
        if before != value:
            self.broken(DIFFERENT, f"{how} that {place[0]}@{place[1]} is {value}, where {before} was before")
            known[place] = value

    def _agree(self, other: dict[Place, str], place: Place, value: str, how: str) -> None:
        known = other.get(place)
        if known is not None and known != value:
            self.broken(DIFFERENT, f"{how} that {place[0]}@{place[1]} is {value}, where another was told {known}")

    def broken(self, rule: str, what: str) -> None:
        """A promise was broken. Raises Violation, unless losses are allowed and may explain it: then it is counted."""
        if not self._allow_loss or rule == "phantom":
            raise Violation(f"{rule}: {what}")
        self.forgiven[rule] += 1
