"""Streams: offsets of the reader between batches, and whole queries that end, resume and report data loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.failure import TopicReplaced
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla.pipeline.datasource.offsets import gathered
from ottla.pipeline.datasource.options import for_stream, parse_options
from ottla.pipeline.datasource.query import EPOCH_PROPERTY, QUERY_PROPERTY
from ottla.pipeline.datasource.stream import IDS, StreamReader, limited
from ottla.pipeline.model.plan import DataLossError, OffsetRange

from ...cluster.nodes import eventually

pytestmark = pytest.mark.pipeline

Produce = Callable[..., None]
MakeReader = Callable[..., StreamReader]
ALL = ReadAllAvailable()
LOGIN = {
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="a" password="b";'
}


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as opened:
        yield opened


@pytest.fixture
def reader(bootstrap: str, topic: str) -> Iterator[MakeReader]:
    """The driver's part of a query, as in Spark."""
    made: list[StreamReader] = []

    def make(now: Callable[[], float] | None = None, **options: object) -> StreamReader:
        chosen = {} if "subscribePattern" in options else {"subscribe": topic}
        given = {name: str(value) for name, value in ({"startingOffsets": "earliest"} | chosen | options).items()}
        parsed = for_stream(parse_options({"kafka.bootstrap.servers": bootstrap} | given))
        open_cluster = partial(Cluster, bootstrap)
        made.append(StreamReader(parsed, open_cluster, now) if now else StreamReader(parsed, open_cluster))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def batch(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The values of a batch, in order."""
    found = [rows.column("value").to_pylist() for one in reader.partitions(start, end) for rows in reader.read(one)]
    return sorted(value.decode() for values in found for value in values)


def held(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """Committed offsets of a group."""
    return {key: one.offset for key, one in cluster.groups.offsets(group).items()}


def numbered(prefix: str, start: int, end: int) -> list[str]:
    return sorted(f"{prefix}{number}" for number in range(start, end))


def some(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


class TestOffsets:
    def test_offsets_have_connector_format_and_topic_ids(
        self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster
    ) -> None:
        produce(some("a", 3), 0)
        mine = reader()
        start = mine.initialOffset()
        assert {name: value for name, value in start.items() if name != IDS} == {topic: {"0": 0, "1": 0}}
        end = mine.latestOffset(start, ALL)
        assert end == {topic: {"0": 3, "1": 0}, IDS: start[IDS]}
        assert mine.reportLatestOffset() == {topic: {"0": 3, "1": 0}}
        assert batch(mine, start, end) == numbered("a", 0, 3)
        assert mine.latestOffset(end, ALL) == end
        assert mine.partitions(end, end) == []

    def test_connector_checkpoint_is_resumed(self, reader: MakeReader, produce: Produce, topic: str) -> None:
        produce(some("a", 5), 0)
        start = {topic: {"0": 2, "1": 0}}
        mine = reader()
        assert batch(mine, start, {topic: {"0": 4, "1": 0}}) == ["a2", "a3"]
        assert batch(mine, start, mine.latestOffset(start, ALL)) == ["a2", "a3", "a4"]

    def test_offsets_of_another_source_are_refused(self, reader: MakeReader) -> None:
        for foreign in ({"index": 3}, {"a": {"0": None}}, {"a": {"x": 1}}):
            with pytest.raises(OperatorError, match="offsets of another source"):
                reader().latestOffset(foreign, ALL)

    def test_a_batch_that_is_run_again_is_the_same(self, reader: MakeReader, produce: Produce) -> None:
        """As after a crash: another process, the checkpoint's offsets, and newer records."""
        produce(some("a", 5), 0)
        first = reader()
        start = first.initialOffset()
        end = first.latestOffset(start, ALL)
        produce(some("later", 5), 0)
        journal = json.loads(json.dumps([start, end]))
        assert batch(reader(), *journal) == numbered("a", 0, 5)

    def test_where_new_queries_start(self, reader: MakeReader, produce: Produce, topic: str) -> None:
        produce(some("a", 5), 0)
        assert reader(startingOffsets="latest").initialOffset()[topic] == {"0": 5, "1": 0}
        assert reader(startingOffsets=json.dumps({topic: {"0": 3, "1": -1}})).initialOffset()[topic] == {"0": 3, "1": 0}
        late = {"startingTimestamp": 1_002, "startingOffsetsByTimestampStrategy": "latest"}
        assert reader(**late).initialOffset()[topic] == {"0": 2, "1": 0}
        with pytest.raises(OperatorError, match="topic 'nowhere' does not exist"):
            reader(subscribe="nowhere").initialOffset()


class TestLimits:
    def test_at_most(self, reader: MakeReader, produce: Produce, topic: str) -> None:
        produce(some("a", 30), 0)
        produce(some("b", 10), 1)
        mine = reader(maxOffsetsPerTrigger=20)
        assert mine.getDefaultReadLimit() == ReadMaxRows(20)
        start = mine.initialOffset()
        assert mine.latestOffset(start, ReadMaxRows(20))[topic] == {"0": 15, "1": 5}
        assert mine.latestOffset(start, ALL)[topic] == {"0": 30, "1": 10}

    def test_no_partition_starves(self) -> None:
        big, small = ("t", 0), ("t", 1)
        assert limited({big: 0, small: 7}, {big: 1_000_000, small: 9}, 10) == {big: 9, small: 8}

    def test_minimum_offsets_or_maximum_delay(self, reader: MakeReader, produce: Produce, topic: str) -> None:
        time = [0.0]
        mine = reader(lambda: time[0], minOffsetsPerTrigger=10, maxTriggerDelay="60s")
        assert mine.getDefaultReadLimit() == ReadMinRows(10)
        start = mine.initialOffset()
        produce(some("a", 3), 0)
        first = mine.latestOffset(start, ReadMinRows(10))
        assert first[topic]["0"] == 3  # nothing was triggered yet, so the delay is over
        produce(some("b", 4), 0)
        assert mine.latestOffset(first, ReadMinRows(10)) == first
        time[0] = 61.0
        second = mine.latestOffset(first, ReadMinRows(10))
        assert second[topic]["0"] == 7
        produce(some("c", 10), 0)
        assert mine.latestOffset(second, ReadMinRows(10))[topic]["0"] == 17

    def test_available_now_limits_end(self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster) -> None:
        produce(some("a", 4), 0)
        mine = reader(minOffsetsPerTrigger=100, maxOffsetsPerTrigger=100)
        start = mine.initialOffset()
        mine.prepareForTriggerAvailableNow()
        produce(some("later", 4), 0)
        cluster.topics.create_partitions(topic, 3)
        end = mine.latestOffset(start, mine.getDefaultReadLimit())
        assert end[topic] == {"0": 4, "1": 0}
        assert mine.latestOffset(end, mine.getDefaultReadLimit()) == end


class TestTasks:
    def test_few_records_of_several_partitions_are_one_task(self, reader: MakeReader, produce: Produce) -> None:
        """Unless the number of tasks is set."""
        produce(some("a", 3), 0)
        produce(some("b", 4), 1)
        for options, shape in (
            ({}, [[3, 4]]),
            ({"minPartitions": 2}, [[3], [4]]),
            ({"maxRecordsPerPartition": 4}, [[3], [4]]),
        ):
            mine = reader(**options)
            start = mine.initialOffset()
            end = mine.latestOffset(start, ALL)
            assert [[one.offsets for one in task.ranges] for task in mine.partitions(start, end)] == shape
            assert batch(mine, start, end) == sorted([*numbered("a", 0, 3), *numbered("b", 0, 4)])

    def test_many_records_of_partitions_are_several_tasks(self) -> None:
        """A task never exceeds the limit; the next range starts a new one, in the order of the partitions."""
        ranges = [OffsetRange("t", "id", number, 0, size, 0) for number, size in enumerate((5, 90, 6, 1, 200, 3))]
        found = gathered(ranges, 100)
        assert [[one.offsets for one in task] for task in found] == [[5, 90], [6, 1], [200], [3]]
        assert [len(task) for task in gathered(ranges, 0)] == [1] * 6


class TestWorkers:
    """A worker reuses connections across tasks."""

    @pytest.fixture
    def opened(self, bootstrap: str) -> list[Cluster]:
        """Connections that tasks opened."""
        return []

    @pytest.fixture
    def worker(self, bootstrap: str, topic: str, opened: list[Cluster]) -> Iterator[Callable[..., Any]]:
        """The reader in a worker that has a task of the query."""

        def open_cluster(*, recently_reachable: bool = False) -> Cluster:
            opened.append(Cluster(bootstrap, recently_reachable=recently_reachable))
            return opened[-1]

        def of(query: str, **options: str) -> StreamReader:
            context = TaskContext()
            context._localProperties = {QUERY_PROPERTY: query, EPOCH_PROPERTY: "7"}
            context._partitionId = 0
            TaskContext._setTaskContext(context)
            given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
            return StreamReader(for_stream(parse_options(given)), open_cluster)

        yield of
        TaskContext._setTaskContext(None)
        for each in opened:
            each.close()

    def tasks(self, reader: StreamReader, start: int, end: int, topic: str) -> list[Any]:
        found = reader.partitions({topic: {"0": start}}, {topic: {"0": end}})
        reader.stop()
        return found

    def read(self, reader: StreamReader, tasks: list[Any]) -> list[bytes]:
        return [value for task in tasks for rows in reader.read(task) for value in rows.column("value").to_pylist()]

    def test_connections_are_shared_within_query_and_settings(
        self, reader: MakeReader, worker: Callable[..., Any], opened: list[Cluster], produce: Produce, topic: str
    ) -> None:
        produce(some("a", 9), 0)
        plan = reader()
        for number in range(3):
            tasks = self.tasks(plan, number, number + 1, topic)
            assert self.read(worker(topic), tasks) == [f"a{number}".encode()]
        assert len(opened) == 1
        tasks = self.tasks(plan, 3, 4, topic)
        for query, options in (
            (f"{topic}-other", {}),
            (topic, {"kafka.client.id": "other"}),
            (topic, {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", **LOGIN}),
        ):
            assert self.read(worker(query, **options), tasks) == [b"a3"]
        assert len(opened) == 4

    def test_topic_recreated_meanwhile(
        self,
        reader: MakeReader,
        worker: Callable[..., Any],
        opened: list[Cluster],
        produce: Produce,
        topic: str,
        cluster: Cluster,
    ) -> None:
        """Metadata of an earlier task would name the deleted topic."""
        produce(some("old", 3), 0)
        assert self.read(worker(topic), self.tasks(reader(), 0, 3, topic)) == some("old", 3)
        cluster.topics.delete([topic])
        cluster.topics.create(topic, 2)
        produce(some("new", 3), 0)
        assert self.read(worker(topic), self.tasks(reader(), 0, 3, topic)) == some("new", 3)
        assert len(opened) == 1

    def test_connections_of_a_task_that_failed_are_closed(
        self,
        reader: MakeReader,
        worker: Callable[..., Any],
        opened: list[Cluster],
        produce: Produce,
        topic: str,
        cluster: Cluster,
    ) -> None:
        produce(some("a", 9), 0)
        tasks = self.tasks(reader(), 0, 9, topic)
        cluster.records.delete({(topic, 0): 5})
        with pytest.raises(DataLossError):
            self.read(worker(topic), tasks)
        assert self.read(worker(topic), self.tasks(reader(), 5, 9, topic)) == some("a", 9)[5:]
        assert len(opened) == 2


class TestChanges:
    def test_partitions_that_were_added(
        self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster
    ) -> None:
        mine = reader(startingOffsets="latest")
        start = mine.initialOffset()
        cluster.topics.create_partitions(topic, 3)
        produce(some("new", 3), 2)
        end = mine.latestOffset(start, ALL)
        assert end[topic] == {"0": 0, "1": 0, "2": 3}
        assert batch(mine, start, end) == numbered("new", 0, 3)

    def test_topics_that_match_a_pattern_later(
        self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster
    ) -> None:
        mine = reader(subscribePattern=f"{topic}-x.*")
        start = mine.initialOffset()
        assert start == {IDS: {}}
        cluster.topics.create(f"{topic}-x1", 1)
        produce(some("x", 2), 0, to=f"{topic}-x1")
        assert batch(mine, start, mine.latestOffset(start, ALL)) == ["x0", "x1"]

    def test_recreated_topic(self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster) -> None:
        """With as many records as before: only the id differs."""
        produce(some("old", 3), 0)
        first = reader()
        start = first.initialOffset()
        end = first.latestOffset(start, ALL)
        cluster.topics.delete([topic])
        cluster.topics.create(topic, 2)
        produce(some("new", 3), 0)
        with pytest.raises(DataLossError, match=f"topic '{topic}' was deleted and created again"):
            reader().latestOffset(end, ALL)
        with pytest.raises(DataLossError, match=f"topic '{topic}' was deleted before .*failOnDataLoss to false"):
            batch(reader(), start, end)
        lenient = reader(failOnDataLoss="false")
        assert batch(lenient, start, end) == []
        recreated = lenient.latestOffset(end, ALL)
        assert recreated[IDS] != end[IDS]
        assert batch(lenient, end, recreated) == numbered("new", 0, 3)
        assert lenient.latestOffset(recreated, ALL) == recreated

    def test_a_topic_that_is_gone(self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster) -> None:
        produce(some("a", 3), 0)
        first = reader()
        end = first.latestOffset(first.initialOffset(), ALL)
        cluster.topics.delete([topic])
        with pytest.raises(DataLossError, match=f"topic '{topic}' partition . does not exist any more"):
            reader().latestOffset(end, ALL)
        with pytest.raises(DataLossError, match=f"topic '{topic}' was deleted before its batch"):
            reader().partitions({IDS: {}}, end)
        assert reader(failOnDataLoss="false").partitions({IDS: {}}, end) == []
        assert reader(failOnDataLoss="false").latestOffset(end, ALL) == {IDS: {}}

    def test_topic_recreated_during_batch_tasks(
        self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster
    ) -> None:
        produce(some("old", 3), 0)
        mine = reader()
        start = mine.initialOffset()
        tasks = mine.partitions(start, mine.latestOffset(start, ALL))
        cluster.topics.delete([topic])
        cluster.topics.create(topic, 2)
        produce(some("new", 3), 0)
        with pytest.raises(TopicReplaced, match=f"topic '{topic}' was deleted and created again"):
            list(mine.read(tasks[0]))

    def test_records_that_were_deleted(
        self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster
    ) -> None:
        produce(some("a", 10), 0)
        first = reader()
        start = first.initialOffset()
        end = first.latestOffset(start, ALL)
        cluster.records.delete({(topic, 0): 6})
        with pytest.raises(DataLossError, match="set failOnDataLoss to false to read the remaining records"):
            batch(reader(), start, end)
        assert batch(reader(failOnDataLoss="false"), start, end) == numbered("a", 6, 10)

    def test_log_shorter_than_read_offset(self, reader: MakeReader, produce: Produce, topic: str) -> None:
        produce(some("a", 3), 0)
        ahead = {topic: {"0": 5, "1": 0}}
        with pytest.raises(DataLossError, match="was read up to offset 5, but ends at 3 now"):
            reader().latestOffset(ahead, ALL)
        lenient = reader(failOnDataLoss="false")
        end = lenient.latestOffset(ahead, ALL)
        assert end[topic]["0"] == 3
        assert lenient.partitions(ahead, end) == []


class TestGroup:
    def test_a_group_that_caught_up_has_no_lag(
        self, reader: MakeReader, produce: Produce, topic: str, cluster: Cluster, bootstrap: str
    ) -> None:
        """The committed offset is after the transaction marker, where a consumer that counts records never arrives."""
        import confluent_kafka

        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, b"a", partition=0)
        producer.commit_transaction()
        stable = {(topic, 0): LATEST_TIMESTAMP}  # the marker may follow the response to a commit with a delay
        eventually(
            lambda: cluster.records.list_offsets(stable, isolation="read_committed")[topic, 0].offset == 2, "the marker"
        )
        group = f"{topic}-group"
        mine = reader(**{"kafka.group.id": group, "kafka.isolation.level": "read_committed"})
        start = mine.initialOffset()
        end = mine.latestOffset(start, ALL)
        assert end[topic] == {"0": 2, "1": 0}
        assert held(cluster, group) == {(topic, 0): 0, (topic, 1): 0}
        mine.latestOffset(end, ALL)  # Spark asks again when the batch is done
        assert held(cluster, group) == {(topic, 0): 2, (topic, 1): 0}

    def test_failed_group_commit_does_not_stop_query(
        self, reader: MakeReader, produce: Produce, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        mine = reader(**{"kafka.group.id": "x" * 40_000})
        end = mine.latestOffset(mine.initialOffset(), ALL)
        mine.commit(end)
        assert "offsets were not committed to the group" in caplog.text


class TestQueries:
    def test_available_now_resumes_at_last_end(
        self, ottla_spark: Any, produce: Produce, topic: str, bootstrap: str, tmp_path: Path, cluster: Cluster
    ) -> None:
        group = f"{topic}-query"

        def run() -> list[Any]:
            options = {
                "kafka.bootstrap.servers": bootstrap,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "20",
                "kafka.group.id": group,
            }
            frame = ottla_spark.readStream.format("ottla").options(**options).load()
            query = (
                frame.withColumn("text", F.col("value").cast("string"))
                .writeStream.format("parquet")
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return list(query.recentProgress)

        produce(some("a", 30), 0)
        produce(some("b", 10), 1)
        progress = run()
        assert [one["numInputRows"] for one in progress if one["numInputRows"]] == [20, 20]
        (source,) = progress[0]["sources"]
        ended, newest = json.loads(source["endOffset"]), json.loads(source["latestOffset"])
        assert (ended[topic], newest) == ({"0": 15, "1": 5}, {topic: {"0": 30, "1": 10}})
        assert {key: one.offset for key, one in cluster.groups.offsets(group).items()} == {
            (topic, 0): 30,
            (topic, 1): 10,
        }
        produce(some("c", 5), 1)
        assert sum(one["numInputRows"] for one in run()) == 5
        found = ottla_spark.read.parquet(str(tmp_path / "out")).select("text").toArrow().column(0).to_pylist()
        assert sorted(found) == sorted(numbered("a", 0, 30) + numbered("b", 0, 10) + numbered("c", 0, 5))
