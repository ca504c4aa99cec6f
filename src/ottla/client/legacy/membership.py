"""A consumer that shares a group by ZooKeeper alone, as a machine that asks: Kafka 0.9's rebalancing, step by step.

`Membership.run` and `commit` are generators. They yield requests, of ZooKeeper, of the broker or of whoever reads, and
go on with the answers; whoever drives them makes one request after the other. A round registers the consumer, reads
who is there and which partitions there are with a watch on each, gives up what others are to read, claims what it is to
read itself, and begins where the group is.

Invariants: a partition is read only while its owner znode is this session's. What is given up was stopped, then
committed, then released; what is claimed is looked up only then, so the next owner begins where the last one ended. A
claim or release whose answer was lost counts as possibly made until ZooKeeper was asked. Nothing is ever removed that
another session made: each change checks the consumer's registration, whose name no other session has, so that one that
comes late, by the session after, changes nothing.

Differs from 0.9: what stays with the consumer is not released, single claims that meet another owner don't undo the
others, it never stops trying, and a new session has a new name. Left out: sessions. A machine is for one; when that is
over so is it, and whoever drives it stops reading without commits. He must stop by his own clock, too: the server
counts from when it heard of the session last, and tells nobody who can't be reached.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.legacy.assignment import ConsumerThread, assign, topics_of
from ottla.client.legacy.offsets import OffsetPlaces, OffsetStorage
from ottla.client.wire.model import Position
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
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
    """Thrown into a machine whose request may have been carried out or not; the session goes on."""


class Read(NamedTuple):
    """Asks for a `Znode`, None where there is none. `watch`: its next change is to be told by `notify`."""

    path: str
    watch: bool = False


class Children(NamedTuple):
    """Asks for the names below a znode, None where there is none; who comes or goes is to be told by `notify`."""

    path: str


class Change(NamedTuple):
    """Asks for a multi(); the answer is ZooKeeper's name of what is against it, "" where it was done."""

    operations: tuple[Operation, ...]


class FetchOffsets(NamedTuple):
    """Asks for what the group has committed in Kafka: a mapping, without the partitions that have nothing."""

    partitions: tuple[Position, ...]


class CommitOffsets(NamedTuple):
    """Asks for a commit in Kafka. A refusal is thrown as KafkaError."""

    offsets: Mapping[Position, int]


class Owned(NamedTuple):
    """Which stream reads a partition, and from where; None where the group has no offset (`auto.offset.reset`)."""

    thread: ConsumerThread
    offset: int | None


class Start(NamedTuple):
    """These partitions are to be read from now on, beside the others."""

    partitions: Mapping[Position, Owned]


class Stop(NamedTuple):
    """These are not read any more once it is answered: with where to go on in those of which something was read."""

    partitions: tuple[Position, ...]


class Wait(NamedTuple):
    """Nothing to do until `notify` or `leave` is called, or so many milliseconds are over. Commits fit in here."""

    limit_ms: int | None


Request = Read | Children | Change | FetchOffsets | CommitOffsets | Start | Stop | Wait
Steps = Generator[Request, Any, None]


