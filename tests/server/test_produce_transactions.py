"""Transactional batches of a Produce: verification by the coordinator before the append, and producers' errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.header import encode_request
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.batch import iter_batches
from ottla.server.transactions.transaction_partitions import PartitionErrors, PartitionsDone

from .harness import Connection, Server, batch_of, fetch_request, fetched
from .transactional import TransactionalProducer, completed, find_coordinator, latest, read

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_THAT_KNOWS_ABORTABLE = 11
ADDS = 12


class SlowCoordinators:
    """A fake channel to the coordinators: requests and responses are held back, or answered by the test."""

    def __init__(self, server: Server) -> None:
        self.gate = server.broker.contexts.data.transactions
        self.real = self.gate.partitions
        self.gate.partitions = self  # type: ignore[assignment]
        self.asked: list[tuple[str, tuple[TopicPartition, ...], bool]] = []
        self.holds_questions = self.holds_answers = False
        self.held: list[Callable[[], None]] = []
        self.scripted: Callable[[Sequence[TopicPartition]], PartitionErrors] | None = None

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: PartitionsDone,
    ) -> None:
        self.asked.append((transactional_id, tuple(partitions), verify_only))

        def answered(errors: PartitionErrors) -> None:
            if self.holds_answers:
                self.held.append(lambda: done(errors))
            else:
                done(errors)

        def ask() -> None:
            if self.scripted is not None:
                answered(self.scripted(partitions))
                return
            self.real.add_or_verify(
                transactional_id, producer_id, producer_epoch, partitions, verify_only=verify_only, done=answered
            )

        if self.holds_questions:
            self.held.append(ask)
        else:
            ask()

    def after_ending(self, transactional_id: str, then: Callable[[], None]) -> bool:
        return self.scripted is None and self.real.after_ending(transactional_id, then)

    def stop_waiting(self, transactional_id: str, then: Callable[[], None]) -> None:
        self.real.stop_waiting(transactional_id, then)

    def release(self) -> None:
        self.holds_questions = self.holds_answers = False
        held, self.held = self.held, []
        for each in held:
            each()


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    return make_server(
        transaction_state_log_num_partitions="3",
        add_partitions_to_txn_retry_backoff_ms="1",
        add_partitions_to_txn_retry_backoff_max_ms="60000",
    )


@pytest.fixture
def client(server: Server) -> Connection:
    client = server.connect()
    find_coordinator(client, "t")
    client.create_topic("a", 2)
    return client


@pytest.fixture
def coordinators(server: Server) -> SlowCoordinators:
    return SlowCoordinators(server)


def producer(client: Connection, *, version: int = 2) -> TransactionalProducer:
    made = TransactionalProducer(client, version=version)
    assert made.init() is ErrorCode.NONE
    return made


def request_of(
    batches: dict[TopicPartition, bytes], *, transactional_id: str | None = "t", acks: int = -1
) -> ProduceRequest:
    """One request with one batch for each partition."""
    topics: dict[str, TopicProduceData] = {}
    for (name, index), records in batches.items():
        topics.setdefault(name, TopicProduceData(name=name)).partition_data.append(
            PartitionProduceData(index=index, records=records)
        )
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=list(topics.values())
    )


def batch_by(one: TransactionalProducer, *values: bytes, sequence: int = 0, **fields: Any) -> bytes:
    return batch_of(
        *values,
        **{
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "base_sequence": sequence,
            "is_transactional": True,
        }
        | fields,
    )


def codes_of(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.responses for partition in topic.partition_responses]


def test_request_adds_all_its_partitions_with_one_check(client: Connection, coordinators: SlowCoordinators) -> None:
    client.create_topic("b")
    one = producer(client)
    places = (("a", 0), ("a", 1), ("b", 0))
    answer = client.ask(request_of({place: batch_by(one, b"x") for place in places}), ADDS)
    assert codes_of(answer) == [0, 0, 0]
    assert coordinators.asked == [("t", places, False)]
    assert [latest(client, *place) for place in places] == [0, 0, 0]
    assert one.end() is ErrorCode.NONE
    completed(one)
    assert [read(client, *place) for place in places] == [[b"x"]] * 3


def test_open_transaction_needs_no_check(client: Connection, coordinators: SlowCoordinators) -> None:
    one = producer(client)
    offsets = [one.produce("a", b"x", b"y").base_offset for _ in range(3)]
    assert (offsets, len(coordinators.asked)) == ([0, 2, 4], 1)
    # A retried batch needs no verification either.
    again = one.produce("a", b"x", b"y", base_sequence=2)
    assert (again.error_code, again.base_offset, len(coordinators.asked)) == (0, 2, 1)


@pytest.mark.parametrize("version", [3, 10, 11])
def test_older_clients_add_their_partitions_themselves(
    client: Connection, coordinators: SlowCoordinators, version: int
) -> None:
    one = producer(client, version=1)
    request = request_of({("a", 0): batch_by(one, b"x"), ("a", 1): batch_by(one, b"x")})
    assert one.begin(("a", 1)) == [ErrorCode.NONE]
    answer = client.ask(request, version)
    refused = ErrorCode.TRANSACTION_ABORTABLE if version >= FIRST_THAT_KNOWS_ABORTABLE else ErrorCode.INVALID_TXN_STATE
    assert codes_of(answer) == [refused, 0]
    assert coordinators.asked == [("t", (("a", 0), ("a", 1)), True)]
    assert [latest(client, "a", index, committed=False) for index in (0, 1)] == [0, 1]


def test_verification_can_be_turned_off(client: Connection, coordinators: SlowCoordinators) -> None:
    change = AlterableConfig(name="transaction.partition.verification.enable", value="false")
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0
    one = producer(client, version=1)
    assert codes_of(client.ask(request_of({("a", 0): batch_by(one, b"x")}), 11)) == [0]
    assert not coordinators.asked
    # Requests that add the partition still do so.
    two = producer(client)
    assert codes_of(client.ask(request_of({("a", 1): batch_by(two, b"x")}), ADDS)) == [0]
    assert len(coordinators.asked) == 1


@pytest.mark.promise("T2")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("version", [11, 12])
def test_request_bytes_are_kept_while_the_coordinator_is_slow(
    client: Connection, coordinators: SlowCoordinators, codec: str, policy: str, version: int
) -> None:
    """The receive buffer is reused by another request meanwhile; KAFKA-15653."""
    client.create_topic("c", cleanup_policy=policy)
    one = producer(client, version=2 if version == ADDS else 1)
    if version < ADDS:
        one.begin(("c", 0))
    sent = batch_by(one, b"x" * 100, b"y", compression=codec, key=b"k")
    coordinators.holds_questions = True
    frame = encode_request(ApiKey.PRODUCE, version, 7, "tester", request_of({("c", 0): sent}))[4:]
    buffer = bytearray(frame)
    assert client.server.broker.dispatcher.handle(client.channel, buffer, 0, len(frame)) is None
    buffer[:] = bytes(len(buffer))
    # The loop continues, and other clients are served.
    assert client.server.connect().produce("a", b"other").error_code == 0
    coordinators.release()
    client.server.run_until(lambda: bool(client.channel.answers))
    client.channel.answers.clear()
    (stored,) = iter_batches(fetched(client.ask(fetch_request(("c", 0, 0)), 12))["c", 0].records)
    assert stored.crc_matches()
    assert [record.value for record in stored.records()] == [b"x" * 100, b"y"]


@pytest.mark.promise("T2")
@pytest.mark.parametrize("version", [1, 2])
def test_a_check_that_races_the_end_opens_nothing(
    client: Connection, coordinators: SlowCoordinators, version: int
) -> None:
    """The coordinator confirms, the transaction ends, and then the response arrives (KAFKA-18575)."""
    one = producer(client, version=version)
    if version == 1:
        one.begin(("a", 0))
    coordinators.holds_answers = True
    waiting = client.server.connect()
    assert not waiting.send(request_of({("a", 0): batch_by(one, b"late")}), 11 if version == 1 else ADDS)
    client.server.run_until(lambda: bool(coordinators.held))
    assert one.end(commit=False) is ErrorCode.NONE
    completed(one)
    coordinators.release()
    refused = ErrorCode.INVALID_TXN_STATE if version == 1 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes_of(waiting.answer()) == [refused]
    assert latest(client, "a") == latest(client, "a", committed=False) == 1


def test_a_check_of_the_last_transaction_does_not_open_the_next(
    client: Connection, coordinators: SlowCoordinators
) -> None:
    one = producer(client, version=1)
    one.begin(("a", 0))
    coordinators.holds_answers = True
    waiting = client.server.connect()
    assert not waiting.send(request_of({("a", 0): batch_by(one, b"late")}), 11)
    client.server.run_until(lambda: bool(coordinators.held))
    assert one.end(commit=False) is ErrorCode.NONE
    completed(one)
    late = coordinators.held.pop()
    coordinators.release()
    one.begin(("a", 0))
    assert one.produce("a", b"next", base_sequence=0).error_code == 0
    late()
    # With the epoch and sequence of the next transaction's first batch, which is already there.
    assert codes_of(waiting.answer()) == [0]
    assert one.end() is ErrorCode.NONE
    completed(one)
    assert read(client, "a") == [b"next"]


def test_replayed_end_does_not_end_the_next_transaction(client: Connection) -> None:
    """KAFKA-17754: the epoch that increased in between distinguishes them."""
    one = producer(client)
    one.produce("a", b"first")
    replayed = EndTxnRequest(
        transactional_id="t", producer_id=one.producer_id, producer_epoch=one.producer_epoch, committed=True
    )
    assert one.end() is ErrorCode.NONE
    completed(one)
    assert one.produce("a", b"second").error_code == 0
    assert client.ask(replayed, 5).error_code == ErrorCode.PRODUCER_FENCED
    assert one.state().transaction_state == "Ongoing"
    assert one.end(commit=False) is ErrorCode.NONE
    completed(one)
    assert read(client, "a") == [b"first"]


def test_add_is_retried_while_the_last_transaction_ends(client: Connection, coordinators: SlowCoordinators) -> None:
    one = producer(client)
    coordinators.scripted = lambda partitions: (
        dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS) if len(coordinators.asked) < 4 else {}
    )
    assert one.produce("a", b"x").error_code == 0
    assert len(coordinators.asked) == 4


def test_producer_gets_a_retriable_error_after_all_tries(make_server: Callable[..., Server]) -> None:
    server = make_server(
        add_partitions_to_txn_retry_backoff_ms="1",
        add_partitions_to_txn_retry_backoff_max_ms="3",
        transaction_state_log_num_partitions="1",
    )
    client = server.connect()
    find_coordinator(client, "t")
    client.create_topic("a")
    one = producer(client)
    coordinators = SlowCoordinators(server)
    coordinators.scripted = lambda partitions: dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    answer = client.ask(request_of({("a", 0): batch_by(one, b"x")}), ADDS)
    assert codes_of(answer) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert len(coordinators.asked) > 1


class HeldMarkers:
    """Markers of this broker's own partitions are not written before the test's command."""

    def __init__(self, server: Server) -> None:
        self.channel = server.broker.parts.transaction_markers
        self.writer = self.channel._local
        self.channel._local = cast(Any, self)
        self.held: list[Callable[[], None]] = []

    def write(self, *marker: Any) -> None:
        self.held.append(lambda: self.writer.write(*marker))

    def release(self) -> None:
        self.channel._local = self.writer
        held, self.held = self.held, []
        for each in held:
            each()


def patient(make_server: Callable[..., Server], **settings: str) -> Connection:
    """A client of a broker with a retry delay of a minute: too late for any test."""
    server = make_server(
        add_partitions_to_txn_retry_backoff_ms="60000", transaction_state_log_num_partitions="1", **settings
    )
    client = server.connect()
    find_coordinator(client, "t")
    client.create_topic("a")
    return client


def test_the_next_transaction_begins_when_the_last_one_has_ended(make_server: Callable[..., Server]) -> None:
    client = patient(make_server, add_partitions_to_txn_retry_backoff_max_ms="60000")
    one = producer(client)
    coordinators, markers = SlowCoordinators(client.server), HeldMarkers(client.server)
    assert one.produce("a", b"first").error_code == 0
    assert one.end() is ErrorCode.NONE
    waiting = client.server.connect()
    assert not waiting.send(request_of({("a", 0): batch_by(one, b"second")}), ADDS)
    client.server.run_until(lambda: bool(markers.held))
    client.server.turn()
    assert (len(coordinators.asked), one.state().transaction_state) == (2, "PrepareCommit")
    assert latest(client, "a", committed=False) == 1, "nothing of the next transaction before the marker"
    markers.release()
    assert codes_of(waiting.answer()) == [0]
    assert len(coordinators.asked) == 3
    assert one.end() is ErrorCode.NONE
    completed(one)
    assert read(client, "a") == [b"first", b"second"]


def test_wait_for_a_missing_end_returns_a_retriable_error(make_server: Callable[..., Server]) -> None:
    client = patient(make_server, add_partitions_to_txn_retry_backoff_max_ms="100")
    one = producer(client)
    coordinators, markers = SlowCoordinators(client.server), HeldMarkers(client.server)
    assert one.produce("a", b"first").error_code == 0
    assert one.end() is ErrorCode.NONE
    request = request_of({("a", 0): batch_by(one, b"second")})
    assert codes_of(client.ask(request, ADDS)) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert len(coordinators.asked) == 3, "at first, and at the timeout"
    markers.release()
    completed(one)
    assert len(coordinators.asked) == 3, "no request waits any more"
    assert codes_of(client.ask(request, ADDS)) == [0]


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_coordinator_errors_are_translated_for_producers(
    client: Connection, coordinators: SlowCoordinators, error: ErrorCode, version: int, expected: ErrorCode
) -> None:
    one = producer(client)
    coordinators.scripted = lambda partitions: {partitions[0]: error}
    request = request_of({("a", 0): batch_by(one, b"x"), ("a", 1): batch_by(one, b"y")})
    answer = client.ask(request, version)
    assert codes_of(answer) == [expected, 0]
    refused = answer.responses[0].partition_responses[0]
    assert refused.log_start_offset == -1
    if expected is ErrorCode.NOT_ENOUGH_REPLICAS:
        assert refused.error_message == (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        )
    assert [latest(client, "a", index, committed=False) for index in (0, 1)] == [0, 1]


def test_acks_0(client: Connection, coordinators: SlowCoordinators) -> None:
    one = producer(client)
    coordinators.holds_questions = True
    waiting = client.server.connect()
    assert not waiting.send(request_of({("a", 0): batch_by(one, b"x")}, acks=0), ADDS)
    coordinators.release()
    replica = client.server.broker.parts.replicas.find("a", 0)
    client.server.run_until(lambda: replica.high_watermark == 1)
    assert not waiting.channel.closed
    coordinators.scripted = lambda partitions: dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH)
    refused = client.server.connect()
    refused.send(request_of({("a", 1): batch_by(one, b"x")}, acks=0), ADDS)
    assert refused.channel.closed


def test_a_transactional_batch_needs_a_transactional_id(client: Connection, coordinators: SlowCoordinators) -> None:
    one = producer(client)
    batches = {("a", 0): batch_of(b"plain"), ("a", 1): batch_by(one, b"x")}
    answer = client.ask(request_of(batches, transactional_id=None), ADDS)
    assert codes_of(answer) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    # An empty id has no coordinator.
    answer = client.ask(request_of(batches, transactional_id=""), ADDS)
    assert codes_of(answer) == [0, ErrorCode.INVALID_TXN_STATE]
    assert not coordinators.asked
    assert [latest(client, "a", index, committed=False) for index in (0, 1)] == [1, 0]


def test_transactional_id_without_transactional_batches(client: Connection, coordinators: SlowCoordinators) -> None:
    assert codes_of(client.ask(request_of({("a", 0): batch_of(b"plain")}), ADDS)) == [0]
    assert not coordinators.asked


@pytest.mark.parametrize("difference", [{"producer_id": 4711}, {"producer_epoch": 3}])
def test_request_with_several_producers_is_refused(
    client: Connection, coordinators: SlowCoordinators, difference: dict[str, int]
) -> None:
    one = producer(client)
    batches = {("a", 0): batch_by(one, b"x"), ("a", 1): batch_by(one, b"x", **difference)}
    answer = client.ask(request_of(batches), ADDS)
    assert codes_of(answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not coordinators.asked


def test_foreign_producer_and_old_epoch_append_nothing(client: Connection) -> None:
    one = producer(client)
    foreign = request_of({("a", 0): batch_by(one, b"x", producer_id=one.producer_id + 1)})
    assert codes_of(client.ask(foreign, ADDS)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    two = producer(client)
    assert two.producer_epoch == one.producer_epoch + 1
    assert one.produce("a", b"x").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert latest(client, "a", committed=False) == 0


def test_batches_without_a_producer_are_not_transactional(client: Connection, coordinators: SlowCoordinators) -> None:
    batch = batch_of(b"x", is_transactional=True)
    (code,) = codes_of(client.ask(request_of({("a", 0): batch}), ADDS))
    assert code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TXN_STATE)
    assert not coordinators.asked


def test_partitions_refused_by_the_leader_are_not_verified(client: Connection, coordinators: SlowCoordinators) -> None:
    one = producer(client)
    answer = client.ask(request_of({("nope", 0): batch_by(one, b"x"), ("a", 0): batch_by(one, b"x")}), ADDS)
    assert codes_of(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert coordinators.asked == [("t", (("a", 0),), False)]


class Denies:
    """An authorizer that denies every transactional id."""

    def allows(
        self,
        principal: str,
        client_host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        request: str,
        audit: bool = True,
    ) -> bool:
        return resource_type is not ResourceType.TRANSACTIONAL_ID

    def allows_any(
        self, principal: str, client_host: str, operation: AclOperation, resource_type: ResourceType, *, request: str
    ) -> bool:
        return True


def test_a_transactional_id_may_be_forbidden(client: Connection, coordinators: SlowCoordinators) -> None:
    one = producer(client)
    client.server.broker.dispatcher.authorizer = cast(Any, Denies())
    answer = client.ask(request_of({("a", 0): batch_by(one, b"x")}), ADDS)
    assert codes_of(answer) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert not coordinators.asked


def test_a_stop_does_not_wait_for_a_coordinator(client: Connection, coordinators: SlowCoordinators) -> None:
    one = producer(client)
    coordinators.holds_questions = True
    waiting = client.server.connect()
    assert not waiting.send(request_of({("a", 0): batch_by(one, b"x")}), ADDS)
    client.server.broker.parts.transaction_partitions.close()
    coordinators.release()
    assert codes_of(waiting.answer()) == [ErrorCode.NOT_ENOUGH_REPLICAS]
