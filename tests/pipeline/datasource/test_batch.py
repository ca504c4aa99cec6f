"""Batch reads of a real topic by a real Spark: rows, refused options, filters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

pytestmark = pytest.mark.pipeline

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
Read = Callable[..., Any]
Produce = Callable[..., None]


def values(frame: Any) -> list[str]:
    """The values of a frame as text, sorted."""
    rows = frame.select(F.col("value").cast("string")).toArrow()
    return sorted(rows.column(0).to_pylist())


def numbered(prefix: str, start: int, end: int) -> list[str]:
    return sorted(f"{prefix}{number}" for number in range(start, end))


@pytest.fixture
def pushdown(ottla_spark: Any) -> Iterator[None]:
    """Spark's setting that lets sources take filters."""
    ottla_spark.conf.set(PUSHDOWN, "true")
    yield
    ottla_spark.conf.unset(PUSHDOWN)


def test_rows_have_the_columns_of_sparks_connector(read: Read, produce: Produce, topic: str) -> None:
    produce([b"plain"], 1)
    produce([b"headed"], 1, headers=[("a", b"1"), ("a", None)])
    frame = read(includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    plain, headed = frame.orderBy("offset").toArrow().to_pylist()
    assert (plain["key"], plain["value"], plain["topic"], plain["partition"]) == (b"k", b"plain", topic, 1)
    assert (plain["offset"], plain["timestamp"].timestamp(), plain["timestampType"]) == (0, 1.0, 0)
    assert plain["headers"] is None
    assert headed["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert "headers" not in read().columns


def test_ranges_by_offset_and_by_time(read: Read, produce: Produce, topic: str) -> None:
    produce([b"a%d" % number for number in range(10)], 0)
    produce([b"b%d" % number for number in range(4)], 1, start_ms=2_000)
    everything = numbered("a", 0, 10) + numbered("b", 0, 4)
    assert values(read()) == everything
    offsets = {
        "startingOffsets": json.dumps({topic: {"0": 3, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 7, "1": -1}}),
    }
    assert values(read(**offsets)) == numbered("a", 3, 7) + numbered("b", 0, 4)
    assert values(read(startingTimestamp=1_000, endingTimestamp=1_006)) == numbered("a", 0, 6)
    by_partition = json.dumps({topic: {"0": 1_008, "1": 2_003}})
    assert values(read(startingOffsetsByTimestamp=by_partition)) == ["a8", "a9", "b3"]
    assert values(read(startingTimestamp=1_002, startingOffsets="nonsense")) == numbered("a", 2, 10) + numbered(
        "b", 0, 4
    )
    assert values(read(startingTimestamp=2_002, startingOffsetsByTimestampStrategy="latest")) == ["b2", "b3"]
    with pytest.raises(PySparkException, match=r"startingTimestamp: topic .* partition 0 has no record at 2002 ms"):
        read(startingTimestamp=2_002).count()


def test_subscriptions_select_partitions(read: Read, produce: Produce, topic: str, bootstrap: str) -> None:
    produce([b"a0"], 0)
    produce([b"b0"], 1)
    other = f"{topic}-other"
    with Cluster(bootstrap) as cluster:
        cluster.topics.create(other, 1)
    produce([b"c0"], 0, to=other)
    assert values(read(assign=json.dumps({topic: [1]}))) == ["b0"]
    assert values(read(subscribe=f"{topic}, {other}")) == ["a0", "b0", "c0"]
    assert values(read(subscribePattern=f"{topic}.o.*r")) == ["c0"]
    assert values(read(subscribePattern=topic)) == ["a0", "b0"]  # the whole name, not a part


def test_tasks(read: Read, produce: Produce) -> None:
    produce([b"a%d" % number for number in range(100)], 0)
    produce([b"b0"], 1)
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": 5}, 6),
        ({"maxRecordsPerPartition": 30}, 5),
        ({"minPartitions": 1}, 2),
    ):
        frame = read(**options)
        assert frame.rdd.getNumPartitions() == tasks
        assert frame.select("partition", "offset").distinct().count() == 101


def test_a_topic_without_records(read: Read) -> None:
    assert read().count() == 0


def test_aborted_records_and_markers(read: Read, produce: Produce, bootstrap: str, topic: str) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, ends in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)  # an abort would drop unsent records
        ends()
    assert values(read(**{"kafka.isolation.level": "read_committed"})) == ["committed"]
    assert values(read()) == ["aborted", "committed"]  # the default of Kafka's consumer and of the connector


