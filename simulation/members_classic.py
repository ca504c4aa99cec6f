"""Members of the classic protocol (eager): JoinGroup, SyncGroup, Heartbeat, LeaveGroup, a range assignor on the leader.

The lease of a claim. The coordinator restarts a member's session when it processes a request, which is not before the
request was sent. A heartbeat response without error also means that no rebalance had begun when it was processed, so
none ends earlier than a rebalance timeout after it was sent. Hence the lease is `sent + min(session, rebalance
timeout)`, from the SyncGroup and from each Heartbeat with a response without error. REBALANCE_IN_PROGRESS does not
renew it. Nor does a response of a replaced coordinator that does not know it, or of a coordinator that has not
committed a record since it began: the next one may know more. One exception: a loading coordinator answers every
heartbeat without error. So once a lease has expired, a response renews it only if a commit in the same generation was
accepted after it: then the member was still in the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.registry import ApiKey
from simulation.client import RequestLost
from simulation.embedded import NO_GENERATION, Deal, decode_assignment, eager_metadata, encode_assignment, ranges
from simulation.members import FIRST_STABLE_FETCH, HEARTBEAT_S, OUT, RETRIABLE, GroupWorld, Member, ProcessExit
from simulation.rng import SimRng

PROTOCOL_TYPE = "consumer"
JOIN_SLACK_S = 5.0


class ClassicMember(Member):
    """A process that speaks the classic protocol."""

    protocol_name = "range"

    def __init__(self, world: GroupWorld, name: str, rng: SimRng, instance_id: str | None) -> None:
        super().__init__(world, name, rng, instance_id)
        self._member_id = ""
        self.generation = NO_GENERATION
        self._lease_until_s = 0.0
        self._unproven_s: float | None = None
        """Send time of the heartbeat that counts once a commit is accepted."""
        self._join_version = self._sync_version = self._heartbeat_version = 0
        self._commit_version = self._fetch_version = 0
        self._lease_s = min(world.session_s, world.rebalance_s)

    # -- life

    async def life(self) -> None:
        """Join and stay, repeatedly."""
        # Versions that know instance ids, so that any slot can be static.
        self._join_version = 5 + self.rng.randrange(5)
        self._sync_version = 3 + self.rng.randrange(3)
        self._heartbeat_version = 3 + self.rng.randrange(2)
        self._commit_version = 7 + self.rng.randrange(4)
        self._fetch_version = 1 + self.rng.randrange(10)
        await self.find_coordinator()
        while True:
            await self.misbehave()
            joined = await self._join()
            if joined is None or not await self._sync(joined):
                await self.back_off()
                continue
            if await self.settled():
                await self._stay()
                await self.before_join()

    async def settled(self) -> bool:
        """The assignment was received: returns whether the member may stay with it."""
        return True

    async def before_join(self) -> None:
        """Eager: all partitions are given up before the next JoinGroup."""
        if self.rng.chance(0.7):
            await self.commit_now()
        self.give_up(list(self.positions))

    def identity(self) -> tuple[str, int]:
        """See `Member`."""
        return self._member_id, self.generation

    def fetch_version(self) -> int:
        return self._fetch_version if self.world.make_copier is None else max(self._fetch_version, FIRST_STABLE_FETCH)

    def commit_version(self) -> int:
        return self._commit_version

    def forget_generation(self) -> None:
        """This process is no longer in a generation."""
        self.generation = NO_GENERATION
        self._lease_until_s = 0.0
        self._unproven_s = None

    def _check_out(self, code: int) -> None:
        """The response states that this process is not in the group, or not in that generation."""
        self.give_up(list(self.positions))
        self.forget_generation()
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            # An older process of this slot arrived late: a supervisor would start another one.
            raise ProcessExit(died=True)

    # -- lease

    def _prolong(self, sent_s: float, *, proven: bool) -> None:
        world = self.world
        if not self.client.lasting:
            return
        if not proven and self._lease_until_s < world.loop.time():
            self._unproven_s = sent_s
            return
        self._unproven_s = None
        self._lease_until_s = max(self._lease_until_s, sent_s + self._lease_s)
        for partition in self.claimed():
            world.ownership.claim(self.name, partition, self._lease_until_s)

    def claimed(self) -> Iterable[int]:
        """All partitions of this process during its generation."""
        return self.positions

    def commit_accepted(self, generation: int) -> None:
        """See `Member`."""
        if self._unproven_s is not None and generation == self.generation:
            self._prolong(self._unproven_s, proven=True)

    def in_doubt(self) -> bool:
        """See `Member`."""
        return self._unproven_s is not None

    # -- joining

    async def _join(self) -> JoinGroupResponse | None:
        """Join a generation; None: try again."""
        world = self.world
        metadata = self.metadata()
        request = JoinGroupRequest(
            group_id=world.group_id,
            session_timeout_ms=round(world.session_s * 1000),
            rebalance_timeout_ms=round(world.rebalance_s * 1000),
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=self.protocol_name, metadata=metadata)],
        )
        timeout_s = world.rebalance_s + JOIN_SLACK_S
        try:
            response: JoinGroupResponse = await self.client.request(
                ApiKey.JOIN_GROUP, self._join_version, request, timeout_s
            )
        except RequestLost:
            return None
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            return await self._join()
        if code in OUT:
            self._check_out(code)
            return None
        if code in RETRIABLE or code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        if code:
            raise self.unexpected("JoinGroup", code)
        self._member_id = response.member_id
        return response

    def metadata(self) -> bytes:
        """The subscription in JoinGroup."""
        self.forget_generation()
        return eager_metadata(self.world.topic)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Get the assignment of this member; False: join again."""
        world = self.world
        dealt = self.deal(joined) if joined.leader == joined.member_id and not joined.skip_assignment else {}
        sent_s = world.loop.time()
        request = SyncGroupRequest(
            group_id=world.group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(world.topic, partitions))
                for member_id, partitions in dealt.items()
            ],
        )
        timeout_s = world.rebalance_s + JOIN_SLACK_S
        try:
            response = await self.client.request(ApiKey.SYNC_GROUP, self._sync_version, request, timeout_s)
        except RequestLost:
            return False
        code = response.error_code
        if code in OUT:
            self._check_out(code)
            return False
        if code in RETRIABLE or code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        if code:
            raise self.unexpected("SyncGroup", code)
        self.generation = joined.generation_id
        partitions = decode_assignment(response.assignment, world.topic)
        world.trace.note(self.name, f"is in generation {self.generation} with {partitions}")
        self.take(partitions)
        self._prolong(sent_s, proven=True)
        return True

    def take(self, partitions: list[int]) -> None:
        """The new assignment of this process."""
        self.positions = dict.fromkeys(partitions, 0)
        self.unfetched = partitions

    def deal(self, joined: JoinGroupResponse) -> Deal:
        """As the leader: ranges for members in a changing order, so that every rebalance moves partitions."""
        members = sorted(member.member_id for member in joined.members)
        turn = self.rng.randrange(len(members))
        return ranges(members[turn:] + members[:turn], self.world.partitions)

    # -- between rebalances

    async def _stay(self) -> None:
        """Heartbeat, read and commit until the coordinator requests a JoinGroup."""
        while True:
            if self.unfetched and await self.fetch_offsets(self.unfetched):
                self.unfetched = []
            await asyncio.sleep(HEARTBEAT_S * self.rng.uniform(0.3, 1.3))
            await self.misbehave()
            if not self.unfetched:
                self.read_on()
                if self.rng.chance(0.5):
                    self.commit_later()
            if not await self._heartbeat():
                return

    async def _heartbeat(self) -> bool:
        """Returns whether the member stays in its generation."""
        sent_s = self.world.loop.time()
        request = HeartbeatRequest(
            group_id=self.world.group_id,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        try:
            response: Any = await self.client.request(ApiKey.HEARTBEAT, self._heartbeat_version, request)
        except RequestLost:
            return True
        code = response.error_code
        if not code:
            self._prolong(sent_s, proven=False)
            return True
        if code in RETRIABLE:
            return True
        self.world.trace.note(self.name, f"heartbeat: {ErrorCode(code).name}")
        if code in OUT:
            self._check_out(code)
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            raise self.unexpected("Heartbeat", code)
        return False

    async def leave(self) -> None:
        """See `Member`."""
        if self.rng.chance(0.7):
            await self.commit_now()
        self.give_up(list(self.positions))
        if not self._member_id:
            return
        identity = MemberIdentity(member_id=self._member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.world.group_id, members=[identity])
        try:
            await self.client.request(ApiKey.LEAVE_GROUP, self._sync_version, request)
        except RequestLost:
            return
