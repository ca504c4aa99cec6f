"""Topics of one broker, and the format "ottla" in the session of all pipeline tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.client.cluster import Cluster  # noqa: E402
from ottla.spark import register  # noqa: E402
from ottla.testing import Broker  # noqa: E402

numbers = itertools.count()

Produce = Callable[..., None]


@pytest.fixture(scope="session")
def ottla_spark(spark: Any) -> Any:
    """The shared session with the format registered."""
    register(spark)
    return spark


@pytest.fixture
def bootstrap(ottla_broker: Broker) -> str:
    return ottla_broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of two partitions."""
    name = f"source-{next(numbers)}"
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(name, 2)
    return name


@pytest.fixture
def produce(bootstrap: str, topic: str) -> Produce:
    """Produce values to a partition: one batch a call, timestamps from `start_ms` on, one a millisecond."""

    def run(
        values: Iterable[bytes], partition: int = 0, *, start_ms: int = 1_000, to: str = topic, **more: Any
    ) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number, value in enumerate(values):
            at = {"partition": partition, "timestamp": start_ms + number}
            producer.produce(to, value, key=b"k", on_delivery=delivered, **at, **more)
        assert producer.flush(30) == 0
        assert not failed

    return run


@pytest.fixture
def read(ottla_spark: Any, bootstrap: str, topic: str) -> Callable[..., Any]:
    """A batch DataFrame of the topic with more options."""

    def load(**options: object) -> Any:
        chosen = {"subscribe": topic} if not {"assign", "subscribePattern", "subscribe"} & options.keys() else {}
        reader = ottla_spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**chosen, **options).load()

    return load
