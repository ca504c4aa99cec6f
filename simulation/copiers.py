"""Consume-transform-produce in a simulated cluster: members of a group copy records exactly once (KIP-447).

A copier reads by read_committed, writes one copy of each record, and commits the offsets in the same transaction; the
copy goes to the partition with the same number as its source's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.log_clients import LogWorld
from simulation.log_consumers import READ_AHEAD, MemberFetcher
from simulation.rng import SimRng
from simulation.transactional_producer import Abortable, FencedProcess, TransactionalProducer, TransactionWorld

BATCH_RECORDS = 50
"""Maximum records of a batch: larger ones could exceed a segment, which is small here, and are rejected."""
ABORT_CHANCE = 0.1
OLD_CHANCE = 0.3
"""Probability of a process that only knows the first version of transactions."""


@dataclass
class CopyWorld:
    """The shared state of all copiers of one group."""

    transactional: TransactionWorld
    source: LogWorld
    target: LogWorld
    group_id: str
    by_seat: bool
    """Whether a process reuses the transactional id of its predecessor, or has its own."""
    sources: dict[str, str] = field(default_factory=dict)
    """The source of each copy."""


class _Taken(NamedTuple):
    offset: int
    value: str
    poll: int


class RecordCopier(MemberFetcher):
    """One copier process. Implements `simulation.members.Copier`."""

    def __init__(self, world: CopyWorld, name: str, rng: SimRng) -> None:
        super().__init__(world.source, name, rng, committed=True)
        self._copies = world
        self._ahead: dict[int, deque[_Taken]] = {}
        self._next: dict[int, int] = {}
        """The next offset to fetch of each partition."""
        self._read_to: dict[int, int] = {}
        self._turn: dict[int, int] = {}
        """Counts restarts of reading a partition, so that older responses are dropped."""
        self._asked: dict[int, int] = {}
        self._taken: dict[int, list[_Taken]] = {}
        """Records that were read, but not copied yet."""
        self._numbers = 0
        self._lives = 0
        self._producer: TransactionalProducer | None = None

    # -- reading

    def read(self, partition: int, position: int, most: int) -> int:
        """See `Records`."""
        if self._read_to.get(partition) != position:
            self._begin(partition, position)
        ahead = self._ahead[partition]
        for _ in range(min(most, len(ahead))):
            taken = ahead.popleft()
            self.world.history.polled(
                self.name, partition, taken.offset, taken.value, committed=True, poll=taken.poll, subscribed=True
            )
            self._taken[partition].append(taken)
            position = taken.offset + 1
        if not ahead:
            position = self._next[partition]
        self._read_to[partition] = position
        return position

    def _begin(self, partition: int, position: int) -> None:
        self._turn[partition] = self._turn.get(partition, 0) + 1
        self._ahead[partition] = deque()
        self._taken[partition] = []
        self._next[partition] = position

    def drop(self, partition: int) -> None:
        """See `Records`."""
        for each in (self._ahead, self._next, self._read_to, self._taken):
            each.pop(partition, None)

    def close(self) -> None:
        """The process has ended."""
        if self._producer is not None:
            self._producer.close(died=True)
        super().close()

    def positions_wanted(self) -> Mapping[int, int]:
        """See `Fetcher`."""
        self._asked = {
            partition: self._turn[partition] for partition in self._next if len(self._ahead[partition]) < READ_AHEAD
        }
        return {partition: self._next[partition] for partition in self._asked}

    def _is_of_use(self, partition: int) -> bool:
        return partition in self._next and self._turn[partition] == self._asked.get(partition)

    def found(self, partition: int, offset: int, value: str) -> None:
        """See `Fetcher`."""
        if self._is_of_use(partition):
            self._ahead[partition].append(_Taken(offset, value, self.polls))

    def passed(self, partition: int, position: int) -> None:
        """See `Fetcher`."""
        if self._is_of_use(partition):
            self._next[partition] = position

    def out_of_range(self, partition: int, offset: int) -> None:
        """See `Fetcher`."""
        if self._next.get(partition) == offset:
            self.world.history.broken("lost-read", f"{self.name} no longer finds a record at {partition}@{offset}")

    # -- copying

    async def copy(
        self, ends: Mapping[int, int], member: tuple[str, int], instance_id: str | None, asking: Callable[[], None]
    ) -> bool:
        """See `Copier`."""
        work = {
            partition: [taken.value for taken in self._taken.get(partition, ()) if taken.offset < end]
            for partition, end in ends.items()
        }
        producer = self._producer
        try:
            if producer is None:
                producer = self._producer = self._make_producer()
                await producer.init()
            if not await self._transaction(producer, work, ends, member, instance_id, asking):
                return False
        except FencedProcess:
            self._copies.transactional.trace.note(self.name, "is fenced")
            self._producer = None
            if producer is not None:
                producer.close(died=False)
            return False
        for partition, end in ends.items():
            if partition in self._taken:
                self._taken[partition] = [each for each in self._taken[partition] if each.offset >= end]
        return True

    def _make_producer(self) -> TransactionalProducer:
        self._lives += 1
        copies = self._copies
        name = f"{self.name}-{self._lives}"
        transactional_id = f"copy-{self.name.partition('.')[0] if copies.by_seat else self.name}"
        modern = not self.rng.chance(OLD_CHANCE)
        return TransactionalProducer(
            copies.transactional, [copies.target], transactional_id, name, self.rng.fork(name), modern=modern
        )

    async def _transaction(
        self,
        producer: TransactionalProducer,
        work: Mapping[int, list[str]],
        ends: Mapping[int, int],
        member: tuple[str, int],
        instance_id: str | None,
        asking: Callable[[], None],
    ) -> bool:
        """Run one transaction; returns whether it was committed. Raises Fenced."""
        copies = self._copies
        await producer.begin()
        try:
            for partition, values in work.items():
                for start in range(0, len(values), BATCH_RECORDS):
                    batch = self._copies_of(values[start : start + BATCH_RECORDS])
                    await producer.send(copies.target.topic, partition, batch)
            if self.rng.chance(ABORT_CHANCE):
                raise Abortable
            await producer.send_offsets(copies.group_id, member, instance_id, copies.source, ends)
        except Abortable:
            await producer.abort()
            return False
        asking()
        await producer.commit()
        return True

    def _copies_of(self, values: list[str]) -> list[str]:
        copies = []
        for value in values:
            copy = f"{self.name}:{self._numbers}"
            self._numbers += 1
            self._copies.sources[copy] = value
            copies.append(copy)
        return copies
