"""Dead letters that another broker's leader appends, over connections in memory."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.platform.disk import Buffer
from ottla.common.platform.peer import PeerDone
from ottla.metadata.image import NO_LEADER, PartitionImage, TopicImage
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.registry import API
from ottla.record.builder import RecordData
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.server.coordination.dead_letter_producer import DeadLetterProducer, Outcomes
from ottla.share.dead_letters import Producer, batch_of

TOPIC_ID = b"d" * 16


class OtherBroker:
    """Implements PeerNetwork and PeerConnection: collects requests, which the test answers in order."""

    failed = False

    def __init__(self) -> None:
        self.requests: list[ProduceRequest] = []
        self.waiting: list[tuple[int, PeerDone]] = []

    def connect(self, host: str, port: int) -> OtherBroker:
        assert (host, port) == ("2", 9092)
        return self

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        message, _ = read_message(API[api_key].request, api_version, body, 0, len(body), 1000)
        self.requests.append(cast(ProduceRequest, message))
        self.waiting.append((api_version, done))

    def answer(self, code: ErrorCode) -> None:
        version, done = self.waiting.pop(0)
        partition = PartitionProduceResponse(index=1, error_code=code)
        body = bytearray()
        response = ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[partition])])
        write_message(response, version, body)
        done(memoryview(body), None)

    def close(self) -> None:
        while self.waiting:
            self.waiting.pop(0)[1](None, ConnectionError("closed"))


class FakeServices:
    node_id = 1


@pytest.fixture
def other() -> OtherBroker:
    return OtherBroker()


@pytest.fixture
def producer(other: OtherBroker) -> DeadLetterProducer:
    unused: Any = None
    services = cast(BrokerServices, FakeServices())
    return DeadLetterProducer(services, unused, other, lambda broker_id: (str(broker_id), 9092))


def topic(leader: int) -> TopicImage:
    partition = PartitionImage((1, 2), (1, 2), leader, 0, 0)
    return TopicImage("dlq.t", TOPIC_ID, {0: partition, 1: partition})


def batches(count: int) -> list[bytearray]:
    return [batch_of(RecordData(number), Producer(1 << 62, number)) for number in range(count)]


def codes(outcomes: list[Outcomes]) -> list[ErrorCode | None]:
    (found,) = outcomes
    return [None if error is None else error.code for error in found]


def test_each_batch_is_one_request_with_all_acknowledgements(producer: DeadLetterProducer, other: OtherBroker) -> None:
    outcomes: list[Outcomes] = []
    sent = batches(3)
    producer.send(topic(2), 1, sent, outcomes.append)
    assert [request.acks for request in other.requests] == [-1, -1, -1]
    rows = [request.topic_data[0] for request in other.requests]
    assert {(row.topic_id, row.partition_data[0].index) for row in rows} == {(TOPIC_ID, 1)}
    assert [bytes(row.partition_data[0].records or b"") for row in rows] == [bytes(batch) for batch in sent]
    other.answer(ErrorCode.NONE)
    other.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not outcomes
    other.answer(ErrorCode.NONE)
    assert codes(outcomes) == [None, ErrorCode.NOT_LEADER_OR_FOLLOWER, None]


def test_broken_connection_leaves_outcomes_open(producer: DeadLetterProducer, other: OtherBroker) -> None:
    outcomes: list[Outcomes] = []
    producer.send(topic(2), 1, batches(2), outcomes.append)
    other.answer(ErrorCode.NONE)
    producer.close()
    assert codes(outcomes) == [None, ErrorCode.NETWORK_EXCEPTION]


def test_missing_leader_is_reported(producer: DeadLetterProducer) -> None:
    outcomes: list[Outcomes] = []
    producer.send(topic(NO_LEADER), 1, batches(2), outcomes.append)
    assert codes(outcomes) == [ErrorCode.LEADER_NOT_AVAILABLE] * 2
