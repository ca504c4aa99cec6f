"""Members of the consumer protocol (KIP-848): heartbeats with subscription, owned partitions and epoch.

A revoked partition is used until the heartbeat without it is sent, and a member may delay that.

The lease of a claim: `sent + session` from each heartbeat with a response without error, as for classic members; also
after it expired, since that response proves that the member was never removed. There is a second limit for all
partitions of the member, since a member that does not give up partitions in time is removed. The coordinator's
rebalance timer may have started with the first heartbeat after the last response that the member received, even if its
response was lost and the member does not know about the revocation. Hence `oldest unanswered heartbeat + rebalance
timeout`, which applies from the time when that heartbeat is sent until one is answered, and longer while a partition is
being revoked. A response of a replaced coordinator that does not know it does not count, nor does that of a coordinator
that has not committed a record since it began: the next one may know more.
"""

from __future__ import annotations

import asyncio

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import new_uuid, uuid_to_string
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.registry import ApiKey
from simulation.client import RequestLost
from simulation.members import HEARTBEAT_S, OUT, RETRIABLE, GroupWorld, Member, ProcessExit
from simulation.rng import SimRng

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
SERVER_ASSIGNORS = (None, "uniform", "range")
_UUID_BYTES = 16


class ConsumerMember(Member):
    """A process that speaks the consumer protocol."""

    def __init__(self, world: GroupWorld, name: str, rng: SimRng, instance_id: str | None) -> None:
        super().__init__(world, name, rng, instance_id)
        self._member_id = ""
        self._epoch = JOIN_EPOCH
        self._version = 1
        self._assignor: str | None = None
        self._full = True
        """The next heartbeat contains all fields: the first one, and after a lost response."""
        self._owned_sent: list[int] | None = None
        self._unanswered_since_s: float | None = None
        self._session_until_s = 0.0
        self._going: dict[int, float] = {}
        """Revoked partitions, and the time when the coordinator may stop waiting for them."""

    # -- life

    async def life(self) -> None:
        """One process of the member."""
        self._version = self.rng.randrange(2)
        self._member_id = uuid_to_string(new_uuid(self.rng.random_bytes(_UUID_BYTES))) if self._version else ""
        self._assignor = self.rng.choice(SERVER_ASSIGNORS)
        self._start_over()
        await self.find_coordinator()
        while True:
            await self.misbehave()
            pause_s = await self._heartbeat()
            if self.unfetched and await self.fetch_offsets(self.unfetched):
                self.unfetched = []
            self.read_on()
            if self.rng.chance(0.5):
                self.commit_later()
            await asyncio.sleep(pause_s)
            if self._going:
                await self._release_revoked()

    def identity(self) -> tuple[str, int]:
        """See `Member`."""
        return self._member_id, self._epoch

    def fetch_version(self) -> int:
        return 9 + self.rng.randrange(2)

    def commit_version(self) -> int:
        return 9 + self.rng.randrange(2)

    def _start_over(self) -> None:
        """Own no partition, be in no epoch."""
        self.give_up(list(self.positions))
        self._epoch = JOIN_EPOCH
        self._full = True
        self._owned_sent = None
        self._unanswered_since_s = None
        self._session_until_s = 0.0
        self._going = {}
        self.unfetched = []

    async def _release_revoked(self) -> None:
        """Give up revoked partitions, sooner or later: the next heartbeat confirms it."""
        if self.world.faults.is_set() and self.rng.chance(0.3):
            return
        if self.rng.chance(0.7):
            await self.commit_now()
        going = list(self._going)
        self._going = {}
        self.unfetched = [partition for partition in self.unfetched if partition not in going]
        self.give_up(going)

    # -- heartbeats

    async def _heartbeat(self) -> float:
        """Send one heartbeat; returns the seconds until the next."""
        now = self.world.loop.time()
        owned = sorted(self.positions)
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now
            self.world.ownership.shorten(self.name, now + self.world.rebalance_s)
        request = self._request(owned)
        try:
            response: ConsumerGroupHeartbeatResponse = await self.client.request(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, self._version, request
            )
        except RequestLost:
            self._full = True
            return self.rng.uniform(0.1, 0.6)
        code = response.error_code
        if not code:
            self._full = False
            self._owned_sent = owned
            self._take(response, now)
            return HEARTBEAT_S * self.rng.uniform(0.2, 1.2)
        self._full = True
        self.world.trace.note(self.name, f"heartbeat: {ErrorCode(code).name}")
        # A group that became classic had no member of this protocol left.
        classic = code == ErrorCode.GROUP_ID_NOT_FOUND and self.world.mixed
        if code in OUT or (self._epoch != JOIN_EPOCH and (classic or self.unknown_group(self.client, code))):
            self._start_over()
            if code == ErrorCode.FENCED_INSTANCE_ID:
                raise ProcessExit(died=True)
        elif code not in RETRIABLE and code != ErrorCode.UNRELEASED_INSTANCE_ID:
            raise self.unexpected("ConsumerGroupHeartbeat", code)
        return self.rng.uniform(0.1, 0.6)

    def _request(self, owned: list[int]) -> ConsumerGroupHeartbeatRequest:
        world = self.world
        full = self._full or self._epoch == JOIN_EPOCH
        partitions: list[TopicPartitions] | None = None
        if full or owned != self._owned_sent:
            partitions = [TopicPartitions(topic_id=world.topic_id, partitions=owned)] if owned else []
        return ConsumerGroupHeartbeatRequest(
            group_id=world.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=round(world.rebalance_s * 1000) if full else -1,
            subscribed_topic_names=[world.topic] if full else None,
            server_assignor=self._assignor if full else None,
            topic_partitions=partitions,
        )

    def _take(self, response: ConsumerGroupHeartbeatResponse, sent_s: float) -> None:
        """Process the response to a heartbeat that was sent at `sent_s`."""
        world = self.world
        lasting = self.client.lasting
        first_s = self._unanswered_since_s
        if lasting:
            self._unanswered_since_s = None
            self._session_until_s = sent_s + world.session_s
        if response.member_id:
            self._member_id = response.member_id
        if response.member_epoch != self._epoch:
            world.trace.note(self.name, f"is in epoch {response.member_epoch}")
        self._epoch = response.member_epoch
        if response.assignment is not None:
            assigned = [
                partition
                for topic in response.assignment.topic_partitions
                if topic.topic_id == world.topic_id
                for partition in topic.partitions
            ]
            deadline_s = (sent_s if first_s is None else first_s) + world.rebalance_s
            self._going = {
                partition: self._going.get(partition, deadline_s)
                for partition in self.positions
                if partition not in assigned
            }
            new = [partition for partition in assigned if partition not in self.positions]
            self.positions.update(dict.fromkeys(new, 0))
            self.unfetched += new
        if not lasting:
            return
        until_s = min([self._session_until_s, *self._going.values()])
        for partition in self.positions:
            world.ownership.claim(self.name, partition, until_s)

    async def leave(self) -> None:
        """See `Member`."""
        if self.rng.chance(0.7):
            await self.commit_now()
        self.give_up(list(self.positions))
        if not self._member_id or self._epoch == JOIN_EPOCH:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.world.group_id,
            member_id=self._member_id,
            member_epoch=LEAVE_EPOCH if self.instance_id is None or self.rng.chance(0.3) else LEAVE_STATIC_EPOCH,
            instance_id=self.instance_id,
        )
        try:
            await self.client.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._version, request)
        except RequestLost:
            return
