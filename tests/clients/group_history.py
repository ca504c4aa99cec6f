"""History of group members, checked after a run.

Rules: no partition has two owners at a time; no member reads a partition that it does not own; an owner continues at
the last committed offset (a lower one lost a commit, a higher one skipped records); within one ownership offsets have
no gap; every record is read; reading never stalls for longer than a limit, and no closed member remains in the group
for longer than another limit.

Members report when they take and give up partitions: taking at the end of a rebalance, giving up before the client
notifies the broker. Members of other processes report with their own clock of the same machine. Descriptions of the
group by the coordinator (`described`) are checked too: a group waits for a member that left without LeaveGroup until
its session expires, and that time is not a stall.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FOREIGN_CLOCK_SLACK_NS = 2_000_000
"""Some tools print whole milliseconds."""
NEVER = 1 << 63


@dataclass
class Commit:
    """An offset that a member committed; `acknowledged_at` is NEVER when the outcome is unknown."""

    offset: int
    sent_at: int
    acknowledged_at: int


@dataclass
class Ownership:
    """From when to when a member had a partition, and the ranges that it read, ends exclusive."""

    member: str
    start: int
    end: int = NEVER
    reads: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Description:
    """The group as described by its coordinator in response to a request sent at `at`: partitions by member.

    Only if it is `settled`, all partitions are those that the members know.
    """

    at: int
    members: Mapping[str, frozenset[int]]
    settled: bool


class History:
    """Thread-safe; every time is in nanoseconds of the wall clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ownerships: dict[int, list[Ownership]] = defaultdict(list)
        self._commits: dict[int, list[Commit]] = defaultdict(list)
        self._strays: list[str] = []
        self._read_at: list[int] = []
        self._ended: dict[str, int] = {}
        self._descriptions: list[Description] = []
        self.rebalances: dict[str, int] = defaultdict(int)
        self.readers: Counter[str] = Counter()
        """Times at which each member reported a read."""

    def assigned(self, member: str, partitions: Iterable[int], at: int | None = None) -> None:
        """The member owns these from now on, beside those it has."""
        at = time.time_ns() if at is None else at
        with self._lock:
            self.rebalances[member] += 1
            for partition in partitions:
                if self._current(member, partition) is None:
                    self._ownerships[partition].append(Ownership(member, at))

    def revoked(self, member: str, partitions: Iterable[int], at: int | None = None) -> None:
        """The member does not touch these any more; those that it does not have are ignored."""
        at = time.time_ns() if at is None else at
        with self._lock:
            for partition in partitions:
                current = self._current(member, partition)
                if current is not None:
                    current.end = at

    def read(self, member: str, partition: int, first: int, end: int, at: int | None = None) -> None:
        """The member took the records from `first` to `end` (exclusive) in."""
        with self._lock:
            self.readers[member] += 1
            self._read_at.append(time.time_ns() if at is None else at)
            current = self._current(member, partition)
            if current is None:
                self._strays.append(f"{member} read {partition}@{first} without owning it")
            else:
                current.reads.append((first, end))

    def committed(self, partition: int, offset: int, sent_at: int, *, known: bool = True) -> None:
        """A commit was acknowledged just now, or (`known` is False) its outcome stayed unknown."""
        with self._lock:
            self._commits[partition].append(Commit(offset, sent_at, time.time_ns() if known else NEVER))

    def ended(self, member: str) -> None:
        """The member's client is closed; the coordinator may or may not know it."""
        with self._lock:
            self._ended[member] = time.time_ns()

    def described(self, description: Description) -> None:
        """A description by the coordinator, in chronological order."""
        with self._lock:
            self._descriptions.append(description)

    def _current(self, member: str, partition: int) -> Ownership | None:
        for ownership in reversed(self._ownerships[partition]):
            if ownership.member == member:
                return ownership if ownership.end == NEVER else None
        return None

    def owned(self) -> dict[str, set[int]]:
        """Partitions by member, as of now; members without any are left out."""
        with self._lock:
            owned: dict[str, set[int]] = defaultdict(set)
            for partition, ownerships in self._ownerships.items():
                for ownership in ownerships:
                    if ownership.end == NEVER:
                        owned[ownership.member].add(partition)
            return dict(owned)

    def read_ends(self) -> dict[int, int]:
        """End of the offsets that any member read, by partition."""
        with self._lock:
            return {each: max((end for _, end in self._reads(each)), default=0) for each in self._ownerships}

    def read_count(self) -> int:
        """Number of reported reads so far."""
        with self._lock:
            return len(self._read_at)

    def longest_stall_s(self) -> float:
        """The longest time without a read while the group waited for no closed member."""
        with self._lock:
            times = sorted([*self._read_at, *(at for at, ghosts in self._ghosts() if ghosts)])
            return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0) / 1e9

    def longest_wait_for_ghosts_s(self) -> float:
        """The longest time in which no closed member that was in the group at its start left the group.

        Each may remain for its session timeout; one closed during a rebalance, for a session timeout after the end of
        that.
        """
        longest = 0
        with self._lock:
            seen = self._ghosts()
            for position, (start, ghosts) in enumerate(seen):
                if ghosts:
                    same = itertools.takewhile(lambda each: ghosts <= each[1], seen[position:])  # noqa: B023
                    longest = max(longest, max(at for at, _ in same) - start)
        return longest / 1e9

    def _ghosts(self) -> list[tuple[int, set[str]]]:
        """Per description, members of the group with a client that was already closed."""
        return [
            (each.at, {member for member in each.members if self._ended.get(member, NEVER) < each.at})
            for each in self._descriptions
        ]

    def _reads(self, partition: int) -> list[tuple[int, int]]:
        return sorted(read for ownership in self._ownerships[partition] for read in ownership.reads)

    def violations(self, ends: Mapping[int, int], *, commits_known: bool = True) -> list[str]:
        """All violations; `ends` are the log ends. Without `commits_known` some members reported no commits."""
        with self._lock:
            found = [*self._strays, *self._described_twice()]
            for partition, end in sorted(ends.items()):
                ownerships = sorted(self._ownerships[partition], key=lambda ownership: ownership.start)
                found += self._overlaps(partition, ownerships)
                found += self._gaps(partition, ownerships)
                if commits_known:
                    found += self._wrong_starts(partition, ownerships)
                found += self._unread(partition, end)
            return found

    def _described_twice(self) -> list[str]:
        found = set()
        for description in self._descriptions:
            if not description.settled:
                continue
            owner: dict[int, str] = {}
            for member, partitions in sorted(description.members.items()):
                for partition in partitions:
                    if owner.setdefault(partition, member) != member:
                        found.add(f"{partition} was described as {owner[partition]}'s and {member}'s")
        return sorted(found)

    @staticmethod
    def _overlaps(partition: int, ownerships: list[Ownership]) -> list[str]:
        found = []
        latest: Ownership | None = None
        for ownership in ownerships:
            if latest is not None and ownership.start + FOREIGN_CLOCK_SLACK_NS < latest.end:
                until = "now" if latest.end == NEVER else f"{(latest.end - ownership.start) / 1e6:.1f} ms later"
                found.append(f"{partition} went to {ownership.member} while {latest.member} had it until {until}")
            if latest is None or ownership.end > latest.end:
                latest = ownership
        return found

    @staticmethod
    def _gaps(partition: int, ownerships: list[Ownership]) -> list[str]:
        return [
            f"{ownership.member} jumped in {partition} from {end} to {first}"
            for ownership in ownerships
            for (_, end), (first, _) in itertools.pairwise(ownership.reads)
            if first != end
        ]

    def _wrong_starts(self, partition: int, ownerships: list[Ownership]) -> list[str]:
        found = []
        commits = self._commits[partition]
        for ownership in ownerships:
            if not ownership.reads:
                continue
            first = ownership.reads[0][0]
            before = [commit for commit in commits if commit.acknowledged_at <= ownership.start]
            last = max(before, key=lambda commit: commit.acknowledged_at).offset if before else 0
            open_ones = {c.offset for c in commits if c.sent_at <= ownership.start < c.acknowledged_at}
            if first != last and first not in open_ones:
                word = "lost a commit" if first < last else "skipped records"
                found.append(f"{ownership.member} began {partition} at {first}, committed was {last}: {word}")
        return found

    def _unread(self, partition: int, end: int) -> list[str]:
        position = 0
        for first, last in self._reads(partition):
            if first > position:
                return [f"{partition}: no member read {position} to {first}"]
            position = max(position, last)
        return [] if position >= end else [f"{partition}: no member read {position} to {end}"]
