"""State machine of a consumer in a ZooKeeper-based group: Kafka 0.9's rebalance protocol, step by step.

`Membership.run` and `commit` are generators. They yield requests to ZooKeeper, the broker or the reader, and continue
with the responses; the driver executes one request after the other. A round registers the consumer, reads the group
members and partitions with a watch on each, releases partitions that others are to read, claims its own, and starts
them at the committed offsets.

Invariants: a partition is read only while its owner znode belongs to this session. A released partition is stopped,
then committed, then released. The offset of a claimed one is looked up only after the claim, so the next owner starts
where the last one ended. A claim or release with a lost response counts as possibly made until ZooKeeper is queried.
Znodes of other sessions are never removed: each change checks the consumer's registration, with a name unique to the
session, so that a delayed change that is executed in the next session has no effect.

Differs from 0.9: kept partitions are not released, single claims that meet another owner do not undo the others, the
consumer never gives up, and a new session has a new name. Left out: sessions. A membership belongs to one session;
when it ends, the driver stops reading without commits. The driver must also stop by its local clock: the server counts
from its last contact with the session, and cannot notify an unreachable client.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.legacy.assignment import ConsumerThread, assign, topics_of
from ottla.client.legacy.offsets import OffsetPlaces, OffsetStorage
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.consumers import (
    ConsumerRegistration,
    decode_consumer,
    decode_offset,
    encode_consumer,
    encode_offset,
    encode_owner,
)
from ottla.protocol.znodes.operations import ANY_VERSION, Check, Create, Delete, Operation, SetData
from ottla.protocol.znodes.topics import decode_topic

NO_NODE = "NoNode"
NODE_EXISTS = "NodeExists"


class AnswerLost(Exception):
    """Raised in a membership if a request may or may not have been executed; the session continues."""


class ReadRequest(NamedTuple):
    """Requests a `Znode`, or None if it is missing. `watch`: its next change is reported with `notify`."""

    path: str
    watch: bool = False


class Children(NamedTuple):
    """Requests the children of a znode, or None if it is missing; changes are reported with `notify`."""

    path: str


class Change(NamedTuple):
    """Requests a multi(); the response is ZooKeeper's error name, or "" for success."""

    operations: tuple[Operation, ...]


class FetchOffsets(NamedTuple):
    """Requests the offsets that the group has committed in Kafka: a mapping, without partitions that have none."""

    partitions: tuple[TopicPartition, ...]


class CommitOffsets(NamedTuple):
    """Requests a commit in Kafka. A rejection is raised as KafkaError."""

    offsets: Mapping[TopicPartition, int]


class OwnedStream(NamedTuple):
    """The stream that reads a partition, and its start; None if the group has no offset (`auto.offset.reset`)."""

    thread: ConsumerThread
    offset: int | None


class StartReading(NamedTuple):
    """Start reading these partitions, in addition to the others."""

    partitions: Mapping[TopicPartition, OwnedStream]


class Stop(NamedTuple):
    """Stop reading these partitions; the response contains the next offset of those with progress."""

    partitions: tuple[TopicPartition, ...]


class WaitForChange(NamedTuple):
    """Wait until `notify` or `leave` is called, or for so many milliseconds. Commits are possible meanwhile."""

    limit_ms: int | None


Request = ReadRequest | Children | Change | FetchOffsets | CommitOffsets | StartReading | Stop | WaitForChange
Steps = Generator[Request, Any, None]


