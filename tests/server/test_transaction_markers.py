"""Markers reach the leaders of their partitions: in batches, one request per broker, retried until all have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Buffer
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.peer import PeerDone
from ottla.coordinator.transaction.markers import TxnMarker
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.record.control import EndMarker
from ottla.server.requests.failures import Failures
from ottla.server.transactions.marker_writer import MarkerDone
from ottla.server.transactions.transaction_markers import (
    MARKERS_PER_WRITE,
    MAX_RETRY_FACTOR,
    PARTITIONS_PER_REQUEST,
    PARTITIONS_PER_TURN,
    RETRY_S,
    TransactionMarkers,
)

from .virtual_time import VirtualTime

HERE, THERE, ELSEWHERE = 1, 2, 3
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER
A_WHILE_S = 2 * RETRY_S * MAX_RETRY_FACTOR


class Connection:
    """A connection to one broker; the test answers. Implements `PeerConnection`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.failed = False
        self.asked: list[tuple[WriteTxnMarkersRequest, PeerDone]] = []

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        assert (api_key, api_version) == (27, 2)
        message, _ = read_message(WriteTxnMarkersRequest, api_version, body, 0, len(body), 100_000)
        self.asked.append((message, done))

    def close(self) -> None:
        self.fail()

    def fail(self) -> None:
        self.failed = True
        asked, self.asked = self.asked, []
        for _, done in asked:
            done(None, ConnectionError("lost"))

    def named(self) -> list[tuple[int, list[TopicPartition]]]:
        """Producer ids and partitions of the request in flight."""
        ((request, _),) = self.asked
        return [
            (marker.producer_id, [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes])
            for marker in request.markers
        ]

    def answer(self, *, unsaid: frozenset[TopicPartition] = frozenset(), **codes: ErrorCode) -> None:
        """Answer the oldest request; `codes` by topic, as `a=...`."""
        request, done = self.asked.pop(0)
        response = WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=codes.get(topic.name, NONE)
                                )
                                for index in topic.partition_indexes
                                if (topic.name, index) not in unsaid
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )
        body = bytearray()
        write_message(response, 2, body)
        done(memoryview(body), None)


class World:
    """One broker with its channel, the leaders in its image, and other brokers behind connections."""

    def __init__(self, leaders: Mapping[TopicPartition, int]) -> None:
        self.time = VirtualTime()
        self.leaders = dict(leaders)
        self.addresses = {THERE: ("b2", 9092), ELSEWHERE: ("b3", 9092)}
        self.connections: list[Connection] = []
        self.written: list[tuple[TopicPartition, EndMarker]] = []
        self.local: list[tuple[TopicPartition, MarkerDone]] = []
        """Pending responses, if `answers_at_once` is off."""
        self.writes: list[int] = []
        """Markers of each write to a partition."""
        self.answers_at_once = True
        self.ended: list[tuple[int, ErrorCode]] = []
        self.channel = TransactionMarkers(
            HERE,
            cast(Any, self),
            self,
            image=self.image,
            address_of=self.addresses.get,
            scheduler=EndOfTickScheduler(self.time),
            failures=Failures(self.time),
        )

    def connect(self, host: str, port: int) -> Connection:
        self.connections.append(Connection((host, port)))
        return self.connections[-1]

    def write(self, topic: str, index: int, ends: Sequence[tuple[EndMarker, MarkerDone]]) -> None:
        self.writes.append(len(ends))
        for marker, done in ends:
            self.written.append(((topic, index), marker))
            if self.answers_at_once:
                done(NONE)
            else:
                self.local.append(((topic, index), done))

    def image(self) -> MetadataImage:
        topics: dict[str, dict[int, PartitionImage]] = {}
        for (name, index), leader in self.leaders.items():
            topics.setdefault(name, {})[index] = PartitionImage((1, 2, 3), (1, 2, 3), leader, 0, 0)
        return MetadataImage(
            topics={name: TopicImage(name, name.encode() * 16, partitions) for name, partitions in topics.items()}
        )

    def send(self, producer_id: int, *partitions: TopicPartition, shard: int = 0, committed: bool = True) -> None:
        marker = TxnMarker(
            f"t{producer_id}",
            producer_id,
            producer_epoch=7,
            committed=committed,
            coordinator_epoch=3,
            transaction_version=2,
            partitions=frozenset(partitions),
        )
        self.channel.send(shard, marker, lambda code: self.ended.append((producer_id, code)))

    def turn(self) -> None:
        self.time.run()

    def written_in_turns(self) -> list[int]:
        """Number of markers written between two polls of the loop, until none is left."""
        counts: list[int] = []

        def look() -> None:
            count = len(self.written) - sum(counts)
            if count:
                counts.append(count)
                self.time.call_soon(look)

        self.time.call_soon(look)
        self.time.run()
        return counts


