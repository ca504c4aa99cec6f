"""Brokers on a simulated ZooKeeper that migrate to a quorum, and back. The tests write the state of its controllers by
hand."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.disk import Mount, SimDisk
from simulation.loop import Process, SimClock
from simulation.network import ListeningProcess
from simulation.peer import SimPeerNetwork

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import Peers
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.result import ControllerResult
from ottla.metadata.image import ZkMigrationState
from ottla.metadata.records import versioned
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import (
    ControllerClaim,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from ottla.protocol.znodes.operations import Create, Delete, SetData
from ottla.protocol.znodes.topics import PartitionState, encode_state
from ottla.quorum.format import format_directory
from ottla.server.broker import Broker
from ottla.storage.files.names import METADATA_DIR
from ottla.zookeeper.reading import read_cluster

from .brokers import World, address_of
from .test_three_brokers import IDS, Cluster, create, produce

CONTROLLER = 100
HOST, PORT = "controller-100", 9093
QUORUM = {
    "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{PORT}",
    "controller.listener.names": "CONTROLLER",
}
TO_QUORUM = {"zookeeper.metadata.migration.enable": "true", **QUORUM}
IN_QUORUM = {"zookeeper.connect": "", "process.roles": "broker", **QUORUM}


class Quorum:
    """One controller, with its manual steps: the claim, the copy, the states of the migration."""

    def __init__(self, world: World) -> None:
        self.world = world
        node = world.node(paths.CLUSTER_ID)
        assert node is not None
        process = self.process = Process(world.loop, world.rng.fork("controller pool"))
        process.on_death = lambda: world.network.refuse(process)
        mount = Mount(SimDisk(SimClock(world.loop), world.rng.fork("controller disk")), process)
        cluster_id = decode_cluster_id("", node.data)
        format_directory(
            mount, SimClock(world.loop), world.rng, "/data", node_id=CONTROLLER, cluster_id=cluster_id, voters=()
        )
        endpoint = Endpoint("CONTROLLER", "PLAINTEXT", HOST, PORT)
        config, _ = BrokerConfig.parse(
            {
                "process.roles": "controller",
                "node.id": str(CONTROLLER),
                "log.dirs": "/data",
                "listeners": f"CONTROLLER://{HOST}:{PORT}",
                **QUORUM,
            }
        )
        peers = SimPeerNetwork(world.network, process, HOST)
        runtime = NodeRuntime(mount, SimClock(world.loop), world.rng.fork("controller"), process, process)
        self.broker = Broker(config, runtime, MetricsRegistry(), peers=Peers(peers, peers))
        self.broker.open([endpoint])
        world.network.listen(
            (HOST, PORT), ListeningProcess(process, self.broker.controller_dispatcher, endpoint.listener)
        )
        started = world.loop.create_task(self.broker.start())
        world.until(started.done)
        started.result()
        self.state(ZkMigrationState.PRE_MIGRATION)

    @property
    def image(self) -> Any:
        return self.broker.image

    def knows(self, *broker_ids: int) -> bool:
        """Unfenced, all of them."""
        brokers = self.image.brokers
        return set(brokers) == set(broker_ids) and not any(each.fenced for each in brokers.values())

    def submit(self, *records: Any) -> None:
        answers: list[Any] = []
        self.broker.parts.control.controller.submit(
            lambda _image, _context: ControllerResult(list(records), None), lambda _none, error: answers.append(error)
        )
        self.world.until(lambda: answers)
        assert answers == [None]

    def claim(self) -> None:
        world = self.world
        epoch = world.node(paths.CONTROLLER_EPOCH)
        assert epoch is not None
        number = decode_controller_epoch("", epoch.data) + 1
        claim = encode_controller(ControllerClaim(CONTROLLER, 0, 1))
        world.write(
            Delete(paths.CONTROLLER),
            SetData(
                paths.CONTROLLER_EPOCH,
                encode_controller_epoch(number),
                epoch.version,
            ),
            Create(paths.CONTROLLER, claim),
        )

    def copy(self) -> None:
        known = read_cluster(self.world.server.tree(), lambda _name: b"").known
        left_out = (RegisterBrokerRecord, FeatureLevelRecord)
        self.submit(*(each for each in known if not isinstance(each.message, left_out)))

    def state(self, state: int) -> None:
        self.submit(versioned(ZkMigrationStateRecord(zk_migration_state=state)))

    def write_back(self) -> None:
        """Write the quorum's partition changes to the tree."""
        for topic in self.image.topics.values():
            for index, one in topic.partitions.items():
                path = paths.state(topic.name, index)
                node = self.world.node(path)
                assert node is not None
                state = PartitionState(one.leader, one.leader_epoch, tuple(one.isr), 0)
                self.world.write(SetData(path, encode_state(state), node.version))
        self.process.kill()
        self.world.write(Delete(paths.CONTROLLER))

    def take_over(self) -> None:
        self.claim()
        self.copy()
        self.state(ZkMigrationState.MIGRATION)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cluster(world: World) -> Cluster:
    """On ZooKeeper, ready to be migrated, with a topic that has a record."""
    cluster = Cluster(world)
    cluster.settings = {name.replace(".", "_"): value for name, value in TO_QUORUM.items()}
    cluster.start(*IDS)
    create(cluster, 1, *IDS)
    produce(cluster, b"a")
    world.until(cluster.in_sync)
    return cluster


