"""Share consumers of librdkafka (KIP-932) over `kill -9` of the broker: every record is settled once."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager

from confluent_kafka import AcknowledgeType, ShareConsumer

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, FeatureUpdate, ResourceType, UpgradeType

GROUP = "jobs:workers"  # a colon, since the share coordinator's key has colons between its parts
RECORDS = 200
PARTITIONS = 2
LIMIT_S = 90


@contextmanager
def worker(servers):
    consumer = ShareConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


class Work:
    """Accepts even offsets. Releases odd ones at their first delivery and rejects them at the second one."""

    def __init__(self):
        self.deliveries = Counter()
        self.settled = Counter()

    def decide(self, message):
        position = message.partition(), message.offset()
        self.deliveries[position] += 1
        if message.offset() % 2 and message.delivery_count() == 1:
            return AcknowledgeType.RELEASE
        self.settled[position] += 1
        return AcknowledgeType.REJECT if message.offset() % 2 else AcknowledgeType.ACCEPT

    def run(self, servers, topic, count):
        """Work until `count` records are settled."""
        end = time.monotonic() + LIMIT_S
        with worker(servers) as consumer:
            consumer.subscribe([topic])
            while len(self.settled) < count:
                assert time.monotonic() < end
                for message in consumer.poll(1.0):
                    assert message.error() is None
                    consumer.acknowledge(message, self.decide(message))
                assert not any(consumer.commit_sync().values())


def test_share_consumers_settle_records_once_over_a_crash(ottla_broker_factory, families, make_records, topic):
    broker = ottla_broker_factory(configs={"share.coordinator.state.topic.num.partitions": "4"})
    servers = broker.bootstrap_servers
    family = families["confluent-kafka"]
    family.create_topic(servers, topic, PARTITIONS, {"retention.ms": "-1"})
    with Cluster(servers) as cluster:
        cluster.features.update([FeatureUpdate("share.version", 1, UpgradeType.UPGRADE)])
        earliest = ("share.auto.offset.reset", ConfigOperation.SET, "earliest")
        cluster.configs.alter(ResourceType.GROUP, GROUP, [earliest])
    records = (make_records(family) * RECORDS)[: RECORDS // PARTITIONS]
    for partition in range(PARTITIONS):
        family.produce(servers, topic, partition, records, "lz4")
    work = Work()
    work.run(servers, topic, RECORDS // 2)
    broker.restart(crash=True)
    work.run(servers, topic, RECORDS)
    assert set(work.settled.values()) == {1}
    assert {count for (_, offset), count in work.deliveries.items() if offset % 2 == 0} == {1}
