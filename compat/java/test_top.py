"""`ottla top` beside Apache Kafka: the same numbers as its own tools report."""

from __future__ import annotations

import json
import subprocess
import sys

from apache import Kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CONFIGS = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def test_topics_groups_and_brokers_of_apache_kafka(java_classpath: str) -> None:
    with Kafka(java_classpath, CONFIGS) as kafka:
        kafka.format()
        kafka.start()
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("views", 2, 1)])["views"].result(60)
        producer = Producer({"bootstrap.servers": servers})
        for number in range(10):
            producer.produce("views", str(number), partition=number % 2)
        producer.flush(60)
        settings = {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe(["views"])
        assert consumer.consume(1, 60)
        positions = [TopicPartition("views", 0, 1), TopicPartition("views", 1, 3)]
        consumer.commit(offsets=positions, asynchronous=False)
        command = [sys.executable, "-m", "ottla", "top", "-b", servers, "--once", "--json", "--interval", "0.2"]
        found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
        consumer.close()
    assert found["problems"] == []
    assert [(each["node_id"], each["state"], each["is_controller"]) for each in found["brokers"]] == [(1, "live", True)]
    (topic,) = [each for each in found["topics"] if each["name"] == "views"]
    assert (topic["partitions"], topic["under_replicated"], topic["records_per_s"]) == (2, 0, 0.0)
    assert topic["size_bytes"] > 0
    (group,) = found["groups"]
    assert (group["group_id"], group["state"], group["lag"], group["consumed_per_s"]) == ("readers", "Stable", 6, 0.0)
