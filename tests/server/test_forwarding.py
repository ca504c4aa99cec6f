"""Channel to the active controller: local or remote, changing, silent, missing."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from tests.request_header import parse_request_header

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.endpoint import Endpoint
from ottla.controller.result import ControllerResult
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.header import encode_response
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.registry import API, VERSIONS, ApiKey
from ottla.server.metadata.topic_creation import OnDemandCounts, TopicCreation
from ottla.server.requests.forwarding import FORWARD_TIMEOUT_S, ControllerChannel, RequestOrigin
from ottla.server.requests.principals import unpack_principal

from .virtual_time import VirtualTime


class Connection:
    """Stores requests until the test answers. Implements `PeerConnection`."""

    def __init__(self, time: VirtualTime, address: tuple[str, int]) -> None:
        self.time = time
        self.address = address
        self.failed = False
        self.asked: list[tuple[int, Any, Any]] = []

    def request(self, api_key: int, api_version: int, body: Any, done: Any, timeout_s: float) -> None:
        message, _ = read_message(API[api_key].request, api_version, bytes(body), 0, len(body))
        self.asked.append((api_key, message, done))

    def answer(self, response: object | None, error: BaseException | None = None) -> Any:
        api_key, message, done = self.asked.pop(0)
        if response is None:
            done(None, error)
        else:
            out = bytearray()
            write_message(response, API[api_key].max_version, out)
            done(memoryview(out), None)
        return message

    def close(self) -> None:
        self.failed = True
        waiting, self.asked = self.asked, []
        for _, _, done in waiting:
            self.time.call_soon(done, None, ConnectionError("closed"))


class HereController:
    """A controller that may be in this process."""

    def __init__(self) -> None:
        self.active = False
        self.submitted = 0

    def submit(self, operation: Any, done: Any) -> None:
        self.submitted += 1
        done(ControllerResult([], BrokerHeartbeatResponse(is_fenced=False)).response, None)


class World:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.controller = HereController()
        self.leader: Endpoint | None = Endpoint("CONTROLLER", "PLAINTEXT", "a", 1)
        self.connections: list[Connection] = []
        self.answers: list[tuple[Any, Any]] = []
        self.channel = ControllerChannel(
            self.controller,  # type: ignore[arg-type]
            lambda: self.leader,
            self,
            clock=self.time,
            scheduler=self.time,
        )

    def connect(self, host: str, port: int) -> Connection:
        self.connections.append(Connection(self.time, (host, port)))
        return self.connections[-1]

    def done(self, response: Any, error: BaseException | None) -> None:
        self.answers.append((response, error))

    def codes(self) -> list[object]:
        return [error.code if isinstance(error, KafkaError) else error for _, error in self.answers]

    def heartbeat(self) -> None:
        self.channel.send(BrokerHeartbeatRequest(broker_id=1), self.done, 5.0)


@pytest.fixture
def world() -> World:
    return World()


def test_an_answered_request_is_not_kept_in_memory(world: World) -> None:
    class Answered:
        def __call__(self, response: Any, error: Any) -> None:
            pass

    answered = Answered()
    gone = weakref.ref(answered)
    world.channel.forward(b"request", "User:ann", "127.0.0.1", answered)
    del answered
    gc.disable()  # a cycle would stay until the collector looks for it
    try:
        world.connections[0].answer(None, ConnectionError("closed"))
        world.time.run(1.0)
        world.connections[-1].answer(EnvelopeResponse(response_data=b"x"))
        world.time.run(1.0)
        assert gone() is None
    finally:
        gc.enable()


def test_local_controller_is_called_directly(world: World) -> None:
    world.controller.active = True
    world.heartbeat()
    assert world.answers == [], "never within the call"
    world.time.run()
    assert world.answers[0][0].is_fenced is False
    assert world.connections == []


def test_one_try_there(world: World) -> None:
    world.heartbeat()
    assert world.connections[0].address == ("a", 1)
    assert world.connections[0].answer(BrokerHeartbeatResponse(is_fenced=False)).broker_id == 1
    world.heartbeat()
    world.connections[0].answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    world.heartbeat()
    world.connections[0].answer(None, TimeoutError("late"))
    assert len(world.connections) == 1
    assert world.answers[0][1] is None
    assert world.codes()[1] is ErrorCode.STALE_BROKER_EPOCH
    assert isinstance(world.answers[2][1], TimeoutError)


def test_topic_on_demand_has_counts_of_its_broker(world: World) -> None:
    unused: Any = None
    creation = TopicCreation(unused, world.channel, unused, OnDemandCounts(partitions=3, replication_factor=2))
    creation.create_on_demand(["t"], RequestOrigin("User:ann", "client", "10.0.0.1"))
    ((_, envelope, _),) = world.connections[0].asked
    frame = bytes(envelope.request_data)
    header = parse_request_header(frame, 0, len(frame))
    request, _ = read_message(CreateTopicsRequest, header.api_version, frame, header.body_start, len(frame))
    assert [(topic.num_partitions, topic.replication_factor) for topic in request.topics] == [(3, 2)]


def test_heartbeat_does_not_wait_behind_requests_of_clients(world: World) -> None:
    world.channel.forward(b"request", "User:ann", "10.0.0.1", world.done)
    world.heartbeat()
    clients, own = world.connections
    own.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert [response.is_fenced for response, _ in world.answers] == [False]
    assert len(clients.asked) == 1
    world.leader = None
    world.channel.leader_changed()
    assert (clients.failed, own.failed) == (True, True)


def test_requests_without_a_leader_fail(world: World) -> None:
    world.leader = None
    world.heartbeat()
    world.time.run()
    assert world.codes() == [ErrorCode.NOT_CONTROLLER]


def test_new_leader_fails_requests_in_flight_to_the_old_one(world: World) -> None:
    world.heartbeat()
    world.leader = Endpoint("CONTROLLER", "PLAINTEXT", "b", 2)
    world.channel.leader_changed()
    world.time.run()
    assert isinstance(world.answers[0][1], ConnectionError)
    world.heartbeat()
    assert world.connections[1].address == ("b", 2)


def test_creation_is_tried_until_a_controller_decides(world: World) -> None:
    world.channel.send_until(CreateTopicsRequest(), world.done, 10.0)
    refused = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)])
    world.connections[0].answer(refused)
    world.time.run(0.1)
    world.connections[0].answer(None, ConnectionError("gone"))
    world.connections[0].failed = True
    world.time.run(0.1)
    taken = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)])
    world.connections[1].answer(taken)
    ((response, error),) = world.answers
    assert error is None
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_auto_created_topics_are_charged_to_their_client(world: World) -> None:
    asked = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    world.channel.create_for(RequestOrigin("User:alice", "app", "10.0.0.7"), asked, world.done)
    world.connections[0].answer(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    world.time.run(0.1)
    key, version = ApiKey.CREATE_TOPICS, VERSIONS[ApiKey.CREATE_TOPICS].high
    made = CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
    envelope = world.connections[0].answer(EnvelopeResponse(response_data=encode_response(key, version, 0, made)[4:]))
    assert unpack_principal(envelope.request_principal) == "User:alice"
    data = bytearray(envelope.request_data)
    header = parse_request_header(data, 0, len(data))
    assert (header.api_key, header.client_id) == (key, "app")
    ((response, error),) = world.answers
    assert error is None
    assert response.topics[0].name == "t"


def test_forwarded_response_is_returned_unchanged(world: World) -> None:
    world.channel.forward(b"request", "User:alice", "10.0.0.7", world.done)
    envelope = world.connections[0].answer(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert isinstance(envelope, EnvelopeRequest)
    assert (bytes(envelope.request_data), bytes(envelope.client_host_address)) == (b"request", bytes([10, 0, 0, 7]))
    assert unpack_principal(envelope.request_principal) == "User:alice"
    world.time.run(0.1)
    world.connections[0].answer(EnvelopeResponse(response_data=b"response"))
    assert [(bytes(response), error) for response, error in world.answers] == [(b"response", None)]


def test_forwarding_without_a_controller_times_out(world: World) -> None:
    world.leader = None
    world.channel.forward(b"request", "User:alice", "10.0.0.7", world.done)
    world.time.run(FORWARD_TIMEOUT_S + 1)
    assert world.codes() == [ErrorCode.REQUEST_TIMED_OUT]


def test_no_callback_is_called_after_close(world: World) -> None:
    world.heartbeat()
    world.channel.close()
    world.time.run(100)
    assert world.answers == []
