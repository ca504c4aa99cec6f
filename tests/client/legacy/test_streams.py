"""Records between fetcher and streams: ownership is checked before return, and progress follows processing."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from ottla.client.legacy.streams import ChunkQueue, OwnedPartition, Stream
from ottla.client.librdkafka.consumer import ConsumedRecord
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

A, B = ("a", 0), ("b", 0)


def as_it_is(record: ConsumedRecord) -> ConsumedRecord:
    return record


class World:
    """A shelf with one stream that never waits."""

    def __init__(self, *keys: TopicPartition, max_chunks: int = 9) -> None:
        self.may_read = True
        self.shelf = ChunkQueue(lambda: self.may_read, max_chunks)
        self.stream: Stream = self.shelf.stream(as_it_is, 0)
        self.shelf.start(dict.fromkeys(keys, (self.stream, 0)))

    def owned(self, key: TopicPartition) -> OwnedPartition:
        (found,) = [each for each in self.shelf.wanted() or () if each.key == key]
        return found

    def put(self, key: TopicPartition, offsets: Sequence[int]) -> None:
        self.shelf.put(self.owned(key), records(key, offsets), offsets[-1] + 1)

    def taken(self) -> list[tuple[TopicPartition, int]]:
        return [((record.topic, record.partition), record.offset) for record in self.stream]


def records(key: TopicPartition, offsets: Sequence[int]) -> list[ConsumedRecord]:
    return [ConsumedRecord(*key, offset, None, None, None, b"", ()) for offset in offsets]


def test_a_record_is_done_with_when_its_stream_comes_back() -> None:
    world = World(A)
    world.put(A, [0, 1])
    next(world.stream)
    assert world.shelf.positions(given=False) == {A: 0}
    next(world.stream)
    assert world.shelf.positions(given=False) == {A: 1}
    assert world.shelf.positions(given=True) == {A: 2}
    assert world.shelf.stop([A]) == {A: 2}


def test_held_partitions_return_no_records_but_may_commit() -> None:
    world = World(A, B)
    world.put(A, [0, 1])
    world.put(B, [0, 1])
    next(world.stream)
    held = world.owned(A)
    world.shelf.hold([A])
    assert [each.key for each in world.shelf.wanted() or ()] == [B]
    world.shelf.put(held, records(A, [2]), 3)
    assert world.taken() == [(B, 0), (B, 1)]
    assert world.shelf.positions(given=True) == {A: 1, B: 2}
    assert world.shelf.stop([A]) == {A: 1}


def test_waiting_changes_nothing() -> None:
    world = World(A)
    world.put(A, [0])
    next(world.stream)
    world.stream.wait(0)
    assert world.shelf.positions(given=False) == {A: 0}
    assert world.taken() == []
    assert world.shelf.positions(given=False) == {A: 1}


def test_where_a_fetch_ended_is_done_with_its_last_record() -> None:
    world = World(A)
    world.shelf.put(world.owned(A), records(A, [0]), 5)
    next(world.stream)
    assert world.shelf.positions(given=True) == {A: 1}
    assert world.taken() == []
    assert world.shelf.positions(given=False) == {A: 5}


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_stopped_partitions_return_no_records(taken: int) -> None:
    world = World(A, B)
    world.put(A, [0, 1])
    world.put(B, [0, 1])
    late = world.owned(A) if taken == 2 else None
    for _ in range(taken):
        next(world.stream)
    assert world.shelf.stop([A]) == {A: max(0, taken - 1)}
    if late is not None:
        world.shelf.put(late, records(A, [2]), 3)
    assert world.taken() == [(B, 0), (B, 1)]
    assert world.shelf.positions(given=False) == {B: 2}


def test_late_fetch_of_previous_ownership_is_dropped() -> None:
    world = World(A)
    late = world.owned(A)
    world.shelf.lose()
    world.shelf.start({A: (world.stream, 7)})
    world.shelf.put(late, records(A, [0]), 1)
    world.put(A, [7])
    assert world.taken() == [(A, 7)]


def test_nothing_is_given_out_while_it_may_be_anothers() -> None:
    world = World(A)
    world.put(A, [0, 1])
    next(world.stream)
    world.may_read = False
    assert world.taken() == []
    world.may_read = True
    assert world.taken() == [(A, 1)]


def test_full_stream_gets_no_chunks_until_one_is_returned() -> None:
    world = World(A, B, max_chunks=1)
    world.put(A, [0])
    asked = threading.Event()

    def ask() -> None:
        world.shelf.wanted()
        asked.set()

    waiting = threading.Thread(target=ask, daemon=True)
    waiting.start()
    next(world.stream)
    assert not asked.is_set()
    assert world.taken() == []
    waiting.join(60)
    assert asked.is_set()


def test_error_follows_readable_records_and_is_retried() -> None:
    world = World(A)
    bad = KafkaError(ErrorCode.CORRUPT_MESSAGE, "it is broken")
    world.shelf.put(world.owned(A), records(A, [0]), 1, bad)
    next(world.stream)
    with pytest.raises(KafkaError, match="it is broken"):
        next(world.stream)
    assert world.owned(A).fetched == 1
    assert world.shelf.positions(given=False) == {A: 1}


def test_waiting_stream_wakes_on_end_and_failure() -> None:
    shelf = ChunkQueue(lambda: True, 1)
    streams: list[Stream] = [shelf.stream(as_it_is, None), shelf.stream(as_it_is, None)]
    found: list[object] = []

    def read(stream: Stream) -> None:
        try:
            found.append(list(stream))
        except ZeroDivisionError as error:
            found.append(error)

    threads = [threading.Thread(target=read, args=(each,), daemon=True) for each in streams]
    defect = ZeroDivisionError()
    threads[0].start()
    shelf.fail(defect)
    threads[0].join(60)
    shelf.end()
    threads[1].start()
    threads[1].join(60)
    assert found == [defect, []]
    assert shelf.wanted() is None
