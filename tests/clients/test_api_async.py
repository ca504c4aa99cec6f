"""The asynchronous clients against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import socket

import pytest

from ottla import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncSimpleConsumer,
    ClientClosed,
    ErrorCode,
    KafkaError,
    SimpleConsumer,
    TransactionAborted,
)
from ottla.api import async_consumer

NUMBERS = itertools.count(1)
WAIT_S = 90.0


@pytest.fixture
def topic(servers):
    return made(servers)


@pytest.fixture
def config():
    """A group of its own, which reads from the beginning."""
    return {"group.id": f"aio-group-{next(NUMBERS)}", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 50}


def made(servers):
    name = f"aio-{next(NUMBERS)}"
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=1, replication_factor=1)
    return name


async def values(consumer, count):
    found = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(1.0)]
    return found


def test_what_is_sent_is_read(servers, topic, config):
    async def run():
        async with AsyncProducer(servers) as producer:
            arrived = await producer.send(topic, "0", key="k")
            assert await asyncio.wait_for(arrived, WAIT_S) == (topic, 0, 0)
            futures = await producer.send_batch(topic, ["1", "2"])
            assert [each.offset for each in await asyncio.gather(*futures)] == [1, 2]
        async with AsyncConsumer(servers, config, topics=topic) as consumer:
            async for record in consumer:
                if record.offset == 1:
                    break
        async with AsyncAdmin(servers) as admin:
            offsets = await admin.group_offsets(config["group.id"])
        assert {key: each.offset for key, each in offsets.items()} == {(topic, 0): 2}
        async with AsyncSimpleConsumer(servers) as reader:
            assert [record.value for record in (await reader.fetch(topic, 0, 1)).records] == [b"1", b"2"]
            assert await reader.get_offsets_before(topic, 0, SimpleConsumer.LATEST_TIME, 5) == [3, 0]

    asyncio.run(run())


def test_a_call_that_is_cancelled_loses_no_record(servers, topic, config, monkeypatch):
    """It goes on in its thread, and what it fetches there is for the next call."""
    monkeypatch.setattr(async_consumer, "POLL_S", 5.0)

    async def run():
        async with (
            AsyncProducer(servers) as producer,
            AsyncConsumer(servers, config, topics=topic) as consumer,
        ):
            await producer.send(topic, "first")
            assert await values(consumer, 1) == [b"first"]
            waiting = asyncio.create_task(consumer.poll(WAIT_S))
            await asyncio.sleep(0)
            waiting.cancel()
            reading = asyncio.create_task(values(consumer, 10))
            await asyncio.sleep(0)
            await producer.send_batch(topic, [f"{number}" for number in range(10)])
            assert await reading == [b"%d" % number for number in range(10)]

    asyncio.run(run())


def test_the_loop_goes_on_while_the_queue_is_full():
    async def run(address):
        config = {"queue.buffering.max.messages": 1, "max.block.ms": 300, "delivery.timeout.ms": 3000, "linger.ms": 0}
        producer = AsyncProducer(address, config)
        with pytest.raises(KafkaError, match="async with"):
            await producer.send("t", "before its start")
        await producer.start()
        first = await producer.send("t", "a")
        second = asyncio.create_task(producer.send("t", "b"))
        turns = 0
        while not second.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 3  # a loop that is held up has one or two
        with pytest.raises(KafkaError, match="stays full"):
            await second
        with pytest.raises(KafkaError, match="not delivered") as raised:
            await producer.close()
        assert first.exception() is not None
        return raised.value.code

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert asyncio.run(run(f"127.0.0.1:{nobody.getsockname()[1]}")) == ErrorCode.REQUEST_TIMED_OUT


def test_copies_are_exact_though_a_transaction_is_aborted(servers, topic, config):
    target, elsewhere = made(servers), made(servers)
    config |= {"enable.auto.commit": False, "isolation.level": "read_committed"}

    async def fill():
        async with AsyncProducer(servers) as producer:
            await producer.send_batch(topic, [f"{number}" for number in range(20)])

    async def copy():
        copied, failed = 0, False
        async with (
            AsyncConsumer(servers, config, topics=topic) as consumer,
            AsyncProducer(servers, {"transactional.id": f"aio-copy-{next(NUMBERS)}"}) as producer,
        ):
            async for records in consumer.batches(max_records=5):
                try:
                    async with producer.transaction() as transaction:
                        for record in records:
                            await producer.send(target, record.value)
                        await transaction.send_offsets(consumer)
                        if copied and not failed:
                            failed = True
                            await producer.send(elsewhere, "has no such partition", partition=7)
                except TransactionAborted:
                    await consumer.seek_to_committed()
                    continue
                copied += len(records)
                if copied == 20:
                    break
        return failed

    async def check():
        async with AsyncSimpleConsumer(servers, isolation="read_committed") as reader:
            fetched = await reader.fetch(target, 0, 0)
        assert [record.value for record in fetched.records] == [b"%d" % number for number in range(20)]

    asyncio.run(fill())
    assert asyncio.run(asyncio.wait_for(copy(), WAIT_S))
    asyncio.run(check())


def test_closed_clients_say_so(servers, topic, config):
    async def run():
        producer, consumer = AsyncProducer(servers), AsyncConsumer(servers, config)
        admin, reader = AsyncAdmin(servers), AsyncSimpleConsumer(servers)
        await producer.start()
        for client in (producer, consumer, admin, reader):
            await client.close()
            await client.close()
        uses = (
            lambda: producer.send(topic, "v"),
            lambda: consumer.poll(0),
            admin.topics,
            lambda: reader.partitions(topic),
        )
        for use in uses:
            with pytest.raises(ClientClosed, match="is closed"):
                await use()

    asyncio.run(run())