class Membership:
    """See the module. `session` is the owner of the znodes that it creates."""

    def __init__(
        self,
        group: str,
        consumer: str,
        registration: ConsumerRegistration,
        session: int,
        places: OffsetPlaces,
        backoff_ms: int,
    ) -> None:
        """`consumer` is a name that no other session has used. `backoff_ms` (`rebalance.backoff.ms`) is the wait for
        owners that have not released their partitions yet.

        Raises KafkaError for a group or topic that is not a valid znode name, and for an invalid expression.
        """
        self._group = group
        self._consumer = consumer
        self._registration = registration
        self._session = session
        self._places = places
        self._backoff_ms = backoff_ms
        self._ids = paths.consumer_ids(group)
        self._path = paths.child(self._ids, consumer)
        self._guard = Check(self._path, ANY_VERSION)
        for topic in topics_of(registration, ()):
            paths.topic(topic)
        self._held: dict[TopicPartition, ConsumerThread] = {}
        """Partitions with an owner znode that may belong to this session."""
        self._claimed: set[TopicPartition] = set()
        """Those of them with an owner znode that does."""
        self._reading: set[TopicPartition] = set()
        """Those of them that are being read."""
        self._committed: dict[TopicPartition, dict[OffsetStorage, int]] = {}
        self._changed = self._leaving = self._doubtful = False
        self.assignment: Mapping[TopicPartition, ConsumerThread] = {}
        """Assignment of the whole group in the last round."""
        self.problem: KafkaError | ProtocolError | None = None
        """Reason why the last round is incomplete, or an offset is missing in its second storage; retried in the next.
        """

    def notify(self) -> None:
        """A watch has fired."""
        self._changed = True

    def leave(self) -> None:
        """Release everything; `run` ends then."""
        self._leaving = self._changed = True

    @property
    def woken(self) -> bool:
        """True if `run` has something to do, regardless of its wait."""
        return self._changed

    def run(self) -> Steps:
        """Be a member until `leave`."""
        while True:
            self._changed = False
            self.problem = None
            failed, settled = False, True
            try:
                if self._leaving:
                    yield from self._go()
                    return
                settled = yield from self._round()
            except AnswerLost:
                failed = self._doubtful = True
            except (KafkaError, ProtocolError) as error:
                failed, self.problem = True, error
            if failed:
                yield WaitForChange(self._backoff_ms)
            elif not self._changed:
                yield WaitForChange(None if settled else self._backoff_ms)

    @property
    def consumer(self) -> str:
        """Its consumer id in the group."""
        return self._consumer

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Steps:
        """Commit offsets; only while `run` waits, or in response to a Stop or Start.

        The first storage decides. Raises AnswerLost, and KafkaError: ILLEGAL_GENERATION for a partition that is not
        read here, INVALID_REQUEST for a smaller offset while both storages are written, and errors of Kafka.
        """
        for topic, partition in offsets.keys() - self._reading:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"partition {topic}-{partition} is not read here")
        for key, offset in offsets.items():
            self._places.check_commit(offset, self._committed[key])
        yield from self._write(offsets)

    # A round

    def _round(self) -> Generator[Request, Any, bool]:
        """Run a round. Returns True for a complete assignment; otherwise the round must be retried."""
        wanted = yield from self._look()
        if wanted is None:
            return False
        yield from self._release([key for key, thread in self._held.items() if wanted.get(key) != thread])
        for key, thread in wanted.items():
            if key not in self._claimed:
                yield from self._claim(key, thread)
        fresh = [key for key in wanted if key in self._claimed and key not in self._reading]
        if fresh:
            starts = yield from self._starts(fresh)
            self._reading.update(fresh)
            yield StartReading(starts)
        return self._claimed == wanted.keys()

    def _look(self) -> Generator[Request, Any, dict[TopicPartition, ConsumerThread] | None]:
        """The current assignment of this consumer; None while it cannot be computed."""
        if self._doubtful:
            # Another server may lag behind; a server never lags behind a write made through it.
            yield from self._change((SetData(self._path, encode_consumer(self._registration)),))
            self._doubtful = False
        consumers = yield from self._look_for_consumers()
        if consumers is None:
            return None
        brokers = yield Children(paths.BROKER_IDS)
        names = yield Children(paths.BROKER_TOPICS)
        if brokers is None or names is None:
            return None
        if not brokers:  # nothing can be read: keep the assignment
            return dict(self._held)
        known = frozenset(names)
        topics: dict[str, Iterable[int]] = {}
        for name in topics_of(self._registration, names):
            path = paths.topic(name)
            node = (yield ReadRequest(path, watch=True)) if name in known else None
            if node is not None:
                topics[name] = decode_topic(path, node.data).partitions
        self.assignment = assign(consumers, topics)
        return {key: thread for key, thread in self.assignment.items() if thread.consumer == self._consumer}

    def _look_for_consumers(self) -> Generator[Request, Any, dict[str, ConsumerRegistration] | None]:
        """The members of the group; None while this consumer is not one of them."""
        names = yield Children(self._ids)
        if names is None or self._consumer not in names:
            yield from self._register()
            names = yield Children(self._ids)
        consumers: dict[str, ConsumerRegistration] = {}
        for name in names or ():
            path = f"{self._ids}/{name}"
            node = yield ReadRequest(path)
            if node is not None:
                consumers[name] = decode_consumer(path, node.data)
        return consumers if self._consumer in consumers else None

    def _register(self) -> Generator[Request, Any, None]:
        create = (Create(self._path, encode_consumer(self._registration), ephemeral=True),)
        if (yield from self._change(create)) == NO_NODE:
            for parent in paths.parents(self._path):
                yield from self._change((Create(parent, b""),))
            yield from self._change(create)

    def _claim(self, key: TopicPartition, thread: ConsumerThread) -> Generator[Request, Any, None]:
        path = paths.consumer_owner(self._group, *key)
        self._held[key] = thread
        if (yield from self._make(path, encode_owner(thread.name), ephemeral=True)) == NODE_EXISTS:
            node = yield ReadRequest(path)
            if node is None or node.owner != self._session:  # ours, if the response to an earlier claim was lost
                del self._held[key]
                return
        self._claimed.add(key)

    def _release(self, keys: list[TopicPartition]) -> Generator[Request, Any, None]:
        stopped = tuple(key for key in keys if key in self._reading)
        if stopped:
            offsets = yield Stop(stopped)  # commits are possible until the response
            self._reading.difference_update(stopped)
            try:
                yield from self._write(
                    {
                        key: each
                        for key, each in offsets.items()
                        if not self._places.goes_back(each, self._committed[key])
                    }
                )
            except KafkaError as error:  # records since the last commit are read again
                self.problem = error
        for key in keys:
            self._claimed.discard(key)
            # Check each time: after a removal with a lost response, the znode may belong to another consumer.
            yield from self._remove(paths.consumer_owner(self._group, *key))
            del self._held[key]
            self._committed.pop(key, None)

    def _go(self) -> Generator[Request, Any, None]:
        yield from self._release(list(self._held))
        yield from self._remove(self._path)

    # Offsets

    def _starts(self, keys: list[TopicPartition]) -> Generator[Request, Any, dict[TopicPartition, OwnedStream]]:
        in_kafka: Mapping[TopicPartition, int] = {}
        if OffsetStorage.KAFKA in self._places:
            in_kafka = yield FetchOffsets(tuple(keys))
        starts: dict[TopicPartition, OwnedStream] = {}
        for key in keys:
            found = {OffsetStorage.KAFKA: in_kafka[key]} if key in in_kafka else {}
            if OffsetStorage.ZOOKEEPER in self._places:
                path = paths.consumer_offset(self._group, *key)
                node = yield ReadRequest(path)
                if node is not None:
                    found[OffsetStorage.ZOOKEEPER] = decode_offset(path, node.data)
            self._committed[key] = found
            starts[key] = OwnedStream(self._held[key], self._places.resumed_at(found))
        return starts

    def _write(self, offsets: Mapping[TopicPartition, int]) -> Generator[Request, Any, None]:
        yield from self._write_to(self._places.first, offsets)
        if self._places.second is not None:
            try:
                yield from self._write_to(self._places.second, offsets)
            except KafkaError as error:
                self.problem = error

    def _write_to(self, place: OffsetStorage, offsets: Mapping[TopicPartition, int]) -> Generator[Request, Any, None]:
        fresh = {key: offset for key, offset in offsets.items() if self._committed[key].get(place) != offset}
        if fresh and place is OffsetStorage.KAFKA:
            yield CommitOffsets(fresh)
        for key, offset in fresh.items():
            if place is OffsetStorage.ZOOKEEPER:
                path, data = paths.consumer_offset(self._group, *key), encode_offset(offset)
                if (yield from self._change((self._guard, SetData(path, data)))) == NO_NODE:
                    yield from self._make(path, data)
            self._committed[key][place] = offset

    # Znodes

    def _make(self, path: str, data: bytes, *, ephemeral: bool = False) -> Generator[Request, Any, str]:
        """Create a znode and its missing parents."""
        create = (self._guard, Create(path, data, ephemeral))
        refused: str = yield from self._change(create)
        if refused == NO_NODE:
            for parent in paths.parents(path):
                yield from self._change((self._guard, Create(parent, b"")))
            refused = yield from self._change(create)
        if refused == NO_NODE:
            raise self._unknown()
        return refused

    def _remove(self, path: str) -> Generator[Request, Any, None]:
        """Remove a znode if it belongs to this session; no other consumer can take it between check and removal."""
        node = yield ReadRequest(path)
        if node is not None and node.owner == self._session:
            refused = yield from self._change((self._guard, Delete(path)))
            if refused:
                raise self._unknown()

    def _unknown(self) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"The registration {self._path} no longer exists.")

    def _change(self, operations: tuple[Operation, ...]) -> Generator[Request, Any, str]:
        refused: str = yield Change(operations)
        if refused not in ("", NO_NODE, NODE_EXISTS):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper rejected {operations[-1].path}: {refused}")
        return refused
