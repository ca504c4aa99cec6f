"""The asynchronous clients against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from typing import Generic

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
from ottla.api import async_consumer, async_producer
from ottla.api.asynchronous import InThread
from ottla.api.producer import Producer
from ottla.api.records import K, V
from ottla.api.transaction import Transaction

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


def test_sent_records_are_read(servers, topic, config):
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
    """It continues in its thread, and the fetched records are for the next call."""
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


def test_loop_runs_while_the_queue_is_full():
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

    with socket.socket() as refused_address:
        refused_address.bind(("127.0.0.1", 0))
        assert asyncio.run(run(f"127.0.0.1:{refused_address.getsockname()[1]}")) == ErrorCode.REQUEST_TIMED_OUT


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
        with pytest.raises(ClientClosed, match="is closed"):
            await producer.start()

    asyncio.run(run())


async def turns():
    """Run the loop until a cancelled task has progressed as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


class Stop:
    """A point where a thread waits until it is released."""

    def __init__(self):
        self.reached, self.passed = threading.Event(), threading.Event()

    def __call__(self):
        self.reached.set()
        assert self.passed.wait(WAIT_S)

    async def until_reached(self):
        assert await asyncio.to_thread(self.reached.wait, WAIT_S)


def test_a_transaction_ends_though_its_end_is_cancelled(servers, topic):
    """It waits for its turn in the producer's thread, where the partitioner of a record holds it up."""
    stop = Stop()

    def choose(key, count):
        if not stop.passed.is_set():
            stop()
        return 0

    async def run():
        config = {"transactional.id": f"aio-ends-{next(NUMBERS)}"}
        async with AsyncProducer(servers, config, partitioner=choose) as producer:

            async def send(value):
                async with producer.transaction():
                    await producer.send(topic, value)

            sending = asyncio.ensure_future(send("aborted"))
            await stop.until_reached()
            for _ in range(2):
                sending.cancel()
                await turns()
            assert sending.cancelled()
            stop.passed.set()
            await send("committed")
        async with AsyncSimpleConsumer(servers, isolation="read_committed") as reader:
            assert [each.value for each in (await reader.fetch(topic, 0, 0)).records] == [b"committed"]

    asyncio.run(run())


def test_a_transaction_that_begins_though_it_is_cancelled_ends():
    stop = Stop()
    ends = []

    class SlowTransaction(Transaction):
        def __init__(self):
            pass

        def __enter__(self):
            stop()

        def abandon(self):
            ends.append("aborted")

    async def run():
        thread = InThread("calls")
        entering = asyncio.ensure_future(async_producer.AsyncTransaction(SlowTransaction(), thread).__aenter__())
        await stop.until_reached()
        entering.cancel()
        await turns()
        stop.passed.set()
        with pytest.raises(asyncio.CancelledError):
            await entering
        thread.end()

    asyncio.run(run())
    assert ends == ["aborted"]


def test_clients_close_though_that_is_cancelled(servers, topic, config):
    """The consumer has left its group, and the producer has sent its records."""
    assigning, choosing = Stop(), Stop()

    def choose(key, count):
        choosing()
        return 0

    async def run():
        consumer = AsyncConsumer(servers, config, topics=topic, on_assign=lambda _, partitions: assigning())
        producer = AsyncProducer(servers, {"linger.ms": 60_000}, partitioner=choose)
        await consumer.start()
        await producer.start()
        for client, call, stop in (
            (consumer, consumer.poll(WAIT_S), assigning),
            (producer, producer.send(topic, "sent"), choosing),
        ):
            calling = asyncio.ensure_future(call)
            await stop.until_reached()
            closing = asyncio.ensure_future(client.close())
            await turns()
            for each in (calling, closing):
                each.cancel()
            await turns()
            assert closing.cancelled()
            stop.passed.set()
        async with AsyncAdmin(servers) as admin, asyncio.timeout(WAIT_S):
            while (await admin.group(config["group.id"])).members:
                await asyncio.sleep(0.05)
        async with AsyncSimpleConsumer(servers) as reader, asyncio.timeout(WAIT_S):
            while not (fetched := await reader.fetch(topic, 0, 0, max_wait_ms=1000)).records:
                pass
        assert [each.value for each in fetched.records] == [b"sent"]

    asyncio.run(run())


def test_producer_with_a_cancelled_start_is_closed(servers, monkeypatch):
    stop = Stop()
    made = []

    class LateProducer(Producer[K, V], Generic[K, V]):
        def __init__(self, *arguments, **named):
            stop()
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(async_producer, "Producer", LateProducer)

    async def run():
        producer = AsyncProducer(servers)
        starting = asyncio.ensure_future(producer.start())
        await stop.until_reached()
        starting.cancel()
        await turns()
        stop.passed.set()
        assert starting.cancelled()
        await producer.start()  # after the calls that were started before
        await producer.start()
        await producer.close()

    asyncio.run(run())
    assert len(made) == 2
    for each in made:
        with pytest.raises(ClientClosed):
            each.flush()


def test_call_on_a_closing_client_does_not_wait(servers, topic):
    """The loop least of all: the connection is busy with a fetch that finds nothing."""

    async def run():
        reader = AsyncSimpleConsumer(servers)
        await reader.latest(topic, 0)
        fetching = asyncio.ensure_future(reader.fetch(topic, 0, 0, max_wait_ms=2000))
        await turns()
        closing = asyncio.ensure_future(reader.close())
        await turns()
        with pytest.raises(ClientClosed, match="this consumer is closed"):
            await reader.latest(topic, 0)
        assert not fetching.done()
        await fetching
        await closing

    asyncio.run(run())
