"""A leader verifies partitions of transactions: in batches, one request per broker, each with one result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Buffer
from ottla.common.platform.peer import PeerConnection, PeerDone
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.server.transactions.transaction_partitions import (
    PARTITIONS_PER_REQUEST,
    PartitionErrors,
    PartitionsDone,
    TransactionPartitions,
    VerificationStatistics,
)

HERE, THERE = 1, 2
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


class Connection:
    """A connection to one broker; the test answers. Implements `PeerConnection`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.failed = False
        self.asked: list[tuple[AddPartitionsToTxnRequest, PeerDone]] = []

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        assert (api_key, api_version) == (24, 5)
        message, _ = read_message(AddPartitionsToTxnRequest, api_version, body, 0, len(body), 10_000)
        self.asked.append((message, done))

    def close(self) -> None:
        self.fail(ConnectionError("closed"))

    def fail(self, error: Exception) -> None:
        self.failed = True
        asked, self.asked = self.asked, []
        for _, done in asked:
            done(None, error)

    def answer(self, error: int = 0, code_of: Callable[[str, int], int] | None = None, **code_of_id: int) -> None:
        """Answer the oldest request: with an error as a whole, a code for each partition or for each id."""
        request, done = self.asked.pop(0)
        response = AddPartitionsToTxnResponse(error_code=error)
        for transaction in () if error else request.transactions:
            code = code_of_id.get(transaction.transactional_id, 0)
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=code if code_of is None else code_of(topic.name, index),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
            )
        body = bytearray()
        write_message(response, 5, body)
        done(memoryview(body), None)


