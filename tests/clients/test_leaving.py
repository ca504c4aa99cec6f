"""LeaveGroup of librdkafka consumers."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.rdkafka import leave_group
from ottla.testing import Broker


class Watched:
    """A consumer of which one sees whether it is closing."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def close(self) -> None:
        self.closing = True
        self._consumer.close()


def test_partitions_are_given_up_before_the_closing(ottla_broker: Broker) -> None:
    servers = ottla_broker.bootstrap_servers
    with Cluster(servers, client_id="admin", timeout_s=30) as cluster:
        cluster.topics.create("left-in-order", 3)
    revoked: list[tuple[int, bool]] = []
    consumer = Watched(Consumer({"bootstrap.servers": servers, "group.id": "left-in-order", "log_level": 0}))
    consumer.subscribe(
        ["left-in-order"], on_revoke=lambda _, partitions: revoked.append((len(partitions), consumer.closing))
    )
    deadline = time.monotonic() + 60
    while len(consumer.assignment()) < 3 and time.monotonic() < deadline:
        consumer.poll(0.1)
    leave_group(consumer)
    assert revoked == [(3, False)]
    assert consumer.closing