def test_local_partitions_are_written_without_a_connection() -> None:
    world = World({A0: HERE, B0: HERE})
    world.send(5, A0, B0, committed=False)
    assert world.ended == [], "never within the call"
    world.turn()
    assert world.written == [(place, EndMarker(5, 7, 3, False, 2)) for place in (A0, B0)]
    assert (world.ended, world.connections, world.channel.pending_count) == ([(5, NONE)], [], 0)


def test_each_leader_gets_its_partitions_and_all_must_answer() -> None:
    world = World({A0: HERE, A1: THERE, B0: ELSEWHERE})
    world.send(5, A0, A1, B0)
    world.turn()
    there, elsewhere = world.connections
    assert (there.named(), elsewhere.named()) == ([(5, [A1])], [(5, [B0])])
    marker = there.asked[0][0].markers[0]
    assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result, marker.transaction_version) == (
        7,
        3,
        True,
        2,
    )
    there.answer()
    assert world.ended == []
    elsewhere.answer()
    assert world.ended == [(5, NONE)]


def test_markers_during_a_request_go_into_the_next_one() -> None:
    world = World({A0: THERE, A1: THERE})
    world.send(1, A0)
    world.send(2, A0)
    world.turn()
    (there,) = world.connections
    assert there.named() == [(1, [A0]), (2, [A0])], "markers of one turn are sent together"
    for producer_id in (3, 4):
        world.send(producer_id, A1)
        world.turn()
    assert len(there.asked) == 1
    there.answer()
    assert there.named() == [(3, [A1]), (4, [A1])]
    there.answer()
    assert world.ended == [(each, NONE) for each in (1, 2, 3, 4)]


def test_a_request_is_bounded_and_names_a_producer_once() -> None:
    places = [("big", index) for index in range(PARTITIONS_PER_REQUEST)]
    world = World({**dict.fromkeys(places, THERE), A0: THERE, A1: THERE})
    world.send(1, A0)
    world.send(1, A1)
    world.send(2, *places)
    world.send(3, A0)
    world.turn()
    (there,) = world.connections
    assert [producer_id for producer_id, _ in there.named()] == [1, 2]
    there.answer()
    assert there.named() == [(1, [A1]), (3, [A0])]


@pytest.mark.promise("T6")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        NOT_LEADER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_refused_marker_is_retried_at_the_current_leader(code: ErrorCode) -> None:
    world = World({A0: THERE, B0: THERE})
    world.send(5, A0, B0)
    world.turn()
    world.connections[0].answer(a=code)
    world.turn()
    assert world.connections[0].asked == [], "not at once"
    world.leaders[A0] = ELSEWHERE
    world.time.run(A_WHILE_S)
    assert world.connections[1].named() == [(5, [A0])], "only the partition that lacks it"
    world.connections[1].answer()
    assert world.ended == [(5, NONE)]


def test_partition_missing_in_the_response_is_not_a_success() -> None:
    world = World({A0: THERE, A1: THERE})
    world.send(5, A0, A1)
    world.turn()
    world.connections[0].answer(unsaid=frozenset({A1}))
    world.time.run(A_WHILE_S)
    assert world.connections[0].named() == [(5, [A1])]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
@pytest.mark.parametrize("leader", [HERE, THERE])
def test_newer_coordinator_or_producer_stops_the_retries(code: ErrorCode, leader: int) -> None:
    world = World({A0: leader, B0: ELSEWHERE})
    world.answers_at_once = False
    world.send(5, A0, B0)
    world.turn()
    if leader == HERE:
        world.local[0][1](code)
    else:
        world.connections[0].answer(a=code)
    assert world.ended == [(5, code)]
    world.connections[-1].answer(b=NOT_LEADER)
    world.time.run(A_WHILE_S)
    assert (world.ended, world.channel.pending_count) == ([(5, code)], 0)
    assert not any(connection.asked for connection in world.connections)


def test_unreachable_broker_is_retried_with_growing_delays() -> None:
    world = World({A0: THERE})
    world.send(5, A0)
    world.turn()
    tries = []
    while world.time.now < 10:
        world.time.run(RETRY_S / 2)
        if world.connections[-1].asked:
            tries.append(world.time.now)
            world.connections[-1].fail()
            world.send(len(tries) + 100, A0)
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert len(tries) < 20, "not one per new marker"
    assert all(later > earlier - RETRY_S for earlier, later in pairwise(pauses))
    assert pauses[-1] == pytest.approx(RETRY_S * MAX_RETRY_FACTOR, abs=RETRY_S)
    world.time.run(A_WHILE_S)
    world.connections[-1].answer()
    assert world.ended[0] == (5, NONE)
    assert len(world.ended) == len(tries) + 1


