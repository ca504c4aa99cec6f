"""Legacy consumers on a real ZooKeeper: each partition has the owner that all members compute, after every membership
change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kazoo.client import KazooClient
from zookeeper_tree import ZooKeeper

from ottla.app.pool import ThreadPool
from ottla.client.legacy.assignment import ConsumerThread, assign
from ottla.client.legacy.group_session import Done, Participation
from ottla.client.legacy.membership import Membership, OwnedStream
from ottla.client.legacy.offsets import offset_places
from ottla.client.zookeeper.zookeeper_session import KazooSession
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.znodes.consumers import ConsumerRegistration
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, encode_topic

WITHIN_S = 60
TIMEOUT_MS = 30_000
"""Nothing here waits for a session to time out."""
PARTITIONS = 7


class Consumer:
    """Has an offset in each of its partitions, and reads nothing."""

    def __init__(self, server: str, name: str, pool: ThreadPool) -> None:
        loop = asyncio.get_running_loop()
        session = KazooSession(server, TIMEOUT_MS, post=loop.call_soon_threadsafe, pool=pool)
        self.name = name
        self.member = ""
        self.reading: dict[TopicPartition, int] = {}
        self.part = Participation(session, self, self._member, loop, loop.time, TIMEOUT_MS)
        self.part.start()

    def _member(self, session: int) -> Membership:
        self.member = f"group_{self.name}-{session}"
        return Membership("group", self.member, registration(), session, offset_places({}), 200)

    def before_start(
        self, consumer: str, assignment: Mapping[TopicPartition, ConsumerThread], done: Callable[[], None]
    ) -> None:
        done()

    def before_stop(self, partitions: tuple[TopicPartition, ...], done: Callable[[], None]) -> None:
        done()

    def start(self, partitions: Mapping[TopicPartition, OwnedStream]) -> None:
        self.reading |= {key: owned.offset or 0 for key, owned in partitions.items()}

    def stop(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        return {key: self.reading.pop(key) for key in partitions}

    def lost(self) -> None:
        self.reading.clear()

    def fetch_offsets(self, partitions: tuple[TopicPartition, ...], done: Done) -> None:
        raise AssertionError("offsets are in ZooKeeper")

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], done: Done) -> None:
        raise AssertionError("offsets are in ZooKeeper")

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        errors: list[KafkaError | None] = []
        self.part.commit(offsets, errors.append)
        await until(lambda: errors)
        assert errors == [None]

    async def leave(self) -> None:
        left: list[bool] = []
        self.part.leave(lambda: left.append(True))
        await until(lambda: left)


def registration() -> ConsumerRegistration:
    return ConsumerRegistration({"t.*": 2}, "white_list", 1)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


async def settled(consumers: Iterable[Consumer], server: KazooClient) -> None:
    """Wait until all members read their partitions and ZooKeeper agrees."""
    consumers = list(consumers)
    await until(lambda: all(each.member for each in consumers))
    group = {each.member: registration() for each in consumers}
    assigned = assign(group, {"t": range(PARTITIONS)})

    def reached() -> bool:
        read = {(key, each.member) for each in consumers for key in each.reading if each.part.may_read}
        return read == {(key, thread.consumer) for key, thread in assigned.items()}

    await until(reached)
    for (topic, number), thread in assigned.items():
        data, stat = server.get(f"/consumers/group/owners/{topic}/{number}")
        assert data.decode() == thread.name
        assert stat.ephemeralOwner == int(thread.consumer.rpartition("-")[2])


async def come_and_go(server: str) -> None:
    pool, shell = ThreadPool(asyncio.get_running_loop()), KazooClient(server)
    consumers: dict[str, Consumer] = {}
    try:
        await asyncio.to_thread(shell.start, WITHIN_S)
        topic = TopicAssignment(b"t" * 16, {number: Assignment((1,)) for number in range(PARTITIONS)})
        shell.create("/brokers/ids/1", b"", makepath=True)
        shell.create("/brokers/topics/t", encode_topic(topic), makepath=True)
        for name in "abc":
            consumers[name] = Consumer(server, name, pool)
        await settled(consumers.values(), shell)
        owner = next(each for each in consumers.values() if ("t", 0) in each.reading)
        owner.reading["t", 0] = 42
        await owner.commit({("t", 0): 42})
        assert shell.get("/consumers/group/offsets/t/0")[0] == b"42"
        del consumers[owner.name]
        await owner.leave()
        await settled(consumers.values(), shell)
        assert [each.reading["t", 0] for each in consumers.values() if ("t", 0) in each.reading] == [42]
        consumers["d"] = Consumer(server, "d", pool)
        await settled(consumers.values(), shell)
        for each in consumers.values():
            await each.leave()
        await until(lambda: not shell.get_children("/consumers/group/ids"))
    finally:
        shell.stop()
        shell.close()
        pool.close()


def test_members_share_partitions_after_each_change(zookeeper_classpath: str) -> None:
    with ZooKeeper(zookeeper_classpath) as server:
        asyncio.run(come_and_go(server.address))
