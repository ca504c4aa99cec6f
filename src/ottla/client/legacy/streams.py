"""Record queue between the fetcher of a legacy consumer and its streams, with the progress of each partition.

One thread fetches (`fetcher`), one sets the owned partitions (`Participation`), and any number iterate; all state is
protected by one lock. Invariants: no records of a stopped or lost partition are returned, and none at all while the
session may have expired. A record is processed when its stream requests the next one, so a commit never includes a
record that is still being processed. A stream with `max_chunks` queued fetch results gets no more until it has returned
one of them.

Left out: fetching and offset storage.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from ottla.client.librdkafka.consumer import ConsumedRecord, K, V
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

CHECK_INTERVAL_S = 0.05
"""Interval for checks of whether records may be returned again, which are not notified."""


class OwnedPartition:
    """A partition of a stream. All offsets are next offsets; None if unknown."""

    __slots__ = ("active", "done", "failed", "fetched", "given", "key", "stream")

    def __init__(self, key: TopicPartition, stream: Stream[Any, Any], offset: int | None) -> None:
        self.key = key
        self.stream = stream
        self.active = True
        self.failed = False
        """The stream must raise an error first."""
        self.fetched = self.given = self.done = offset


class Chunk(NamedTuple):
    """The fetch result of one partition; `next_offset` is the offset after it."""

    owned: OwnedPartition
    records: Sequence[ConsumedRecord]
    next_offset: int | None
    error: KafkaError | None = None


class Stream(Generic[K, V]):
    """An iterator over records, for one thread; it waits for more, at most `consumer.timeout.ms`.

    It ends when the consumer is closed, and after the timeout without a record; then it may be iterated again. Raises
    KafkaError for failures; another iteration retries, but skips a record that cannot be decoded.
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
        """`consumer.timeout.ms`; None waits forever."""
        # The queue owns all other fields.
        self.arrived = arrived
        self.chunks: deque[Chunk] = deque()
        self.index = 0
        """Index of the next record in the first chunk."""
        self.in_hand: OwnedPartition | None = None
        """Partition of the record that was returned last."""

    def __iter__(self) -> Stream[K, V]:
        return self

    def __next__(self) -> ConsumedRecord[K, V]:
        record = self.take(self.timeout_s)
        if record is None:
            raise StopIteration
        return record

    @property
    def ended(self) -> bool:
        """True after the end of the stream."""
        return self._shelf.ended

    def take(self, timeout_s: float | None) -> ConsumedRecord[K, V] | None:
        """The next record; None at the end and on timeout. The previous record counts as processed."""
        record = self._shelf.take(self, timeout_s)
        return None if record is None else self._decode(record)

    def wait(self, timeout_s: float) -> None:
        """Wait until a record may be available, for the end, or until the timeout; from any thread."""
        self._shelf.wait(self, timeout_s)


class ChunkQueue:
    """See the module."""

    def __init__(self, may_read: Callable[[], bool], max_chunks: int) -> None:
        """`may_read` returns whether the partitions still belong to this consumer, from any thread."""
        self._may_read = may_read
        self._max_chunks = max_chunks
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        """Notified when there is something to fetch, and at the end."""
        self._streams: list[Stream[Any, Any]] = []
        self._owned: dict[TopicPartition, OwnedPartition] = {}
        self._ended = False
        self._failure: BaseException | None = None

    def stream(self, decode: Callable[[ConsumedRecord], ConsumedRecord[K, V]], timeout_s: float | None) -> Stream[K, V]:
        """Add a stream; `timeout_s` None waits forever."""
        made = Stream(self, threading.Condition(self._lock), decode, timeout_s)
        self._streams.append(made)
        return made

    # Owned partitions

    def start(self, partitions: Mapping[TopicPartition, tuple[Stream[Any, Any], int | None]]) -> None:
        """Read these partitions, each for a stream, from an offset or from `auto.offset.reset`."""
        with self._lock:
            for key, (stream, offset) in partitions.items():
                self._owned[key] = OwnedPartition(key, stream, offset)
            self._room.notify_all()

    def hold(self, partitions: Sequence[TopicPartition]) -> None:
        """Return no more records of these partitions before they stop; returned records may be committed."""
        with self._lock:
            self._forget([self._owned[key] for key in partitions])

    def stop(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return no more records of these partitions; returns their next offsets."""
        with self._lock:
            gone = [self._owned.pop(key) for key in partitions]
            self._forget(gone)
            return {owned.key: owned.done for owned in gone if owned.done is not None}

    def lose(self) -> None:
        """Return no more records of any partition."""
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

    def positions(self, *, given: bool) -> dict[TopicPartition, int]:
        """Next offsets of all partitions; with `given`, returned records count as processed from now on."""
        with self._lock:
            if given:
                for owned in self._owned.values():
                    owned.done = owned.given
            return {key: owned.done for key, owned in self._owned.items() if owned.done is not None}

    # For the fetcher

    def wanted(self) -> list[OwnedPartition] | None:
        """Partitions with room for records; waits for one; None at the end."""
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
        """Add a fetch result and the next fetch offset; `error` is raised after the records."""
        with self._lock:
            if not owned.active:
                return
            owned.fetched = next_offset
            owned.failed = error is not None
            stream = owned.stream
            if not records and error is None and all(chunk.owned is not owned for chunk in stream.chunks):
                owned.given = owned.done = next_offset  # no record to process
                return
            stream.chunks.append(Chunk(owned, records, next_offset, error))
            stream.arrived.notify()
            self._owned[owned.key] = self._owned.pop(owned.key)  # the next fetch starts with partitions without records

    def fail(self, failure: BaseException) -> None:
        """Stop fetching: every stream raises this."""
        with self._lock:
            self._failure = failure
            self._wake()

    def rest(self, pause_s: float) -> None:
        """Pause, unless the end comes."""
        with self._lock:
            self._room.wait_for(lambda: self._ended, pause_s)

    # For the streams

    def end(self) -> None:
        """Return no more records; all iterations end."""
        with self._lock:
            self._ended = True
            self._wake()

    def _wake(self) -> None:
        self._room.notify_all()
        for stream in self._streams:
            stream.arrived.notify()

    @property
    def ended(self) -> bool:
        """True after `end`."""
        return self._ended

    def take(self, stream: Stream[Any, Any], timeout_s: float | None) -> ConsumedRecord | None:
        """The next record; None at the end and on timeout."""
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
        """Wait for a record or the end; changes nothing."""
        with self._lock:
            self._await(stream, time.monotonic() + timeout_s)

    def _await(self, stream: Stream[Any, Any], until: float | None) -> bool:
        """Wait for a chunk that may be returned. Returns False at the end and on timeout."""
        while not self._ended:
            if self._failure is not None:
                raise self._failure
            if stream.chunks and self._may_read():
                return True
            pause_s = None if until is None else until - time.monotonic()
            if pause_s is not None and pause_s <= 0:
                return False
            if stream.chunks:
                pause_s = CHECK_INTERVAL_S if pause_s is None else min(CHECK_INTERVAL_S, pause_s)
            stream.arrived.wait(pause_s)
        return False

    def _next(self, stream: Stream[Any, Any]) -> ConsumedRecord | None:
        """The next record of the first chunk; None if the chunk is empty, which removes it."""
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