class World:
    """One broker, its local coordinator, and another broker behind connections."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.coordinator_id: int | None = THERE
        self.addresses = {THERE: ("b2", 9092)}
        self.connections: list[Connection] = []
        self.local: list[tuple[str, bool, PartitionsDone]] = []
        self.waiting: dict[str, Callable[[], None]] = {}
        self.registry = MetricsRegistry()
        self.manager = TransactionPartitions(
            HERE,
            lambda: cast(Any, self),
            self,
            coordinator_of=lambda _: self.coordinator_id,
            address_of=self.addresses.get,
            clock=self,
            statistics=VerificationStatistics(self.registry),
        )

    def time_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    def connect(self, host: str, port: int) -> PeerConnection:
        self.connections.append(Connection((host, port)))
        return self.connections[-1]

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        api_version: int,
        done: PartitionsDone,
    ) -> None:
        assert api_version == 5
        self.local.append((transactional_id, verify_only, done))

    def after_ending(self, transactional_id: str, then: Callable[[], None]) -> bool:
        self.waiting[transactional_id] = then
        return True

    def stop_waiting(self, transactional_id: str, then: Callable[[], None]) -> None:
        assert self.waiting.pop(transactional_id) is then

    def ask(
        self, transactional_id: str, *partitions: TopicPartition, epoch: int = 0, verify_only: bool = True
    ) -> list[PartitionErrors]:
        """Returns a list that gets the results."""
        results: list[PartitionErrors] = []
        self.manager.add_or_verify(
            transactional_id, 7, epoch, partitions or (A0,), verify_only=verify_only, done=results.append
        )
        return results

    @property
    def failures(self) -> int:
        return self.registry.counter("kafka_server_addpartitionstotxnmanager_verificationfailurerate_total", "").value


@pytest.fixture
def world() -> World:
    return World()


def ids(connection: Connection) -> list[str]:
    return [transaction.transactional_id for transaction in connection.asked[0][0].transactions]


def test_checks_during_a_request_go_into_the_next_one(world: World) -> None:
    first = world.ask("x", A0, A1, B0)
    second, third = world.ask("y", verify_only=False), world.ask("z")
    (connection,) = world.connections
    ((request, _),) = connection.asked
    (transaction,) = request.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("x", 7, 0)
    assert transaction.verify_only
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("a", [0, 1]), ("b", [0])]
    connection.answer()
    assert first == [{}]
    assert ids(connection) == ["y", "z"]
    assert [each.verify_only for each in connection.asked[0][0].transactions] == [False, True]
    connection.answer(z=ErrorCode.INVALID_TXN_STATE)
    assert (second, third) == ([{}], [{A0: ErrorCode.INVALID_TXN_STATE}])
    assert world.failures == 1


def test_request_is_bounded_and_the_rest_goes_into_the_next(world: World) -> None:
    many = [("a", index) for index in range(PARTITIONS_PER_REQUEST)]
    results = [world.ask("first"), world.ask("many", *many), world.ask("last"), world.ask("very last")]
    (connection,) = world.connections
    for expected in (["first"], ["many"], ["last", "very last"]):
        assert ids(connection) == expected
        connection.answer()
    assert results == [[{}]] * 4


def test_each_partition_gets_its_own_error(world: World) -> None:
    results = world.ask("x", A0, A1, B0)
    world.connections[0].answer(
        code_of=lambda name, index: {A0: 0, A1: ErrorCode.PRODUCER_FENCED, B0: 9999}[name, index]
    )
    assert results == [{A1: ErrorCode.INVALID_PRODUCER_EPOCH, B0: ErrorCode.UNKNOWN_SERVER_ERROR}]


def test_a_coordinator_in_this_process_is_called(world: World) -> None:
    world.coordinator_id = HERE
    results = world.ask("x", A0, A1, verify_only=False)
    ((transactional_id, verify_only, done),) = world.local
    assert (transactional_id, verify_only) == ("x", False)
    done({A0: ErrorCode.NONE, A1: ErrorCode.PRODUCER_FENCED})
    assert results == [{A1: ErrorCode.INVALID_PRODUCER_EPOCH}]
    assert not world.connections


def test_id_without_a_coordinator_fails(world: World) -> None:
    world.coordinator_id = None
    assert world.ask("x") == [{A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]
    world.coordinator_id = THERE
    del world.addresses[THERE]
    assert world.ask("x") == [{A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]


@pytest.mark.parametrize(
    ("epoch", "expected_before", "expected_after"),
    [
        (5, [{A0: ErrorCode.NETWORK_EXCEPTION}], [{}]),
        (6, [{A0: ErrorCode.INVALID_PRODUCER_EPOCH}], [{}]),
        (4, [{}], [{A0: ErrorCode.INVALID_PRODUCER_EPOCH}]),
    ],
)
def test_newest_check_of_an_id_replaces_the_queued_one(
    world: World, epoch: int, expected_before: list[PartitionErrors], expected_after: list[PartitionErrors]
) -> None:
    world.ask("busy")
    before = world.ask("x", epoch=5)
    after = world.ask("x", epoch=epoch)
    (connection,) = world.connections
    connection.answer()
    assert ids(connection) == ["x"]
    connection.answer()
    assert (before, after) == (expected_before, expected_after)


def test_check_in_flight_is_not_replaced(world: World) -> None:
    before, after = world.ask("x", epoch=5), world.ask("x", epoch=6)
    (connection,) = world.connections
    connection.answer()
    connection.answer()
    assert (before, after) == ([{}], [{}])


def test_lost_connection_fails_only_checks_in_flight(world: World) -> None:
    before, after = world.ask("x"), world.ask("y")
    world.connections[0].fail(TimeoutError("silent"))
    assert before == [{A0: ErrorCode.NETWORK_EXCEPTION}]
    assert not after
    world.connections[1].answer()
    assert after == [{}]


def test_moved_coordinator_is_reached_at_its_new_address(world: World) -> None:
    world.ask("x")
    world.connections[0].answer()
    world.addresses[THERE] = ("b2", 9093)
    results = world.ask("x")
    assert world.connections[0].failed
    assert world.connections[1].address == ("b2", 9093)
    world.connections[1].answer()
    assert results == [{}]


def test_errors_of_a_request_as_a_whole(world: World) -> None:
    results = world.ask("x"), world.ask("y")
    (connection,) = world.connections
    connection.answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    connection.answer(ErrorCode.NOT_COORDINATOR)
    assert results == ([{A0: ErrorCode.INVALID_TXN_STATE}], [{A0: ErrorCode.NOT_COORDINATOR}])


def test_partition_missing_in_the_response_is_not_a_success(world: World) -> None:
    results = world.ask("x")
    _, done = world.connections[0].asked.pop()
    body = bytearray()
    write_message(AddPartitionsToTxnResponse(), 5, body)
    done(memoryview(body), None)
    assert results == [{A0: ErrorCode.NETWORK_EXCEPTION}]


def test_unparsable_response_fails_the_pending_checks(world: World) -> None:
    results = world.ask("x")
    _, done = world.connections[0].asked.pop()
    done(memoryview(b"\x00"), None)
    assert results == [{A0: ErrorCode.NETWORK_EXCEPTION}]
    assert world.connections[0].failed


def test_close_fails_all_checks_once(world: World) -> None:
    results: list[Any] = [world.ask("x"), world.ask("y")]
    world.manager.close()
    assert results == [[{A0: ErrorCode.NETWORK_EXCEPTION}]] * 2
    assert world.ask("z") == [{A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]


def test_the_time_to_an_answer_is_counted(world: World) -> None:
    world.ask("x")
    world.now_s += 0.25
    world.connections[0].answer()
    histogram = world.registry.histogram("kafka_server_addpartitionstotxnmanager_verificationtimems", "")
    assert (histogram.total, histogram.sum) == (1, 250.0)


def test_ending_is_awaited_with_a_local_coordinator(world: World) -> None:
    ended: list[str] = []

    def then() -> None:
        ended.append("t")

    assert not world.manager.after_ending("t", then)
    world.coordinator_id = HERE
    assert world.manager.after_ending("t", then)
    assert world.waiting == {"t": then}
    world.manager.stop_waiting("t", then)
    assert not world.waiting
    world.manager.close()
    assert not world.manager.after_ending("t", then)
    assert not ended
