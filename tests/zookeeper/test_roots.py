"""The path at the end of `zookeeper.connect`: creation by the first broker, and refusal if it is missing."""

from __future__ import annotations

import pytest

from ottla.common.errors import OperatorError
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Create
from ottla.protocol.znodes.rooted import split_connect

from .brokers import Machines, World
from .test_three_brokers import Cluster

BELOW = {"zookeeper_connect": "z:2181/a/b"}


@pytest.fixture
def world() -> World:
    return World()


def test_brokers_that_begin_at_once_make_it_together(world: World) -> None:
    cluster = Cluster(world, **BELOW)
    for each in (1, 2, 3):
        cluster.begin(each)
    for life in cluster.lives.values():
        life.serves()
    world.until(lambda: len({life.broker.cluster_id for life in cluster.lives.values()}) == 1)
    world.until(cluster.agree)
    assert {path.split("/")[1] for path in world.server.tree() if path != "/"} <= {"a", "zookeeper"}
    assert world.node(f"/a/b{paths.broker(2)}") is not None


def test_a_cluster_works_below_it(world: World) -> None:
    world.write(Create("/a", b"made by a tool"))
    machine = Machines(world)
    life = machine.begin(**BELOW)
    life.serves()
    client = life.connect()
    client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0
    life.kill()
    life = machine.begin(**BELOW)
    life.serves()
    assert life.connect().produce("t", b"y").error_code == 0
    assert world.node("/a/b/brokers/topics/t") is not None


@pytest.mark.promise("Z5")
def test_broker_with_data_does_not_create_the_path(world: World) -> None:
    machine = Machines(world)
    life = machine.begin(**BELOW)
    life.serves()
    life.stop()
    refusal = machine.begin(zookeeper_connect="z:2181/lost").refusal()
    assert f"names a tree without {paths.CLUSTER_ID}" in refusal
    assert world.node("/lost") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1,b:2", ("a:1,b:2", "")),
        ("a:1,b:2/", ("a:1,b:2", "")),
        ("a:1/x", ("a:1", "/x")),
        ("a:1/x/y/", ("a:1", "/x/y")),
    ],
)
def test_servers_and_path(text: str, found: tuple[str, str]) -> None:
    assert split_connect(text) == found


@pytest.mark.parametrize("text", ["a:1/x//y", "a:1/.", "a:1/x/..", "a:1/x\0"])
def test_invalid_path_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="invalid ZooKeeper path"):
        split_connect(text)
