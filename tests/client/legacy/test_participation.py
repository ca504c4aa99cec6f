"""Consumers on sessions that disconnect, expire and reconnect: each partition has one reader at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from simulation.loop import Process, SimLoop
from simulation.rng import SimRng
from simulation.zookeeper_session import Ensemble, SimSession

from ottla.client.legacy.assignment import ConsumerThread, assign
from ottla.client.legacy.group_session import Done, Participation
from ottla.client.legacy.membership import Membership, OwnedStream
from ottla.client.legacy.offsets import OffsetPlaces, OffsetStorage
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.consumers import ConsumerRegistration
from ottla.protocol.znodes.operations import Create
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, encode_topic

GROUP = "group"
TIMEOUT_MS = 6000
BACKOFF_MS = 2000
READ_S = 0.1
PLACES = OffsetPlaces(OffsetStorage.KAFKA, OffsetStorage.ZOOKEEPER)


class World:
    """A ZooKeeper with one broker and a topic of six partitions, and Kafka's offsets."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop()
        self.rng = SimRng(seed)
        self.ensemble = Ensemble(self.loop)
        server = self.ensemble.server
        data = encode_topic(TopicAssignment(b"t" * 16, {number: Assignment((1,)) for number in range(6)}))
        znodes = {"/brokers": b"", paths.BROKER_IDS: b"", paths.BROKER_TOPICS: b"", paths.broker(1): b""}
        session = server.connect(1 << 60)
        server.multi(session, [Create(path, each) for path, each in (znodes | {paths.topic("t"): data}).items()])
        self.in_kafka: dict[TopicPartition, int] = {}
        self.read_to: dict[TopicPartition, int] = {}
        self.readers: list[Reader] = []

    def join(self, name: str) -> Reader:
        reader = Reader(self, name)
        self.readers.append(reader)
        return reader

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)

    def owners(self) -> dict[TopicPartition, str]:
        """The reader of each partition; asserts that no partition has two."""
        owners: dict[TopicPartition, str] = {}
        for reader in self.readers:
            for key in reader.reading if reader.process.alive and reader.part.may_read else ():
                assert key not in owners, f"{key} is read by {owners[key]} and {reader.name}"
                owners[key] = reader.name
        return owners