def test_markers_move_to_the_next_leader() -> None:
    world = World({A0: THERE})
    world.send(5, A0)
    world.turn()
    world.leaders[A0] = HERE
    world.connections[0].fail()
    world.time.run(A_WHILE_S)
    assert world.ended == [(5, NONE)]


def test_a_broker_without_an_address_is_waited_for() -> None:
    world = World({A0: THERE})
    address = world.addresses.pop(THERE)
    world.send(5, A0)
    world.time.run(A_WHILE_S)
    assert world.connections == []
    world.addresses[THERE] = address
    world.time.run(A_WHILE_S)
    world.connections[0].answer()
    assert world.ended == [(5, NONE)]


def test_another_address_gets_another_connection() -> None:
    world = World({A0: THERE})
    for producer_id, address in ((1, ("b2", 9092)), (2, ("b2", 9093))):
        world.addresses[THERE] = address
        world.send(producer_id, A0)
        world.turn()
        assert world.connections[-1].address == address
        world.connections[-1].answer()
    assert world.connections[0].failed


def test_a_partition_without_a_leader_is_waited_for_and_counted() -> None:
    world = World({A0: NO_LEADER, B0: HERE})
    world.send(5, A0, B0)
    world.time.run(A_WHILE_S)
    assert (world.ended, world.channel.leaderless_count) == ([], 1)
    world.leaders[A0] = HERE
    world.time.run(A_WHILE_S)
    assert (world.ended, world.channel.leaderless_count) == ([(5, NONE)], 0)


def test_partitions_that_are_deleted_count_as_written() -> None:
    world = World({A0: THERE})
    world.send(5, A0, ("gone", 0))
    world.send(6, ("gone", 0))
    world.turn()
    assert world.ended == [(6, NONE)]
    world.connections[0].answer(a=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    del world.leaders[A0]
    world.time.run(A_WHILE_S)
    assert world.ended == [(6, NONE), (5, NONE)]


def test_markers_of_a_shard_that_moves_are_forgotten() -> None:
    world = World({A0: THERE, A1: NO_LEADER, B0: HERE})
    world.answers_at_once = False
    world.send(1, A0, A1, B0, shard=4)
    world.send(2, A0, shard=5)
    world.turn()
    world.send(3, A0, shard=4)
    world.channel.cancel(4)
    world.local[0][1](NONE)
    world.connections[0].answer()
    world.time.run(A_WHILE_S)
    assert world.ended == [(2, NONE)]
    assert world.connections[0].asked == []
    assert (world.channel.pending_count, world.channel.leaderless_count) == (0, 0)


def test_no_marker_is_sent_after_close() -> None:
    world = World({A0: THERE, A1: NO_LEADER, B0: HERE})
    world.send(1, A0, A1)
    world.turn()
    world.send(2, B0)
    world.channel.close()
    world.send(3, B0)
    world.time.run(A_WHILE_S)
    assert (world.ended, world.written) == ([], [])


def test_many_partitions_of_one_transaction_take_several_turns() -> None:
    count = 3 * PARTITIONS_PER_TURN
    world = World({A0: HERE} | dict.fromkeys((("t", index) for index in range(count)), HERE))
    world.send(1, *(("t", index) for index in range(count)))
    world.send(2, A0)
    assert world.written_in_turns() == [PARTITIONS_PER_TURN + 1, PARTITIONS_PER_TURN, PARTITIONS_PER_TURN]
    assert world.ended == [(2, NONE), (1, NONE)]


def test_markers_of_a_turn_are_one_write_per_partition() -> None:
    world = World({A0: HERE, A1: HERE})
    for producer_id in range(MARKERS_PER_WRITE + 1):
        world.send(producer_id, A0)
    world.send(-1, A0, A1)
    world.turn()
    assert world.writes == [MARKERS_PER_WRITE, 2, 1]
    assert len(world.ended) == MARKERS_PER_WRITE + 2


def test_all_transactions_of_a_turn_get_their_markers_in_it() -> None:
    count = 3 * PARTITIONS_PER_TURN
    world = World(dict.fromkeys((("t", index) for index in range(count)), HERE))
    for index in range(count):
        world.send(index, ("t", index))
    assert world.written_in_turns() == [count]
    assert len(world.ended) == count
