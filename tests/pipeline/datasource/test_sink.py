"""The format "ottla" of PySpark as a target: batches, and a stream from topic to topic."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

import ottla.spark
from ottla.client.cluster import Cluster
from ottla.pipeline.failure import spark_reason
from ottla.testing import Broker

from ..committed import read_committed

pytestmark = pytest.mark.pipeline

numbers = itertools.count()


@pytest.fixture
def registered(spark: Any) -> Any:
    ottla.spark.register(spark)
    return spark


@pytest.fixture
def bootstrap(ottla_broker: Broker) -> str:
    return ottla_broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of two partitions."""
    name = f"spark-sink-{next(numbers)}"
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(name, 2)
    return name


def test_a_dataframe_is_written(registered: Any, bootstrap: str, topic: str) -> None:
    """By option and by column, as Spark's own sink takes it."""
    frame = registered.sql(
        "select 'k' as key, cast(id as string) as value, cast(1 as int) as partition, "
        "array(struct('h' as key, cast('1' as binary) as value)) as headers, id as other from range(50)"
    )
    writer = frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).save()
    found = read_committed(bootstrap, topic, 50)
    assert sorted(int(each.value()) for each in found) == list(range(50))
    assert {(each.key(), each.partition(), tuple(each.headers())) for each in found} == {(b"k", 1, (("h", b"1"),))}
    by_column = registered.sql(f"select '{topic}' as topic, 'more' as value")
    by_column.write.format("ottla").mode("append").option("kafka.bootstrap.servers", bootstrap).save()
    assert len(read_committed(bootstrap, topic, 51)) == 51


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "no topic to write to: set the option `topic`"),
        ({"topic": "t", "delivery.guarantee": "exactly-once"}, "delivery.guarantee=exactly-once is for streams"),
        ({"topic": "t", "delivery.guarantee": "twice"}, "is one of at-least-once, exactly-once, not 'twice'"),
        ({"tpoic": "t"}, "there is no option 'tpoic' of a sink; did you mean topic"),
        ({"topic": "t", "kafka.acsk": "1"}, 'No such configuration property: "acsk"'),
        ({"topic": "t", "kafka.key.serializer": "x"}, "`kafka.key.serializer` can't be set"),
    ],
)
def test_options_that_cannot_be(registered: Any, bootstrap: str, options: dict[str, str], sentence: str) -> None:
    frame = registered.sql("select 'v' as value")
    writer = frame.write.format("ottla").mode("append").options(**{"kafka.bootstrap.servers": bootstrap, **options})
    with pytest.raises(Exception) as raised:  # noqa: PT011  # Spark's own wrapping
        writer.save()
    assert sentence in spark_reason(raised.value)


def test_a_stream_goes_from_topic_to_topic(registered: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Exactly once; a second run of the query writes what is new only."""
    source = f"{topic}-source"
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(source, 3)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for run in range(2):
        for number in range(run * 300, (run + 1) * 300):
            producer.produce(source, b"%d" % number, partition=number % 3)
        assert producer.flush(30) == 0
        stream = registered.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        stream = stream.option("subscribe", source).option("startingOffsets", "earliest")
        query = (
            stream.load()
            .select("key", "value")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("delivery.guarantee", "exactly-once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = sorted(int(each.value()) for each in read_committed(bootstrap, topic, (run + 1) * 300))
        assert found == list(range((run + 1) * 300))