class Reader:
    """A process that reads one record of each of its partitions at a time, and commits now and then."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.loop, world.rng.fork(name))
        self.session = SimSession(world.ensemble, self.process, world.rng.fork(name + "s"), TIMEOUT_MS)
        self.reading: dict[TopicPartition, int] = {}
        self.registration = ConsumerRegistration({"t": 2}, "static", 1)
        self.errors: list[KafkaError] = []
        self.member = ""
        self.left = False
        self.stops = 0
        self.part = Participation(self.session, self, self._member, self.process, world.loop.time, TIMEOUT_MS)
        self.process.call_soon(self.part.start)
        self.process.call_later(READ_S, self._read)

    def _member(self, session: int) -> Membership:
        self.member = f"{self.name}-{session}"
        return Membership(GROUP, self.member, self.registration, session, PLACES, BACKOFF_MS)

    def _read(self) -> None:
        if self.part.may_read:
            self.world.owners()
            for key in self.reading:
                assert self.reading[key] <= self.world.read_to.get(key, 0), f"a record of {key} was left out"
                self.reading[key] += 1
                self.world.read_to[key] = max(self.reading[key], self.world.read_to.get(key, 0))
            if self.world.rng.chance(0.2) and self.reading:
                self.part.commit(dict(self.reading), self._committed)
        self.process.call_later(READ_S, self._read)

    def _committed(self, error: KafkaError | None) -> None:
        if error is not None:
            self.errors.append(error)

    def before_start(
        self, consumer: str, assignment: Mapping[TopicPartition, ConsumerThread], done: Callable[[], None]
    ) -> None:
        assert consumer == self.member
        assert assignment.keys() == {("t", number) for number in range(6)}
        self._complete(done)

    def before_stop(self, partitions: tuple[TopicPartition, ...], done: Callable[[], None]) -> None:
        """It may commit its progress."""
        assert self.reading.keys() >= set(partitions)
        self.stops += 1
        self.part.commit({key: self.reading[key] for key in partitions}, self._committed)
        self._complete(done)

    def _complete(self, done: Callable[[], None]) -> None:
        """At once or later, commits between."""
        if self.world.rng.chance(0.5):
            done()
        else:
            self.process.call_later(self.world.rng.uniform(0.0, 1.0), done)

    def start(self, partitions: Mapping[TopicPartition, OwnedStream]) -> None:
        self.reading |= {key: owned.offset or 0 for key, owned in partitions.items()}

    def stop(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        return {key: self.reading.pop(key) for key in partitions}

    def lost(self) -> None:
        self.reading.clear()

    def fetch_offsets(self, partitions: tuple[TopicPartition, ...], done: Done) -> None:
        found = {key: at for key, at in self.world.in_kafka.items() if key in partitions}
        self.process.call_later(0.01, done, found, None)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], done: Done) -> None:
        self.world.in_kafka.update(offsets)
        self.process.call_later(0.01, done, None, None)

    def leave(self) -> None:
        def gone() -> None:
            self.left = True

        self.part.leave(gone)


def test_two_share_a_topic_and_one_takes_it_over() -> None:
    world = World(0)
    first, second = world.join("a"), world.join("b")
    world.run(15)
    assert (len(first.reading), len(second.reading)) == (4, 2)  # two streams each
    first.leave()
    world.run(15)
    assert first.left
    assert not first.reading
    assert len(second.reading) == 6
    assert not first.errors
    assert not second.errors
    assert not [path for path in world.ensemble.server.tree() if "/ids/a-" in path]


def test_a_session_that_ends_takes_its_commits_along() -> None:
    world = World(0)
    reader = world.join("a")
    world.run(10)
    member = reader.member
    errors: list[KafkaError | None] = []
    reader.process.pause()
    world.run(2 * TIMEOUT_MS / 1000)
    assert not reader.part.may_read
    reader.process.call_soon(reader.part.commit, dict.fromkeys(reader.reading, 999), errors.append)
    reader.process.resume()
    world.run(1)
    assert [error and error.code for error in errors] == [ErrorCode.ILLEGAL_GENERATION]
    assert max(world.in_kafka.values()) < 999
    world.run(15)
    assert reader.member != member
    assert len(reader.reading) == 6


def test_an_answer_to_the_session_before_is_nobodys() -> None:
    world = World(0)
    reader = world.join("a")
    asked: list[Done] = []
    reader.fetch_offsets = lambda partitions, done: asked.append(done)  # type: ignore[method-assign]
    world.run(5)
    reader.process.pause()
    world.run(2 * TIMEOUT_MS / 1000)
    reader.process.resume()
    world.run(5)
    first, second = asked
    first({("t", 0): 77}, None)
    world.run(1)
    assert not reader.reading
    second({("t", 0): 0}, None)
    world.run(1)
    assert len(reader.reading) == 6
    assert reader.reading["t", 0] < 77


@pytest.mark.parametrize("seed", range(3))
def test_each_partition_has_exactly_one_reader(seed: int) -> None:
    world = World(seed)
    for round_ in range(2):
        for _ in range(25):
            live = [each for each in world.readers if each.process.alive]
            if len(live) < 4 and world.rng.chance(0.3):
                world.join(f"r{len(world.readers)}")
            elif live:
                reader = world.rng.choice(live)
                what = world.rng.choice(["cut", "cut", "pause", "resume", "resume", "kill", "leave"])
                if what == "cut":
                    reader.session.cut()
                elif what == "leave":
                    reader.process.call_soon(reader.leave)
                else:
                    getattr(reader.process, what)()
            world.run(world.rng.uniform(0.0, 3.0))
            world.owners()
        for reader in world.readers:
            if reader.process.alive:
                reader.process.resume()
        world.join(f"last{round_}")
        world.run(60)
        live = [each for each in world.readers if each.process.alive and not each.left]
        expected = assign({each.member: each.registration for each in live}, {"t": range(6)})
        names = {each.member: each.name for each in live}
        assert world.owners() == {key: names[thread.consumer] for key, thread in expected.items()}
