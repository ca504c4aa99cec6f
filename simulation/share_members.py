"""Members of a simulated share group (KIP-932): heartbeats, share sessions with brokers, acknowledgements.

A member is a process that joins, fetches from one broker after another, acknowledges some of the records that it has,
and ends by leaving or dying. It has one session with each broker, on one connection. A request that is lost ends the
session: the client begins a new one on another connection. Errors that the protocol does not expect are findings.
"""

from __future__ import annotations

import asyncio
import contextlib

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import new_uuid, uuid_to_string
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.registry import ApiKey
from simulation.checkers import Violation
from simulation.client import RequestLost
from simulation.history.shares import SharePlace
from simulation.members import BACKOFF_S, HEARTBEAT_S, RETRIABLE, ProcessExit
from simulation.rng import SimRng
from simulation.share_routing import ShareRouting
from simulation.share_sessions import ShareSession
from simulation.share_world import ShareWorld

HEARTBEAT_VERSION = 1
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
MEMBER_ID_BYTES = 16
POLL_PAUSE_S = (0.0, 0.3)
RESTART_S = (0.2, 6.0)
OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


class ShareMemberSlot:
    """A place in the group: runs one process after another."""

    def __init__(self, share: ShareWorld, name: str, rng: SimRng) -> None:
        self._share = share
        self._name = name
        self._rng = rng
        self._lives = 0

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.sleep(self._rng.uniform(0, 3))
        while True:
            while self._share.resting:
                await asyncio.sleep(0.2)
            self._lives += 1
            member = ShareMember(self._share, f"{self._name}.{self._lives}", self._rng.fork(f"life {self._lives}"))
            self._share.running += 1
            died = True
            try:
                await member.life()
            except ProcessExit as over:
                died = over.died
            finally:
                self._share.running -= 1
                member.end(died=died)
            await asyncio.sleep(self._rng.uniform(*RESTART_S))


class ShareMember:
    """One process."""

    def __init__(self, share: ShareWorld, name: str, rng: SimRng) -> None:
        self._share = share
        self.name = name
        self._rng = rng
        self._member_id = uuid_to_string(new_uuid(rng.random_bytes(MEMBER_ID_BYTES)))
        self._epoch = JOIN_EPOCH
        self._subscribes = True
        self._assigned: set[SharePlace] = set()
        self._coordinator = share.make_client(name)
        self._routing = ShareRouting(share.world, share.topics, name, rng.fork("routing"))
        self._sessions: dict[int, ShareSession] = {}
        self._beats: asyncio.Task[None] | None = None

    # -- life

    async def life(self) -> None:
        """One process; ends by ProcessExit."""
        self._share.trace.note(self.name, f"is member {self._member_id}")
        loop = self._share.world.loop
        beats = self._beats = loop.create_task(self._beat())
        while True:
            await asyncio.sleep(self._rng.uniform(*POLL_PAUSE_S))
            if beats.done():
                beats.result()
            if self._share.resting:
                await self._leave()
            await self._misbehave()
            try:
                await self._poll()
            except RequestLost:
                self._routing.forget()
                await asyncio.sleep(self._rng.uniform(*BACKOFF_S))

    def end(self, *, died: bool) -> None:
        """The process has ended."""
        self._share.trace.note(self.name, "died" if died else "left")
        if self._beats is not None:
            self._beats.cancel()
        self._routing.end(died=died)
        if died:
            self._coordinator.die()
        else:
            self._coordinator.close()

    async def _misbehave(self) -> None:
        """Once per poll: die, leave, reconnect, or be silent for longer than the locks."""
        if not self._share.faults.is_set():
            return
        draw = self._rng.uniform(0, 1)
        if draw < 0.006:
            raise ProcessExit(died=True)
        if draw < 0.012:
            await self._leave()
        if draw < 0.02:
            await asyncio.sleep(self._rng.uniform(1, 12))
        elif draw < 0.03 and self._sessions:
            node = self._rng.choice(sorted(self._sessions))
            self._share.trace.note(self.name, f"closes its connection to {node}")
            self._sessions.pop(node).lost()
            self._routing.client(node).close()

    async def _leave(self) -> None:
        """Close the sessions, with the last acknowledgements, and leave the group."""
        for node, session in sorted(self._sessions.items()):
            if session.epoch:
                with contextlib.suppress(RequestLost):
                    await session.close(self._routing.client(node))
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.sleep(0)
        request = ShareGroupHeartbeatRequest(
            group_id=self._share.group_id, member_id=self._member_id, member_epoch=LEAVE_EPOCH
        )
        with contextlib.suppress(RequestLost):
            await self._coordinator.request(ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request)
        raise ProcessExit(died=False)

    # -- membership

    async def _beat(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            pause_s = self._rng.uniform(*BACKOFF_S)
            try:
                response: ShareGroupHeartbeatResponse = await self._coordinator.request(
                    ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION, self._heartbeat()
                )
            except RequestLost:
                self._subscribes = True
            else:
                if self._heard(response):
                    pause_s = HEARTBEAT_S * self._rng.uniform(0.5, 1.2)
            await asyncio.sleep(pause_s)

    def _heartbeat(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._share.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=sorted(self._share.topics) if self._subscribes else None,
        )

    def _heard(self, response: ShareGroupHeartbeatResponse) -> bool:
        code = response.error_code
        if not code:
            self._subscribes = False
            self._epoch = response.member_epoch
            if response.assignment is not None:
                self._assigned = {
                    (topic.topic_id, partition)
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                }
            return True
        self._subscribes = True
        self._share.trace.note(self.name, f"heartbeat: {ErrorCode(code).name}")
        if code in OUT:
            self._epoch = JOIN_EPOCH
            self._assigned = set()
        elif code not in RETRIABLE:
            raise Violation(f"{self.name}: ShareGroupHeartbeat returned {ErrorCode(code).name}")
        return False

    # -- records

    async def _poll(self) -> None:
        """One request to one broker. Raises RequestLost."""
        if any(self._routing.leader(place) is None for place in self._assigned):
            await self._routing.refresh()
        wanted: dict[int, set[SharePlace]] = {}
        for place in self._assigned:
            node = self._routing.leader(place)
            if node is not None:
                wanted.setdefault(node, set()).add(place)
        nodes = sorted(wanted.keys() | {node for node, session in self._sessions.items() if session.has_records})
        if not nodes:
            await asyncio.sleep(self._rng.uniform(*BACKOFF_S))
            return
        node = self._rng.choice(nodes)
        session = self._sessions.get(node)
        if session is None:
            session = self._sessions[node] = ShareSession(self._share, self.name, self._member_id, self._rng)
        try:
            current = await session.poll(self._routing.client(node), wanted.get(node, set()))
        except RequestLost:
            self._sessions.pop(node, None)
            raise
        if not current:
            self._routing.forget()
            await asyncio.sleep(self._rng.uniform(*BACKOFF_S))
