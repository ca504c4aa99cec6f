"""Tables of Iceberg's own REST catalog: exactly-once loads through races and kills, and maintenance."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")

from tests.pipeline.memory_cluster import MemoryCluster
from tests.pipeline.sinks.loads import commit, load, make_cluster, plan_load, topic_rows, write_files

from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import StaleCommitError, Table

if TYPE_CHECKING:
    from catalog_process import CatalogProcess

KILLED_LOAD = Path(__file__).with_name("killed_load.py")
RACERS = 4
names = (f"lake.clicks{number}" for number in range(1000))


@pytest.fixture
def name(catalog: CatalogProcess) -> str:
    """Returns the name of a new table."""
    return next(names)


@pytest.fixture
def table(catalog: CatalogProcess, name: str) -> Table:
    return open_table(name, catalog_url=catalog.url)


@pytest.fixture
def cluster() -> MemoryCluster:
    return make_cluster()


def rows(catalog: CatalogProcess, name: str) -> list[tuple[int, int]]:
    """Returns the partition and offset of each row, from pyiceberg's own scan."""
    from pyiceberg.catalog import load_catalog

    found = load_catalog("reader", type="rest", uri=catalog.url).load_table(name).scan().to_arrow()
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def landed(catalog: CatalogProcess, name: str) -> set[str]:
    """Returns all data files, including those that the table does not reference."""
    return {path.name for path in catalog.warehouse.joinpath(*name.split(".")).rglob("part-*")}


def test_loads_add_new_records_only(catalog: CatalogProcess, name: str, table: Table, cluster: MemoryCluster) -> None:
    first = load(cluster, table)
    assert load(cluster, open_table(name, catalog_url=catalog.url)) is None
    cluster.partitions["clicks", 1].append_values([b"more"])
    assert load(cluster, open_table(name, catalog_url=catalog.url)) == table.version() != first
    assert rows(catalog, name) == topic_rows(cluster)
    assert {Path(path).name for path in table.files()} == landed(catalog, name)
    assert [one.rows for one in table.loads()] == [1, 100]


def test_one_of_two_racing_loads_commits(
    catalog: CatalogProcess, name: str, table: Table, cluster: MemoryCluster
) -> None:
    plan = plan_load(cluster, table)
    files = [write_files(cluster, table, plan, f"load{number}") for number in range(RACERS)]
    barrier, outcomes = threading.Barrier(RACERS), []

    def race(number: int) -> None:
        mine = open_table(name, catalog_url=catalog.url)
        barrier.wait()
        try:
            outcomes.append(type(commit(mine, plan, files[number], f"load{number}")).__name__)
        except Exception as error:  # compared below
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["CommitResult"] + ["StaleCommitError"] * (RACERS - 1)
    assert rows(catalog, name) == topic_rows(cluster)


def test_late_commit_is_refused(catalog: CatalogProcess, name: str, table: Table, cluster: MemoryCluster) -> None:
    low = plan_load(cluster, table)
    files = write_files(cluster, table, low, "low")
    cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, table)
    for late in (table, open_table(name, catalog_url=catalog.url)):
        with pytest.raises(StaleCommitError, match="run it again"):
            commit(late, low, files, "low")
    assert rows(catalog, name) == topic_rows(cluster)


@pytest.mark.parametrize("step", ["before", "after"])
def test_next_load_after_a_killed_load(
    catalog: CatalogProcess, name: str, table: Table, cluster: MemoryCluster, step: str
) -> None:
    command = [sys.executable, str(KILLED_LOAD), catalog.url, name, step]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = landed(catalog, name)
    assert left
    assert (load(cluster, table) is None) == (step == "after")
    assert rows(catalog, name) == topic_rows(cluster)
    assert (left <= {Path(path).name for path in table.files()}) == (step == "after")


def test_small_files_are_compacted_and_old_files_expire(
    catalog: CatalogProcess, name: str, table: Table, cluster: MemoryCluster
) -> None:
    for _ in range(3):
        load(cluster, table)
        cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, table)
    before = set(table.files())
    table.compact(1 << 30, "compaction", lambda: None)
    assert len(table.files()) < len(before)
    assert rows(catalog, name) == topic_rows(cluster)
    expired = table.expire(time.time_ns() // 1_000_000 + 60_000)
    store = table.layout().store
    assert {store.relative(path) for path in before} <= expired
    assert rows(catalog, name) == topic_rows(cluster)
    assert load(cluster, open_table(name, catalog_url=catalog.url)) is None


def test_table_gets_new_columns(catalog: CatalogProcess, name: str, table: Table, cluster: MemoryCluster) -> None:
    import pyarrow as pa

    load(cluster, table)
    assert table.widen(pa.schema([("extra", pa.int64())])).names[-1] == "extra"
    cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, open_table(name, catalog_url=catalog.url))
    assert rows(catalog, name) == topic_rows(cluster)


def test_catalog_down_between_files_and_commit(
    catalog: CatalogProcess, name: str, table: Table, cluster: MemoryCluster
) -> None:
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "one")
    catalog.stop()
    try:
        with pytest.raises(OperatorError, match=r"the catalog at .* Connection refused"):
            commit(table, plan, files, "one")
    finally:
        catalog.start()
    assert load(cluster, open_table(name, catalog_url=catalog.url)) is not None
    assert rows(catalog, name) == topic_rows(cluster)
