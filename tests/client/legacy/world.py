"""Legacy consumers on a simulated ZooKeeper: request by request, with sessions that expire, cut and killed consumers.

A consumer is driven as a real one would be: it reads only while its session is valid by its own clock, and otherwise
creates a new session. After every step the world checks the invariants: a partition has at most one reader, a reader
has its owner znode, and no reader starts after an unread record.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping

from simulation.zookeeper import SimZooKeeper

from ottla.client.legacy.assignment import assign
from ottla.client.legacy.membership import (
    AnswerLost,
    Change,
    Children,
    CommitOffsets,
    FetchOffsets,
    Membership,
    ReadRequest,
    Request,
    StartReading,
    Steps,
    Stop,
    WaitForChange,
)
from ottla.client.legacy.offsets import OffsetPlaces, OffsetStorage
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.consumers import ConsumerRegistration
from ottla.protocol.znodes.operations import Create, Delete, Operation, SetData, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, encode_topic

from .zero_nine import ZeroNine

GROUP = "group"
TIMEOUT_MS = 6000
BACKOFF_MS = 2000
ZOOKEEPER_ALONE = OffsetPlaces(OffsetStorage.ZOOKEEPER)


class Cluster:
    """ZooKeeper with brokers and topics, Kafka's offsets, and how far each partition was ever read."""

    def __init__(self) -> None:
        self.server = SimZooKeeper()
        self.now_ms = 0
        self.session = self.server.connect(1 << 60)
        for path in (paths.BROKER_IDS, paths.BROKER_TOPICS):
            for each in (*paths.parents(path), path):
                if self.server.exists(self.session, each) is None:
                    self.write(Create(each, b""))
        self.write(Create(paths.broker(1), b""))
        self.in_kafka: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.read_to: dict[TopicPartition, int] = {}

    def write(self, operation: Operation) -> None:
        self.server.multi(self.session, [operation])

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.server.advance(self.now_ms)

    def set_topic(self, name: str, count: int) -> None:
        data = encode_topic(TopicAssignment(b"t" * 16, {number: Assignment((1,)) for number in range(count)}))
        made = self.server.exists(self.session, paths.topic(name)) is None
        self.write(Create(paths.topic(name), data) if made else SetData(paths.topic(name), data))
        for number in range(count):
            self.ends.setdefault((name, number), 5)

    def delete_topic(self, name: str) -> None:
        self.write(Delete(paths.topic(name)))

    def topics(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, number in self.ends:
            if self.server.exists(self.session, paths.topic(topic)) is not None:
                found.setdefault(topic, []).append(number)
        return found


class Consumer:
    """One consumer and its session; `cut` is without a network to ZooKeeper, which its own clock finds out."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        registration: ConsumerRegistration,
        places: OffsetPlaces = ZOOKEEPER_ALONE,
        *,
        of_kafka: bool = False,
    ) -> None:
        """`of_kafka`: it is Kafka 0.9's own, which asks again where an answer was lost."""
        self.cluster = cluster
        self.host = name
        self.registration = registration
        self.places = places
        self.of_kafka = of_kafka
        self.cut = self.left = False
        self.lives_count = 0
        self.late: tuple[Operation, ...] = ()
        """A change with a lost response that is executed in the next session."""
        self.reading: dict[TopicPartition, int] = {}
        self.requests: list[Request] = []
        self._connect()

    # The session

    def _connect(self) -> None:
        self.session = self.cluster.server.connect(TIMEOUT_MS)
        self.heard_ms = self.cluster.now_ms
        self.lives_count += 1
        self.name = f"{self.host}-{self.lives_count}"
        if self.late:
            with contextlib.suppress(ZooKeeperError):
                self.cluster.server.multi(self.session, self.late)
            self.late = ()
        self.machine: Membership | ZeroNine
        if self.of_kafka:
            self.machine = ZeroNine(GROUP, self.name, self.registration, BACKOFF_MS)
        else:
            self.machine = Membership(GROUP, self.name, self.registration, self.session, self.places, BACKOFF_MS)
        self.running = self.machine.run()
        self.committing: Steps | None = None
        self.request: Request = next(self.running)
        self.waiting_until_ms: int | None = None

    @property
    def lives(self) -> bool:
        """Whether the server still has the session, as far as the consumer can be sure."""
        return self.cluster.now_ms < self.heard_ms + TIMEOUT_MS

    @property
    def rests(self) -> bool:
        """Whether it waits for as long as nothing happens."""
        return self.request == WaitForChange(None) and not self.machine.woken

    def expired(self) -> None:
        """Drop owned partitions and pending requests."""
        self.reading.clear()
        if not self.cut:
            self._connect()

    # Steps

    def step(self, lost: str = "") -> None:
        """Make one request; `lost` is "before" or "after" for an answer that is lost, with or without effect."""
        if self.left:
            return
        if not self.lives:
            self.expired()
            return
        if self.of_kafka and (lost or self.cut):
            return
        if not self.cut:
            for _ in self._reported():
                self.machine.notify()
        if isinstance(self.request, WaitForChange) and self.committing is None:
            self._idle(self.request)
            return
        self.requests.append(self.request)
        try:
            answer = self._answer(self.request, lost)
        except ZooKeeperError:  # its session is over: all else is an answer
            self.expired()
        except (AnswerLost, KafkaError) as error:
            self._advance(error)
        else:
            self._advance(answer)

    def _reported(self) -> list[object]:
        events = self.cluster.server.events(self.session)
        return [each for each in events if each.path]

    def _idle(self, wait: WaitForChange) -> None:
        if not self.cut:
            try:
                self.cluster.server.ping(self.session)
            except ZooKeeperError:
                self.expired()
                return
            self.heard_ms = self.cluster.now_ms
        if self.waiting_until_ms is None:
            self.waiting_until_ms = self.cluster.now_ms + (1 << 60 if wait.limit_ms is None else wait.limit_ms)
        if self.machine.woken or self.cluster.now_ms >= self.waiting_until_ms:
            self.waiting_until_ms = None
            self._advance(None)

    def _advance(self, answer: object) -> None:
        steps = self.committing or self.running
        try:
            self.request = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
        except StopIteration:
            self._ended()
        except (AnswerLost, KafkaError):
            assert self.committing is not None
            self._ended()

    def _ended(self) -> None:
        if self.committing is not None:
            self.committing, self.request = None, self.wait
            return
        self.left = True
        self.cluster.server.close(self.session)

    def commit(self) -> None:
        """Begin to commit all that was read, while there is nothing else to do."""
        if isinstance(self.request, WaitForChange) and self.committing is None and not self.left and self.lives:
            self.wait = self.request
            self.committing = self.machine.commit(dict(self.reading))
            self._advance(None)

    def read(self, key: TopicPartition) -> None:
        """Read one record."""
        if self.lives and key in self.reading and self.reading[key] < self.cluster.ends[key]:
            assert self.reading[key] <= self.cluster.read_to.get(key, 0), f"{key}: a record was left out"
            self.reading[key] += 1
            self.cluster.read_to[key] = max(self.cluster.read_to.get(key, 0), self.reading[key])

    # Answers

    def _answer(self, request: Request, lost: str) -> object:
        if isinstance(request, StartReading):
            for key, owned in request.partitions.items():
                self.reading[key] = owned.offset or 0
            return None
        if isinstance(request, Stop):
            return {key: self.reading.pop(key) for key in request.partitions}
        if isinstance(request, FetchOffsets | CommitOffsets):
            if lost:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return self._kafka(request)
        if self.cut or lost == "before":
            self.late = request.operations if isinstance(request, Change) else ()
            raise AnswerLost
        answer = self._zookeeper(request)
        if lost == "after":
            raise AnswerLost
        self.heard_ms = self.cluster.now_ms
        return answer

    def _kafka(self, request: FetchOffsets | CommitOffsets) -> Mapping[TopicPartition, int]:
        if isinstance(request, CommitOffsets):
            self.cluster.in_kafka.update(request.offsets)
        return self.cluster.in_kafka

    def _zookeeper(self, request: Request) -> object:
        server, session = self.cluster.server, self.session
        try:
            if isinstance(request, ReadRequest):
                data, stat = server.get(session, request.path, watch=request.watch)
                return Znode(data, stat.version, stat.czxid, stat.ephemeral_owner)
            if isinstance(request, Children):
                return server.children(session, request.path, watch=True)
            assert isinstance(request, Change)
            server.multi(session, request.operations)
        except ZooKeeperError as error:
            if error.code is Code.SESSION_EXPIRED:
                raise
            return error.code.value if isinstance(request, Change) else None
        return ""


class World:
    """Consumers that come, go, are cut off and killed, in an order that a seed gives."""

    def __init__(self, seed: int, places: OffsetPlaces, *, with_kafka: bool = False) -> None:
        """`with_kafka`: some of them are Kafka 0.9's."""
        self.with_kafka = with_kafka
        self.rng = random.Random(seed)
        self.cluster = Cluster()
        self.places = places
        self.consumers: list[Consumer] = []
        self.paused: set[str] = set()
        self.names = 0
        self.topic_counts = {"t": 3, "u": 2}
        for name, count in self.topic_counts.items():
            self.cluster.set_topic(name, count)

    def churn(self, steps: int) -> None:
        """Run steps of random consumers, with occasional events."""
        for _ in range(steps):
            if self.rng.random() < 0.015:
                self._happen()
            self._step(self.rng.choices(["", "before", "after"], [40, 1, 1])[0])

    def settle(self, steps: int = 1500) -> None:
        """Nothing happens any more: all that are there come to rest; Kafka's, which may have given up, by a change."""
        self.paused.clear()
        for consumer in self.consumers:
            consumer.cut = False
        for step in range(steps):
            if self.with_kafka and step == steps // 2:
                self._broker()
            self.cluster.advance(20)
            self._step("")

    def _step(self, lost: str) -> None:
        self.cluster.advance(self.rng.choices([0, 1, 20, 300], [8, 8, 4, 1])[0])
        self.consumers = [each for each in self.consumers if not each.left]
        turns = [each for each in self.consumers if each.host not in self.paused]
        if not turns:
            return
        consumer = self.rng.choice(turns)
        consumer.step(lost)
        if consumer.reading and self.rng.random() < 0.5:
            consumer.read(self.rng.choice(list(consumer.reading)))
        if self.rng.random() < 0.1:
            consumer.commit()
        self.check()

    def _happen(self) -> None:
        kinds = [self._join, self._join, self._leave, self._kill, self._cut, self._repair, self._pause, self._resume]
        self.rng.choice([*kinds, self._produce, self._produce, self._grow, self._broker])()

    def _join(self) -> None:
        if len(self.consumers) >= 4:
            return
        self.names += 1
        registration = self.rng.choice(
            [
                ConsumerRegistration({"t": 2, "later": 1}, "static", 1),
                ConsumerRegistration({"t": 1, "u": 2}, "static", 1),
                ConsumerRegistration({".*": 2}, "white_list", 1),
            ]
        )
        of_kafka = self.with_kafka and self.names % 2 == 0
        name = f"group_host-{self.names}"
        self.consumers.append(Consumer(self.cluster, name, registration, self.places, of_kafka=of_kafka))

    def _some(self) -> Consumer | None:
        return self.rng.choice(self.consumers) if self.consumers else None

    def _leave(self) -> None:
        if (consumer := self._some()) is not None:
            consumer.machine.leave()

    def _kill(self) -> None:
        if (consumer := self._some()) is not None:
            self.consumers.remove(consumer)

    def _cut(self) -> None:
        if (consumer := self._some()) is not None:
            consumer.cut = True

    def _repair(self) -> None:
        if (consumer := self._some()) is not None:
            consumer.cut = False

    def _pause(self) -> None:
        if (consumer := self._some()) is not None:
            self.paused.add(consumer.host)

    def _resume(self) -> None:
        self.paused.clear()

    def _produce(self) -> None:
        self.cluster.ends[self.rng.choice(list(self.cluster.ends))] += 3

    def _grow(self) -> None:
        name = self.rng.choice(["t", "u", "later"])
        count = self.topic_counts[name] = self.topic_counts.get(name, 0) + 1
        if count <= 5:
            self.cluster.set_topic(name, count)

    def _broker(self) -> None:
        gone = self.cluster.server.exists(self.cluster.session, paths.broker(2)) is None
        self.cluster.write(Create(paths.broker(2), b"") if gone else Delete(paths.broker(2)))

    # Invariants

    def check(self) -> None:
        """Always: at most one reader per partition, and its owner znode belongs to its session."""
        owners: dict[TopicPartition, Consumer] = {}
        for consumer in self.consumers:
            if not consumer.lives or consumer.left:
                continue
            for key in consumer.reading:
                assert key not in owners, f"{key} is read by {owners[key].name} and {consumer.name}"
                owners[key] = consumer
                stat = self.cluster.server.exists(self.cluster.session, paths.consumer_owner(GROUP, *key))
                assert stat is not None, f"{key} is read without an owner"
                assert stat.ephemeral_owner == consumer.session, f"{key} is read by {consumer.name}, and not its own"

    def check_quiet(self) -> None:
        """When idle: each partition has its assigned reader, and all records were read."""
        live = [each for each in self.consumers if not each.left]
        topics = self.cluster.topics()
        assigned = assign({each.name: each.registration for each in live}, topics)
        read = {key: each.name for each in live for key in each.reading}
        assert read == {key: thread.consumer for key, thread in assigned.items()}
        for key in assigned:
            assert self.cluster.read_to[key] == self.cluster.ends[key]
