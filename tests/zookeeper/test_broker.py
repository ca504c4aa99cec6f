"""A whole broker on a simulated ZooKeeper: starts, stops, session expiry, and ownership of its id."""

from __future__ import annotations

import pytest
from tests.server.harness import Connection, fetch_request, fetched

from ottla.controller import znode_requests
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_cluster_id
from ottla.protocol.znodes.operations import Delete
from ottla.zookeeper.registration import LATE_MS

from .brokers import TIMEOUT_MS, Life, Machines, World

WAIT_S = (TIMEOUT_MS + LATE_MS) / 1000


@pytest.fixture
def world() -> World:
    return World()


def high_watermark(client: Connection, topic_id: bytes) -> int:
    (found,) = fetched(client.ask(fetch_request((topic_id, 0, 0)), 13)).values()
    assert found.error_code == 0
    return int(found.high_watermark)


def test_a_broker_serves_stops_and_serves_on(world: World) -> None:
    machine = Machines(world)
    life = machine.up()
    client = life.connect()
    topic_id = client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0
    assert client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4).error_code == 0
    node = world.node(paths.broker(1))
    assert node is not None
    assert (node.owner, node.created) == (life.session.session, life.epoch)
    first = life.leader_epoch()
    cluster_id = life.broker.cluster_id
    node = world.node(paths.CLUSTER_ID)
    assert node is not None
    assert decode_cluster_id("", node.data) == cluster_id
    life.stop()
    assert world.node(paths.broker(1)) is None
    assert world.node(paths.CONTROLLER) is None
    life = machine.up()
    assert life.broker.cluster_id == cluster_id
    client = life.connect()
    assert client.produce("t", b"y").error_code == 0
    assert high_watermark(client, topic_id) == 2
    assert life.leader_epoch() > first


def test_client_metrics_subscription_survives_a_restart(world: World) -> None:
    machine = Machines(world)
    life = machine.up()
    setting = AlterableConfig(name="metrics", config_operation=0, value="a.,b.")
    resource = AlterConfigsResource(resource_type=16, resource_name="s", configs=[setting])
    (result,) = life.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result.error_message
    life.stop()
    assert world.node(f"{paths.CONFIG_CLIENT_METRICS}/s") is not None
    assert machine.up().broker.image.client_metrics_configs("s") == {"metrics": "a.,b."}


def test_killed_broker_is_replaced_when_its_session_expires(world: World) -> None:
    machine = Machines(world)
    life = machine.up()
    client = life.connect()
    topic_id = client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0
    first, epoch = life.leader_epoch(), life.epoch
    life.kill()
    assert world.node(paths.broker(1)) is not None
    life = machine.up()
    assert life.epoch > epoch
    assert life.leader_epoch() > first, "lost records of a leader epoch may be rewritten in it"
    assert high_watermark(life.connect(), topic_id) == 1


@pytest.mark.promise("Z3")
def test_no_life_leads_on_in_an_epoch_of_one_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znode_requests, "SLICE", 1)
    machine = Machines(world)
    life = machine.up()
    life.connect().create_topic("t", 6)
    before = leader_epochs(life)
    life.stop()
    life = machine.begin()
    world.until(lambda: 1 in life.broker.image.brokers)
    assert not leader_epochs(life).items() & before.items()
    life.serves()
    assert {partition.leader for partition in life.broker.image.topics["t"].partitions.values()} == {1}


def leader_epochs(life: Life) -> dict[int, int]:
    """By partition, of those that the broker leads."""
    partitions = life.broker.image.topics["t"].partitions.items()
    return {number: each.leader_epoch for number, each in partitions if each.leader == 1}


@pytest.mark.promise("R10")
def test_a_second_one_of_its_id_is_refused(world: World) -> None:
    first = Machines(world).up()
    began_s = world.loop.time()
    assert "Another process is registered in ZooKeeper as broker 1;" in Machines(world).begin().refusal()
    assert world.loop.time() - began_s > WAIT_S, "a killed process may look alive"
    assert not first.fatal
    client = first.connect()
    client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0


def test_a_session_that_expires_is_replaced(world: World) -> None:
    life = Machines(world).up()
    client = life.connect()
    topic_id = client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0
    first, epoch = life.leader_epoch(), life.epoch
    life.session.expire()
    assert world.node(paths.broker(1)) is None
    life.leads_again(epoch)
    assert life.leader_epoch() > first
    assert client.produce("t", b"y").error_code == 0
    assert high_watermark(client, topic_id) == 2
    client.create_topic("u")
    assert not life.fatal


def test_a_lost_connection_leaves_the_registration(world: World) -> None:
    life = Machines(world).up()
    client = life.connect()
    client.create_topic("t")
    first, epoch = life.leader_epoch(), life.epoch
    life.session.cut()
    assert client.produce("t", b"x").error_code == 0, "requests without the controller continue"
    world.until(lambda: life.broker.parts.control.controller.active)
    client.create_topic("u")
    assert (life.leader_epoch(), life.epoch) == (first, epoch)


def test_a_registration_that_a_tool_removed_is_made_again(world: World) -> None:
    life = Machines(world).up()
    life.connect().create_topic("t")
    epoch = life.epoch
    world.write(Delete(paths.broker(1)))
    life.leads_again(epoch)
    assert not life.fatal


@pytest.mark.promise("Z5")
def test_data_of_one_cluster_enters_no_other(world: World) -> None:
    machine = Machines(world)
    machine.up().stop()
    other = World(1_000)
    stranger = Machines(other)
    stranger.disk = machine.disk
    before = set(other.server.tree())
    assert f"a tree without {paths.CLUSTER_ID}" in stranger.begin().refusal()
    assert set(other.server.tree()) == before
    Machines(other).up().stop()
    before = set(other.server.tree())
    assert "the data in log.dirs is of cluster" in stranger.begin().refusal()
    assert set(other.server.tree()) == before


def test_a_start_waits_for_servers_for_so_long(world: World) -> None:
    machine = Machines(world)
    life = machine.begin(zookeeper_connection_timeout_ms="1")
    assert "no server of zookeeper.connect responded" in life.refusal()
