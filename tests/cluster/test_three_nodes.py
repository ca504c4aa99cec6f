"""A cluster of three processes from its clients' view: it forms, serves, loses a node and continues."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.app.ports import HOST
from ottla.client.admin.brokers import describe_brokers, unregister_broker
from ottla.client.admin.cluster import Cluster
from ottla.client.admin.reassignments import PREFERRED, alter_reassignments, elect_leaders, list_reassignments
from ottla.client.views.health import FencedBroker, broker_loads
from ottla.client.wire.connection import Connection
from ottla.client.wire.model import ResourceType

from .nodes import SETTINGS, ZOOKEEPER, Node, Nodes, eventually, of_the_quorum

TIMEOUT_S = 60


def admin(*nodes: Node) -> AdminClient:
    return AdminClient({"bootstrap.servers": ",".join(node.address for node in nodes)})


def create(client: AdminClient, name: str, partitions: int = 3, replicas: int = 3, **config: str) -> None:
    topic = NewTopic(name, partitions, replicas, config={key.replace("_", "."): value for key, value in config.items()})
    client.create_topics([topic])[name].result(TIMEOUT_S)


def partitions(client: AdminClient, name: str) -> dict[int, Any]:
    """Return the partitions of the topic; empty while it is unknown."""
    try:
        return dict(client.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions)
    except KafkaException:
        return {}


def in_sync(client: AdminClient, name: str, count: int) -> bool:
    found = partitions(client, name)
    return bool(found) and all(len(part.isrs) == count and part.leader >= 0 for part in found.values())


def produce(nodes: Nodes, topic: str, values: list[str]) -> None:
    """Produce values with acks=all; raises if one is not acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": nodes.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "sticky.partitioning.linger.ms": 0,  # so that every partition gets some
        }
    )
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def consume(nodes: Nodes, topic: str, count: int, partition_count: int = 3) -> list[str]:
    """Return the first `count` values of all partitions, unordered."""
    consumer = Consumer(
        {"bootstrap.servers": nodes.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partition_count)])
    values: list[str] = []

    def poll() -> bool:
        values.extend(message.value().decode() for message in consumer.consume(500, 0.2) if message.error() is None)
        return len(values) >= count

    eventually(poll, f"{count} records of {topic}", TIMEOUT_S)
    consumer.close()
    return values


def led_by_others(client: AdminClient, name: str, node: Node) -> bool:
    """Return whether each partition of the topic has a leader other than this node."""
    found = partitions(client, name)
    return bool(found) and all(part.leader not in (-1, node.node_id) for part in found.values())


def controller_of(client: AdminClient) -> int:
    return int(client.list_topics(timeout=TIMEOUT_S).controller_id)


def knows_three(client: AdminClient) -> bool:
    """Return whether a client sees three brokers."""
    return len(client.list_topics(timeout=TIMEOUT_S).brokers) == 3


def test_the_cluster_forms_and_any_node_serves_admin_requests(steady: Nodes) -> None:
    clients = [admin(node) for node in steady.nodes]
    for client in clients:
        eventually(partial(knows_three, client), "three brokers")
    for number, client in enumerate(clients):
        create(client, f"topic-{number}", partitions=3)
    for number in range(3):
        for client in clients:
            eventually(
                partial(in_sync, client, f"topic-{number}", 3),
                "every node knows every topic with its whole ISR",
            )
    leaders = {part.leader for part in partitions(clients[0], "topic-0").values()}
    assert leaders == {1, 2, 3}, "leaderships are spread"
    clients[0].delete_topics(["topic-0"])["topic-0"].result(TIMEOUT_S)
    eventually(lambda: "topic-0" not in clients[2].list_topics(timeout=TIMEOUT_S).topics, "the topic is gone")


def test_killed_node_costs_only_retries_and_rejoins(nodes: Nodes) -> None:
    client = admin(*nodes.nodes)
    create(client, "t", min_insync_replicas="2")
    eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync")
    produce(nodes, "t", [f"before-{number}" for number in range(100)])
    victim = nodes[controller_of(client)]
    victim.kill()
    produce(nodes, "t", [f"after-{number}" for number in range(100)])
    expected = sorted([*(f"before-{n}" for n in range(100)), *(f"after-{n}" for n in range(100))])
    assert sorted(consume(nodes, "t", 200)) == expected
    others = admin(*(node for node in nodes.nodes if node is not victim))
    eventually(partial(led_by_others, others, "t", victim), "leaders have moved")
    victim.start()
    eventually(lambda: in_sync(client, "t", 3), "the node is in sync again")
    assert sorted(consume(nodes, "t", 200)) == expected


@of_the_quorum(reason="ZooKeeper does not list dead brokers")
def test_dead_broker_is_shown_with_its_last_metadata_fetch(nodes: Nodes) -> None:
    with Cluster(nodes.bootstrap_servers) as cluster:
        leader_id = cluster.quorum.describe().leader_id
        victim = next(node for node in nodes.nodes if node.node_id != leader_id)
        victim.kill()

        def fenced() -> list[FencedBroker]:
            return [load.last_seen for load in broker_loads(cluster) if load.last_seen is not None]

        (dead,) = eventually(fenced, "the session of the killed node ends", TIMEOUT_S)
    assert dead.node_id == victim.node_id
    assert dead.ago_ms is not None
    assert int(SETTINGS["broker.session.timeout.ms"]) - 1000 < dead.ago_ms < TIMEOUT_S * 1000


