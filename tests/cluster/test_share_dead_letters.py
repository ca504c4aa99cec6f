"""Dead letters of a share group over `kill -9` of the leaders: each rejected record gets exactly one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, ShareConsumer, TopicPartition
from confluent_kafka.admin import NewTopic

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, FeatureUpdate, ResourceType, UpgradeType

from .nodes import Nodes, eventually, of_the_quorum
from .test_three_nodes import TIMEOUT_S, admin, in_sync, produce

GROUP, SOURCE, DEAD = "workers", "jobs", "dlq.jobs"
RECORDS = 1000
LIMIT_S = 120
SETTINGS = {"share_coordinator_state_topic_num_partitions": "4"}


def led_by_order(nodes: Nodes, name: str, replicas: list[int], **config: str) -> None:
    """Create a topic with one partition; its leader is the first replica."""
    topic = NewTopic(
        name,
        1,
        replica_assignment=[replicas],
        config={key.replace("_", "."): value for key, value in config.items()},
    )
    client = admin(*nodes.nodes)
    client.create_topics([topic])[name].result(TIMEOUT_S)
    eventually(lambda: in_sync(client, name, 3), f"{name} is replicated")


@contextmanager
def reader(nodes: Nodes) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": nodes.bootstrap_servers, "group.id": "r", "enable.auto.commit": False})
    try:
        yield consumer
    finally:
        consumer.close()


def dead_letter_count(consumer: Consumer) -> int:
    """Return the end offset; 0 while the leader changes."""
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(DEAD, 0), timeout=5)[1])
    except KafkaException:
        return 0


def dead_offsets(consumer: Consumer) -> Counter[int]:
    """Return the source offsets of all dead letters."""
    count = eventually(lambda: dead_letter_count(consumer), "the dead-letter topic has a leader")
    consumer.assign([TopicPartition(DEAD, 0, 0)])
    found: Counter[int] = Counter()

    def poll() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                found[int(dict(message.headers())["__dlq.errors.offset"])] += 1
        return found.total() >= count

    eventually(poll, "all dead letters", TIMEOUT_S)
    return found


def reject_until(nodes: Nodes, condition: Callable[[], bool], what: str) -> None:
    """Reject everything that the group gets until the condition holds."""
    worker = ShareConsumer(
        {
            "bootstrap.servers": nodes.bootstrap_servers,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
    )

    def reject() -> bool:
        for message in worker.poll(0.2):
            if message.error() is None:
                worker.acknowledge(message, AcknowledgeType.REJECT)
        worker.commit_sync()
        return condition()

    try:
        worker.subscribe([SOURCE])
        eventually(reject, what, LIMIT_S)
    finally:
        worker.close()


def is_finished(nodes: Nodes) -> bool:
    with Cluster(nodes.bootstrap_servers) as cluster:
        return cluster.share_groups.offsets(GROUP)[SOURCE, 0].start_offset == RECORDS


@of_the_quorum(reason="share groups need a quorum")
def test_each_rejected_record_has_one_dead_letter(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(**SETTINGS)
    nodes.start()
    led_by_order(nodes, SOURCE, [1, 2, 3], min_insync_replicas="2")
    led_by_order(nodes, DEAD, [2, 3, 1], min_insync_replicas="2", errors_deadletterqueue_group_enable="true")
    with Cluster(nodes.bootstrap_servers) as cluster:
        cluster.features.update([FeatureUpdate("share.version", 2, UpgradeType.UPGRADE)])
        settings = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": DEAD}
        changes = [(name, ConfigOperation.SET, value) for name, value in settings.items()]
        cluster.configs.alter(ResourceType.GROUP, GROUP, changes)
    produce(nodes, SOURCE, [str(number) for number in range(RECORDS)])
    with reader(nodes) as consumer:
        reject_until(nodes, lambda: dead_letter_count(consumer) > 50, "the first dead letters")
        nodes[1].kill()  # leads the jobs
        reject_until(nodes, lambda: dead_letter_count(consumer) > RECORDS // 2, "dead letters of the next leader")
        nodes[1].start()
        client = admin(*nodes.nodes)
        eventually(lambda: in_sync(client, DEAD, 3), "all replicas are in sync")
        nodes[2].kill()  # leads the dead letters, and perhaps the jobs
        reject_until(nodes, lambda: is_finished(nodes), "all jobs are archived")
    with reader(nodes) as consumer:  # the first one knows the killed leader
        assert dead_offsets(consumer) == dict.fromkeys(range(RECORDS), 1)
