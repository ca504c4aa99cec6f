"""What producers were promised and what consumers saw, checked while it happens (reliability.md, promises 1 to 3).

Every value is written once in the intention of its producer, so it identifies its record:

- an acknowledged record is at its offset at the end, once, and no other value was ever acknowledged or served there;
- a value is never at two offsets, and the values of one producer stand in the order in which it sent them;
- who reads a partition gets the same value at an offset each time, and nothing that is not there at the end;
- the latest offset that ListOffsets tells is never below one whose record was served.

`allow_loss` is for runs that take more replicas than the promises cover: then losses are counted instead.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.sim.checkers import Violation
from ottla.sim.trace import Trace

Place = tuple[int, int]
"""Partition and offset."""


class Losses(NamedTuple):
    """What did not survive a run that allowed it."""

    acknowledged: int
    served: int


class LogHistory:
    """All that clients know of one topic."""

    def __init__(self, trace: Trace, *, allow_loss: bool = False) -> None:
        self._trace = trace
        self._allow_loss = allow_loss
        self._acknowledged: dict[Place, str] = {}
        self._served: dict[Place, str] = {}
        self._sent: dict[str, int] = {}
        """The partition of each value that was ever sent."""
        self._served_end: dict[int, int] = {}
        self.acknowledged_count = 0
        self.served_count = 0
        self.conflicts = 0
        """Violations that `allow_loss` forgave."""

    def sent(self, partition: int, value: str) -> None:
        """A producer is about to send it, perhaps several times."""
        self._sent[value] = partition

    def acknowledged(self, who: str, partition: int, base_offset: int, values: list[str]) -> None:
        """`who` was told that its batch begins at `base_offset`."""
        self.acknowledged_count += len(values)
        self._trace.note(who, f"acknowledged {partition}@{base_offset} {values[0]}+{len(values)}")
        for offset, value in enumerate(values, base_offset):
            self._claim(self._acknowledged, (partition, offset), value, f"{who} was told")
            self._agree(self._served, (partition, offset), value, f"{who} was told")

    def served(self, who: str, partition: int, offset: int, value: str) -> None:
        """`who` read it."""
        self.served_count += 1
        if self._sent.get(value) != partition:
            self.broken(f"{who} read {value!r} at {partition}@{offset}, which nobody sent there")
        self._claim(self._served, (partition, offset), value, f"{who} read")
        self._agree(self._acknowledged, (partition, offset), value, f"{who} read")
        self._served_end[partition] = max(offset + 1, self._served_end.get(partition, 0))

    def served_end(self, partition: int) -> int:
        """The end of what anybody has read."""
        return self._served_end.get(partition, 0)

    def told_latest(self, who: str, partition: int, offset: int, served_before: int) -> None:
        """ListOffsets told `who` the latest offset; `served_before` is `served_end` from before the request."""
        if offset < served_before:
            self.broken(f"{who} was told that {partition} ends at {offset}, after {served_before} had been served")

    def finish(self, contents: dict[int, dict[int, str]]) -> Losses:
        """Compare with what every partition holds at the end: offset to value. Raises Violation unless allowed."""
        for partition, records in contents.items():
            self._check_order(partition, records)
        lost = sum(self._missing(contents, place, value, "acknowledged") for place, value in self._acknowledged.items())
        unseen = sum(self._missing(contents, place, value, "served") for place, value in self._served.items())
        return Losses(lost, unseen)

    def _missing(self, contents: dict[int, dict[int, str]], place: Place, value: str, what: str) -> bool:
        partition, offset = place
        found = contents.get(partition, {}).get(offset)
        if found == value:
            return False
        self.broken(f"{value} was {what} at {partition}@{offset}, where {found!r} is at the end")
        return True

    def _check_order(self, partition: int, records: dict[int, str]) -> None:
        """Once each, and by rising number for each producer: a value is `producer:number`."""
        newest: dict[str, tuple[int, int]] = {}
        for offset in sorted(records):
            producer, _, number = records[offset].rpartition(":")
            before = newest.get(producer)
            if before is not None and int(number) <= before[0]:
                self.broken(
                    f"{records[offset]} at {partition}@{offset} comes after number {before[0]} at {before[1]}: "
                    "it was doubled or reordered"
                )
            newest[producer] = (int(number), offset)

    def _claim(self, known: dict[Place, str], place: Place, value: str, how: str) -> None:
        before = known.setdefault(place, value)
        if before != value:
            self.broken(f"{how} that {place[0]}@{place[1]} is {value}, where {before} was before")
            known[place] = value

    def _agree(self, other: dict[Place, str], place: Place, value: str, how: str) -> None:
        known = other.get(place)
        if known is not None and known != value:
            self.broken(f"{how} that {place[0]}@{place[1]} is {value}, where another was told {known}")

    def broken(self, what: str) -> None:
        """A promise was broken. Raises Violation, unless losses are allowed: then it is counted."""
        if not self._allow_loss:
            raise Violation(what)
        self.conflicts += 1
