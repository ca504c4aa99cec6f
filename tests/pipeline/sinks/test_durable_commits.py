"""Files of a commit survive a power failure: libraries of lake formats leave syncs to the operating system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.load.leases import LEASE_DIRECTORY  # noqa: E402

from .loads import load  # noqa: E402

if TYPE_CHECKING:
    from ottla.pipeline.sinks.table import Table

    from ..memory_cluster import MemoryCluster

SYNCED_BY_SQLITE = "catalog.db"


@pytest.mark.promise("P1")
def test_each_file_of_a_commit_is_synced(cluster: MemoryCluster, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = set(), os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        synced.add((status.st_ino, status.st_mtime_ns))

    monkeypatch.setattr(os, "fsync", note)
    load(cluster, table)
    cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, table)
    table.widen(table.schema().append(pa.field("more", pa.string())))
    files = [path for path in Path(table.location).rglob("*") if path.is_file() and LEASE_DIRECTORY not in path.parts]
    assert len(files) > 3
    unsynced = [path for path in files if (path.stat().st_ino, path.stat().st_mtime_ns) not in synced]
    assert [path.name for path in unsynced if path.name != SYNCED_BY_SQLITE] == []
