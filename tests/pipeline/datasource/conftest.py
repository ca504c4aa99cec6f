"""Topics of one broker, and the format "ottla" in the session of all pipeline tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.spark import register

from .. import topics
from ..topics import new_topic

Produce = Callable[..., None]


@pytest.fixture(scope="session")
def ottla_spark(spark: Any) -> Any:
    """The shared session with the format registered."""
    register(spark)
    return spark


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of two partitions."""
    return new_topic(bootstrap, 2)


@pytest.fixture
def produce(bootstrap: str, topic: str) -> Produce:
    """Produce values to a partition: one batch a call, timestamps from `start_ms` on, one a millisecond."""

    def run(
        values: Iterable[bytes], partition: int = 0, *, start_ms: int = 1_000, to: str = topic, **more: Any
    ) -> None:
        records = (
            {"value": value, "key": b"k", "partition": partition, "timestamp": start_ms + number, **more}
            for number, value in enumerate(values)
        )
        topics.produce(bootstrap, to, records, linger_ms=50)

    return run


@pytest.fixture
def read(ottla_spark: Any, bootstrap: str, topic: str) -> Callable[..., Any]:
    """A batch DataFrame of the topic with more options."""

    def load(**options: object) -> Any:
        chosen = {"subscribe": topic} if not {"assign", "subscribePattern", "subscribe"} & options.keys() else {}
        reader = ottla_spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**chosen, **options).load()

    return load