@pytest.fixture
def quorum(world: World, cluster: Cluster) -> Quorum:
    quorum = Quorum(world)
    world.until(lambda: quorum.knows(*IDS))
    return quorum


def migrate(cluster: Cluster, quorum: Quorum) -> None:
    quorum.take_over()
    cluster.world.until(cluster.agree)
    cluster.world.until(lambda: all(rules(life) for life in cluster.lives.values()))


def rules(life: Any) -> bool:
    """Whether the broker follows the quorum."""
    migrating = life.broker.parts.control.metadata.migrating
    return migrating is None or migrating.quorum_is_owner


def knows_quorum(cluster: Cluster) -> bool:
    """Whether a copy of its log is on the disk of broker 1."""
    disk = Mount(cluster.machines[1].disk, cluster.lives[1].process)
    return disk.exists(f"/data/{METADATA_DIR}")


def in_quorum(cluster: Cluster) -> None:
    cluster.settings = {name.replace(".", "_"): value for name, value in IN_QUORUM.items()}


def test_brokers_follow_zookeeper_until_the_tree_is_copied(world: World, cluster: Cluster, quorum: Quorum) -> None:
    assert not quorum.image.topics
    produce(cluster, b"b")
    before = cluster.lives[1].broker.image
    quorum.claim()
    quorum.copy()
    world.run(5)
    assert cluster.lives[1].broker.image is before
    assert not any(rules(life) for life in cluster.lives.values())
    quorum.state(ZkMigrationState.MIGRATION)
    world.until(lambda: all(rules(life) for life in cluster.lives.values()))
    image = cluster.lives[1].broker.image
    assert image.offset > before.offset
    assert image.topics == quorum.image.topics
    produce(cluster, b"c")
    world.until(cluster.in_sync)
    world.until(lambda: cluster.ends() == {3})


