"""Brokers on a simulated ZooKeeper with two data directories each, of which one fails, is back, or is another's."""

from __future__ import annotations

import pytest
from simulation.disk import Mount
from simulation.loop import Process

from ottla.metadata.image import NO_LEADER
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.topics import PartitionState, decode_state

from .brokers import Life, Machines, World
from .test_three_brokers import Cluster, create, produce

BOTH = {"log_dirs": "/data,/more"}
MEMORY = "/data/.ottla_siblings"
COUNT = 4
WITHIN_S = 60.0


@pytest.fixture
def world() -> World:
    return World()


def tool(world: World, machine: Machines) -> Mount:
    """Another process on the machine."""
    return Mount(machine.disk, Process(world.loop, world.rng.fork("tool")))


def held(life: Life, directory: str) -> set[int]:
    """The partitions of `t` that lie there."""
    return {log.partition for log in life.broker.parts.logs.logs() if log.directory.startswith(f"{directory}/t-")}


def states(world: World) -> dict[int, PartitionState]:
    """Partition states in the tree."""
    found = {}
    for number in range(COUNT):
        node = world.node(paths.state("t", number))
        assert node is not None
        found[number] = decode_state("", node.data)
    return found


def offline(world: World) -> set[int]:
    return {number for number, state in states(world).items() if state.leader == NO_LEADER}


def appended(life: Life) -> set[int]:
    """Partitions that take a record."""
    client = life.connect()
    return {number for number in range(COUNT) if client.produce("t", b"x", partition=number).error_code == 0}


def with_records(world: World, machine: Machines) -> Life:
    life = machine.begin(**BOTH)
    life.serves()
    life.connect().create_topic("t", COUNT)
    assert appended(life) == {*range(COUNT)}
    assert len(held(life, "/data")) == len(held(life, "/more")) == 2
    return life


@pytest.mark.parametrize("failing", ["/data", "/more"])
def test_one_that_fails_takes_its_partitions_only(world: World, failing: str) -> None:
    machine = Machines(world)
    life = with_records(world, machine)
    lost = held(life, failing)
    kept = {*range(COUNT)} - lost
    machine.disk.failed_directory = failing
    assert appended(life) == kept
    world.until(lambda: offline(world) == lost)
    assert all(tuple(states(world)[number].isr) == (1,) for number in lost), (
        "no other broker has the acknowledged records"
    )
    assert not life.fatal
    life.session.expire()  # another term, which knows no directory
    world.until(lambda: world.node(paths.CONTROLLER) is None)
    world.until(lambda: life.broker.image.epoch > 1 and offline(world) == lost, WITHIN_S)
    world.until(lambda: appended(life) == kept, WITHIN_S)

    life.kill()
    life = machine.begin(**BOTH)  # while it is failed
    life.serves()
    world.until(lambda: offline(world) == lost, WITHIN_S)
    assert appended(life) == kept

    life.kill()
    machine.disk.failed_directory = ""
    life = machine.begin(**BOTH)
    life.serves()
    assert not offline(world)
    assert held(life, failing) == lost
    assert appended(life) == {*range(COUNT)}
    ends = {log.partition: log.log_end_offset for log in life.broker.parts.logs.logs() if log.topic == "t"}
    assert all(ends[number] == 2 for number in lost)


