"""High watermarks of partitions of any leader: those of other brokers are asked for by ListOffsets.

One request for each leader and call; partitions without an answer within TIME_LIMIT_S are left out. Used for the lag of
share groups, whose coordinator leads few of their partitions (KIP-1226).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.common.errors import KafkaError
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.metadata.image import MetadataImage
from ottla.net.peer_link import PeerLink
from ottla.net.peer_messages import send_message
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replica.manager import ReplicaManager

TIME_LIMIT_S = 5.0
LATEST = -1
CONSUMER = -1
"""Replica id of a request for the high watermark."""


class LogEnds:
    """See the module."""

    __slots__ = ("_address_of", "_image", "_links", "_network", "_node_id", "_replicas")

    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        network: PeerNetwork,
        *,
        image: Callable[[], MetadataImage],
        address_of: Callable[[int], Address | None],
    ) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._network = network
        self._image = image
        self._address_of = address_of
        self._links: dict[int, PeerLink] = {}

    async def find(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """The high watermarks by partition; omits those without a leader that answers."""
        known = self._image().topic(topic)
        if known is None:
            return {}
        ends: dict[int, int] = {}
        remote: dict[int, list[int]] = {}
        for index in partitions:
            state = known.partitions.get(index)
            if state is None or state.leader < 0:
                continue
            if state.leader != self._node_id:
                remote.setdefault(state.leader, []).append(index)
            elif (end := self._local(topic, index)) is not None:
                ends[index] = end
        answers = await asyncio.gather(*(self._ask(leader, topic, indexes) for leader, indexes in remote.items()))
        for answer in answers:
            ends |= answer
        return ends

    def close(self) -> None:
        """Close the connections to other brokers."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _local(self, topic: str, index: int) -> int | None:
        try:
            found = self._replicas.find(topic, index)
        except KafkaError:
            return None
        return found.high_watermark if found.is_leader else None

    async def _ask(self, leader: int, topic: str, indexes: Sequence[int]) -> dict[int, int]:
        address = self._address_of(leader)
        if address is None:
            return {}
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = PeerLink(self._network)
        answered: asyncio.Future[dict[int, int]] = asyncio.get_running_loop().create_future()

        def done(response: Any, error: BaseException | None) -> None:
            if not answered.done():
                answered.set_result(_offsets(response) if error is None else {})

        asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes]
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
        send_message(link.to(address), request, done, TIME_LIMIT_S)
        return await answered


def _offsets(response: ListOffsetsResponse) -> dict[int, int]:
    return {
        each.partition_index: each.offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code and each.offset >= 0
    }