def test_dead_letter_records_keep_their_position(read: Read, produce: Produce, topic: str, bootstrap: str) -> None:
    late = f"{topic}-late"
    with Cluster(bootstrap) as cluster:
        cluster.topics.create(late, 1, configs={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    produce([b"a0"], 0, to=late)
    produce([b"late"], 0, to=late, start_ms=260_000_000_000_000)
    produce([b"a2"], 0, to=late)
    frame = read(subscribe=late)
    rows = frame.selectExpr("offset", "cast(value as string) v", "unix_micros(timestamp) t").toArrow().to_pylist()
    assert [(row["offset"], row["v"]) for row in rows] == [(0, "a0"), (1, "late"), (2, "a2")]
    assert rows[1]["t"] == 260_000_000_000_000_000


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_frame_that_is_filtered_and_used_again(
    ottla_spark: Any, read: Read, produce: Produce, pushdown: None, enabled: str
) -> None:
    ottla_spark.conf.set(PUSHDOWN, enabled)
    produce([b"a%d" % number for number in range(10)], 0)
    produce([b"b%d" % number for number in range(10)], 1)
    frame = read()
    first, second = frame.where("partition = 0 and offset >= 5"), frame.where("timestamp >= timestamp_millis(1008)")
    assert values(first) == numbered("a", 5, 10)
    assert frame.count() == 20
    assert values(second) == ["a8", "a9", "b8", "b9"]
    assert values(first.union(second)) == sorted([*numbered("a", 5, 10), "a8", "a9", "b8", "b9"])
    assert values(frame.where("offset < 2")) == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize(
    ("condition", "tasks", "expected"),
    [
        ("partition = 1", 1, numbered("b", 0, 10)),
        ("partition in (1, 7) and offset between 2 and 3", 1, ["b2", "b3"]),
        ("partition > 0", 1, numbered("b", 0, 10)),
        ("offset >= 8", 2, ["a8", "a9", "b8", "b9"]),
        ("offset < 1", 2, ["a0", "b0"]),
        ("timestamp >= timestamp_millis(5003)", 1, numbered("b", 3, 10)),
        ("timestamp > timestamp_millis(1008) and timestamp < timestamp_millis(5001)", 2, ["a9", "b0"]),
        ("timestamp = timestamp_millis(1004)", 2, ["a4"]),
        ("topic = 'another'", 1, []),
        ("partition = 9", 1, []),
        ("offset > 3 and offset < 3", 1, []),
        ("not (partition = 0) or value is null", 2, numbered("b", 0, 10)),
    ],
)
def test_filters_limit_reads_of_single_use_frame(
    read: Read, produce: Produce, pushdown: None, condition: str, tasks: int, expected: list[str]
) -> None:
    produce([b"a%d" % number for number in range(10)], 0)
    produce([b"b%d" % number for number in range(10)], 1, start_ms=5_000)
    frame = read(filterPushdown="true").where(condition)
    found = values(frame)
    assert found == expected
    assert read(filterPushdown="true").where(condition).rdd.getNumPartitions() == tasks


def test_unordered_timestamps_are_filtered_correctly(read: Read, produce: Produce, pushdown: None) -> None:
    for number, time in enumerate([3_000, 1_000, 4_000, 2_000, 1_500]):
        produce([b"%d" % number], 0, start_ms=time)
    assert values(read(filterPushdown="true").where("timestamp < timestamp_millis(2001)")) == ["1", "3", "4"]
    assert values(read(filterPushdown="true").where("timestamp >= timestamp_millis(2000)")) == ["0", "2", "3"]


def test_deleted_records_are_reported_or_skipped(read: Read, produce: Produce, bootstrap: str, topic: str) -> None:
    produce([b"a%d" % number for number in range(10)], 0)
    produce([b"b0"], 1)
    with Cluster(bootstrap) as cluster:
        cluster.records.delete({(topic, 0): 4})
    start = json.dumps({topic: {"0": 1, "1": 0}})
    with pytest.raises(PySparkException, match="offset 1 is gone, the log starts at 4; set failOnDataLoss to false"):
        read(startingOffsets=start).count()
    assert values(read(startingOffsets=start, failOnDataLoss="false")) == [*numbered("a", 4, 10), "b0"]
    assert values(read()) == [*numbered("a", 4, 10), "b0"]
    end = json.dumps({topic: {"0": 11, "1": -1}})
    with pytest.raises(PySparkException, match="offset 11 does not exist yet, the partition ends at 10"):
        read(endingOffsets=end).count()
    assert values(read(endingOffsets=end, failOnDataLoss="false")) == [*numbered("a", 4, 10), "b0"]


def test_mistakes_are_reported_at_frame_creation(ottla_spark: Any, read: Read, topic: str) -> None:
    with pytest.raises(AnalysisException, match=r"unknown option 'startingoffset'; did you mean startingOffsets\?"):
        read(startingOffset="earliest")
    with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is missing"):
        ottla_spark.read.format("ottla").option("subscribe", topic).load()
    with pytest.raises(PySparkException, match="topic 'nowhere' does not exist"):
        read(subscribe="nowhere").count()
    with pytest.raises(PySparkException, match="accepts no schema"):
        ottla_spark.read.format("ottla").schema("a int").options(
            **{"kafka.bootstrap.servers": "localhost:1", "subscribe": topic}
        ).load().count()
