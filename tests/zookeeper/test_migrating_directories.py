"""Brokers with two data directories each on the way from a simulated ZooKeeper to a quorum, and back."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.disk import Mount

from ottla.common.kafka.ids import uuid_from_string
from ottla.metadata.image import NO_LEADER, ZkMigrationState
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

from .brokers import Life, World
from .test_directories import BOTH, held
from .test_migrating_brokers import TO_QUORUM, Quorum, in_quorum, migrate, rules
from .test_three_brokers import IDS, Cluster

COUNT = 6


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cluster(world: World) -> Cluster:
    """On ZooKeeper, ready to be migrated, with a topic that has a record in each partition."""
    cluster = Cluster(world)
    cluster.settings = {**BOTH, **{name.replace(".", "_"): value for name, value in TO_QUORUM.items()}}
    cluster.start(*IDS)
    create(cluster)
    produce(cluster)
    return cluster


@pytest.fixture
def quorum(world: World, cluster: Cluster) -> Quorum:
    quorum = Quorum(world)
    world.until(lambda: quorum.knows(*IDS))
    return quorum


def create(cluster: Cluster, name: str = "t", replicas: tuple[int, ...] = IDS) -> None:
    """Each replica is the preferred leader of as many partitions as the others."""
    turns = [(number % len(replicas), number) for number in range(COUNT)]
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=[*replicas[first:], *replicas[:first]])
        for first, number in turns
    ]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (made,) = cluster.lives[1].connect().ask(request, 7).topics
    assert made.error_code == 0, made.error_message
    cluster.world.until(lambda: all(name in life.broker.image.topics for life in cluster.lives.values()))


def partition(life: Life, number: int) -> Any:
    return life.broker.image.topics["t"].partitions[number]


def in_sync(cluster: Cluster) -> bool:
    return all(
        set(partition(life, number).isr) == set(cluster.lives)
        for life in cluster.lives.values()
        for number in range(COUNT)
    )


def produce(cluster: Cluster) -> None:
    """A record into each partition, acknowledged by all that are in sync."""
    for number in range(COUNT):

        def attempt(number: int = number) -> bool:
            leader = partition(next(iter(cluster.lives.values())), number).leader
            if leader not in cluster.lives:
                return False
            return bool(cluster.lives[leader].connect().produce("t", b"x", partition=number).error_code == 0)

        cluster.world.until(attempt)


def ends(cluster: Cluster) -> set[int]:
    logs = [log for life in cluster.lives.values() for log in life.broker.parts.logs.logs() if log.topic == "t"]
    assert len(logs) == COUNT * len(cluster.lives)
    return {log.log_end_offset for log in logs}


def directory_ids(life: Life) -> dict[int, bytes]:
    """The directories of the partitions of `t` on disk."""
    found = {}
    for directory in life.broker.parts.logs.directories:
        for topic, number in directory.logs:
            if topic == "t":
                found[number] = directory.directory_id
    return found


def knows_directories(cluster: Cluster, quorum: Quorum) -> bool:
    partitions = quorum.image.topics["t"].partitions
    return all(
        partitions[number].directory_of(broker_id) == directory_id
        for broker_id, life in cluster.lives.items()
        for number, directory_id in directory_ids(life).items()
    )


def meta(cluster: Cluster, broker_id: int, directory: str) -> dict[str, str]:
    disk = Mount(cluster.machines[broker_id].disk, cluster.lives[broker_id].process)
    lines = disk.read_bytes(f"{directory}/meta.properties").decode().splitlines()
    return dict(line.split("=") for line in lines if "=" in line)


def restart(cluster: Cluster, broker_id: int) -> Life:
    life = cluster.lives.pop(broker_id)
    over = cluster.world.loop.create_task(life.broker.hand_over())
    cluster.world.until(over.done)
    life.stop()
    cluster.begin(broker_id)
    cluster.lives[broker_id].serves()
    cluster.world.until(lambda: in_sync(cluster))
    return cluster.lives[broker_id]


def test_the_quorum_learns_where_replicas_lie(world: World, cluster: Cluster, quorum: Quorum) -> None:
    before = {each: directory_ids(life) for each, life in cluster.lives.items()}
    assert all(len(set(found.values())) == 2 for found in before.values())
    migrate(cluster, quorum)
    world.until(lambda: knows_directories(cluster, quorum))
    assert before == {each: directory_ids(life) for each, life in cluster.lives.items()}
    world.until(lambda: in_sync(cluster))
    produce(cluster)
    world.until(lambda: ends(cluster) == {2})


def test_brokers_go_there_and_back_with_all_directories(world: World, cluster: Cluster, quorum: Quorum) -> None:
    before = {each: directory_ids(life) for each, life in cluster.lives.items()}
    migrate(cluster, quorum)
    back = {**cluster.settings}
    in_quorum(cluster)
    cluster.settings = {**cluster.settings, **BOTH}
    for each in IDS:
        restart(cluster, each)
        assert meta(cluster, each, "/more")["version"] == "0"
    produce(cluster)
    cluster.settings = back
    for each in IDS:
        restart(cluster, each)
    quorum.write_back()
    world.until(lambda: not any(rules(life) for life in cluster.lives.values()))
    world.until(cluster.agree)
    world.until(lambda: in_sync(cluster))
    produce(cluster)
    world.until(lambda: ends(cluster) == {3})
    assert before == {each: directory_ids(life) for each, life in cluster.lives.items()}


def test_directory_failure_under_quorum_affects_its_partitions(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    world.until(lambda: in_sync(cluster) and knows_directories(cluster, quorum))
    life = cluster.lives[1]
    lost = held(life, "/more")
    cluster.machines[1].disk.failed_directory = "/more"
    for number in lost:
        if partition(life, number).leader == 1:
            assert life.connect().produce("t", b"y", partition=number).error_code != 0
    failed = uuid_from_string(meta_of_failed(life))
    world.until(lambda: failed not in quorum.image.brokers[1].log_dirs, 120)
    world.until(
        lambda: all(
            (1 in partition(life, number).isr) == (number not in lost) and partition(life, number).leader != NO_LEADER
            for number in range(COUNT)
        ),
        120,
    )
    assert not life.fatal
    produce(cluster)


def meta_of_failed(life: Life) -> str:
    (directory,) = life.broker.parts.logs.offline_directories
    assert directory.meta is not None
    return directory.meta.directory_id


def test_directory_failed_on_zookeeper_is_reported_to_quorum(world: World, cluster: Cluster) -> None:
    quorum = Quorum(world)
    world.until(lambda: quorum.knows(*IDS))
    life = cluster.lives[1]
    create(cluster, "alone", (1,))
    lost = {
        number
        for directory in life.broker.parts.logs.directories
        for topic, number in directory.logs
        if topic == "alone" and directory.path == "/more"
    }
    assert lost
    cluster.machines[1].disk.failed_directory = "/more"
    for number in range(COUNT):
        life.connect().produce("alone", b"y", partition=number)

    def led() -> set[int]:
        partitions = life.broker.image.topics["alone"].partitions
        return {number for number in range(COUNT) if partitions[number].leader == 1}

    world.until(lambda: led() == {*range(COUNT)} - lost, 120)
    migrate(cluster, quorum)
    world.until(lambda: rules(life))
    world.run(60)
    assert led() == {*range(COUNT)} - lost
    assert not life.fatal
    produce(cluster)


def test_all_directories_become_the_quorums_when_it_is_final(world: World, cluster: Cluster, quorum: Quorum) -> None:
    migrate(cluster, quorum)
    on_both = {**cluster.settings}
    in_quorum(cluster)
    cluster.settings = {**cluster.settings, **BOTH}
    quorum.state(ZkMigrationState.POST_MIGRATION)
    restart(cluster, 1)
    left = {name: meta(cluster, 1, name) for name in ("/data", "/more")}
    assert all((each["version"], each["node.id"]) == ("1", "1") for each in left.values())

    text = f"version=0\nbroker.id=1\ncluster.id={left['/more']['cluster.id']}\n"
    text += f"directory.id={left['/more']['directory.id']}\n"
    disk = Mount(cluster.machines[1].disk, cluster.lives[1].process)
    disk.write_atomic("/more/meta.properties", text.encode())  # as one that was away then has it
    restart(cluster, 1)
    assert meta(cluster, 1, "/more") == left["/more"]
    produce(cluster)

    cluster.settings = on_both
    cluster.kill(2)
    cluster.begin(2)
    assert "the migration of this cluster from ZooKeeper is final" in cluster.lives.pop(2).refusal()
