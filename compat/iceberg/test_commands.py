"""`ottla pipeline` with tables of Iceberg's own REST catalog; each command is a process, as for an operator."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")

from tests.pipeline.deaths import make_folder
from tests.pipeline.topics import produce

from ottla.client.admin.cluster import Cluster
from ottla.pipeline.load.leases import EXPIRY_S
from ottla.pipeline.spark.engines import DUCKDB, SPARK

if TYPE_CHECKING:
    from catalog_process import CatalogProcess

    from ottla.testing import Broker

pytestmark = [
    pytest.mark.timeout(900),  # each load starts a Spark session, which is slow on a loaded machine
    pytest.mark.usefixtures("light_java"),
]

DYING = Path(__file__).resolve().parents[2] / "tests" / "pipeline" / "driver.py"
COMMAND_S = 240
ENGINES = [SPARK, *([DUCKDB] if importlib.util.find_spec("duckdb") else [])]
_numbers = itertools.count()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)


class Lake:
    """A topic of two partitions, and commands with a table of the catalog."""

    def __init__(self, broker: Broker, catalog: CatalogProcess) -> None:
        number = next(_numbers)
        self.topic, self.name = f"visits-{number}", f"commands.visits{number}"
        self._bootstrap = broker.bootstrap_servers
        self._catalog = catalog
        self.sent = 0
        with Cluster(self._bootstrap) as cluster:
            cluster.topics.create(self.topic, 2)

    def produce(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        records = ({"key": b"%d" % (n % 10), "value": b'{"id":%d}' % n, "partition": n % 2} for n in numbers)
        produce(self._bootstrap, self.topic, records)
        self.sent += count

    def run_json(self, *arguments: str) -> Any:
        """The JSON output of a successful command."""
        done = run(*arguments, "--catalog", self._catalog.url, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def load_arguments(self, command: str = "load") -> list[str]:
        table = ["-t", self.topic, "--table", self.name, "--decode", "json"]
        return [command, *table, "--bootstrap-server", self._bootstrap, "--master", "local[1]"]

    def status_arguments(self) -> list[str]:
        return ["status", self.name, "--bootstrap-server", self._bootstrap]

    def ids(self) -> list[int]:
        """Sorted ids in the table, read by another library."""
        from pyiceberg.catalog import load_catalog

        table = load_catalog("reader", type="rest", uri=self._catalog.url).load_table(self.name)
        return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def kill_load(self, folder: Path) -> None:
        """Kill a load after it has written its files, before the commit."""
        make_folder(folder)
        death = {"step": "landed", "victim": "driver"}
        settings = {"folder": str(folder), "table": str(folder), "deaths": [death]}
        command = [sys.executable, str(DYING), json.dumps(settings), *self.load_arguments()]
        done = subprocess.run(
            [*command, "--catalog", self._catalog.url], capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    @property
    def home(self) -> Path:
        return self._catalog.warehouse.joinpath(*self.name.split("."))

    def landed(self) -> set[Path]:
        return set(self.home.rglob("part-*"))

    def expire_leases(self) -> None:
        """Age the leases, as if their holders had stopped that long ago."""
        heard = time.time() - EXPIRY_S - 60
        for lease in self.home.glob("_leases/*"):
            os.utime(lease, (heard, heard))


@pytest.fixture
def lake(broker: Broker, catalog: CatalogProcess) -> Lake:
    return Lake(broker, catalog)


def test_table_is_loaded_queried_and_maintained(lake: Lake, tmp_path: Path) -> None:
    lake.produce(30)
    assert lake.run_json(*lake.load_arguments())["rows"] == 30
    first = lake.landed()
    lake.produce(30)
    lake.kill_load(tmp_path / "deaths")
    orphans = lake.landed() - first
    assert orphans
    assert lake.ids() == list(range(30))
    assert lake.run_json("vacuum", "--table", lake.name)["abandoned_files"] == 0  # it may only be slow
    assert lake.run_json(*lake.load_arguments())["rows"] == 30
    assert lake.run_json(*lake.load_arguments())["version"] is None
    [held] = lake.run_json(*lake.status_arguments())
    assert [(each["committed"], each["lag"]) for each in held["partitions"]] == [(30, 0), (30, 0)]

    assert lake.run_json("compact", "--table", lake.name)["files_after"] == 1
    lake.expire_leases()
    assert lake.run_json("vacuum", "--table", lake.name, "--dry-run")["abandoned_files"] == len(orphans)
    assert orphans <= lake.landed()
    assert lake.run_json("vacuum", "--table", lake.name)["abandoned_files"] == len(orphans)
    assert not orphans & lake.landed()
    lake.run_json("vacuum", "--table", lake.name, "--retention-hours", "0")
    assert lake.ids() == list(range(60))
    statement = "select count(*) n, count(distinct id) ids, max(id) top from records"
    for engine in ENGINES:
        [found] = lake.run_json("sql", statement, "--table", lake.name, "--engine", engine)
        assert found == {"n": 60, "ids": 60, "top": 59}


def test_snapshot(lake: Lake) -> None:
    """Ten keys, each always in one partition."""
    for _ in range(2):
        lake.produce(30)
        lake.run_json(*lake.load_arguments("snapshot"))
        assert lake.ids() == list(range(lake.sent - 10, lake.sent))
    [held] = lake.run_json(*lake.status_arguments())
    assert [each["lag"] for each in held["partitions"]] == [0, 0]


def test_unavailable_catalog(lake: Lake, catalog: CatalogProcess) -> None:
    lake.produce(2)
    catalog.stop()
    try:
        for arguments in (
            lake.load_arguments(),
            lake.load_arguments("snapshot"),
            lake.status_arguments(),
            ["sql", "select 1 from records", "--table", lake.name],
            ["compact", "--table", lake.name],
            ["vacuum", "--table", lake.name],
        ):
            done = run(*arguments, "--catalog", catalog.url)
            assert done.returncode == 1, (arguments, done.stderr)  # a retry may help
            [line] = done.stderr.splitlines()
            assert f"the catalog at {catalog.url.removeprefix('http://')} can't be reached: Connection refused" in line
            assert done.stdout == ""
    finally:
        catalog.start()
    assert not lake.home.exists()
    assert lake.run_json(*lake.load_arguments())["rows"] == 2
