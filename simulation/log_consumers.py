"""Consumers of a simulated cluster with assigned partitions, and the reading of group members."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.registry import ApiKey
from simulation.checkers import Deliveries, Violation
from simulation.client import RequestLost
from simulation.log_clients import PAUSE_S, LogWorld
from simulation.log_fetching import RETRIABLE_HERE, Fetcher
from simulation.rng import SimRng

LIST_OFFSETS_VERSION = 6
LATEST = -1
WAIT_MS = 500
MEMBER_PAUSE_S = (0.3, 2.0)
READ_AHEAD = 50
"""Maximum records of a partition that a member buffers."""


class Consumer(Fetcher):
    """Reads all partitions from the beginning, and sometimes lists their end offsets."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng, *, committed: bool = False) -> None:
        super().__init__(world, name, rng, committed=committed)
        self._positions = dict.fromkeys(range(world.partitions), 0)

    async def run(self) -> None:
        """Poll broker after broker, until the stop."""
        while not self.world.stopping:
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))
            try:
                if self.rng.chance(0.2):
                    await self._ask_for_the_end(self.rng.randrange(self.world.partitions))
                else:
                    await self.poll(WAIT_MS)
            except RequestLost:
                await self.backoff()
        self.close()

    def positions_wanted(self) -> Mapping[int, int]:
        """See `Fetcher`."""
        return self._positions

    def found(self, partition: int, offset: int, value: str) -> None:
        """See `Fetcher`."""
        self.world.history.polled(self.name, partition, offset, value, committed=self.committed, poll=self.polls)
        self._positions[partition] = offset + 1

    def passed(self, partition: int, position: int) -> None:
        """See `Fetcher`."""
        self._positions[partition] = position

    def out_of_range(self, partition: int, offset: int) -> None:
        """See `Fetcher`."""
        self.world.history.broken("lost-read", f"{self.name} no longer finds a record at {partition}@{offset}")
        self._positions[partition] = 0

    async def _ask_for_the_end(self, partition: int) -> None:
        client, leader_epoch = await self.leader(partition)
        world = self.world
        in_office = world.leads(client.address, world.topic, partition)
        served_before = world.history.served_end(partition)
        wanted = ListOffsetsPartition(partition_index=partition, current_leader_epoch=leader_epoch, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=world.topic, partitions=[wanted])])
        response = await client.request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        world.operations += 1
        answer = response.topics[0].partitions[0]
        if answer.error_code == ErrorCode.NONE:
            # A replaced leader that does not know it may return an older end, as with Apache Kafka.
            if in_office == world.leads(client.address, world.topic, partition) >= 0:
                world.history.latest_offset_listed(self.name, partition, answer.offset, served_before)
        elif answer.error_code in RETRIABLE_HERE:
            await self.backoff()
        else:
            raise Violation(f"ListOffsets of {partition} returned {ErrorCode(answer.error_code).name}")


class Reader(Fetcher):
    """Reads all records at the end of a run."""

    def __init__(self, world: LogWorld, rng: SimRng, *, committed: bool = False) -> None:
        super().__init__(world, "reader", rng, committed=committed)
        self._rack = ""  # from the leader: another replica may temporarily have an older high watermark
        self._positions = dict.fromkeys(range(world.partitions), 0)
        self._ends: dict[int, int] = {}
        self.contents: dict[int, dict[int, str]] = {partition: {} for partition in range(world.partitions)}
        """The value at each offset, by partition."""

    async def run(self) -> None:
        """Read each partition up to its end."""
        while self.positions_wanted():
            try:
                await self.poll(0)
            except RequestLost:
                await self.backoff()
        self.close()

    def positions_wanted(self) -> Mapping[int, int]:
        """See `Fetcher`: partitions that are not read to their end."""
        return {
            partition: position
            for partition, position in self._positions.items()
            if position < self._ends.get(partition, position + 1)
        }

    def found(self, partition: int, offset: int, value: str) -> None:
        """See `Fetcher`."""
        self.contents[partition][offset] = value

    def passed(self, partition: int, position: int) -> None:
        """See `Fetcher`."""
        self._positions[partition] = position

    def out_of_range(self, partition: int, offset: int) -> None:
        """See `Fetcher`."""
        raise Violation(f"no record can be read at {partition}@{offset} at the end")

    def end_fetched(self, partition: int, end: int) -> None:
        """See `Fetcher`."""
        self._ends[partition] = end


class MemberFetcher(Fetcher):
    """Continuously fetches the partitions of one group member, ahead of its use."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng, *, committed: bool = False) -> None:
        super().__init__(world, name, rng, committed=committed)
        self._task = world.loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def close(self) -> None:
        """The process has ended."""
        self._task.cancel()
        super().close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(*MEMBER_PAUSE_S))
            try:
                await self.poll(WAIT_MS)
            except RequestLost:
                await self.backoff()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.loop.failures.append(error)


class MemberRecords(MemberFetcher):
    """The records of one group member. Implements `simulation.members.Records`."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng, deliveries: Deliveries) -> None:
        super().__init__(world, name, rng)
        self._deliveries = deliveries
        self._ahead: dict[int, deque[tuple[int, str]]] = {}
        self._next: dict[int, int] = {}

    def read(self, partition: int, position: int, most: int) -> int:
        """See `Records`."""
        ahead = self._ahead.setdefault(partition, deque())
        if (ahead[0][0] if ahead else self._next.get(partition)) != position:
            ahead.clear()
            self._next[partition] = position
        for _ in range(min(most, len(ahead))):
            offset, value = ahead.popleft()
            self.world.history.served(self.name, partition, offset, value)
            self._deliveries.delivered(self.name, partition, offset)
            position = offset + 1
        return position

    def drop(self, partition: int) -> None:
        """See `Records`."""
        self._ahead.pop(partition, None)
        self._next.pop(partition, None)

    def positions_wanted(self) -> Mapping[int, int]:
        """See `Fetcher`."""
        return {
            partition: offset for partition, offset in self._next.items() if len(self._ahead[partition]) < READ_AHEAD
        }

    def found(self, partition: int, offset: int, value: str) -> None:
        """See `Fetcher`; responses from before the partition was revoked or assigned again are dropped."""
        if self._next.get(partition) == offset:
            self._ahead[partition].append((offset, value))
            self._next[partition] = offset + 1

    def out_of_range(self, partition: int, offset: int) -> None:
        """See `Fetcher`."""
        if self._next.get(partition) == offset:
            self.world.history.broken("lost-read", f"{self.name} no longer finds a record at {partition}@{offset}")