class Membership:
    """See the module. `session` is the owner of the znodes that it makes."""

    def __init__(
        self,
        group: str,
        consumer: str,
        registration: ConsumerRegistration,
        session: int,
        places: OffsetPlaces,
        backoff_ms: int,
    ) -> None:
        """`consumer` is a name that no other session had. `backoff_ms` (`rebalance.backoff.ms`) is how long it waits
        for owners who have not given up yet.

        Raises KafkaError for a group or topic that ZooKeeper can't hold, and for an expression that is none.
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
        self._held: dict[Position, ConsumerThread] = {}
        """Partitions whose owner znode may be this session's."""
        self._claimed: set[Position] = set()
        """Those of them whose owner znode is."""
        self._reading: set[Position] = set()
        """Those of them that are read."""
        self._committed: dict[Position, dict[OffsetStorage, int]] = {}
        self._changed = self._leaving = self._doubtful = False
        self.assignment: Mapping[Position, ConsumerThread] = {}
        """Who of the whole group reads what, by the last round."""
        self.problem: KafkaError | ProtocolError | None = None
        """What kept the last round from its end, or an offset from its second place; the next round tries again."""

    def notify(self) -> None:
        """A watch has told something."""
        self._changed = True

    def leave(self) -> None:
        """Give up everything; `run` ends then."""
        self._leaving = self._changed = True

    @property
    def woken(self) -> bool:
        """Whether `run` has something to do, however long it was to wait."""
        return self._changed

    def run(self) -> Steps:
        """Take part until `leave`."""
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
                yield Wait(self._backoff_ms)
            elif not self._changed:
                yield Wait(None if settled else self._backoff_ms)

    @property
    def consumer(self) -> str:
        """Its name in the group."""
        return self._consumer

    def commit(self, offsets: Mapping[Position, int]) -> Steps:
        """Write where the group goes on; only while `run` waits, or for the answer to a Stop or Start.

        The first place decides. Raises AnswerLost, and KafkaError: ILLEGAL_GENERATION for a partition that is not
        read here, INVALID_REQUEST for going back while both places are written, and what Kafka says.
        """
        for topic, partition in offsets.keys() - self._reading:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"partition {topic}-{partition} is not read here")
        for key, offset in offsets.items():
            self._places.check_commit(offset, self._committed[key])
        yield from self._write(offsets)

    # A round

    def _round(self) -> Generator[Request, Any, bool]:
        """Whether everything is as it should be; else it has to be tried again without being told."""
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
            yield Start(starts)
        return self._claimed == wanted.keys()

    def _look(self) -> Generator[Request, Any, dict[Position, ConsumerThread] | None]:
        """What this consumer is to read, as of now; None while that can't be said."""
        if self._doubtful:
            # A server that is asked after another may be behind; one that has written is not behind its own write.
            yield from self._change((SetData(self._path, encode_consumer(self._registration)),))
            self._doubtful = False
        consumers = yield from self._look_for_consumers()
        if consumers is None:
            return None
        brokers = yield Children(paths.BROKER_IDS)
        names = yield Children(paths.BROKER_TOPICS)
        if brokers is None or names is None:
            return None
        if not brokers:  # nothing can be read, so nothing is moved
            return dict(self._held)
        known = frozenset(names)
        topics: dict[str, Iterable[int]] = {}
        for name in topics_of(self._registration, names):
            path = paths.topic(name)
            node = (yield Read(path, watch=True)) if name in known else None
            if node is not None:
                topics[name] = decode_topic(path, node.data).partitions
        self.assignment = assign(consumers, topics)
        return {key: thread for key, thread in self.assignment.items() if thread.consumer == self._consumer}

    def _look_for_consumers(self) -> Generator[Request, Any, dict[str, ConsumerRegistration] | None]:
        """Who is in the group; None while this consumer is not."""
        names = yield Children(self._ids)
        if names is None or self._consumer not in names:
            yield from self._register()
            names = yield Children(self._ids)
        consumers: dict[str, ConsumerRegistration] = {}
        for name in names or ():
            path = f"{self._ids}/{name}"
            node = yield Read(path)
            if node is not None:
                consumers[name] = decode_consumer(path, node.data)
        return consumers if self._consumer in consumers else None

    def _register(self) -> Generator[Request, Any, None]:
        create = (Create(self._path, encode_consumer(self._registration), ephemeral=True),)
        if (yield from self._change(create)) == NO_NODE:
            for parent in paths.parents(self._path):
                yield from self._change((Create(parent, b""),))
            yield from self._change(create)

    def _claim(self, key: Position, thread: ConsumerThread) -> Generator[Request, Any, None]:
        path = paths.consumer_owner(self._group, *key)
        self._held[key] = thread
        if (yield from self._make(path, encode_owner(thread.name), ephemeral=True)) == NODE_EXISTS:
            node = yield Read(path)
            if node is None or node.owner != self._session:  # it is, where the answer to an earlier claim was lost
                del self._held[key]
                return
        self._claimed.add(key)

    def _release(self, keys: list[Position]) -> Generator[Request, Any, None]:
        stopped = tuple(key for key in keys if key in self._reading)
        if stopped:
            offsets = yield Stop(stopped)  # until that is answered they may be committed
            self._reading.difference_update(stopped)
            try:
                yield from self._write(
                    {
                        key: each
                        for key, each in offsets.items()
                        if not self._places.goes_back(each, self._committed[key])
                    }
                )
            except KafkaError as error:  # what was read since the last commit is read again
                self.problem = error
        for key in keys:
            self._claimed.discard(key)
            # Asked each time: after a removal whose answer was lost the znode may be another consumer's.
            yield from self._remove(paths.consumer_owner(self._group, *key))
            del self._held[key]
            self._committed.pop(key, None)

    def _go(self) -> Generator[Request, Any, None]:
        yield from self._release(list(self._held))
        yield from self._remove(self._path)

    # Offsets

    def _starts(self, keys: list[Position]) -> Generator[Request, Any, dict[Position, Owned]]:
        in_kafka: Mapping[Position, int] = {}
        if OffsetStorage.KAFKA in self._places:
            in_kafka = yield FetchOffsets(tuple(keys))
        starts: dict[Position, Owned] = {}
        for key in keys:
            found = {OffsetStorage.KAFKA: in_kafka[key]} if key in in_kafka else {}
            if OffsetStorage.ZOOKEEPER in self._places:
                path = paths.consumer_offset(self._group, *key)
                node = yield Read(path)
                if node is not None:
                    found[OffsetStorage.ZOOKEEPER] = decode_offset(path, node.data)
            self._committed[key] = found
            starts[key] = Owned(self._held[key], self._places.resumed_at(found))
        return starts

    def _write(self, offsets: Mapping[Position, int]) -> Generator[Request, Any, None]:
        yield from self._write_to(self._places.first, offsets)
        if self._places.second is not None:
            try:
                yield from self._write_to(self._places.second, offsets)
            except KafkaError as error:
                self.problem = error

    def _write_to(self, place: OffsetStorage, offsets: Mapping[Position, int]) -> Generator[Request, Any, None]:
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
        """Make a znode, and what is missing above it."""
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
        """Remove a znode if it is this session's; between question and removal nobody else could take it."""
        node = yield Read(path)
        if node is not None and node.owner == self._session:
            refused = yield from self._change((self._guard, Delete(path)))
            if refused:
                raise self._unknown()

    def _unknown(self) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"The registration {self._path} is not there any more.")

    def _change(self, operations: tuple[Operation, ...]) -> Generator[Request, Any, str]:
        refused: str = yield Change(operations)
        if refused not in ("", NO_NODE, NODE_EXISTS):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refuses {operations[-1].path}: {refused}")
        return refused
