"""Kafka 0.9's own consumer as the same kind of state machine, to share groups with ours: its actions in their order.

At each change it stops, commits and releases all that it has, computes the assignment, looks up offsets, and claims one
partition after the other; a claim that meets another owner takes the others back. It tries four times, and then has
nothing until the next change.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from ottla.client.legacy.assignment import ConsumerThread, assign
from ottla.client.legacy.membership import (
    Change,
    Children,
    OwnedStream,
    ReadRequest,
    Request,
    StartReading,
    Steps,
    Stop,
    WaitForChange,
)
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.consumers import ConsumerRegistration, decode_consumer, encode_consumer
from ottla.protocol.znodes.operations import Create, Delete, Operation, SetData
from ottla.protocol.znodes.topics import decode_topic

MAX_RETRIES = 4
"""`rebalance.max.retries`."""


class ZeroNine:
    """See the module; the face is that of `Membership`."""

    def __init__(self, group: str, consumer: str, registration: ConsumerRegistration, backoff_ms: int) -> None:
        self.group = group
        self.consumer = consumer
        self.registration = registration
        self.backoff_ms = backoff_ms
        self.ids = paths.consumer_ids(group)
        self.owned: dict[TopicPartition, ConsumerThread] = {}
        self.woken = self.leaving = False

    def notify(self) -> None:
        self.woken = True

    def leave(self) -> None:
        self.woken = self.leaving = True

    def run(self) -> Steps:
        path = f"{self.ids}/{self.consumer}"
        yield from self._make(path, encode_consumer(self.registration), ephemeral=True)
        while not self.leaving:
            self.woken = False
            for _ in range(MAX_RETRIES):
                if (yield from self._rebalance()):
                    break
                yield WaitForChange(self.backoff_ms)
            if not self.woken:
                yield WaitForChange(None)
        yield from self._release()
        yield Change((Delete(path),))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Steps:
        for key, offset in offsets.items():
            yield from self._write(key, offset)

    def _rebalance(self) -> Generator[Request, Any, bool]:
        consumers: dict[str, ConsumerRegistration] = {}
        for name in (yield Children(self.ids)):
            node = yield ReadRequest(f"{self.ids}/{name}")
            if node is None:
                return False
            consumers[name] = decode_consumer(name, node.data)
        yield Children(paths.BROKER_IDS)
        topics: dict[str, list[int]] = {}
        for name in (yield Children(paths.BROKER_TOPICS)):
            node = yield ReadRequest(paths.topic(name), watch=True)
            if node is not None:
                topics[name] = list(decode_topic(name, node.data).partitions)
        yield from self._release()
        assigned = assign(consumers, topics)
        mine = {key: thread for key, thread in assigned.items() if thread.consumer == self.consumer}
        starts: dict[TopicPartition, OwnedStream] = {}
        for key, thread in mine.items():
            node = yield ReadRequest(paths.consumer_offset(self.group, *key))
            starts[key] = OwnedStream(thread, None if node is None else int(node.data))
        met = False
        for key, thread in mine.items():
            path = paths.consumer_owner(self.group, *key)
            if (yield from self._make(path, thread.name.encode(), ephemeral=True)):
                met = True
            else:
                self.owned[key] = thread
        if met:
            yield from self._disown()
            return False
        if starts:
            yield StartReading(starts)
        return True

    def _release(self) -> Generator[Request, Any, None]:
        if self.owned:
            for key, offset in (yield Stop(tuple(self.owned))).items():
                yield from self._write(key, offset)
            yield from self._disown()

    def _disown(self) -> Generator[Request, Any, None]:
        for key in list(self.owned):
            yield Change((Delete(paths.consumer_owner(self.group, *key)),))
            del self.owned[key]

    def _write(self, key: TopicPartition, offset: int) -> Generator[Request, Any, None]:
        path, data = paths.consumer_offset(self.group, *key), str(offset).encode()
        if (yield Change((SetData(path, data),))):
            yield from self._make(path, data)

    def _make(self, path: str, data: bytes, *, ephemeral: bool = False) -> Generator[Request, Any, str]:
        create: tuple[Operation, ...] = (Create(path, data, ephemeral),)
        refused: str = yield Change(create)
        if refused == "NoNode":
            for parent in paths.parents(path):
                yield Change((Create(parent, b""),))
            refused = yield Change(create)
        return refused
