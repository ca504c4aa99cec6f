"""Group members, the part common to all protocols: life cycle, faults, reading, committing.

A `Member` is a process that joins, reads, commits, and ends by leaving or dying. A `MemberSlot` runs one process after
another, with one instance id if it is static. The world defines the records (`Records`): generated with one broker,
records of the topic in a cluster; positions rise from the fetched committed offsets. Commits have their own connection,
one at a time, and are awaited only when a partition is given up in order, so that some arrive when their sender is no
longer the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.registry import ApiKey
from simulation.checkers import Commit, Offsets, Ownership, Violation
from simulation.client import Client, RequestLost
from simulation.loop import SimLoop
from simulation.rng import SimRng
from simulation.trace import Trace

HEARTBEAT_S = 1.0
BACKOFF_S = (0.1, 0.6)
RECORDS_A_TICK = 5
COPIES_A_TICK = 30
"""Time to finish for copiers, which have to catch up with all records of the writers."""

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
OUT = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
COMMIT_REFUSALS = RETRIABLE | OUT | {ErrorCode.REBALANCE_IN_PROGRESS}

FIRST_STABLE_FETCH = 7
FIRST_FETCH_WITH_GROUPS = 8
FIRST_FETCH_WITH_MEMBER = 9


class Records(Protocol):
    """The records of one process."""

    def read(self, partition: int, position: int, most: int) -> int:
        """Use at most `most` records of `partition` from `position` on; returns the next position."""

    def drop(self, partition: int) -> None:
        """The process no longer reads `partition`."""

    def close(self) -> None:
        """The process has ended."""


class Copier(Records, Protocol):
    """Reads records, and writes results together with the offsets, in transactions."""

    async def copy(
        self, ends: Mapping[int, int], member: tuple[str, int], instance_id: str | None, asking: Callable[[], None]
    ) -> bool:
        """Copy the read records below `ends` and commit these as `member`; returns whether the commit is known to have
        succeeded.

        Calls `asking` before it requests the commit.
        """


class FakeRecords:
    """Generated records, always as many as requested. Implements `Records`."""

    def read(self, _partition: int, position: int, most: int) -> int:
        """See `Records`."""
        return position + most

    def drop(self, partition: int) -> None:
        """See `Records`."""

    def close(self) -> None:
        """See `Records`."""


class GroupWorld(NamedTuple):
    """The shared state of all members of one group."""

    loop: SimLoop
    make_client: Callable[[str], Client]
    """A connection to the group's coordinator, for the process with that name."""
    make_records: Callable[[str], Records]
    trace: Trace
    ownership: Ownership
    offsets: Offsets
    group_id: str
    topic: str
    topic_id: bytes
    partitions: int
    session_s: float
    rebalance_s: float
    faults: asyncio.Event
    """Set while members misbehave."""
    mixed: bool
    """Whether the group may change its protocol."""
    make_copier: Callable[[str], Copier] | None = None
    """Instead of `make_records`, for members that commit in transactions: they wait for stable offsets."""


class ProcessExit(Exception):
    """This process of the member ends; `died` is the way."""

    def __init__(self, died: bool) -> None:
        super().__init__()
        self.died = died


class MemberSlot:
    """A place in the group."""

    def __init__(
        self, world: GroupWorld, name: str, rng: SimRng, kinds: Sequence[type[Member]], *, static: bool
    ) -> None:
        """Each process has one of `kinds`."""
        self._world = world
        self._name = name
        self._rng = rng
        self._kinds = kinds
        self._instance_id = f"instance-{name}" if static else None
        self._lives = 0
        self._member: Member | None = None

    async def run(self) -> None:
        """Run one process after another, until cancelled."""
        await asyncio.sleep(self._rng.uniform(0, 3))
        while True:
            self._lives += 1
            kind = self._kinds[0] if len(self._kinds) == 1 else self._rng.choice(self._kinds)
            member = self._member = kind(self._world, f"{self._name}.{self._lives}", self._rng, self._instance_id)
            died = True
            try:
                await member.life()
            except ProcessExit as over:
                died = over.died
            member.end(died)
            await asyncio.sleep(self._rng.uniform(0.2, 1.5 * self._world.session_s))

    def vanish(self) -> None:
        """The process dies without a successor; the caller has cancelled this slot."""
        if self._member is not None:
            self._member.end(died=True)


