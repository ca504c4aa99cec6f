"""Many new partitions: opened over many turns of the loop, in which others are served."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .harness import Connection, Server

MANY = 60
TOPIC_RESOURCE = 2


@pytest.fixture(autouse=True)
def one_partition_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replica.manager.OPENING_SLICE_S", 0.0)


def create_many(client: Connection, name: str = "many") -> None:
    topic = CreatableTopic(name=name, num_partitions=MANY, replication_factor=1)
    assert not client.send(CreateTopicsRequest(topics=[topic]), 7)


def opened(server: Server, name: str = "many") -> int:
    return sum(partition.topic == name for partition in server.broker.parts.replicas.partitions())


def run_until_some_are_open(server: Server, name: str = "many") -> None:
    """Turn by turn, since a wait by time would miss the moment."""
    loop = server.loop
    while not opened(server, name):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert opened(server, name) < MANY


def test_others_are_served_while_partitions_are_opened(server: Server, client: Connection) -> None:
    other = server.connect()
    other.create_topic("t")
    create_many(client)
    run_until_some_are_open(server)
    assert other.produce("t", b"a").error_code == 0
    assert other.produce("many", b"a", partition=MANY - 1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not client.channel.answers, "the creation is answered before its partitions can serve"
    assert client.answer().topics[0].error_code == 0
    assert opened(server) == MANY
    assert [client.produce("many", b"a", partition=index).error_code for index in range(MANY)] == [0] * MANY


def test_a_creation_waits_for_those_before_it_and_not_for_those_behind(server: Server, client: Connection) -> None:
    create_many(client, "first")
    run_until_some_are_open(server, "first")
    second = server.connect()
    create_many(second, "second")
    client.answer()
    assert opened(server, "first") == MANY
    assert opened(server, "second") < MANY
    second.answer()
    assert opened(server, "second") == MANY


def test_a_topic_is_deleted_while_its_partitions_are_opened(server: Server, client: Connection) -> None:
    create_many(client)
    run_until_some_are_open(server)
    other = server.connect()
    assert other.ask(DeleteTopicsRequest(topic_names=["many"]), 5).responses[0].error_code == 0
    assert client.answer().topics[0].error_code == 0
    assert opened(server) == 0
    left = [path.name for path in (server.directory / "data").glob("many-*") if not path.name.endswith("-delete")]
    assert left == []
    other.create_topic("many", 2)
    assert other.produce("many", b"a", partition=1).error_code == 0
    assert opened(server) == 2


def test_a_stop_leaves_the_rest_to_the_next_start(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    create_many(client)
    run_until_some_are_open(server)
    server.stop()
    assert client.answer().topics[0].error_code == 0
    assert (server.directory / "data" / ".kafka_cleanshutdown").exists()
    server.start()
    assert opened(server) == MANY
    assert server.connect().produce("many", b"a", partition=MANY - 1).error_code == 0


def test_settings_that_change_meanwhile_hold_for_all(server: Server, client: Connection) -> None:
    create_many(client)
    run_until_some_are_open(server)
    change = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name="many",
        configs=[AlterableConfig(name="max.message.bytes", config_operation=0, value="12345")],
    )
    other = server.connect()
    assert other.ask(IncrementalAlterConfigsRequest(resources=[change]), 1).responses[0].error_code == 0
    client.answer()
    sizes = {partition.log.config.max_message_bytes for partition in server.broker.parts.replicas.partitions()}
    assert sizes == {12345}
