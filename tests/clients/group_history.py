"""What the members of a group saw, as a history that is judged afterwards.

Rules: no partition has two owners at a time; nobody reads what it does not own; an owner goes on at the offset that was
committed last (one that is lower lost a commit, one that is higher skipped records); within one ownership offsets
have no gap; every record is read by somebody; reading never stalls for longer than a bound, and nobody who is gone is
kept in the group for longer than another one.

Members report when they take and give up partitions: taking at the end of a rebalance, giving up before the client
tells the broker. Members of other processes report with their own clock of the same machine. What the coordinator says
of the group now and then (`described`) is judged too: a group waits for a member that went without LeaveGroup until
its session is over, and time that passes so is no stall.
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
    """The group as its coordinator described it to a request that was sent at `at`: partitions by member.

    Only where it is `settled` do all partitions belong to what the members were told.
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
        """How often each member told of a read."""

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
        """The member's client is closed; whether it told the coordinator is another question."""
        with self._lock:
            self._ended[member] = time.time_ns()

    def described(self, description: Description) -> None:
        """What the coordinator said; descriptions come in order."""
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
        """Past the highest offset that anybody read, by partition."""
        with self._lock:
            return {each: max((end for _, end in self._reads(each)), default=0) for each in self._ownerships}

    def read_count(self) -> int:
        """How many reads were reported so far."""
        with self._lock:
            return len(self._read_at)

    def longest_stall_s(self) -> float:
        """The longest time in which nobody read and the group waited for nobody who was gone."""
        with self._lock:
            times = sorted([*self._read_at, *(at for at, ghosts in self._ghosts() if ghosts)])
            return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0) / 1e9

    def longest_wait_for_ghosts_s(self) -> float:
        """The longest time in which none of those who were gone, but in the group at its start, left the group.

        Each may stay for its session; one that went while it waited for a rebalance, for a session after that is over.
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
        """By description, members of the group whose client had been closed when it was asked for."""
        return [
            (each.at, {member for member in each.members if self._ended.get(member, NEVER) < each.at})
            for each in self._descriptions
        ]

    def _reads(self, partition: int) -> list[tuple[int, int]]:
        return sorted(read for ownership in self._ownerships[partition] for read in ownership.reads)

    def violations(self, ends: Mapping[int, int], *, commits_known: bool = True) -> list[str]:
        """Everything that was wrong; `ends` are the log ends. Without `commits_known` some members told no commits."""
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
                return [f"{partition}: nobody read {position} to {first}"]
            position = max(position, last)
        return [] if position >= end else [f"{partition}: nobody read {position} to {end}"]
