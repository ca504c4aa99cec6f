"""Most hostile inputs, through the dispatcher into real handlers on a real disk; the broker must stay intact.

In process, so that every unexpected exception is counted where the dispatcher contains it, and so that many requests
need no socket. Effects visible to the operator (log, process memory) are in `test_sockets`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch

from .broker_in_memory import MemoryBroker, memory_broker
from .generator import (
    COMPACTED_TOPIC,
    INPUTS,
    SEED,
    TOPIC,
    TOPIC_PARTITIONS,
    Generator,
    makes_many_partitions,
    with_topic_id,
)
from .memory import resident_bytes

SHARE = INPUTS * 44 // 100
BREATHE_EVERY = 20
MAX_GROWTH_BYTES = 300_000_000
MAX_SECONDS_FOR_ONE = 2.0


async def create_topic(broker: MemoryBroker, name: str, partitions: int, **configs: str) -> CreatableTopicResult:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    response = await broker.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
    return response.topics[0]


async def round_trip(broker: MemoryBroker, name: str) -> None:
    """A new topic takes a record and gives it back."""
    created = await create_topic(broker, name, 1)
    assert created.error_code == ErrorCode.NONE, created
    batch = bytes(build_batch([RecordData(1_700_000_000_000, b"key", b"value")]))
    topic = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
    produced = await broker.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]))
    assert produced.responses[0].partition_responses[0].error_code == 0
    wanted = FetchTopic(topic=name, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    fetched = await broker.ask(ApiKey.FETCH, 12, FetchRequest(min_bytes=1, topics=[wanted]))
    records = bytes(fetched.responses[0].partitions[0].records)
    assert records[61:] == batch[61:]


async def ensure_topics(broker: MemoryBroker) -> bytes:
    """Some requests delete topics that others need; returns the id of `TOPIC`."""
    await ensure_topic(broker, COMPACTED_TOPIC, cleanup_policy="compact")
    return await ensure_topic(broker, TOPIC)


async def ensure_topic(broker: MemoryBroker, name: str, **configs: str) -> bytes:
    """Returns the id of the topic, which one of the inputs may be creating right now."""
    while (known := broker.broker.parts.publisher.image.topic(name)) is None:
        created = await create_topic(broker, name, TOPIC_PARTITIONS, **configs)
        assert created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), created
        await asyncio.sleep(0)
    return known.topic_id


async def fuzz(broker: MemoryBroker, generator: Generator, replay: str) -> int:
    """Send the share; returns how many requests were answered."""
    answered = 0
    topic_id = await ensure_topics(broker)
    channel = broker.channel()
    waiting: list = []
    for number, (kind, frame) in enumerate(itertools.islice(generator.requests(), SHARE)):
        if makes_many_partitions(frame):
            continue
        frame = with_topic_id(frame, topic_id)
        if channel.closed or channel.parked:
            if channel.parked:
                waiting.append(channel)
            channel = broker.channel()
        channel.answers.clear()
        where = f"{replay}, input {number} ({kind}): {frame.hex()}"
        begin = time.process_time()
        try:
            broker.send(channel, frame)
        except Exception as error:
            raise AssertionError(where) from error
        spent = time.process_time() - begin
        assert spent < MAX_SECONDS_FOR_ONE, f"{spent:.1f} s for {where}"
        answered += bool(channel.answers)
        assert broker.defects == 0, where
        if len(waiting) > 100:
            # Half of those that wait are left by their clients, the others are answered in time or at the stop.
            for parked in waiting[::2]:
                broker.hang_up(parked)
            waiting = [parked for parked in waiting[1::2] if parked.parked][-50:]
        if number % BREATHE_EVERY == 0:
            await asyncio.sleep(0)
            topic_id = await ensure_topics(broker)
            assert broker.defects == 0, f"between inputs, at the latest before {where}"
    for parked in waiting:
        broker.hang_up(parked)
    return answered


@pytest.mark.promise("S1")
def test_no_request_harms_the_broker(tmp_path, fuzz_seed, caplog):
    async def scenario() -> int:
        async with memory_broker(tmp_path / "data", auto_create_topics_enable="false") as broker:
            await round_trip(broker, "before")
            answered = await fuzz(broker, Generator(SEED, "dispatcher"), fuzz_seed)
            assert (await broker.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))).topics
            await round_trip(broker, "after")
            named = [MetadataRequestTopic(name="after")]
            assert not (await broker.ask(ApiKey.METADATA, 12, MetadataRequest(topics=named))).topics[0].error_code
            assert broker.defects == 0, fuzz_seed
            return answered

    with caplog.at_level(logging.WARNING):
        before = resident_bytes()
        answered = asyncio.run(scenario())
        grown = resident_bytes() - before
    assert grown < MAX_GROWTH_BYTES, f"{grown / 1e6:.0f} MB more; {fuzz_seed}"
    tracebacks = [record.getMessage() for record in caplog.records if record.exc_info]
    assert not tracebacks, fuzz_seed
    assert 0.15 < answered / SHARE < 0.9, fuzz_seed