class Member:
    """A member process; see `members_classic`, `members_cooperative` and `members_consumer` for the protocols."""

    def __init__(self, world: GroupWorld, name: str, rng: SimRng, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.instance_id = instance_id
        self.client = world.make_client(name)
        self.positions: dict[int, int] = {}
        """Positions of the partitions that this process believes it owns."""
        self.unfetched: list[int] = []
        """Owned partitions with an unknown start position."""
        self._copier = None if world.make_copier is None else world.make_copier(name)
        self._records: Records = self._copier or world.make_records(name)
        self._commit_client = world.make_client(name)
        self._committed: dict[int, int] = {}
        self._rolled_back: set[int] = set()
        """Partitions to be read again from the committed offset, since the transaction failed."""
        self._commit_task: asyncio.Task[None] | None = None

    # -- life

    async def life(self) -> None:
        """One process; ends by ProcessExit."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Send the coordinator the request to leave."""
        raise NotImplementedError

    def identity(self) -> tuple[str, int]:
        """(member id, generation or member epoch), for commits and fetches."""
        raise NotImplementedError

    def commit_accepted(self, generation: int) -> None:
        """The coordinator accepted a commit of that generation or member epoch."""

    def in_doubt(self) -> bool:
        """Whether only an accepted commit can prove the membership: then the member commits its earlier offsets
        again."""
        return False

    def end(self, died: bool) -> None:
        """The process has ended."""
        self.world.trace.note(self.name, "died" if died else "left")
        self.give_up(list(self.positions))
        if self._commit_task is not None:
            self._commit_task.cancel()
            self._commit_task = None
        self._records.close()
        for client in (self.client, self._commit_client):
            if died:
                client.die()
            else:
                client.close()

    async def misbehave(self) -> None:
        """Once per heartbeat: a random misbehavior. Raises ProcessExit."""
        if not self.world.faults.is_set():
            return
        draw = self.rng.uniform(0, 1)
        if draw < 0.012:
            raise ProcessExit(died=True)
        if draw < 0.020:
            await self.leave()
            raise ProcessExit(died=False)
        if draw < 0.040:
            pause_s = self.rng.uniform(0.3, 2.5) * self.world.session_s
            self.world.trace.note(self.name, f"pauses for {pause_s:.3f} s")
            await asyncio.sleep(pause_s)
            self.world.trace.note(self.name, "continues")
            if self.rng.chance(0.5):
                self.commit_later()
        elif draw < 0.060:
            self.world.trace.note(self.name, "loses its connection")
            self.client.close()

    async def back_off(self) -> None:
        """Delay before an attempt is repeated."""
        await asyncio.sleep(self.rng.uniform(*BACKOFF_S))

    def unknown_group(self, client: Client, code: int) -> bool:
        """Whether a replaced coordinator that does not know it returned that the group does not exist."""
        return code == ErrorCode.GROUP_ID_NOT_FOUND and not client.genuine

    def unexpected(self, what: str, code: int) -> Violation:
        """An error that no fault explains."""
        return Violation(f"{self.name}: {what} returned {ErrorCode(code).name}")

    async def find_coordinator(self) -> None:
        """First step of clients; it creates the offsets topic."""
        version = self.rng.randrange(7)
        batched = version >= 4
        while True:
            request = FindCoordinatorRequest(
                key="" if batched else self.world.group_id,
                coordinator_keys=[self.world.group_id] if batched else [],
            )
            try:
                response = await self.client.request(ApiKey.FIND_COORDINATOR, version, request)
            except RequestLost:
                await self.back_off()
                continue
            code = response.coordinators[0].error_code if batched else response.error_code
            if not code:
                return
            if code not in RETRIABLE:
                raise self.unexpected("FindCoordinator", code)
            await self.back_off()

    # -- ownership

    def give_up(self, partitions: Iterable[int]) -> None:
        """Stop using these partitions."""
        for partition in partitions:
            self.positions.pop(partition, None)
            self._committed.pop(partition, None)
            self._rolled_back.discard(partition)
            self._records.drop(partition)
            self.world.ownership.release(self.name, partition)

    def read_on(self) -> None:
        """Read a few records of each partition."""
        for partition in sorted(self._rolled_back):
            self._records.drop(partition)
            if partition not in self.unfetched:
                self.unfetched.append(partition)
        self._rolled_back.clear()
        for partition, position in self.positions.items():
            if partition not in self.unfetched:
                most = self.rng.randrange(RECORDS_A_TICK if self._copier is None else COPIES_A_TICK)
                self.positions[partition] = self._records.read(partition, position, most)

    # -- offsets

    async def fetch_offsets(self, partitions: list[int]) -> bool:
        """Fetch the positions of newly owned partitions; False if the member should check its membership first."""
        world = self.world
        if self._commit_task is not None:
            # Partitions may have been assigned again meanwhile. A commit of an earlier generation is accepted for those
            # that the member still has (KIP-1251), so an offset fetched concurrently may be older than its commit.
            return False
        version = self.fetch_version()
        member_id, epoch = self.identity()
        before = {partition: world.offsets.certain(partition) for partition in partitions}
        try:
            response = await self.client.request(
                ApiKey.OFFSET_FETCH, version, fetch_request(world, version, partitions, member_id, epoch)
            )
        except RequestLost:
            return False
        if not self.client.genuine:
            return False  # a replaced coordinator that does not know it returned its old state
        code, found = fetched_offsets(version, response)
        if code:
            if code not in RETRIABLE | OUT | {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
                raise self.unexpected("OffsetFetch", code)
            return False
        for partition, offset in found.items():
            world.offsets.fetched(self.name, partition, offset, before[partition])
            self.positions[partition] = self._committed[partition] = max(0, offset)
        return True

    def fetch_version(self) -> int:
        """Version of OffsetFetch."""
        raise NotImplementedError

    def commit_version(self) -> int:
        """Version of OffsetCommit."""
        raise NotImplementedError

    def commit_later(self) -> None:
        """Start a commit of the read records, unless one is pending."""
        if self._commit_task is None:
            task = self._commit_task = self.world.loop.create_task(self._commit())
            task.add_done_callback(self._commit_done)

    def _commit_done(self, task: asyncio.Task[None]) -> None:
        if self._commit_task is task:
            self._commit_task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.loop.failures.append(error)

    async def commit_now(self) -> None:
        """Commit and wait for the outcome, success or error."""
        await self.commit_over()
        self.commit_later()
        await self.commit_over()

    async def commit_over(self) -> None:
        """Wait until no commit is pending."""
        task = self._commit_task
        if task is not None:
            await asyncio.wait([task])

    async def _commit(self) -> None:
        world = self.world
        again = self.in_doubt()
        known = self._committed
        due = {part: at for part, at in self.positions.items() if part in known and (again or at > known[part])}
        if not due:
            return
        if self._copier is not None:
            await self._commit_copies(self._copier, due)
            return
        version = self.commit_version()
        member_id, generation = self.identity()
        commits = {part: world.offsets.sent(self.name, part, at) for part, at in due.items()}
        topic = OffsetCommitRequestTopic(
            name=world.topic,
            topic_id=world.topic_id,
            partitions=[
                OffsetCommitRequestPartition(partition_index=part, committed_offset=at) for part, at in due.items()
            ],
        )
        request = OffsetCommitRequest(
            group_id=world.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=self.instance_id,
            topics=[topic],
        )
        try:
            response = await self._commit_client.request(ApiKey.OFFSET_COMMIT, version, request)
        except RequestLost:
            return
        self._commit_answered(response, commits, generation)

    async def _commit_copies(self, copier: Copier, due: dict[int, int]) -> None:
        offsets = self.world.offsets
        member = self.identity()
        commits: list[Commit] = []

        def asking() -> None:
            # Only from here on may a client see them as committed.
            commits.extend(offsets.sent(self.name, part, at) for part, at in due.items())

        if await copier.copy(due, member, self.instance_id, asking):
            for commit in commits:
                offsets.accepted(commit)
                if commit.partition in self._committed:
                    self._committed[commit.partition] = max(commit.offset, self._committed[commit.partition])
            self.commit_accepted(member[1])
            return
        for partition in due:
            if self._committed.pop(partition, None) is not None:
                self._rolled_back.add(partition)

    def _commit_answered(self, response: Any, commits: dict[int, Commit], generation: int) -> None:
        answered = response.topics[0].partitions if response.topics else []
        if sorted(each.partition_index for each in answered) != sorted(commits):
            raise Violation(f"{self.name}: OffsetCommit did not answer for each partition")
        for each in answered:
            if each.error_code:
                if each.error_code not in COMMIT_REFUSALS and not self.unknown_group(
                    self._commit_client, each.error_code
                ):
                    raise self.unexpected("OffsetCommit", each.error_code)
                self.world.trace.note(
                    self.name, f"commit of {each.partition_index} refused: {ErrorCode(each.error_code).name}"
                )
                continue
            commit = commits[each.partition_index]
            self.world.offsets.accepted(commit)
            if commit.partition in self._committed:
                self._committed[commit.partition] = max(commit.offset, self._committed[commit.partition])
            self.commit_accepted(generation)


def fetch_request(
    world: GroupWorld, version: int, partitions: list[int], member_id: str | None, epoch: int
) -> OffsetFetchRequest:
    """OffsetFetch in the layout of `version`."""
    stable = world.make_copier is not None
    if version < FIRST_FETCH_WITH_GROUPS:
        topics = [OffsetFetchRequestTopic(name=world.topic, partition_indexes=partitions)]
        return OffsetFetchRequest(group_id=world.group_id, topics=topics, require_stable=stable)
    group = OffsetFetchRequestGroup(
        group_id=world.group_id,
        member_id=member_id if version >= FIRST_FETCH_WITH_MEMBER else None,
        member_epoch=epoch if version >= FIRST_FETCH_WITH_MEMBER else -1,
        topics=[
            OffsetFetchRequestTopics(name=world.topic, topic_id=world.topic_id, partition_indexes=partitions),
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def fetched_offsets(version: int, response: Any) -> tuple[int, dict[int, int]]:
    """(error code, offset by partition) of an OffsetFetch response."""
    answer = response.groups[0] if version >= FIRST_FETCH_WITH_GROUPS else response
    if answer.error_code:
        return answer.error_code, {}
    partitions = [each for topic in answer.topics for each in topic.partitions]
    failed = [each.error_code for each in partitions if each.error_code]
    return (failed[0] if failed else 0), {each.partition_index: each.committed_offset for each in partitions}
