"""A change interrupted by a controller's death leaves a consistent cluster, and the next controller completes it."""

from __future__ import annotations

from copy import deepcopy

import pytest
from simulation.zookeeper import SimZooKeeper

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.acl import Acl
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Create, Operation, SetData, size_bytes
from ottla.protocol.znodes.session import Code, ZooKeeperError
from ottla.zookeeper.batches import MAX_BATCH_BYTES, Group, batches
from ottla.zookeeper.reading import NO_STATE, acl_id

from .world import (
    EVERYTHING,
    GUARD,
    OLD_TOPIC_ID,
    TOPIC,
    Controller,
    a_partition,
    a_setting,
    a_topic,
    an_acl,
    check_valid,
    content,
    id_of,
    seen,
)

PARTITIONS = 10_000


def moved(index: int, *replicas: int) -> PartitionChangeRecord:
    """Only the first of the new replicas is in sync, and leads."""
    return PartitionChangeRecord(
        partition_id=index, topic_id=id_of("t"), replicas=list(replicas), isr=[replicas[0]], leader=replicas[0]
    )


CHANGES: dict[str, list[object]] = {
    "a topic is made": [*a_topic("new", 3), a_setting(TOPIC, "new", "retention.ms", "1")],
    "a topic is removed": [RemoveTopicRecord(topic_id=id_of("t"))],
    "a topic grows": [a_partition("t", 3), a_partition("t", 4)],
    "replicas come": [
        PartitionChangeRecord(
            partition_id=index, topic_id=id_of("t"), replicas=[1, 2, 3], adding_replicas=[3], isr=[1, 2, 3]
        )
        for index in range(3)
    ],
    "replicas go": [moved(index, 2, 3) for index in range(3)],
    "all replicas are others": [moved(index, 8, 9) for index in range(3)],
    "much at once": [*EVERYTHING[-8:], *a_topic("new", 2), RemoveTopicRecord(topic_id=id_of("t"))],
}


def torn(group: Group) -> list[Operation]:
    """A call for this group alone: no change can be torn into less."""
    return [GUARD, *group]


def leaderless(image: MetadataImage) -> list[PartitionChangeRecord]:
    """The controller's actions for partitions without a leader."""
    return [
        PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=partition.isr[0])
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
        if partition.leader == -1
    ]


@pytest.mark.parametrize("name", CHANGES)
def test_the_next_controller_completes_what_was_begun(name: str) -> None:
    server = SimZooKeeper()
    Controller(server).change(*a_topic("t", 3), a_setting(TOPIC, "t", "retention.ms", "9"))
    last = deepcopy(server)
    whole = Controller(last)
    groups = whole.planned(*CHANGES[name])
    whole.send([torn(group) for group in groups])
    for done in range(len(groups) + 1):
        broken = deepcopy(server)
        first = Controller(broken)
        first.send([torn(group) for group in first.planned(*CHANGES[name])[:done]])
        broken.close(first.session)
        check_valid(seen(broken))
        following = Controller(broken)
        for topic in following.image.topics.values():
            # Each topic is one of before or of after, and nothing between.
            assert topic.name in {*seen(server).topics, *whole.image.topics}
        following.change(*leaderless(following.image))
        assert not leaderless(seen(broken))
        assert content(seen(broken)) == content(following.image)
        assert Controller(broken).repairs == []
        if done == len(groups):
            assert content(seen(broken)) == content(whole.image)
        if "t" not in following.image.topics:
            assert not [path for path in broken.tree() if "topics/t/" in f"{path}/"]


def test_a_topic_is_gone_with_the_first_call_of_its_removal() -> None:
    """Else the next controller would elect leaders for its partitions, from any broker that still has the log."""
    server = SimZooKeeper()
    first = Controller(server)
    first.change(*a_topic("t", 3))
    first.send(map(torn, first.planned(RemoveTopicRecord(topic_id=id_of("t")))[:1]))
    assert not seen(server).topics
    Controller(server)
    assert not [path for path in server.tree() if "topics/t/" in f"{path}/"]


def test_topic_with_an_interrupted_creation_can_be_created() -> None:
    server = SimZooKeeper()
    first = Controller(server)
    records = [*a_topic("t", 2), a_setting(TOPIC, "t", "retention.ms", "1")]
    first.send([torn(group) for group in first.planned(*records)[:1]])
    assert paths.entity(paths.CONFIG_TOPICS, "t") in server.tree()
    following = Controller(server)
    assert content(following.image) == content(seen(SimZooKeeper()))
    following.change(*a_topic("t", 2))
    assert seen(server).topic_configs("t") == {}


def test_ten_thousand_partitions() -> None:
    """Made, moved and removed in calls that a server takes, each prefix of which is a cluster."""
    server = SimZooKeeper()
    controller = Controller(server)
    sizes: list[int] = []

    def change(*records: object) -> int:
        calls = batches(controller.planned(*records), 0)
        sizes.extend(sum(map(size_bytes, call)) for call in calls)
        controller.send(calls[:-1])
        check_valid(seen(server))
        controller.send(calls[-1:])
        return len(calls)

    assert change(*a_topic("t", PARTITIONS)) > 5
    assert content(seen(server)) == content(controller.image)
    moves = [moved(index, 2, 3) for index in range(PARTITIONS)]
    assert change(*moves) > 5
    assert seen(server).topics["t"].partitions[PARTITIONS - 1].isr == (2,)
    calls = batches(controller.planned(RemoveTopicRecord(topic_id=id_of("t"))), 0)
    controller.send(calls[:2])
    assert not seen(server).topics
    assert not Controller(server).image.topics
    assert not [path for path in server.tree() if path.startswith(paths.topic("t"))]
    assert max(sizes) <= MAX_BATCH_BYTES
    assert len([size for size in sizes if size > MAX_BATCH_BYTES / 2]) >= len(sizes) - 3


