"""Topics and partitions that a tool writes beside a running controller, as `kafka-topics --zookeeper` did."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.metadata.image import NO_LEADER
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Create, SetData
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, decode_topic

from .nodes import World
from .test_reigns import cluster, made
from .world import content

OTHERS_ID = bytes(range(16))


def old(*replicas: tuple[int, ...]) -> bytes:
    """A topic in the format of Kafka 0.9."""
    return json.dumps(
        {"version": 1, "partitions": {str(number): each for number, each in enumerate(replicas)}}
    ).encode()


def written(world: World, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
    """By its tool: settings first."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    path = paths.entity(paths.CONFIG_TOPICS, name)
    world.write(Create(path, json.dumps({"version": 1, "config": settings}).encode()))
    world.write(Create(paths.topic(name), old(*replicas)))


def znode(world: World, name: str) -> TopicAssignment:
    return decode_topic("", world.server.tree()[paths.topic(name)].data)


def images_agree(world: World) -> bool:
    node = world.active
    return node is not None and node.log.settled and content(node.publisher.image) == content(world.tree)


def led(world: World, name: str, *leaders: int) -> Any:
    """Once the partitions of a topic are led by these; the topic."""

    def is_led() -> bool:
        node = world.active
        topic = None if node is None else node.publisher.image.topics.get(name)
        return topic is not None and tuple(each.leader for each in topic.partitions.values()) == leaders

    world.until(is_led)
    world.until(lambda: images_agree(world))
    return world.tree.topics[name]


def test_a_topic_is_made() -> None:
    world = cluster(1, 2)
    written(world, "t", (1, 2), (2, 1), retention_ms="5")
    topic = led(world, "t", 1, 2)
    assert znode(world, "t") == TopicAssignment(topic.topic_id, {0: Assignment((1, 2)), 1: Assignment((2, 1))})
    assert world.tree.topic_configs("t") == {"retention.ms": "5"}
    assert [world.partition("t", number).isr for number in (0, 1)] == [(1, 2), (2, 1)]
    written(world, "u", (2,))
    assert led(world, "u", 2).topic_id != topic.topic_id


def test_replicas_that_are_not_there_are_not_in_sync() -> None:
    world = cluster(1, 2)
    written(world, "t", (3, 2, 1), (3,))
    led(world, "t", 2, NO_LEADER)
    assert world.partition("t").isr == (2, 1)
    world.join(3)
    led(world, "t", 2, 3)


def test_partitions_are_added() -> None:
    world = cluster(1, 2)
    made(world, "t", (1, 2), retention_ms="5")
    topic_id = world.tree.topics["t"].topic_id
    world.write(SetData(paths.topic("t"), old((1, 2), (2, 1), (2,)), -1))
    assert led(world, "t", 1, 2, 2).topic_id == topic_id
    assert znode(world, "t").topic_id == topic_id
    world.write(SetData(paths.topic("t"), old((1, 2), (2, 1), (2,), (1,)), -1))
    assert led(world, "t", 1, 2, 2, 1).topic_id == topic_id
    assert world.tree.topic_configs("t") == {"retention.ms": "5"}


@pytest.mark.parametrize("replicas", [[(1, 2)], [(2, 1), (2, 1)], [(1,), (2, 1)], []])
def test_invalid_partition_change_is_corrected(replicas: list[tuple[int, ...]]) -> None:
    world = cluster(1, 2)
    made(world, "t", (1, 2), (2, 1))
    before = znode(world, "t")
    world.write(SetData(paths.topic("t"), old(*replicas), -1))
    world.until(lambda: znode(world, "t") == before)
    world.until(lambda: images_agree(world))
    assert len(world.tree.topics["t"].partitions) == 2


def test_what_can_not_be_read_is_left_out_until_it_can() -> None:
    world = cluster(1)
    world.write(Create(paths.topic("t"), b"no JSON"))
    made(world, "u", (1,))
    assert set(world.settled().publisher.image.topics) == {"u"}
    world.write(SetData(paths.topic("t"), old((1,)), -1))
    led(world, "t", 1)


def test_a_topic_that_is_deleted_does_not_come_back() -> None:
    world = cluster(1, 2)
    for number in range(20):
        made(world, f"t{number}", (1, 2))
        world.write(Create(paths.deletion(f"t{number}"), b""))
    world.until(lambda: not world.tree.topics)
    world.run(5.0)
    world.until(lambda: images_agree(world))
    assert not world.settled().publisher.image.topics
    written(world, "t0", (1,))
    led(world, "t0", 1)


def test_an_id_that_another_topic_has_is_not_taken() -> None:
    world = cluster(1)
    made(world, "t", (1,))
    world.write(Create(paths.topic("u"), world.server.tree()[paths.topic("t")].data))
    assert led(world, "u", 1).topic_id != world.tree.topics["t"].topic_id


def test_id_omitted_by_an_old_tool_is_known_to_next_controller() -> None:
    world = cluster(1, 2)
    made(world, "t", (1, 2))
    topic_id = world.tree.topics["t"].topic_id
    node = world.settled()
    world.until(lambda: all("t" in each.publisher.image.topics for each in world.nodes.values()))
    node.kill()
    world.write(SetData(paths.topic("t"), old((1, 2), (2, 1)), -1))
    world.until(lambda: world.active not in (None, node))
    assert led(world, "t", 1, 2).topic_id == topic_id
