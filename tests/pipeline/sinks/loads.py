"""Loads without Spark: a topic in memory, landed and committed in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from ottla.pipeline.load.driver import commit_of, rows_schema
from ottla.pipeline.load.land import LandSettings, land_task
from ottla.pipeline.load.leases import EXPIRY_S, LEASE_DIRECTORY, revoke
from ottla.pipeline.model.decode import DEAD_LETTER_SCHEMA
from ottla.pipeline.model.plan import LoadPlan, PlanSettings, make_plan
from ottla.pipeline.sinks.table import CommitResult, DataFile, Table, TableCommit, files_from_json
from ottla.pipeline.sinks.writer import DataFileWriter, new_load_id
from ottla.pipeline.stores.open_store import open_store

from ..memory_cluster import MemoryCluster

TOPIC = "clicks"


def make_cluster(rows: int = 50) -> MemoryCluster:
    """A topic of two partitions."""
    made = MemoryCluster()
    made.create(TOPIC, 2)
    for index in range(2):
        made.partitions[TOPIC, index].append_values([b"v%d" % number for number in range(rows)])
    return made


def topic_rows(cluster: MemoryCluster) -> list[tuple[int, int]]:
    """Partition and offset of every record."""
    return sorted((index, offset) for (_, index), log in cluster.partitions.items() for offset in range(log.end))


def plan_load(cluster: MemoryCluster, table: Table, pipeline_id: str = "default") -> LoadPlan:
    return make_plan(cluster, table, list(cluster.topic_ids), PlanSettings(pipeline_id=pipeline_id))


def write_files(cluster: MemoryCluster, table: Table, plan: LoadPlan, load_id: str) -> list[DataFile]:
    settings = LandSettings(
        cluster.open, table.ensure(rows_schema(table, None)), table.dead_letters().layout(), load_id
    )
    rows = [land_task(number, task, settings) for number, task in enumerate(plan.tasks)]
    assert not any(row.error for row in rows), rows
    return [file for row in rows for file in files_from_json(row.files)]


def commit(table: Table, plan: LoadPlan, files: Sequence[DataFile], load_id: str) -> CommitResult:
    return table.commit(commit_of(plan, load_id, files))


def load(cluster: MemoryCluster, table: Table, pipeline_id: str = "default") -> int | None:
    """Run a whole load; returns the version, None without new records."""
    plan = plan_load(cluster, table, pipeline_id)
    if plan.is_empty:
        return None
    load_id = new_load_id()
    return commit(table, plan, write_files(cluster, table, plan, load_id), load_id).version


def add_letters(table: Table, topic: str, reasons: Sequence[str], first_ms: int = 1_000) -> None:
    """Commit dead letters of partition 0, at offsets from 0 and times from `first_ms`, with these reasons."""
    letters, load_id = table.dead_letters(), new_load_id()
    layout = letters.ensure(DEAD_LETTER_SCHEMA)
    rows = [
        {"topic": topic, "partition": 0, "offset": offset, "timestamp_ms": first_ms + offset, "reason": reason}
        for offset, reason in enumerate(reasons)
    ]
    with DataFileWriter(layout, DEAD_LETTER_SCHEMA, {}, "letters", load_id) as writer:
        writer.add(pa.RecordBatch.from_pylist(rows, schema=DEAD_LETTER_SCHEMA))
        file = writer.finish()
    assert file is not None
    letters.commit(TableCommit(load_id, files=[file]))


def let_expire(table: Table, load_id: str) -> None:
    """Make the lease of a load as old as one that was not renewed for too long."""
    path = Path(table.location, LEASE_DIRECTORY, load_id)
    before = path.stat().st_mtime - EXPIRY_S - 1
    os.utime(path, (before, before))


def revoke_leases(table: Table) -> None:
    """Revoke the leases of all running loads, as a vacuum does after a long suspension."""
    for lease in list(Path(table.location, LEASE_DIRECTORY).iterdir()):
        let_expire(table, lease.name)
        assert revoke(open_store(table.location), lease.name)