def test_what_no_call_can_hold_is_refused_and_nothing_is_sent() -> None:
    server = SimZooKeeper()
    controller = Controller(server)
    large = a_topic("t", 1, tuple(range(1, 100_000)))
    with pytest.raises(KafkaError, match=r"/brokers/topics/t .*too large for ZooKeeper") as refused:
        controller.planned(*large)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    controller.change(*a_topic("t"))
    assert content(seen(server)) == content(controller.image)


def test_a_name_that_zookeeper_can_not_hold_is_refused() -> None:
    server = SimZooKeeper()
    controller = Controller(server)
    controller.change(*a_topic("t"))
    with pytest.raises(KafkaError, match="ZooKeeper can't store 'a/b'"):
        controller.planned(RemoveTopicRecord(topic_id=id_of("t")), an_acl(1), an_acl(2, "a/b"))
    controller.change(RemoveTopicRecord(topic_id=id_of("t")), an_acl(1))
    assert content(seen(server)) == content(controller.image)


@pytest.mark.parametrize("records", [a_topic("new", 2), [RemoveTopicRecord(topic_id=id_of("t"))], [an_acl(1)]])
def test_a_controller_that_is_none_any_more_changes_nothing(records: list[object]) -> None:
    server = SimZooKeeper()
    zombie = Controller(server)
    zombie.change(*a_topic("t"))
    calls = batches(zombie.planned(*records), 0)
    server.multi(server.connect(6000), [SetData(paths.CONTROLLER_EPOCH, b"8", 0)])
    before = server.tree()
    with pytest.raises(ZooKeeperError) as fenced:
        zombie.send(calls)
    assert (fenced.value.code, fenced.value.position) == (Code.BAD_VERSION, 0)
    assert server.tree() == before


def test_state_written_by_another_process_is_not_overwritten() -> None:
    server = SimZooKeeper()
    controller = Controller(server)
    controller.change(*a_topic("t"))
    path = paths.state("t", 0)
    server.multi(server.connect(6000), [SetData(path, server.tree()[path].data)])
    with pytest.raises(ZooKeeperError, match="BadVersion"):
        controller.change(PartitionChangeRecord(partition_id=0, topic_id=id_of("t"), leader=2))


class TestTools:
    """Changes that old tools write directly into the tree, as found by a controller."""

    def test_a_topic_without_an_id_and_without_states(self) -> None:
        server = SimZooKeeper()
        session = Controller(server).session
        server.multi(session, [Create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[2]}}')])
        partition = seen(server).topics["t"].partitions[0]
        assert (partition.leader, partition.isr, partition.partition_epoch) == (-1, (1, 2), NO_STATE)
        controller = Controller(server)
        assert seen(server).topics["t"].topic_id == OLD_TOPIC_ID
        assert b'"version":3' in server.tree()["/brokers/topics/t"].data
        controller.change(*leaderless(controller.image))
        assert content(seen(server)) == content(controller.image)
        assert seen(server).topics["t"].partitions[1].partition_epoch == 0

    def test_topic_deletion_request(self) -> None:
        server = SimZooKeeper()
        controller = Controller(server)
        controller.change(*a_topic("t", 2), *a_topic("u"))
        server.multi(controller.session, [Create(paths.deletion("t"), b""), Create(paths.deletion("absent"), b"")])
        assert list(seen(server).topics) == ["u"]
        Controller(server)
        assert not [path for path in server.tree() if path.startswith((paths.topic("t"), f"{paths.DELETE_TOPICS}/"))]

    def test_settings_without_data(self) -> None:
        server = SimZooKeeper()
        controller = Controller(server)
        server.multi(controller.session, [Create("/config/users/ann", b""), Create("/config/users/ann/clients", b"")])
        assert not seen(server).client_quotas


HOSTILE: list[tuple[str, bytes]] = [
    ("/brokers/ids/x", b""),
    ("/brokers/ids/01", b""),
    ("/brokers/ids/1", b"{}"),
    ("/brokers/topics/a b", b'{"version":3,"partitions":{}}'),
    (
        "/brokers/topics/t/partitions/0/state",
        b'{"version":1,"leader":9,"leader_epoch":0,"isr":[9],"controller_epoch":1}',
    ),
    ("/config/topics/a%20b%zz", b""),
    ("/config/users/ann", b'{"version":1,"config":{"producer_byte_rate":"Infinity"}}'),
    ("/config/users/ann", b'{"version":1,"config":{"producer_byte_rate":"1_0"}}'),
    ("/config/users/ann", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=a,stored_key=b,server_key=c,iterations=1"}}'),
    ("/config/clients/app", b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}'),
    ("/kafka-acl/Nothing", b""),
    ("/kafka-acl/Topic/t", b'{"version":1,"acls":[{}]}'),
]


@pytest.mark.parametrize(("path", "data"), HOSTILE)
def test_a_tree_that_makes_no_sense_is_refused_by_name(path: str, data: bytes) -> None:
    server = SimZooKeeper()
    controller = Controller(server)
    controller.change(*a_topic("t"), an_acl(1, "other"))
    write: list[Operation] = [Create(path, data)]
    if path in server.tree():
        write = [SetData(path, data)]
    server.multi(controller.session, write)
    with pytest.raises(ProtocolError, match="znode"):
        seen(server)


def test_acl_ids_are_the_same_for_all_readers() -> None:
    one, other = Acl(2, "t", 3, "User:a", "*", 3, 3), Acl(2, "t", 3, "User:a", "*", 3, 2)
    assert acl_id(one) == acl_id(Acl(*one))
    assert acl_id(one) != acl_id(other)
