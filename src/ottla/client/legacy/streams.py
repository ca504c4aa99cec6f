"""Records of the partitions that a legacy consumer owns, on their way to its streams, and how far each one came.

One thread fetches (`fetcher`), one says what is owned (`Participation`), and any number iterate; all meet here, under
one lock. Invariants: of a partition that was stopped or lost nothing more is given out, and nothing at all while the
session may be over. A record is done with when its stream comes back for the next one, so what is committed is never
beyond a record whose handling did not end. A stream that holds `max_chunks` answers of fetches gets no more until it
has given one out.

Left out: who asks for records, and where offsets are kept.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from ottla.client.librdkafka.consumer import ConsumedRecord, K, V
from ottla.client.wire.model import Position
from ottla.common.errors import KafkaError

LOOK_AGAIN_S = 0.05
"""Between two questions whether records may be given out again: nobody tells that."""


class OwnedPartition:
    """A partition that is read for a stream. All offsets are those of next records; None where none is known yet."""

    __slots__ = ("active", "done", "failed", "fetched", "given", "key", "stream")

    def __init__(self, key: Position, stream: Stream[Any, Any], offset: int | None) -> None:
        self.key = key
        self.stream = stream
        self.active = True
        self.failed = False
        """Its stream is to raise an error first."""
        self.fetched = self.given = self.done = offset


class Chunk(NamedTuple):
    """What a fetch gave of one partition; `next_offset` lies behind it."""

    owned: OwnedPartition
    records: Sequence[ConsumedRecord]
    next_offset: int | None
    error: KafkaError | None = None


class Stream(Generic[K, V]):
    """An iterator over records, for one thread; it waits for more, for `consumer.timeout.ms` at most.

    It ends when the consumer is closed, and after that time without a record; then it may be iterated again. Raises
    KafkaError for what can't be read; going on tries again, but leaves out a record that can't be decoded.
    """

    __slots__ = ("_decode", "_shelf", "arrived", "chunks", "in_hand", "index", "timeout_s")

    def __init__(
        self,
        shelf: ChunkQueue,
        arrived: threading.Condition,
        decode: Callable[[ConsumedRecord], ConsumedRecord[K, V]],
        timeout_s: float | None,
    ) -> None:
        self._shelf = shelf
        self._decode = decode
        self.timeout_s = timeout_s
        """`consumer.timeout.ms`; None waits for ever."""
        # All else is the shelf's.
        self.arrived = arrived
        self.chunks: deque[Chunk] = deque()
        self.index = 0
        """Of the next record of the first chunk."""
        self.in_hand: OwnedPartition | None = None
        """The partition of the record that was given out last."""

    def __iter__(self) -> Stream[K, V]:
        return self

    def __next__(self) -> ConsumedRecord[K, V]:
        record = self.take(self.timeout_s)
        if record is None:
            raise StopIteration
        return record

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more."""
        return self._shelf.ended

    def take(self, timeout_s: float | None) -> ConsumedRecord[K, V] | None:
        """The next record; None at the end, and where none came in time. The one before is done with."""
        record = self._shelf.take(self, timeout_s)
        return None if record is None else self._decode(record)

    def wait(self, timeout_s: float) -> None:
        """Until there may be something to take, or the end comes, or the time is over; any thread may wait."""
        self._shelf.wait(self, timeout_s)


