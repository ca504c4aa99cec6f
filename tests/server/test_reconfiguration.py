"""Configs that the broker itself refuses before the controller gets them, local or remote."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.protocol.messages import alter_configs
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.server.requests.dispatch import RequestDispatcher
from ottla.server.wiring.apis import broker_apis
from ottla.storage.files.names import METADATA_TOPIC

from .harness import MemoryChannel, join

TOPIC, BROKER = 2, 4
NAME = "background.threads"


def check(config: BrokerConfig) -> None:
    if config.get_int(NAME) == 7:
        raise OperatorError("seven is not available here")


class Elsewhere:
    """A controller behind a connection: another dispatcher serves the forwarded requests, in order."""

    local = False

    def __init__(self, server: Any) -> None:
        self.server = server
        self.forwarded: list[int] = []

    def forward(self, data: bytes, principal: str, client_host: str, done: Any) -> None:
        self.forwarded.append(len(data))
        channel = MemoryChannel(900)
        parts = self.server.broker.dispatcher.handle(channel, bytearray(data), 0, len(data))
        if parts is None:
            self.server.run_until(lambda: bool(channel.answers))
        answer = channel.answers.pop() if parts is None else join(parts)
        self.server.loop.call_soon(done, answer[4:], None)


class Unreachable:
    """No controller is reached."""

    local = False

    def __init__(self, server: Any) -> None:
        self.server = server

    def forward(self, data: bytes, principal: str, client_host: str, done: Any, timeout_s: float) -> None:
        assert timeout_s < 5, "an administrator waits for the reason"
        self.server.loop.call_soon(done, None, KafkaError(ErrorCode.REQUEST_TIMED_OUT))


class QuorumWithoutMajority:
    @property
    def service(self) -> Any:
        return self

    def describe_missing_majority(self, done: Any) -> None:
        done("voter 2 does not answer")


def test_describe_quorum_names_a_missing_majority(server: Any) -> None:
    client = server.connect()
    contexts = server.broker.contexts
    contexts.quorum = contexts.quorum._replace(quorum=QuorumWithoutMajority())
    dispatcher = RequestDispatcher(contexts.dispatcher._replace(controller=Unreachable(server)), broker_apis(contexts))
    client.dispatcher = lambda: dispatcher
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)])
    response = client.ask(DescribeQuorumRequest(topics=[topic]), 2)
    assert response.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert response.error_message == "voter 2 does not answer"


@pytest.fixture(params=["here", "elsewhere"])
def client(request, server) -> Any:
    server.broker.contexts.admin.config_checks.append(check)
    client = server.connect()
    client.create_topic("t")
    if request.param == "elsewhere":
        contexts = server.broker.contexts
        context = contexts.dispatcher._replace(controller=Elsewhere(server))
        client.elsewhere = context.controller
        dispatcher = RequestDispatcher(context, broker_apis(contexts))
        client.dispatcher = lambda: dispatcher
    return client


def row(kind: int, name: str, setting: str, value: str) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[AlterableConfig(name=setting, value=value)]
    )


def described(response: Any) -> dict[str, tuple[int, str | None]]:
    return {each.resource_name: (each.error_code, each.error_message) for each in response.responses}


REFUSED = (ErrorCode.INVALID_REQUEST, "seven is not available here")


def test_configs_refused_by_the_broker_are_not_written(server, client):
    response = client.ask(
        IncrementalAlterConfigsRequest(
            resources=[row(BROKER, "1", NAME, "7"), row(TOPIC, "t", "retention.ms", "5"), row(BROKER, "", NAME, "7")]
        ),
        1,
    )
    assert described(response) == {"1": REFUSED, "t": (0, None), "": (0, None)}
    image = server.broker.image
    assert image.broker_configs(1) == {}
    assert image.topic_configs("t") == {"retention.ms": "5"}


def test_entirely_refused_request_is_not_forwarded(server, client):
    replacing = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=BROKER,
                resource_name="1",
                configs=[alter_configs.AlterableConfig(name=NAME, value="7")],
            )
        ]
    )
    for message, version in (
        (IncrementalAlterConfigsRequest(resources=[row(BROKER, "1", NAME, "7")]), 1),
        (replacing, 2),
    ):
        assert described(client.ask(message, version)) == {"1": REFUSED}
    if hasattr(client, "elsewhere"):
        assert client.elsewhere.forwarded == []
    accepted = IncrementalAlterConfigsRequest(resources=[row(BROKER, "1", NAME, "8")])
    assert described(client.ask(accepted, 1)) == {"1": (0, None)}
    assert server.broker.image.broker_configs(1) == {NAME: "8"}


def test_controller_refusals_keep_their_message(client):
    code, text = described(
        client.ask(IncrementalAlterConfigsRequest(resources=[row(BROKER, "1", "listener.security.x", "many")]), 1)
    )["1"]
    assert (code, text) != REFUSED
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[row(BROKER, "1", NAME, "many")]), 1)
    assert "seven" not in str(described(answer)["1"][1])


THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


@pytest.mark.parametrize("resource", ["1", ""])
@pytest.mark.parametrize("name", THREADS)
def test_threads_double_and_halve_at_most(server, client, name, resource):
    def change(value: int) -> tuple[int, str | None]:
        message = IncrementalAlterConfigsRequest(resources=[row(BROKER, resource, name, str(value))])
        return described(client.ask(message, 1))[resource]

    def now() -> int:
        return int(server.broker.contexts.admin.config.get_int(name))

    assert change(2 * now())[0] == 0
    assert change(2 * now())[0] == 0
    for value, way in ((2 * now() + 1, "several steps"), (now() // 2 - 1, "several steps"), (0, "")):
        code, text = change(value)
        assert (code, str(text).startswith(name) or value == 0) == (ErrorCode.INVALID_REQUEST, True), text
        assert way in str(text)
    before = now()
    assert change(before // 2)[0] == 0
    assert now() == before // 2
