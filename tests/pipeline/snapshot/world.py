"""Topics in memory and a snapshot of them, run in this process, with the expected result from plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla.pipeline.load.compact import compact
from ottla.pipeline.load.land import Counters, WrittenRange
from ottla.pipeline.load.shape import settled_shape
from ottla.pipeline.model.plan import LoadPlan
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.rewrite import rewrite_files
from ottla.pipeline.sinks.table import DataFile, Table, TableCommit
from ottla.pipeline.snapshot.run import Run, SnapshotObserver, SnapshotSummary, snapshot_plan_settings
from ottla.pipeline.transform.value_format import ValueFormat
from ottla.record.builder import RecordData, build_batch

from ..memory_cluster import MemoryCluster

TOPIC = "users"

Key = tuple[str, int, bytes]
"""Topic, partition and key."""
Record = tuple[int, int | None, bytes | None]
"""Offset, timestamp in milliseconds or none, value."""
Version = tuple[bool, int, int | None, int | None, bytes]
"""Current, offset, valid from and to in milliseconds, value."""


class InProcess:
    """The part of a Spark session that tasks need, in this process."""

    @contextmanager
    def open(self) -> Iterator[InProcess]:
        yield self

    def range(self, start: int, end: int, step: int, parts: int) -> InProcess:
        self._numbers = range(start, end, step)
        return self

    def mapInArrow(self, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> InProcess:
        self._run = run
        return self

    def collect(self) -> list[Any]:
        given = [pa.record_batch({"id": [number]}) for number in self._numbers]
        return [_Row(row) for batch in self._run(iter(given)) for row in batch.to_pylist()]


class _Row(dict[str, Any]):
    def asDict(self) -> dict[str, Any]:
        return self


class Steps(SnapshotObserver):
    """Calls a function once at a step of a run: planned, landing, landed, merging, merged or committed."""

    def __init__(self, **steps: Callable[[], object]) -> None:
        self._steps = steps

    def _reach(self, name: str) -> None:
        self._steps.pop(name, lambda: None)()

    def planned(self, plan: LoadPlan) -> None:
        self._reach("planned")

    def landing(self, plan: LoadPlan, counters: Counters | None) -> None:
        self._reach("landing")

    def landed(self, rows: Sequence[WrittenRange]) -> None:
        self._reach("landed")

    def merging(self, buckets: int, counters: Counters | None) -> None:
        self._reach("merging")

    def merged(self) -> None:
        self._reach("merged")

    def committed(self, version: int) -> None:
        self._reach("committed")


@dataclass
class World:
    """A cluster, a table, and all produced records by key, in their order."""

    path: Path | str
    """A directory, or a URL."""
    kind: str = "delta"
    history: bool = False
    buckets: int = 4
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    records: dict[Key, list[Record]] = field(default_factory=dict)

    def produce(
        self, *records: tuple[bytes | None, bytes | None], partition: int = 0, topic: str = TOPIC, time: int = 0
    ) -> None:
        """One batch; `time`: of all records, 0 for one that rises with offsets, -1 for none."""
        log = self.cluster.partitions[topic, partition]
        times = [time or 1_000 + log.end + number for number in range(len(records))]
        made = [RecordData(at, key, value) for at, (key, value) in zip(times, records, strict=True)]
        for number, (at, (key, value)) in enumerate(zip(times, records, strict=True)):
            if key is not None:
                known = self.records.setdefault((topic, partition, key), [])
                known.append((log.end + number, None if at < 0 else at, value))
        log.append(build_batch(made, base_offset=log.end))

    def open(self) -> Table:
        return open_table(self.path)

    def begin(self, observer: SnapshotObserver | None = None, **settings: Any) -> Run:
        found = open_table(self.path, format=self.kind)
        shape = settled_shape(found, self.buckets, history=self.history)
        table = open_table(self.path, format=self.kind, partition_by=shape.partition_columns)
        plan_settings = snapshot_plan_settings(**settings)
        return Run(table, self.cluster.open, plan_settings, shape, observer or SnapshotObserver())

    def snapshot(
        self,
        *topics: str,
        observer: SnapshotObserver | None = None,
        value_format: ValueFormat | None = None,
        **settings: Any,
    ) -> SnapshotSummary:
        run = self.begin(observer, **settings)
        return run.run(topics or (TOPIC,), InProcess().open, value_format)[0]

    def compact(self) -> None:
        compact(self.open())

    def rewrite(self) -> None:
        """Rewrite every file, as a compaction does."""
        table = self.open()
        layout, schema, removed = table.layout(), table.schema(), table.files()
        files = []
        for number, path in enumerate(removed):
            values = dict(part.split("=", 1) for part in Path(path).parts if "=" in part)
            old = DataFile(layout.store.relative(path), 0, 0, 0, {}, values)
            files.append(rewrite_files(layout, schema, [old], number, "compaction"))
        table.commit(TableCommit("compaction", files, removed))

    def letters(self) -> dict[tuple[str, int, int], str]:
        """Topic, partition and offset -> reason, without duplicates."""
        found = read_rows(self.open().dead_letters())
        return unique(((row["topic"], row["partition"], row["offset"]), row["reason"]) for row in found)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the newest version, read from its files alone."""
        return read_rows(self.open())

    def latest(self) -> dict[Key, tuple[int, bytes]]:
        """Offset and value of each key in the table, without duplicates."""
        return unique((key_of(row), (row["offset"], row["value"])) for row in self.rows() if row.get("current", True))

    def expected_latest(self) -> dict[Key, tuple[int, bytes]]:
        """Expected rows, from the produced records."""
        last = {key: records[-1] for key, records in self.records.items()}
        return {key: (offset, value) for key, (offset, _, value) in last.items() if value is not None}

    def versions(self) -> dict[Key, list[Version]]:
        """All values of each key in the table, in their order."""
        found: dict[Key, list[Version]] = {}
        for row in sorted(self.rows(), key=lambda row: row["offset"]):
            times = (milliseconds(row["valid_from"]), milliseconds(row["valid_to"]))
            found.setdefault(key_of(row), []).append((row["current"], row["offset"], *times, row["value"]))
        return found

    def expected_versions(self) -> dict[Key, list[Version]]:
        found = {key: list(_versions(records)) for key, records in self.records.items()}
        return {key: versions for key, versions in found.items() if versions}

    def check(self) -> None:
        assert self.latest() == self.expected_latest()
        if self.history:
            assert self.versions() == self.expected_versions()