class ChunkQueue:
    """See the module."""

    def __init__(self, may_read: Callable[[], bool], max_chunks: int) -> None:
        """`may_read` says whether what is owned is still this consumer's, from any thread."""
        self._may_read = may_read
        self._max_chunks = max_chunks
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        """Told when there is something to fetch, and at the end."""
        self._streams: list[Stream[Any, Any]] = []
        self._owned: dict[Position, OwnedPartition] = {}
        self._ended = False
        self._failure: BaseException | None = None

    def stream(self, decode: Callable[[ConsumedRecord], ConsumedRecord[K, V]], timeout_s: float | None) -> Stream[K, V]:
        """One more stream; `timeout_s` None waits for ever."""
        made = Stream(self, threading.Condition(self._lock), decode, timeout_s)
        self._streams.append(made)
        return made

    # What is owned

    def start(self, partitions: Mapping[Position, tuple[Stream[Any, Any], int | None]]) -> None:
        """Read these, for a stream each, from an offset or from where `auto.offset.reset` says."""
        with self._lock:
            for key, (stream, offset) in partitions.items():
                self._owned[key] = OwnedPartition(key, stream, offset)
            self._room.notify_all()

    def hold(self, partitions: Sequence[Position]) -> None:
        """Give out nothing more of these, which are about to be stopped; what was given out may be committed yet."""
        with self._lock:
            self._forget([self._owned[key] for key in partitions])

    def stop(self, partitions: Sequence[Position]) -> dict[Position, int]:
        """Give out nothing more of these; where to go on in each."""
        with self._lock:
            gone = [self._owned.pop(key) for key in partitions]
            self._forget(gone)
            return {owned.key: owned.done for owned in gone if owned.done is not None}

    def lose(self) -> None:
        """Give out nothing more of any."""
        with self._lock:
            gone = list(self._owned.values())
            self._owned.clear()
            self._forget(gone)

    def _forget(self, gone: Sequence[OwnedPartition]) -> None:
        for owned in gone:
            owned.active = False
        for stream in self._streams:
            if stream.chunks and not stream.chunks[0].owned.active:
                stream.index = 0
            stream.chunks = deque(chunk for chunk in stream.chunks if chunk.owned.active)
        self._room.notify_all()

    def positions(self, *, given: bool) -> dict[Position, int]:
        """Where to go on in all that is read; `given`: what was given out counts as done from now on."""
        with self._lock:
            if given:
                for owned in self._owned.values():
                    owned.done = owned.given
            return {key: owned.done for key, owned in self._owned.items() if owned.done is not None}

    # For the fetcher

    def wanted(self) -> list[OwnedPartition] | None:
        """What there is room for, once there is; None at the end."""
        with self._lock:
            while not self._ended:
                found = [
                    owned
                    for owned in self._owned.values()
                    if owned.active and not owned.failed and len(owned.stream.chunks) < self._max_chunks
                ]
                if found:
                    return found
                self._room.wait()
            return None

    def put(
        self,
        owned: OwnedPartition,
        records: Sequence[ConsumedRecord],
        next_offset: int | None,
        error: KafkaError | None = None,
    ) -> None:
        """What a fetch gave, and where the next one begins; `error` comes behind the records."""
        with self._lock:
            if not owned.active:
                return
            owned.fetched = next_offset
            owned.failed = error is not None
            stream = owned.stream
            if not records and error is None and all(chunk.owned is not owned for chunk in stream.chunks):
                owned.given = owned.done = next_offset  # nothing to wait for
                return
            stream.chunks.append(Chunk(owned, records, next_offset, error))
            stream.arrived.notify()
            self._owned[owned.key] = self._owned.pop(owned.key)  # the next fetch begins with those that had nothing

    def fail(self, failure: BaseException) -> None:
        """Nothing is fetched any more: every stream raises this."""
        with self._lock:
            self._failure = failure
            self._wake()

    def rest(self, pause_s: float) -> None:
        """Wait, unless the end comes."""
        with self._lock:
            self._room.wait_for(lambda: self._ended, pause_s)

    # For the streams

    def end(self) -> None:
        """Give out nothing more; all iterations end."""
        with self._lock:
            self._ended = True
            self._wake()

    def _wake(self) -> None:
        self._room.notify_all()
        for stream in self._streams:
            stream.arrived.notify()

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    def take(self, stream: Stream[Any, Any], timeout_s: float | None) -> ConsumedRecord | None:
        """The next record; None at the end, and where none came in time."""
        with self._lock:
            if stream.in_hand is not None:
                stream.in_hand.done = stream.in_hand.given
                stream.in_hand = None
            until = None if timeout_s is None else time.monotonic() + timeout_s
            while self._await(stream, until):
                record = self._next(stream)
                if record is not None:
                    return record
            return None

    def wait(self, stream: Stream[Any, Any], timeout_s: float) -> None:
        """Until there may be something to take, or the end comes; changes nothing."""
        with self._lock:
            self._await(stream, time.monotonic() + timeout_s)

    def _await(self, stream: Stream[Any, Any], until: float | None) -> bool:
        """Whether there is a chunk that may be given out; False at the end, and where none came in time."""
        while not self._ended:
            if self._failure is not None:
                raise self._failure
            if stream.chunks and self._may_read():
                return True
            pause_s = None if until is None else until - time.monotonic()
            if pause_s is not None and pause_s <= 0:
                return False
            if stream.chunks:
                pause_s = LOOK_AGAIN_S if pause_s is None else min(LOOK_AGAIN_S, pause_s)
            stream.arrived.wait(pause_s)
        return False

    def _next(self, stream: Stream[Any, Any]) -> ConsumedRecord | None:
        """The next record of the first chunk, or None and the chunk is gone."""
        chunk = stream.chunks[0]
        owned = chunk.owned
        if stream.index < len(chunk.records):
            record = chunk.records[stream.index]
            stream.index += 1
            stream.in_hand = owned
            owned.given = record.offset + 1
            return record
        stream.chunks.popleft()
        stream.index = 0
        owned.given = owned.done = chunk.next_offset
        self._room.notify_all()
        if chunk.error is not None:
            owned.failed = False
            raise chunk.error
        return None
