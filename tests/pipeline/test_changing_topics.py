"""Loads from topics that change meanwhile: partitions are added, the topic is deleted, the cleaner leaves gaps; and a
very wide topic.

A real broker, and all of a load except Spark: tasks run one after another in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

import pyarrow as pa  # noqa: E402

from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.client.wire.failure import TopicNotFound  # noqa: E402
from ottla.common.errors import OperatorError, OttlaError  # noqa: E402
from ottla.pipeline.load.driver import LoadSummary, Observer, load  # noqa: E402
from ottla.pipeline.load.shape import Shape  # noqa: E402
from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.model.plan import Boundary, DataLossError, LoadPlan, PlanSettings  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.pipeline.sinks.table import FileLayout  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from ..cluster.nodes import eventually  # noqa: E402
from .committed import read_committed  # noqa: E402
from .topics import new_topic, produce  # noqa: E402

pytestmark = pytest.mark.pipeline

WIDE = 300
CLEANED_S = 120.0
"""Timeout for the cleaner, on a busy machine."""

Load = Callable[..., LoadSummary]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


class Tasks:
    """The part of a session that a load needs."""

    def range(self, start: int, end: int, step: int, partitions: int) -> Tasks:
        self._numbers = [pa.record_batch({"id": [number]}) for number in range(start, end, step)]
        return self

    def mapInArrow(self, run: Callable[..., Iterator[Any]], _: str) -> Tasks:
        self._rows = [row for batch in run(iter(self._numbers)) for row in batch.to_pylist()]
        return self

    def collect(self) -> list[Any]:
        return [SimpleNamespace(asDict=lambda row=row: row) for row in self._rows]


@pytest.fixture
def load_topic(table: Path) -> Load:
    def run(bootstrap: str, topic: str, observer: Observer | None = None, **settings: Any) -> LoadSummary:
        target, planned = DeltaTarget(table), PlanSettings(**settings)
        return load([topic], target, bootstrap, lambda: nullcontext(Tasks()), planned, observer)

    return run


def numbered(numbers: range, partitions: int) -> list[dict[str, Any]]:
    """Records with their number as the value, in turn in partitions."""
    return [{"value": b"%d" % number, "partition": number % partitions} for number in numbers]


def held(table: Path) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of every row, in order, read by another library."""
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["partition", "offset", "value"])
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def in_topic(bootstrap: str, topic: str) -> list[tuple[int, int, bytes]]:
    """The same for a topic, by the confluent-kafka client."""
    return [(each.partition(), each.offset(), each.value()) for each in read_committed(bootstrap, topic)]


def test_added_partitions_are_loaded(bootstrap: str, table: Path, load_topic: Load) -> None:
    topic = new_topic(bootstrap, 1)
    produce(bootstrap, topic, numbered(range(10), 1))
    assert load_topic(bootstrap, topic).rows == 10
    with Cluster(bootstrap) as cluster:
        cluster.topics.create_partitions(topic, 3)
    produce(bootstrap, topic, numbered(range(10, 40), 3))

    class Growing(Observer):
        def planned(self, plan: LoadPlan) -> None:
            with Cluster(bootstrap) as cluster:
                cluster.topics.create_partitions(topic, 4)
            produce(bootstrap, topic, numbered(range(40, 44), 4))

    assert load_topic(bootstrap, topic, Growing()).rows == 30  # as it was planned
    assert load_topic(bootstrap, topic).rows == 4
    assert held(table) == in_topic(bootstrap, topic)
    assert load_topic(bootstrap, topic).version is None


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (Shape(2).partition_columns, "is a snapshot with one row a key"),
        (["page"], "can't be partitioned by 'page', which is not a column of its rows"),
    ],
)
def test_a_table_that_another_made_in_the_meantime(
    bootstrap: str, table: Path, columns: list[str], sentence: str
) -> None:
    """The load checked the table before."""
    topic = new_topic(bootstrap, 1)
    produce(bootstrap, topic, numbered(range(10), 1))

    class Overtaken(DeltaTarget):
        def ensure(self, schema: pa.Schema) -> FileLayout:
            others = pa.schema([*SCHEMA, *((name, pa.int32()) for name in columns)])
            DeltaTarget(table, partition_by=columns).ensure(others)
            return super().ensure(schema)

    with pytest.raises(OperatorError, match=sentence):
        load([topic], Overtaken(table), bootstrap, lambda: nullcontext(Tasks()), PlanSettings())
    assert not list(table.rglob("*.parquet"))


