"""Group members, each a stock client in a thread of this process, that report to a `History`.

All of them read from the earliest offset without a commit, commit their own reads, and stop by leaving.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from group_history import Description, History

from ottla.client.librdkafka.rdkafka import leave_group

JOIN_S = 120.0
WATCH_S = 0.1
COMMIT_EVERY = 40
REFUSED = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "CommitFailedError",
        "RebalanceInProgressError",
        "IllegalGenerationError",
        "UnknownMemberIdError",
    }
)
"""Answers after which nothing was committed for sure."""


class Member(threading.Thread):
    """One client. `start`, then `stop`; what went wrong in the thread is raised by `stop`."""

    def __init__(
        self, name: str, servers: str, group: str, topic: str, history: History, settings: Mapping[str, Any]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.servers = servers
        self.group = group
        self.topic = topic
        self.history = history
        self.settings = dict(settings)
        self.owned: set[int] = set()
        self.pending: dict[int, int] = {}
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            self.consume()
        except BaseException as error:
            self.failure = error
        finally:
            self.release(self.owned)
            self.history.ended(self.name)

    def consume(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Leave the group and end."""
        self.stopping.set()
        self.join(JOIN_S)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed: {self.failure!r}") from self.failure

    def take(self, partitions: Iterator[int] | list[int] | set[int]) -> None:
        taken = list(partitions)
        self.owned.update(taken)
        self.history.assigned(self.name, taken)

    def release(self, partitions: Iterator[int] | list[int] | set[int]) -> None:
        released = list(partitions)
        self.owned.difference_update(released)
        for partition in released:
            self.pending.pop(partition, None)
        self.history.revoked(self.name, released)

    def record(self, partition: int, offset: int) -> None:
        """A record came; it is dropped when its partition was given up in the meantime."""
        if partition in self.owned:
            self.history.read(self.name, partition, offset, offset + 1)
            self.pending[partition] = offset + 1

    @contextmanager
    def committing(self) -> Iterator[dict[int, int]]:
        """Around the commit of the yielded offsets: reports its outcome to the history."""
        offsets, sent_at = dict(self.pending), time.time_ns()
        try:
            yield offsets
        except Exception as error:
            if _name(error) not in REFUSED:
                for partition, offset in offsets.items():
                    self.history.committed(partition, offset, sent_at, known=False)
        else:
            for partition, offset in offsets.items():
                self.history.committed(partition, offset, sent_at)
                if self.pending.get(partition) == offset:
                    del self.pending[partition]


def _name(error: Exception) -> str:
    """The protocol's or the library's name of the error."""
    inner = error.args[0] if error.args else None
    name = getattr(inner, "name", None)
    return str(name()) if callable(name) else type(error).__name__


class ConfluentMember(Member):
    """librdkafka; `settings` are its own."""

    def consume(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "client.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **self.settings,
            }
        )

        def commit() -> None:
            with self.committing() as offsets:
                if offsets:
                    consumer.commit(
                        offsets=[TopicPartition(self.topic, *entry) for entry in offsets.items()], asynchronous=False
                    )

        def assigned(_: Any, partitions: list[TopicPartition]) -> None:
            self.take([each.partition for each in partitions])

        def revoked(_: Any, partitions: list[TopicPartition]) -> None:
            commit()
            self.release([each.partition for each in partitions])

        def lost(_: Any, partitions: list[TopicPartition]) -> None:
            self.release([each.partition for each in partitions])

        consumer.subscribe([self.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        try:
            self._poll(consumer, commit)
        finally:
            leave_group(consumer, instance_id=self.settings.get("group.instance.id"))

    def _poll(self, consumer: Any, commit: Callable[[], None]) -> None:
        uncommitted = 0
        while not self.stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.record(message.partition(), message.offset())
                uncommitted += 1
            elif message is not None and message.error().fatal():
                raise RuntimeError(message.error())
            if uncommitted >= COMMIT_EVERY or (message is None and uncommitted):
                commit()
                uncommitted = 0


class KafkaPythonMember(Member):
    """kafka-python."""

    def consume(self) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.errors import KafkaConnectionError
        from kafka.structs import OffsetAndMetadata

        member = self
        lock = threading.RLock()  # held while a poll's records are worked on, so that none is after its revocation

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: Any) -> None:
                with lock:
                    member.take([each.partition for each in assigned])

            def on_partitions_revoked(self, revoked: Any) -> None:
                with lock:
                    member.release([each.partition for each in revoked])

            def on_partitions_lost(self, lost: Any) -> None:
                with lock:
                    member.release([each.partition for each in lost])

        settings = {"partition_assignment_strategy": [RangePartitionAssignor], **self.settings}
        consumer = KafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=self.group,
            client_id=self.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            metadata_max_age_ms=1000,
            reconnect_backoff_max_ms=500,
            **settings,
        )
        try:
            consumer.subscribe([self.topic], listener=Listener())
            while not self.stopping.is_set():
                try:
                    polled = consumer.poll(timeout_ms=100, max_records=COMMIT_EVERY)
                except KafkaConnectionError:  # by a poll whose time ends while a killed broker restarts
                    continue
                with lock:
                    for position, records in polled.items():
                        for record in records:
                            self.record(position.partition, record.offset)
                    with self.committing() as offsets:
                        if offsets:
                            consumer.commit(
                                {
                                    TopicPartition(self.topic, partition): OffsetAndMetadata(offset, "", -1)
                                    for partition, offset in offsets.items()
                                }
                            )
            self.release(self.owned)
        finally:
            consumer.close()