def test_a_rolling_restart_by_controlled_shutdown(steady: Nodes) -> None:
    """Leaderships move because a stopping node requests it, not because of its silence."""
    nodes = steady
    client = admin(*nodes.nodes)
    create(client, "t", min_insync_replicas="2")
    expected: list[str] = []
    for node in nodes.nodes:
        eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync")
        assert node.stop() == 0
        others = admin(*(each for each in nodes.nodes if each is not node))
        eventually(partial(led_by_others, others, "t", node), "it led nothing when it ended")
        batch = [f"without-{node.node_id}-{number}" for number in range(50)]
        produce(nodes, "t", batch)
        expected += batch
        node.start()
    assert sorted(consume(nodes, "t", len(expected))) == sorted(expected)


def test_all_nodes_restart(nodes: Nodes) -> None:
    client = admin(*nodes.nodes)
    create(client, "t")
    eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync")
    values = [str(number) for number in range(100)]
    produce(nodes, "t", values)
    for node in nodes.nodes:
        node.kill()
    nodes.start()
    eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync again")
    assert sorted(consume(nodes, "t", 100)) == sorted(values)


def test_groups_move_with_the_leaders_of_their_topic(nodes: Nodes) -> None:
    client = admin(*nodes.nodes)
    create(client, "t", partitions=1)
    produce(nodes, "t", [str(number) for number in range(10)])
    consumer = Consumer(
        {"bootstrap.servers": nodes.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    seen: list[bytes] = []

    def poll(count: int) -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return len(seen) >= count

    eventually(lambda: poll(10), "ten records")
    eventually(lambda: in_sync(client, "__consumer_offsets", 3), "the offsets have three replicas")
    consumer.commit(asynchronous=False)
    nodes[partitions(client, "__consumer_offsets")[0].leader].kill()
    produce(nodes, "t", [str(number) for number in range(10, 20)])
    eventually(lambda: poll(20), "ten more records", 60.0)
    assert sorted(seen, key=int) == [str(number).encode() for number in range(20)]
    consumer.close()


def test_broker_joins_and_replaces_another(nodes: Nodes) -> None:
    """Requests go to the new broker, which forwards them all."""
    client = admin(*nodes.nodes)
    create(client, "t", partitions=2)
    produce(nodes, "t", [str(number) for number in range(100)])
    added = nodes.add()
    eventually(lambda: len(admin(added).list_topics(timeout=TIMEOUT_S).brokers) == 4, "four brokers")
    connection = Connection(HOST, added.port, client_id="test", timeout_s=TIMEOUT_S, software_version="1")
    gone = next(node for node in nodes.nodes if node.node_id != controller_of(client))
    wanted = [4, *(node.node_id for node in nodes.nodes if node not in (gone, added))]
    alter_reassignments(connection, {("t", index): wanted for index in (0, 1)}, 10_000)
    eventually(lambda: not list_reassignments(connection, 10_000), "the moves are complete")

    def moved() -> bool:
        found = partitions(client, "t")
        return bool(found) and all(part.replicas == wanted and len(part.isrs) == 3 for part in found.values())

    eventually(moved, "all moved replicas are in sync")
    elect_leaders(connection, None, PREFERRED, 10_000)
    eventually(lambda: {part.leader for part in partitions(client, "t").values()} == {4}, "the new broker leads")
    assert gone.stop() == 0
    if not ZOOKEEPER:  # registrations end with their brokers
        unregister_broker(connection, gone.node_id)
    eventually(lambda: gone.node_id not in {one.node_id for one in describe_brokers(connection)}, "it is forgotten")
    connection.close()
    produce(nodes, "t", [str(number) for number in range(100, 200)])
    assert sorted(consume(nodes, "t", 200, 2), key=int) == [str(number) for number in range(200)]


@of_the_quorum(reason="registrations end with their brokers")
def test_dead_broker_is_drained_with_a_throttle(nodes: Nodes) -> None:
    """A dead broker takes no throttle; that of the others is removed at the end."""
    client = admin(*nodes.nodes)
    dead = next(node for node in nodes.nodes if node.node_id != controller_of(client))
    left = [node.node_id for node in nodes.nodes if node is not dead]
    create(client, "t", replicas=2)
    produce(nodes, "t", [str(number) for number in range(100)])
    dead.kill()
    servers = ",".join(node.address for node in nodes.nodes if node is not dead)
    with Cluster(servers) as cluster:
        eventually(lambda: any(broker.fenced for broker in cluster.brokers.all()), "the broker is fenced")
        command = ["cluster", "decommission", str(dead.node_id), "--throttle", "50000000", "--execute", "-b", servers]
        done = subprocess.run([sys.executable, "-m", "ottla", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert [sorted(part.replicas) for part in cluster.topics.get("t").partitions] == [left] * 3
        resources = [(ResourceType.TOPIC, "t"), *((ResourceType.BROKER, str(node_id)) for node_id in left)]
        configs = [entry for resource in resources for entry in cluster.configs.describe(*resource)]
    assert not [entry.name for entry in configs if "throttled" in entry.name and not entry.is_default]
