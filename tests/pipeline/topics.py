"""Topics of a real broker and their records, by the confluent-kafka client."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")

from ottla.client.admin.cluster import Cluster  # noqa: E402

FLUSH_S = 90.0
_numbers = itertools.count()


def new_topic(bootstrap: str, partitions: int, configs: Mapping[str, str] | None = None) -> str:
    """Create a topic with a unique name; returns the name."""
    name = f"topic-{next(_numbers)}"
    with Cluster(bootstrap) as cluster:
        cluster.topics.create(name, partitions, configs=configs)
    return name


def make_again(bootstrap: str, topic: str, partitions: int) -> None:
    """Delete a topic and create another one of its name."""
    with Cluster(bootstrap) as cluster:
        cluster.topics.delete([topic])
        cluster.topics.create(topic, partitions)


def produce(bootstrap: str, topic: str, records: Iterable[Mapping[str, Any]], **properties: Any) -> None:
    """Produce records, each as the arguments of confluent_kafka's `produce`, and wait for them.

    `properties` are librdkafka's, dots as underscores.
    """
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
    assert producer.flush(FLUSH_S) == 0
    assert not failed