def first_records(world: World) -> None:
    """Some records in both partitions."""
    for partition in range(2):
        world.produce(*((b"key %d" % number, b"1") for number in range(9)), partition=partition)


def second_records(world: World) -> None:
    """Some keys are deleted, changed and added; one record has no key."""
    for partition in range(2):
        world.produce(
            (b"key 1", None), (b"key 2", b"2"), (b"key 2", b"3"), (None, b"x"), (b"new", b"1"), partition=partition
        )


def _versions(records: list[Record]) -> Iterator[Version]:
    """Versions of one key, each valid until the next one; times that go back are replaced by the time before, and so
    are those of records without one."""
    life: int | None = None
    made: Version | None = None
    for offset, time, value in records:
        if made is None:
            life = None
        life = time if life is None else max(life, life if time is None else time)
        if made is not None:
            yield False, *made[1:3], life, made[4]
        made = None if value is None else (True, offset, life, None, value)
    if made is not None:
        yield made


def read_rows(table: Table) -> list[dict[str, Any]]:
    files = table.files() if table.exists() else []
    return open_dataset(table.layout(), table.schema(), files).to_table().to_pylist() if files else []


def key_of(row: Mapping[str, Any]) -> Key:
    return row["topic"], row["partition"], row["key"]


def milliseconds(time: Any) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def unique(pairs: Any) -> dict[Any, Any]:
    listed = list(pairs)
    found = dict(listed)
    assert len(found) == len(listed), "a key is there twice"
    return found
