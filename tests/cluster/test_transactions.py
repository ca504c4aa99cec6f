"""Transactions over three brokers: coordinator, partitions and offsets with different leaders, which stop and
return."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.coordinator.runtime.key_hash import partition_for

from .nodes import Node, Nodes, eventually
from .test_three_nodes import admin, create, in_sync, partitions

TIMEOUT_S = 60
LOG = "__transaction_state"
LOG_PARTITIONS = 3
SETTINGS = {"transaction_state_log_num_partitions": str(LOG_PARTITIONS)}


def transactional(nodes: Nodes, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": nodes.bootstrap_servers,
            "transactional.id": transactional_id,
            "sticky.partitioning.linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def coordinator(client: AdminClient, transactional_id: str) -> int:
    """Return the broker that coordinates an id."""
    return int(partitions(client, LOG)[partition_for(transactional_id, LOG_PARTITIONS)].leader)


def coordinated_by(client: AdminClient, wanted: Callable[[int], bool]) -> str:
    """Return an id with a coordinator that `wanted` accepts."""
    return next(name for name in map("t{}".format, range(1000)) if wanted(coordinator(client, name)))


def committed(nodes: Nodes, topic: str, partition_count: int = 1) -> list[str]:
    """Return the records that a read_committed consumer sees up to the end of each partition, once no transaction is
    open."""
    consumer = Consumer(
        {
            "bootstrap.servers": nodes.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, index, 0) for index in range(partition_count)]

    def is_stable() -> bool:
        """Return whether the last stable offset has reached the end."""
        uncommitted = Consumer({"bootstrap.servers": nodes.bootstrap_servers, "group.id": "ends"} | UNCOMMITTED)
        try:
            stable, ends = (
                [reader.get_watermark_offsets(place, timeout=TIMEOUT_S)[1] for place in places]
                for reader in (consumer, uncommitted)
            )
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET:
                raise
            return False
        finally:
            uncommitted.close()
        return stable == ends

    eventually(is_stable, "every transaction ends", TIMEOUT_S)
    consumer.assign(places)
    values: list[str] = []
    ended: set[int] = set()

    def poll() -> bool:
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is None:
                values.append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return len(ended) == partition_count

    eventually(poll, f"the ends of {topic}", TIMEOUT_S)
    consumer.close()
    return sorted(values)


UNCOMMITTED = {"isolation.level": "read_uncommitted"}
NOT_YET = {
    KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know its offsets at once
    KafkaError._DESTROY_BROKER,  # librdkafka still used the old one
    KafkaError._TRANSPORT,
}


def write(producer: Producer, topic: str, *values: str) -> None:
    """Write in the open transaction; all records are acknowledged."""
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(TIMEOUT_S) == 0


def three(make_nodes: Callable[..., Nodes]) -> tuple[Nodes, AdminClient]:
    """A cluster with a fully replicated transaction log."""
    nodes = make_nodes(**SETTINGS)
    nodes.start()
    client = admin(*nodes.nodes)
    transactional(nodes, "first")
    eventually(lambda: in_sync(client, LOG, 3), "the log of transactions is replicated")
    return nodes, client


def leader(nodes: Nodes, client: AdminClient, topic: str) -> Node:
    """Return the leader, once the broker knows it."""
    known = {node.node_id: node for node in nodes.nodes}

    def led() -> Node | None:
        found = partitions(client, topic).get(0)
        return known.get(found.leader) if found else None

    return eventually(led, f"{topic} has a leader")


def test_reader_sees_exactly_the_committed_records(make_nodes: Callable[..., Nodes]) -> None:
    nodes, client = three(make_nodes)
    create(client, "t", 6)
    expected = []
    for name in map("t{}".format, range(4)):
        producer = transactional(nodes, name)
        for round_number in range(6):
            producer.begin_transaction()
            values = [f"{name}-{round_number}-{index}" for index in range(12)]
            write(producer, "t", *values)
            if round_number % 3 == 1:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
                expected += values
    assert committed(nodes, "t", 6) == sorted(expected)


def test_a_transaction_outlives_its_coordinator(make_nodes: Callable[..., Nodes]) -> None:
    nodes, client = three(make_nodes)
    create(client, "t", 1, min_insync_replicas="2")
    name = coordinated_by(client, lambda broker: broker != leader(nodes, client, "t").node_id)
    producer = transactional(nodes, name)
    for value in ("one", "two"):
        producer.begin_transaction()
        write(producer, "t", value)
        nodes[coordinator(client, name)].kill()
        producer.commit_transaction(TIMEOUT_S)
        assert value in committed(nodes, "t")
        for node in nodes.nodes:
            if node.process is None:
                node.start()
        eventually(lambda: in_sync(client, LOG, 3), "all are back", TIMEOUT_S)
    assert committed(nodes, "t") == ["one", "two"]


def test_a_decision_reaches_the_next_leader_of_a_partition(make_nodes: Callable[..., Nodes]) -> None:
    nodes, client = three(make_nodes)
    create(client, "t", 1, min_insync_replicas="2")
    dying = leader(nodes, client, "t")
    name = coordinated_by(client, lambda broker: broker != dying.node_id)
    producer = transactional(nodes, name)
    producer.begin_transaction()
    write(producer, "t", "decided")
    dying.kill()
    producer.commit_transaction(TIMEOUT_S)
    assert committed(nodes, "t") == ["decided"]
    assert leader(nodes, client, "t") is not dying


def test_new_instance_fences_its_predecessor(make_nodes: Callable[..., Nodes]) -> None:
    nodes, client = three(make_nodes)
    create(client, "t", 1)
    zombie = transactional(nodes, "t")
    zombie.begin_transaction()
    write(zombie, "t", "zombie")
    current = transactional(nodes, "t")
    current.begin_transaction()
    write(current, "t", "current")
    try:
        zombie.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        fenced = error.args[0]
    assert fenced.fatal(), fenced
    current.commit_transaction(TIMEOUT_S)
    assert committed(nodes, "t") == ["current"]