def test_topics_are_made_by_the_quorum_once_it_rules(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    create(cluster, 2, *IDS, name="u")
    assert "u" in quorum.image.topics
    assert world.node(paths.topic("u")) is None


def test_broker_without_zookeeper_learns_of_the_quorum_from_it(world: World, cluster: Cluster, quorum: Quorum) -> None:
    away = next(each for each in IDS if each != cluster.controller)
    for each in (away, cluster.controller):
        cluster.lives[each].session.cut(away_s=60.0)
    quorum.take_over()
    world.until(lambda: rules(cluster.lives[away]), 20)
    world.until(lambda: all(rules(life) for life in cluster.lives.values()), 20)
    produce(cluster, b"b")
    world.run(90)
    assert all(rules(life) for life in cluster.lives.values())
    assert not any(life.fatal for life in cluster.lives.values())
    produce(cluster, b"c")
    world.until(lambda: cluster.ends() == {3})


def test_isr_changes_go_to_the_quorum(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    cluster.kill(2)
    world.until(lambda: cluster.partition().isr == (1, 3) or set(cluster.partition().isr) == {1, 3})
    produce(cluster, b"b")
    cluster.begin(2)
    cluster.lives[2].serves()
    assert rules(cluster.lives[2])
    world.until(cluster.in_sync)
    produce(cluster, b"c")
    world.until(lambda: cluster.ends() == {3})


def test_broker_that_starts_between_controllers_waits(world: World, cluster: Cluster, quorum: Quorum) -> None:
    quorum.claim()
    cluster.kill(3)
    cluster.begin(3)
    world.run(20)
    assert not cluster.lives[3].start.done()
    quorum.copy()
    quorum.state(ZkMigrationState.MIGRATION)
    cluster.lives[3].serves()
    world.until(cluster.in_sync)
    world.run(180)  # nor does anything end it because no controller of the tree has let it in
    assert not cluster.lives[3].fatal
    produce(cluster, b"b")


def test_brokers_restart_in_the_quorum_and_go_back(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    there, back = {**cluster.settings}, (1, 2)
    in_quorum(cluster)
    for each in back:
        cluster.stop(each)
        cluster.begin(each)
        cluster.lives[each].serves()
        world.until(cluster.in_sync)
        produce(cluster, b"b")
    cluster.settings = there
    for each in back:
        cluster.stop(each)
        cluster.begin(each)
        cluster.lives[each].serves()
        world.until(cluster.in_sync)
        produce(cluster, b"c")
    quorum.write_back()
    world.until(lambda: cluster.world.node(paths.CONTROLLER) is not None)
    world.until(lambda: not any(rules(life) for life in cluster.lives.values()))
    world.until(cluster.agree)
    world.until(cluster.in_sync)
    assert decode_controller("", world.node(paths.CONTROLLER).data).broker_id in IDS
    produce(cluster, b"d")
    world.until(lambda: cluster.ends() == {6})


def test_a_broker_back_on_zookeeper_alone_forgets_the_quorum(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    quorum.write_back()
    world.until(lambda: not any(rules(life) for life in cluster.lives.values()))
    world.until(cluster.in_sync)
    assert knows_quorum(cluster)
    cluster.settings = {}
    cluster.stop(1)
    cluster.start(1)
    world.until(cluster.in_sync)
    assert not knows_quorum(cluster)
    produce(cluster, b"b")


def test_a_final_migration_has_no_way_back(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    there = cluster.settings
    quorum.state(ZkMigrationState.POST_MIGRATION)
    in_quorum(cluster)
    cluster.stop(1)
    cluster.begin(1)
    cluster.lives[1].serves()
    cluster.stop(1)
    cluster.settings = there
    cluster.begin(1)
    assert "version 1" in cluster.lives.pop(1).refusal()


@pytest.mark.parametrize("how", ["forgotten", "let go"])
def test_broker_unknown_to_the_final_quorum_ends(world: World, cluster: Cluster, quorum: Quorum, how: str) -> None:
    migrate(cluster, quorum)
    quorum.state(ZkMigrationState.POST_MIGRATION)
    world.run(10)
    assert not any(life.fatal for life in cluster.lives.values()), "a known broker keeps serving"
    epoch = quorum.image.brokers[1].broker_epoch
    gone: Any = UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)
    if how == "let go":
        gone = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1, in_controlled_shutdown=1)
    quorum.submit(versioned(gone))
    world.until(lambda: cluster.lives[1].fatal)
    (error,) = cluster.lives[1].fatal
    assert isinstance(error, OperatorError)
    assert "is final" in str(error)
    assert "process.roles=broker" in str(error)
    world.run(10)
    assert not any(cluster.lives[each].fatal for each in (2, 3))


def test_zookeeper_only_broker_does_not_start_under_a_quorum(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    cluster.stop(1)
    cluster.settings = {}
    cluster.begin(1)
    assert "zookeeper.metadata.migration.enable" in cluster.lives.pop(1).refusal()


def test_broker_that_never_followed_does_not_start_in_quorum(world: World) -> None:
    cluster = Cluster(world)
    cluster.start(1)
    cluster.kill(1)
    in_quorum(cluster)
    cluster.begin(1)
    assert "no quorum has taken over" in cluster.lives.pop(1).refusal()


def test_broker_does_not_start_in_quorum_before_its_takeover(world: World, cluster: Cluster, quorum: Quorum) -> None:
    cluster.stop(1)
    in_quorum(cluster)
    cluster.settings["initial_broker_registration_timeout_ms"] = "5000"
    cluster.begin(1)
    assert "ZooKeeper stores the cluster" in cluster.lives.pop(1).refusal()


def test_no_quorum_is_needed_before_it_rules(world: World, cluster: Cluster) -> None:
    assert address_of(1)
    cluster.kill(1)
    cluster.start(1)
    world.until(cluster.in_sync)
    produce(cluster, b"b")
