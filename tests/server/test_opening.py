"""Many new partitions: opened over many turns of the loop, in which others are served."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinator.runtime import CoordinatorState
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.replica.partition import Partition

from .harness import Connection, Server, fetch_request, fetched

MANY = 60
TOPIC_RESOURCE = 2


@pytest.fixture(autouse=True)
def one_partition_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replica.opening.OPENING_SLICE_S", 0.0)


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


def test_creation_waits_only_for_earlier_creations(server: Server, client: Connection) -> None:
    create_many(client, "first")
    run_until_some_are_open(server, "first")
    second = server.connect()
    create_many(second, "second")
    client.answer()
    assert opened(server, "first") == MANY
    assert opened(server, "second") < MANY
    second.answer()
    assert opened(server, "second") == MANY


@pytest.mark.parametrize(("key_type", "topic"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_coordinator_lookup_waits_until_it_is_loaded(
    server: Server, client: Connection, key_type: int, topic: str
) -> None:
    finding = FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)
    assert not client.send(finding, 6), "the topic has to be created first"
    run_until_some_are_open(server, topic)
    second = server.connect()
    assert [coordinator.error_code for coordinator in second.ask(finding, 6).coordinators] == [0]
    coordination = server.broker.parts.coordinations[key_type]
    assert coordination.runtime.state(coordination.runtime.partition_for("g")) is CoordinatorState.ACTIVE
    assert [coordinator.error_code for coordinator in client.answer().coordinators] == [0]


def test_group_is_available_after_the_coordinator_lookup(server: Server, client: Connection) -> None:
    finding = FindCoordinatorRequest(coordinator_keys=["g"])
    client.send(finding, 6)
    run_until_some_are_open(server, "__consumer_offsets")
    second = server.connect()
    second.ask(finding, 6)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
    assert second.ask(heartbeat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_topic_is_deleted_while_its_partitions_are_opened(server: Server, client: Connection) -> None:
    create_many(client)
    run_until_some_are_open(server)
    other = server.connect()
    assert other.ask(DeleteTopicsRequest(topic_names=["many"]), 5).responses[0].error_code == 0
    assert client.answer().topics[0].error_code == 0
    assert opened(server) == 0
    server.run_until(lambda: left(server) == 0)
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


def left(server: Server, name: str = "many") -> int:
    """Directories of the topic's logs that are neither renamed nor removed."""
    found = (server.directory / "data").glob(f"{name}-*")
    return sum(not path.name.endswith(("-delete", "-stray")) for path in found)


def delete_and_stop_amid(server: Server, client: Connection) -> None:
    """Run turn by turn, until some of the topic's logs are removed and others are not."""
    create_many(client)
    assert client.answer().topics[0].error_code == 0
    assert left(server) == MANY
    client.send(DeleteTopicsRequest(topic_names=["many"]), 5)
    while left(server) == MANY:
        server.loop.call_soon(server.loop.stop)
        server.loop.run_forever()
    assert 0 < left(server) < MANY


def test_others_are_served_while_a_topic_is_removed(server: Server, client: Connection) -> None:
    server.connect().create_topic("t")
    delete_and_stop_amid(server, client)
    other = server.connect()
    assert other.produce("t", b"a").error_code == 0
    assert other.produce("many", b"a", partition=MANY - 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    server.run_until(lambda: left(server) == 0)


def test_recreated_topic_waits_for_the_old_topics_logs(server: Server, client: Connection) -> None:
    delete_and_stop_amid(server, client)
    again = server.connect()
    create_many(again)
    assert again.answer().topics[0].error_code == 0
    assert opened(server) == left(server) == MANY
    assert [again.produce("many", b"a", partition=index).base_offset for index in range(MANY)] == [0] * MANY


def test_a_stop_amid_a_removal_leaves_nothing_to_the_next_start(server: Server, client: Connection) -> None:
    delete_and_stop_amid(server, client)
    server.restart()
    assert left(server) == 0
    assert list((server.directory / "data").glob("many-*-stray")) == []
    server.connect().create_topic("many", MANY)
    assert opened(server) == MANY


def test_requests_parked_at_a_removed_partition_are_answered(server: Server, client: Connection) -> None:
    create_many(client)
    client.answer()
    reader = server.connect()
    reader.send(fetch_request(("many", MANY - 1, 0), max_wait_ms=60_000), 12)
    assert client.ask(DeleteTopicsRequest(topic_names=["many"]), 5).responses[0].error_code == 0
    code = fetched(reader.answer())["many", MANY - 1].error_code
    assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_deleted_partition_is_freed_without_a_collection(server: Server, client: Connection) -> None:
    client.create_topic("t", 3)
    assert client.produce("t", b"a").error_code == 0
    gc.collect()
    gc.disable()  # a broker collects garbage rarely
    try:
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        server.run_until(lambda: not any(type(each) is Partition for each in gc.get_objects()))
    finally:
        gc.enable()
