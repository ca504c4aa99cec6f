"""The format "ottla" of PySpark as a target: batches, and a stream from topic to topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.pipeline.model.failure import spark_reason

from ..committed import read_committed
from ..topics import new_topic, produce

pytestmark = pytest.mark.pipeline


def test_a_dataframe_is_written(ottla_spark: Any, bootstrap: str, topic: str) -> None:
    """By option and by column, as in Spark's own sink."""
    frame = ottla_spark.sql(
        "select 'k' as key, cast(id as string) as value, cast(1 as int) as partition, array(struct('h' as key, "
        "cast('1' as binary) as value)) as headers, id as other from range(50)"
    )
    writer = frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).save()
    found = read_committed(bootstrap, topic, 50)
    assert sorted(int(each.value()) for each in found) == list(range(50))
    assert {(each.key(), each.partition(), tuple(each.headers())) for each in found} == {(b"k", 1, (("h", b"1"),))}
    by_column = ottla_spark.sql(f"select '{topic}' as topic, 'more' as value")
    by_column.write.format("ottla").mode("append").option("kafka.bootstrap.servers", bootstrap).save()
    assert len(read_committed(bootstrap, topic, 51)) == 51


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "no topic to write to: set the option `topic`"),
        ({"topic": "t", "delivery.guarantee": "exactly-once"}, "delivery.guarantee=exactly-once is for streams"),
        ({"topic": "t", "delivery.guarantee": "twice"}, "is one of at-least-once, exactly-once, not 'twice'"),
        ({"tpoic": "t"}, "unknown option 'tpoic' of a sink; did you mean topic"),
        ({"topic": "t", "kafka.acsk": "1"}, 'No such configuration property: "acsk"'),
        ({"topic": "t", "kafka.key.serializer": "x"}, "`kafka.key.serializer` can't be set"),
    ],
)
def test_invalid_sink_options_are_refused(
    ottla_spark: Any, bootstrap: str, options: dict[str, str], sentence: str
) -> None:
    frame = ottla_spark.sql("select 'v' as value")
    writer = frame.write.format("ottla").mode("append").options(**{"kafka.bootstrap.servers": bootstrap, **options})
    with pytest.raises(Exception) as raised:  # noqa: PT011  # Spark's own wrapping
        writer.save()
    assert sentence in spark_reason(raised.value)


def test_a_stream_goes_from_topic_to_topic(ottla_spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Exactly once; a second run of the query writes new records only."""
    source = new_topic(bootstrap, 3)
    for run in range(2):
        rows = range(run * 300, (run + 1) * 300)
        produce(bootstrap, source, ({"value": b"%d" % row, "partition": row % 3} for row in rows))
        stream = ottla_spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
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
