"""Client requests forwarded by a broker: envelopes at the controller's listener."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import ANONYMOUS, AclOperation, ResourceType
from ottla.metadata.log import LeaderAndEpoch
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.registry import ApiKey
from ottla.security.authorizer import StandardAuthorizer
from ottla.server.requests.dispatch import RequestDispatcher
from ottla.server.requests.principals import pack_principal
from ottla.server.wiring.apis import controller_apis

from .harness import MemoryChannel, Server, join

CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])


class ControllerClient:
    """Another node, connected to the controller's listener of a running server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.channel = MemoryChannel(99)
        self.dispatcher = RequestDispatcher(
            server.broker.contexts.dispatcher, controller_apis(server.broker.contexts), serves_controller=True
        )

    def ask(self, data: bytes, principal: bytes | None = None) -> Any:
        """Send a client's request in an envelope; returns the envelope's response."""
        envelope = EnvelopeRequest(
            request_data=data, request_principal=principal, client_host_address=bytes([10, 0, 0, 1])
        )
        frame = bytearray(encode_request(ApiKey.ENVELOPE, 0, 5, "broker", envelope)[4:])
        parts = self.dispatcher.handle(self.channel, frame, 0, len(frame))
        if parts is None:
            self.server.run_until(lambda: bool(self.channel.answers) or self.channel.closed)
            answer = self.channel.answers.pop(0)
        else:
            answer = join(parts)
        _, message = decode_response(ApiKey.ENVELOPE, 0, answer[4:])
        return message


def request(key: ApiKey, version: int, message: object) -> bytes:
    return encode_request(key, version, 7, "client", message)[4:]


@pytest.fixture
def controller(server: Server) -> ControllerClient:
    return ControllerClient(server)


def test_inner_request_is_served_with_its_own_header(controller: ControllerClient) -> None:
    response = controller.ask(request(ApiKey.CREATE_TOPICS, 7, CREATE))
    assert response.error_code == 0
    correlation_id, inner = decode_response(ApiKey.CREATE_TOPICS, 7, bytes(response.response_data))
    assert (correlation_id, inner.topics[0].name, inner.topics[0].error_code) == (7, "t", 0)
    again = controller.ask(request(ApiKey.DELETE_TOPICS, 3, DeleteTopicsRequest(topic_names=["t"])))
    assert again.error_code == 0


@pytest.mark.parametrize(
    "data", [b"", b"\0\x13", request(ApiKey.METADATA, 12, MetadataRequest(topics=None)), b"\x7f\x7f" + bytes(20)]
)
def test_only_requests_that_are_forwarded_may_be_inside(controller: ControllerClient, data: bytes) -> None:
    assert controller.ask(data).error_code == ErrorCode.INVALID_REQUEST


def test_inactive_controller_fails_the_envelope(controller: ControllerClient) -> None:
    controller.server.broker.parts.control.controller.on_leader_change(LeaderAndEpoch(2, 9), False)
    assert controller.ask(request(ApiKey.CREATE_TOPICS, 7, CREATE)).error_code == ErrorCode.NOT_CONTROLLER


class Noting(StandardAuthorizer):
    """An authorizer that allows everything and records the principals."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, AclOperation]] = []

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
        self.asked.append((principal, client_host, operation))
        return True

    def allows_any(
        self, principal: str, client_host: str, operation: AclOperation, resource_type: ResourceType, *, request: str
    ) -> bool:
        return True


def test_the_request_inside_acts_as_its_client(controller: ControllerClient) -> None:
    noting = controller.dispatcher.authorizer = Noting()
    election = request(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=None))
    assert controller.ask(election, pack_principal("User:alice")).error_code == 0
    assert controller.ask(election).error_code == 0
    broker = (ANONYMOUS, "127.0.0.1", AclOperation.CLUSTER_ACTION)
    assert noting.asked == [
        broker,
        ("User:alice", "10.0.0.1", AclOperation.ALTER),
        broker,
        (ANONYMOUS, "10.0.0.1", AclOperation.ALTER),
    ]


@pytest.mark.parametrize(
    "principal", [b"", b"\0", b"\0\1", pack_principal("User:alice")[:-3], b"\0\0\xff\xff\xff\xff\x0f"]
)
def test_a_principal_that_can_not_be_read_is_refused(controller: ControllerClient, principal: bytes) -> None:
    refused = controller.ask(request(ApiKey.CREATE_TOPICS, 7, CREATE), principal)
    assert refused.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