class AioKafkaMember(Member):
    """aiokafka on a loop of its own; its coordinator rebalances beside the reading."""

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        member = self
        lock = asyncio.Lock()

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.take([each.partition for each in assigned])

            async def on_partitions_revoked(self, revoked: Any) -> None:
                async with lock:
                    member.release([each.partition for each in revoked])

        settings = {"partition_assignment_strategy": [RangePartitionAssignor], **self.settings}
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=self.group,
            client_id=self.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            metadata_max_age_ms=1000,
            **settings,
        )
        consumer.subscribe([self.topic], listener=Listener())
        await consumer.start()
        try:
            while not self.stopping.is_set():
                polled = await consumer.getmany(timeout_ms=50, max_records=COMMIT_EVERY)  # waits out a rebalance
                async with lock:
                    for position, records in polled.items():
                        for record in records:
                            self.record(position.partition, record.offset)
                    with self.committing() as offsets:
                        if offsets:
                            await consumer.commit(
                                {TopicPartition(self.topic, partition): offset for partition, offset in offsets.items()}
                            )
            self.release(self.owned)
        finally:
            await consumer.stop()


class GroupWatch(threading.Thread):
    """Periodically requests members and assignments from the coordinator, for the history; `with` runs it.

    The members' client ids are their names.
    """

    def __init__(self, servers: str, group: str, history: History) -> None:
        super().__init__(name="group watch", daemon=True)
        self.servers = servers
        self.group = group
        self.history = history
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def __enter__(self) -> GroupWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join(JOIN_S)
        assert not self.is_alive()
        assert self.failure is None, self.failure

    def run(self) -> None:
        from confluent_kafka.admin import AdminClient

        try:
            client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            while not self.stopping.wait(WATCH_S):
                self._look(client)
        except BaseException as error:
            self.failure = error

    def _look(self, client: Any) -> None:
        from confluent_kafka import ConsumerGroupState, KafkaException

        at = time.time_ns()
        try:
            group = client.describe_consumer_groups([self.group])[self.group].result(JOIN_S)
        except KafkaException:
            return  # there is no such group yet, or its coordinator is not there
        members = {
            each.client_id: frozenset(owned.partition for owned in each.assignment.topic_partitions)
            for each in group.members
        }
        self.history.described(Description(at, members, group.state is ConsumerGroupState.STABLE))


class Feeder(threading.Thread):
    """Produces small records to every partition at a steady rate until it is stopped."""

    def __init__(self, servers: str, topic: str, partitions: int, rate: float = 300.0) -> None:
        super().__init__(name="feeder", daemon=True)
        self.servers = servers
        self.topic = topic
        self.partitions = partitions
        self.rate = rate
        self.ends = dict.fromkeys(range(partitions), 0)
        self.errors: list[Any] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        number = 0
        while not self.stopping.wait(1 / self.rate):
            producer.produce(
                self.topic, b"%d" % number, partition=number % self.partitions, on_delivery=self._delivered
            )
            producer.poll(0)
            number += 1
        if producer.flush(JOIN_S):
            self.errors.append("records are still queued")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.ends[message.partition()] = max(self.ends[message.partition()], message.offset() + 1)

    def finish(self) -> dict[int, int]:
        """Stop, and the end offset of every partition."""
        self.stopping.set()
        self.join(JOIN_S)
        assert not self.errors, self.errors[:3]
        return dict(self.ends)


def produce_evenly(
    servers: str, topic: str, partitions: int, count: int, already: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Put `count` records into a topic, which is created unless it holds records `already`; returns the log ends."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    if already is None:
        client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        client.create_topics([NewTopic(topic, partitions, 1)], request_timeout=20)[topic].result(30)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0
    base = already or {}
    return {each: base.get(each, 0) + len(range(each, count, partitions)) for each in range(partitions)}


def committed(servers: str, group: str, topic: str) -> dict[int, int]:
    """By an admin client, once the coordinator has loaded; partitions without a commit are left out."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + JOIN_S
    while True:
        future = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        try:
            found = future.result(20).topic_partitions
        except KafkaException as error:
            if error.args[0].name() != "COORDINATOR_LOAD_IN_PROGRESS" or time.monotonic() > deadline:
                raise
            continue
        return {each.partition: each.offset for each in found if each.topic == topic and each.offset >= 0}