def test_a_topic_that_is_deleted_while_it_is_loaded(bootstrap: str, table: Path, load_topic: Load) -> None:
    """Loaded rows are unchanged; the load names the deleted topic, and leaves no file."""
    topic = new_topic(bootstrap, 3)
    produce(bootstrap, topic, numbered(range(30), 3))
    assert load_topic(bootstrap, topic).rows == 30
    before = held(table)
    files = set(table.rglob("*.parquet"))
    produce(bootstrap, topic, numbered(range(30, 60), 3))

    class Deleting(Observer):
        def planned(self, plan: LoadPlan) -> None:
            with Cluster(bootstrap) as cluster:
                cluster.topics.delete([topic])

    with pytest.raises(OttlaError, match=rf"topic '{topic}' does not exist") as raised:
        load_topic(bootstrap, topic, Deleting())
    assert "\n" not in str(raised.value)
    assert set(table.rglob("*.parquet")) == files
    assert held(table) == before
    with pytest.raises(TopicNotFound):
        load_topic(bootstrap, topic)


@pytest.mark.promise("P5")
def test_records_deleted_while_they_are_loaded(bootstrap: str, table: Path, load_topic: Load) -> None:
    """Skipped offsets, as requested, are reported with their partition."""
    topic = new_topic(bootstrap, 2)
    produce(bootstrap, topic, numbered(range(20), 2))

    class Deleting(Observer):
        def planned(self, plan: LoadPlan) -> None:
            with Cluster(bootstrap) as cluster:
                cluster.records.delete({(topic, 1): 6})

    with pytest.raises(DataLossError, match=rf"topic '{topic}' partition 1: offset 0 .* with --on-data-loss skip$"):
        load_topic(bootstrap, topic, Deleting())
    assert not list(table.rglob("*.parquet"))
    topic = new_topic(bootstrap, 2)
    produce(bootstrap, topic, numbered(range(20), 2))
    summary = load_topic(bootstrap, topic, Deleting(), on_data_loss="skip")
    assert summary.notes == [f"topic '{topic}' partition 1: 6 offsets were deleted while they were loaded"]
    assert (summary.rows, summary.skipped_offsets) == (14, 6)
    assert held(table) == [(p, o, b"%d" % (2 * o + p)) for p, first in ((0, 0), (1, 6)) for o in range(first, 10)]


def test_a_compacted_topic_is_loaded_to_its_planned_end(
    ottla_broker_factory: Callable[..., Broker], table: Path, load_topic: Load
) -> None:
    """Every second record has a key that was written again, so the log has gaps; one load ends in one of them."""
    bootstrap = ottla_broker_factory(configs={"log.cleaner.backoff.ms": 20}).bootstrap_servers
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": str(1 << 20)}
    topic, size = new_topic(bootstrap, 1, configs), 3_000
    values = (b"%d" % number + b" " * 1_000 for number in range(size))
    keys = (b"again" if number % 2 else b"once-%d" % number for number in range(size))
    pairs = zip(keys, values, strict=True)
    produce(bootstrap, topic, ({"key": key, "value": value} for key, value in pairs), batch_num_messages=10)

    def gap() -> int | None:
        """The first offset that was cleaned, once many were."""
        offsets = [offset for _, offset, _ in in_topic(bootstrap, topic)]
        missing = sorted(set(range(size)) - set(offsets))
        return missing[0] if len(missing) > size // 4 else None

    missing = eventually(gap, "gaps in the log", CLEANED_S)
    first = load_topic(bootstrap, topic, end=Boundary(offset=missing + 1))
    assert first.ranges == {f"{topic}/0": (0, missing + 1)}
    second = load_topic(bootstrap, topic)
    assert second.ranges == {f"{topic}/0": (missing + 1, size)}
    found = held(table)
    assert set(found) >= set(in_topic(bootstrap, topic))  # the topic may have been cleaned again
    offsets = [offset for _, offset, _ in found]
    assert missing not in offsets
    assert offsets == sorted(set(offsets))
    assert first.rows == sum(offset < missing for offset in offsets)
    assert len(found) == first.rows + second.rows < size - size // 4
    assert load_topic(bootstrap, topic).version is None


def test_three_hundred_partitions(bootstrap: str, table: Path, load_topic: Load) -> None:
    topic = new_topic(bootstrap, WIDE)
    produce(bootstrap, topic, numbered(range(3 * WIDE), WIDE))
    summary = load_topic(bootstrap, topic, parallelism=2)
    assert (summary.rows, summary.partitions) == (3 * WIDE, WIDE)
    assert held(table) == in_topic(bootstrap, topic)
    assert load_topic(bootstrap, topic).version is None