def test_it_is_back_with_its_broker_and_not_before(world: World) -> None:
    cluster = Cluster(world, **BOTH)
    cluster.start(1, 2)
    controller, victim = cluster.controller, cluster.followers[0]
    life = cluster.lives[victim]
    life.connect().create_topic("t", COUNT)
    world.until(lambda: "t" in life.broker.image.topics)
    world.until(lambda: len(appended(life)) == COUNT // 2)
    own, lost = appended(life), held(life, "/more")
    assert len(lost) == 1
    cluster.machines[victim].disk.failed_directory = "/more"
    assert appended(life) == own - lost
    world.until(lambda: offline(world) == lost)
    cluster.start(3)  # its registration causes elections wherever a leader is missing
    world.run(10)
    assert offline(world) == lost
    cluster.kill(victim)
    cluster.machines[victim].disk.failed_directory = ""
    cluster.start(victim)
    world.until(lambda: not offline(world))
    world.until(lambda: appended(cluster.lives[victim]) == own)
    assert cluster.controller == controller, "a new term would have no knowledge of it"


def test_others_lead_what_one_has_lost(world: World) -> None:
    cluster = Cluster(world, **BOTH)
    cluster.start(1, 2, 3)
    create(cluster, 1, 1, 2, 3)
    produce(cluster, b"a")
    world.until(cluster.in_sync)
    leader = cluster.partition().leader
    failing = "/data" if held(cluster.lives[leader], "/data") else "/more"
    cluster.machines[leader].disk.failed_directory = failing
    assert cluster.leader().produce("t", b"b").error_code != 0
    world.until(
        lambda: all(cluster.partition(each).leader not in (NO_LEADER, leader) for each in cluster.lives.values())
    )
    world.until(lambda: leader not in cluster.partition().isr)
    produce(cluster, b"b")
    assert not cluster.lives[leader].fatal
    cluster.machines[leader].disk.failed_directory = ""
    cluster.kill(leader)
    world.until(cluster.agree)
    cluster.start(leader)
    world.until(cluster.in_sync)
    produce(cluster, b"c")
    world.until(lambda: cluster.ends() == {3})


def test_a_start_with_another_clusters_directory_is_refused(world: World) -> None:
    machine = Machines(world)
    disk = tool(world, machine)
    disk.makedirs("/more")
    other = f"version=0\nbroker.id=1\ncluster.id={'o' * 22}\ndirectory.id={'d' * 22}\n"
    disk.write_atomic("/more/meta.properties", other.encode())
    life = machine.begin()
    life.serves()
    life.stop()
    assert f"belongs to cluster {'o' * 22}" in machine.begin(**BOTH).refusal()


def test_a_copied_directory_is_refused(world: World) -> None:
    machine = Machines(world)
    machine.up().stop()
    disk = tool(world, machine)
    disk.makedirs("/more")
    disk.write_atomic("/more/meta.properties", disk.read_bytes("/data/meta.properties"))
    assert "so one is a copy of the other" in machine.begin(**BOTH).refusal()


def test_the_first_may_be_new(world: World) -> None:
    machine = Machines(world)
    life = machine.begin(log_dirs="/more")
    life.serves()
    life.connect().create_topic("t", COUNT)
    life.stop()
    life = machine.begin(**BOTH)
    life.serves()
    assert held(life, "/more") == {*range(COUNT)}
    assert appended(life) == {*range(COUNT)}


class TestTakenOutOfLogDirs:
    """No znode contains replica directories, so the existing directories know which ones were next to them."""

    def test_only_replica_is_not_recreated_empty(self, world: World) -> None:
        machine = Machines(world)
        life = with_records(world, machine)
        lost = held(life, "/more")
        life.stop()
        life = machine.begin(log_dirs="/data")
        life.serves()
        world.until(lambda: offline(world) == lost, WITHIN_S)
        assert appended(life) == {*range(COUNT)} - lost
        assert not held(life, "/more")
        life.connect().create_topic("u", 2)
        world.until(lambda: life.connect().produce("u", b"x", partition=1).error_code == 0)
        life.stop()
        life = machine.begin(log_dirs="/data")  # and still knows it
        life.serves()
        world.until(lambda: offline(world) == lost, WITHIN_S)
        life.stop()
        life = machine.begin(**BOTH)
        life.serves()
        assert appended(life) == {*range(COUNT)}
        assert {log.log_end_offset for log in life.broker.parts.logs.logs() if log.partition in lost} >= {2}

    def test_other_brokers_lead_lost_replicas_and_restore_them(self, world: World) -> None:
        cluster = Cluster(world, **BOTH)
        cluster.start(1, 2, 3)
        create(cluster, 1, 1, 2, 3)
        produce(cluster, b"a")
        world.until(cluster.in_sync)
        gone = "/data" if held(cluster.lives[1], "/data") else "/more"
        cluster.stop(1)
        cluster.settings = {"log_dirs": "/more" if gone == "/data" else "/data"}
        cluster.start(1)
        world.until(cluster.in_sync)
        produce(cluster, b"b")
        world.until(lambda: cluster.ends() == {2})

    def test_one_that_is_alone_remembers_nothing(self, world: World) -> None:
        machine = Machines(world)
        machine.up().stop()
        assert not tool(world, machine).exists(MEMORY)

    @pytest.mark.parametrize(
        "content", [None, b"", b"AAAAAAAAAAAAAAAA", b"\xff\x00 no id\n"], ids=["missing", "empty", "cut", "garbage"]
    )
    def test_loss_is_remembered_by_the_other_directory(self, world: World, content: bytes | None) -> None:
        machine = Machines(world)
        with_records(world, machine).stop()
        disk = tool(world, machine)
        disk.unlink(MEMORY)
        if content is not None:
            disk.write_atomic(MEMORY, content)
        life = machine.begin(**BOTH)
        life.serves()
        assert appended(life) == {*range(COUNT)}
        assert len(disk.read_bytes(MEMORY).split()) == 2

    def test_a_bit_that_is_another_one_costs_no_record(self, world: World) -> None:
        """It may name a directory that never was, of which every replica that is here knows nothing."""
        machine = Machines(world)
        with_records(world, machine).stop()
        disk = tool(world, machine)
        whole = disk.read_bytes(MEMORY)
        for position in range(len(whole)):
            spoiled = bytearray(whole)
            spoiled[position] ^= 1 << world.rng.randrange(8)
            disk.write_atomic(MEMORY, bytes(spoiled))
            life = machine.begin(**BOTH)
            life.serves()
            assert appended(life) == {*range(COUNT)}, bytes(spoiled)
            assert {log.log_end_offset for log in life.broker.parts.logs.logs() if log.topic == "t"} == {position + 2}
            life.stop()

    @pytest.mark.parametrize("damage", ["a directory", "not to be read"])
    @pytest.mark.parametrize("log_dirs", ["/data,/more", "/data"])
    def test_one_that_cannot_be_read_is_named(
        self, world: World, caplog: pytest.LogCaptureFixture, damage: str, log_dirs: str
    ) -> None:
        machine = Machines(world)
        life = with_records(world, machine)
        lost = held(life, "/data")
        life.stop()
        disk = tool(world, machine)
        if damage == "a directory":
            disk.unlink(MEMORY)
            disk.makedirs(MEMORY)
        else:
            machine.disk.failed_directory = MEMORY
        life = machine.begin(log_dirs=log_dirs)
        if log_dirs == "/data":
            assert MEMORY in life.refusal()
            return
        life.serves()
        assert MEMORY in caplog.text
        world.until(lambda: offline(world) == lost, WITHIN_S)
        assert appended(life) == {*range(COUNT)} - lost
