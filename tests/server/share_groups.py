"""Share groups in tests of the dispatcher: a persister in memory, and requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import SharePartitionKey, ShareState, ShareStateSummary, StateBatch
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.protocol.messages.share_acknowledge import AcknowledgementBatch as Acknowledgement
from ottla.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

from .harness import Connection, Server

GROUP = "group"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acks = Sequence[tuple[int, int, int]]
"""(first offset, last offset, type)."""


class MemoryPersister:
    """Implements `SharePersister` for one node; writes can fail, or wait."""

    def __init__(self) -> None:
        self.starts: dict[SharePartitionKey, int] = {}
        self.records: dict[SharePartitionKey, dict[int, StateBatch]] = {}
        self.complete: dict[SharePartitionKey, int] = {}
        self.failure: ErrorCode | None = None
        self.blocked: asyncio.Event | None = None
        self.reads: list[SharePartitionKey] = []

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        self.starts[key] = start_offset
        self.records[key] = {}

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        await asyncio.sleep(0)
        self.reads.append(key)
        if self.failure is not None:
            raise KafkaError(self.failure)
        records = self.records.get(key, {})
        return ShareState(0, self.starts.get(key, -1), tuple(records[offset] for offset in sorted(records)))

    async def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        if self.blocked is not None:
            await self.blocked.wait()
        if self.failure is not None:
            raise KafkaError(self.failure)
        records = self.records.setdefault(key, {})
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                records[offset] = StateBatch(offset, offset, batch.state, batch.delivery_count)
        self.starts[key] = start_offset
        self.complete[key] = delivery_complete_count
        for offset in [offset for offset in records if offset < start_offset]:
            del records[offset]

    async def delete(self, key: SharePartitionKey) -> None:
        self.starts.pop(key, None)
        self.records.pop(key, None)

    async def summarize(self, key: SharePartitionKey, leader_epoch: int = -1) -> ShareStateSummary:
        return ShareStateSummary(0, 0, self.starts.get(key, -1), self.complete.get(key, -1))


def enable_share_groups(server: Server, persister: MemoryPersister, /, level: int = 1, **settings: str) -> None:
    """Finalize the feature in published metadata, with settings of the group (underscores for dots)."""
    publisher = server.broker.parts.publisher
    values = {"share.auto.offset.reset": "earliest", **{k.replace("_", "."): v for k, v in settings.items()}}

    def enable(image: MetadataImage, _changes: MetadataChanges | None = None) -> None:
        configs = {**image.configs, ConfigResource(ConfigResourceType.GROUP, GROUP): values}
        publisher.image = replace(image, features={**image.features, "share.version": level}, configs=configs)

    publisher.register(enable)
    enable(publisher.image)
    server.broker.contexts.share_partitions.persister = lambda: persister


def share_fetch(
    *partitions: tuple[bytes, int] | tuple[bytes, int, Acks],
    epoch: int,
    forgotten: Sequence[tuple[bytes, int]] = (),
    member: str = "member",
    max_wait_ms: int = 60_000,
    **fields: Any,
) -> ShareFetchRequest:
    fields = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, **fields}
    return ShareFetchRequest(
        group_id=GROUP,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=max_wait_ms,
        topics=[
            FetchTopic(
                topic_id=each[0],
                partitions=[
                    FetchPartition(
                        partition_index=each[1],
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                            for first, last, kind in (each[2] if len(each) == 3 else ())
                        ],
                    )
                ],
            )
            for each in partitions
        ],
        forgotten_topics_data=[ForgottenTopic(topic_id=topic, partitions=[index]) for topic, index in forgotten],
        **fields,
    )


def share_acknowledge(
    topic_id: bytes, index: int, acks: Acks, *, epoch: int, member: str = "member", **fields: Any
) -> ShareAcknowledgeRequest:
    batches = [
        Acknowledgement(first_offset=first, last_offset=last, acknowledge_types=[kind]) for first, last, kind in acks
    ]
    partition = AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
    return ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=member,
        share_session_epoch=epoch,
        topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
        **fields,
    )


def acquired(response: Any) -> dict[int, list[tuple[int, int, int]]]:
    """(first offset, last offset, delivery count) by partition, of partitions with records."""
    assert response.error_code == 0, response
    return {
        partition.partition_index: [
            (each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records
        ]
        for topic in response.responses
        for partition in topic.partitions
        if partition.acquired_records
    }


def only_partition(response: Any) -> Any:
    """The single partition of a response."""
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def acknowledged(client: Connection, *arguments: Any, **fields: Any) -> int:
    """Acknowledge and return the error code of the partition."""
    response = client.ask(share_acknowledge(*arguments, **fields), 2)
    assert response.error_code == 0, response
    code: int = only_partition(response).error_code
    return code
