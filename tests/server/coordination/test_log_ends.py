"""High watermarks from this broker's replicas and from other leaders, whose responses are bytes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ottla.common.errors import ErrorCode
from ottla.common.platform.disk import Buffer
from ottla.common.platform.peer import PeerConnection, PeerDone
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.list_offsets import (
    SPEC,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replica.manager import ReplicaManager
from ottla.server.coordination.log_ends import LATEST, LogEnds

LEADERS = {0: 1, 1: 2, 2: 2, 3: 3, 4: NO_LEADER, 5: 4}
"""Leaders of the partitions. This is broker 1; 2 leads partition 2 no more, 3 does not answer, 4 has no address."""


class Brokers:
    """The other brokers. Implements `PeerNetwork` and `PeerConnection`."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.failed = False

    def connect(self, host: str, port: int) -> PeerConnection:
        self.host = host
        return cast(PeerConnection, self)

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        assert (api_key, api_version) == (SPEC.key, SPEC.max_version)
        if self.host == "broker3":
            asyncio.get_running_loop().call_soon(done, None, TimeoutError())
            return
        message: Any
        message, _ = read_message(SPEC.request, api_version, bytes(body), 0, len(body), 1000)
        (topic,) = message.topics
        assert {each.timestamp for each in topic.partitions} == {LATEST}
        self.requests.append([each.partition_index for each in topic.partitions])
        rows = [ListOffsetsPartitionResponse(partition_index=1, offset=70)]
        rows.append(ListOffsetsPartitionResponse(partition_index=2, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        answer = bytearray()
        response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])
        write_message(response, api_version, answer)
        asyncio.get_running_loop().call_soon(done, memoryview(answer), None)

    def close(self) -> None:
        self.failed = True


def test_ends_of_all_leaders_that_answer_are_found() -> None:
    brokers = Brokers()
    topic = SimpleNamespace(partitions={index: SimpleNamespace(leader=leader) for index, leader in LEADERS.items()})
    image = SimpleNamespace(topic=lambda name: topic if name == "t" else None)
    replica = SimpleNamespace(is_leader=True, high_watermark=9)
    ends = LogEnds(
        1,
        cast(ReplicaManager, SimpleNamespace(find=lambda name, index: replica)),
        cast(Any, brokers),
        image=lambda: cast(MetadataImage, image),
        address_of=lambda node: None if node == 4 else (f"broker{node}", 9092),
    )
    assert asyncio.run(ends.find("t", [0, 1, 2, 3, 4, 5, 6])) == {0: 9, 1: 70}
    assert brokers.requests == [[1, 2]]
    assert asyncio.run(ends.find("deleted", [0])) == {}
    ends.close()
    assert brokers.failed
