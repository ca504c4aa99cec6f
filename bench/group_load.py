"""Group members on raw connections, so that the load generator costs little next to the broker.

Each member has its own connection, joins, then sends heartbeats and commits at fixed intervals; both protocols.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.protocol.codec import write_message
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.registry import ApiKey

SIZE = struct.Struct(">i")
VERSIONS = {
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
}
REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
WAIT_CODES = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


def embedded(message: object) -> bytes:
    """Encodes version 0 of the protocol that classic members use among themselves."""
    out = bytearray(2)
    write_message(message, 0, out)
    return bytes(out)


@dataclass
class Tally:
    """Totals of all members, while `counting`."""

    counting: bool = False
    heartbeat_ms: list[float] = field(default_factory=list)
    commit_ms: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    rejoins: int = 0

    def error(self, code: int) -> None:
        name = ErrorCode(code).name
        self.errors[name] = self.errors.get(name, 0) + 1


class BareMember:
    """One connection of a member; `run` until cancelled."""

    def __init__(self, port: int, group: str, number: int, topic: str, intervals_s: tuple[float, float], tally: Tally):
        self.port = port
        self.group = group
        self.number = number
        self.topic = topic
        self.heartbeat_s, self.commit_s = intervals_s
        self.tally = tally
        self.member_id = ""
        self.generation = -1
        self.joined = asyncio.Event()
        self._correlation = 0

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, api_key: ApiKey, request: object) -> Any:
        self._correlation += 1
        self._writer.write(encode_request(api_key, VERSIONS[api_key], self._correlation, "bench", request))
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        _, response = decode_response(api_key, VERSIONS[api_key], bytearray(await self._reader.readexactly(size)))
        return response

    async def run(self) -> None:
        await self.connect()
        await self.join()
        self.joined.set()
        now = time.perf_counter()
        next_heartbeat = now + random.random() * self.heartbeat_s
        next_commit = now + random.random() * self.commit_s
        offset = 0
        while True:
            await asyncio.sleep(max(0.0, min(next_heartbeat, next_commit) - time.perf_counter()))
            if next_heartbeat <= next_commit:
                next_heartbeat += self.heartbeat_s
                await self.timed(self.heartbeat, self.tally.heartbeat_ms)
            else:
                next_commit += self.commit_s
                offset += 1
                await self.timed(lambda: self.commit(offset), self.tally.commit_ms)  # noqa: B023

    async def timed(self, action: Callable[[], Any], times: list[float]) -> None:
        started = time.perf_counter()
        code = await action()
        if self.tally.counting:
            times.append((time.perf_counter() - started) * 1000)
            if code:
                self.tally.error(code)
        if code in REJOIN:
            self.tally.rejoins += 1
            await self.join()

    async def commit(self, offset: int) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=self.number, committed_offset=offset, committed_metadata=""
        )
        response = await self.ask(
            ApiKey.OFFSET_COMMIT,
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
            ),
        )
        code: int = response.topics[0].partitions[0].error_code
        return code

    async def join(self) -> None:
        raise NotImplementedError

    async def heartbeat(self) -> int:
        raise NotImplementedError


class ClassicMember(BareMember):
    """Uses JoinGroup, SyncGroup and Heartbeat; the leader assigns partition i to member i."""

    async def join(self) -> None:
        subscription = embedded(ConsumerProtocolSubscription(topics=[self.topic], user_data=None))
        while True:
            joined = await self.ask(
                ApiKey.JOIN_GROUP,
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=45_000,
                    rebalance_timeout_ms=60_000,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
                ),
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code in WAIT_CODES:
                await asyncio.sleep(0.1)
                continue
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                continue
            if joined.error_code:
                self.tally.error(joined.error_code)
                continue
            self.member_id, self.generation = joined.member_id, joined.generation_id
            assignments = []
            if joined.leader == joined.member_id:
                for index, member in enumerate(joined.members):
                    owned = AssignmentTopicPartition(topic=self.topic, partitions=[index])
                    data = embedded(ConsumerProtocolAssignment(assigned_partitions=[owned]))
                    assignments.append(SyncGroupRequestAssignment(member_id=member.member_id, assignment=data))
            synced = await self.ask(
                ApiKey.SYNC_GROUP,
                SyncGroupRequest(
                    group_id=self.group,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=assignments,
                ),
            )
            if not synced.error_code:
                return

    async def heartbeat(self) -> int:
        response = await self.ask(
            ApiKey.HEARTBEAT,
            HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id),
        )
        code: int = response.error_code
        return code


class ConsumerMember(BareMember):
    """Uses ConsumerGroupHeartbeat and accepts each assignment at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.member_id = random.randbytes(16).hex()
        self._owned: list[TopicPartitions] = []

    async def join(self) -> None:
        self.generation = 0
        self._owned = []
        while self.generation <= 0 or not self._owned:
            code = await self.heartbeat()
            if code in REJOIN or code in (ErrorCode.FENCED_MEMBER_EPOCH,):
                self.generation = 0
            elif code and code not in WAIT_CODES:
                self.tally.error(code)
            if not self._owned:
                await asyncio.sleep(0.1)

    async def heartbeat(self) -> int:
        full = self.generation <= 0
        response = await self.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=max(0, self.generation),
                rebalance_timeout_ms=60_000 if full else -1,
                subscribed_topic_names=[self.topic] if full else None,
                topic_partitions=self._owned if not full else [],
            ),
        )
        if not response.error_code:
            self.generation = response.member_epoch
            if response.assignment is not None:
                self._owned = [
                    TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                    for each in response.assignment.topic_partitions
                ]
        code: int = response.error_code
        return code


PROTOCOLS: dict[str, type[BareMember]] = {"classic": ClassicMember, "consumer": ConsumerMember}
