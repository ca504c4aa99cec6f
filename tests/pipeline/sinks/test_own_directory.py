"""A table is alone in its directory: none is created inside another or among other files, and copies are recognized."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.load.leases import held_lease
from ottla.pipeline.model.decode import SCHEMA
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table
from ottla.pipeline.stores.local_store import LocalStore

from ..memory_cluster import MemoryCluster
from .loads import load, topic_rows
from .test_formats import again, rows


def test_a_directory_with_other_things(kind: str, tmp_path: Path) -> None:
    """A vacuum would remove them, even files that are not Parquet."""
    thesis = tmp_path / "home" / "thesis.pdf"
    thesis.parent.mkdir()
    thesis.touch()
    with pytest.raises(OperatorError, match=r"home, which contains other files, 'thesis.pdf' for one: .* --table"):
        open_table(thesis.parent, format=kind).ensure(SCHEMA)
    assert list(thesis.parent.iterdir()) == [thesis]


def test_allowed_entries_in_table_directory(table: Table, cluster: MemoryCluster) -> None:
    """Hidden entries, and leftovers of loads that were killed before they created the table."""
    directory = Path(table.location)
    (directory / ".cache").mkdir(parents=True)
    (directory / "part-clicks-0-00000000000000000000-0a1b2c3d4e5f6071-01234567.zstd.parquet").touch()
    with held_lease(LocalStore(directory), "killed"):
        load(cluster, table)
    assert rows(table) == topic_rows(cluster)


def test_a_directory_within_a_table(table: Table, kind: str, tmp_path: Path) -> None:
    table.ensure(SCHEMA)
    (tmp_path / "link").symlink_to(table.location)
    for inner in (Path(table.location, "a", "b"), tmp_path / "link" / "b"):
        with pytest.raises(OperatorError, match=r"b, inside the table .*table: a vacuum of the outer"):
            open_table(inner, format=kind).ensure(SCHEMA)
        assert not inner.joinpath("_delta_log").exists()
    assert not table.files()


def test_copied_table_is_independent_or_refused(
    table: Table, kind: str, cluster: MemoryCluster, tmp_path: Path
) -> None:
    """A copy is independent, or refused if its metadata contain absolute paths: writes would go to the original."""
    load(cluster, table)
    copied = open_table(shutil.copytree(table.location, tmp_path / "copy"))
    cluster.partitions["clicks", 0].append_values([b"more"])
    if kind == "iceberg":
        with pytest.raises(OperatorError, match=r"copy was copied from .*table, and its metadata refer"):
            load(cluster, copied)
    else:
        load(cluster, copied)
        assert rows(copied) == topic_rows(cluster)
    assert len(rows(again(table))) == len(topic_rows(cluster)) - 1


def test_a_table_by_another_way_to_it(table: Table, cluster: MemoryCluster, tmp_path: Path) -> None:
    load(cluster, table)
    (tmp_path / "link").symlink_to(tmp_path)
    assert rows(open_table(tmp_path / "link" / "table")) == topic_rows(cluster)
