"""Jobs of the kill trials: a command of `ottla pipeline` on one topic, and its expected result."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.pipeline.sinks.open_table import open_table

from .committed import read_committed
from .deaths import STEP_NUMBERS
from .sinks.test_formats import content

TOPIC = "source"
TARGET = "target"
TOPIC_KIND = "topic"
"""The kind of a stream with results in a topic."""
TASK_BYTES = "32KiB"
"""Small enough for several tasks of each partition."""

STREAM = """
    name = "trial"
    [sources.events]
    topic = "{source}"
    max_records = 250
    [query]
    sql = "select partition, offset, cast(key as string) as key, cast(value as string) as value from events"
    [result]
    {result}
"""


class Row(NamedTuple):
    """A record, as produced or as stored."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


class Job:
    """A load; subclasses are the other jobs."""

    command = "load"
    steps: tuple[str, ...] = ("planned", "landing", "reading", "written", "landed", "committed")
    """Steps of its driver and its workers, as `driver.py` records them."""
    under_way = "reading"
    """The first step at which a death can lose something."""
    worker_steps: tuple[str, ...] = ("reading", "written")
    turns = 1
    """Minimum number of occurrences of each driver step in a run, as a rule."""

    def __init__(self, servers: str, folder: Path, kind: str, choice: random.Random) -> None:
        self._servers = servers
        self._folder = folder
        self._kind = kind
        self._random = choice
        self.table = folder / "table"

    @property
    def has_table(self) -> bool:
        return self._kind != TOPIC_KIND

    def arguments(self) -> list[str]:
        """Arguments after the command, without `--json`."""
        return [
            *("--table", str(self.table), "--format", self._kind, "--topics", TOPIC, "-b", self._servers),
            *("--master", "local[2]", "--max-bytes-per-task", TASK_BYTES),
            *("--source", self._random.choice(["auto", "fetch"])),
        ]

    def found_nothing(self, summary: dict[str, Any]) -> bool:
        """True if a run with this summary had nothing to do."""
        return summary["version"] is None

    def rows(self) -> list[Row]:
        """Stored rows so far, in the order of the topic."""
        table = open_table(self.table, format=self._kind)
        if not table.exists() or not table.files():
            return []
        found = content(table)
        columns = (found.column(name).to_pylist() for name in ("partition", "offset", "key", "value"))
        return sorted(Row(*row) for row in zip(*columns, strict=True))

    def expected(self, records: Sequence[Row]) -> list[Row]:
        """Expected rows for all records of the topic, in their order."""
        return list(records)

    def identity(self, row: Row) -> tuple[Any, ...]:
        """A unique key of a row."""
        return row.partition, row.offset


class LocalLoad(Job):
    """A load without Spark."""

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--engine", "local"]


class Snapshot(Job):
    """The latest value of each key."""

    command = "snapshot"
    steps = ("planned", "landing", "reading", "written", "landed", "merging", "merged", "committed")

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--buckets", "4"]

    def expected(self, records: Sequence[Row]) -> list[Row]:
        latest = {self.identity(row): row for row in records}
        return sorted(row for row in latest.values() if row.value is not None)

    def identity(self, row: Row) -> tuple[Any, ...]:
        return row.partition, row.key


class Stream(Job):
    """All records, batch by batch, into a table or a topic."""

    command = "stream"
    steps = ("planned", "files", "letters", "committed")
    under_way = "planned"
    worker_steps: tuple[str, ...] = ()
    turns = STEP_NUMBERS

    def __init__(self, servers: str, folder: Path, kind: str, choice: random.Random) -> None:
        super().__init__(servers, folder, kind, choice)
        result = f'topic = "{TARGET}"\nkey = "key"'
        if self.has_table:
            result = f'table = "{self.table}"\nformat = "{kind}"'
        else:
            self.worker_steps = ("sending", "sent")
            with Cluster(servers) as cluster:
                cluster.topics.create(TARGET, 3)
        (folder / "stream.toml").write_text(STREAM.format(source=TOPIC, result=result))

    def arguments(self) -> list[str]:
        checkpoint = str(self._folder / "checkpoint")
        return [
            *(str(self._folder / "stream.toml"), "--once", "--checkpoint", checkpoint),
            *("--master", "local[2]", "-b", self._servers),
        ]

    def found_nothing(self, summary: dict[str, Any]) -> bool:
        return summary["batches"] == 0

    def rows(self) -> list[Row]:
        if self.has_table:
            return [_in_bytes(row._asdict()) for row in super().rows()]
        return sorted(_in_bytes(json.loads(one.value())) for one in read_committed(self._servers, TARGET))


def _in_bytes(row: dict[str, Any]) -> Row:
    value = row["value"]
    return Row(row["partition"], row["offset"], row["key"].encode(), None if value is None else value.encode())


JOBS: dict[str, type[Job]] = {"local": LocalLoad} | {job.command: job for job in (Job, Snapshot, Stream)}
