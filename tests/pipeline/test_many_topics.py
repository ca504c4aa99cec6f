"""`ottla pipeline load` of several topics, each into a table of its own, from a real broker."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("confluent_kafka")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `lake`")
pytest.importorskip("cronsim", reason="needs the extra `lake`")

from ottla.app import main  # noqa: E402
from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402

from .limits import RUN_S  # noqa: E402
from .topics import produce  # noqa: E402

EVERY_SECOND = "* * * * * *"
KILLED_AT_OPEN = """
import os, signal, sys
def hook(event, arguments):
    if event == "open" and str(arguments[0]).startswith(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
from ottla.app.main import cli
cli(sys.argv[2:])
"""
"""A command that is killed when it opens the first file whose path starts with the first argument."""
_numbers = itertools.count()


class Shop:
    """Topics with a common prefix, and the loads of all of them into tables below `lake`."""

    def __init__(self, bootstrap: str, lake: Path) -> None:
        self.bootstrap = bootstrap
        self.prefix = f"shop{next(_numbers)}."
        self.lake = lake

    def create(self, *names: str, rows: int = 3) -> None:
        """Create topics of two partitions with records 0 to `rows` - 1, keyed by their values."""
        with Cluster(self.bootstrap) as cluster:
            for name in names:
                cluster.topics.create(self.prefix + name, 2)
        for name in names:
            self.produce(name, *(b"%d" % number for number in range(rows)))

    def produce(self, name: str, *values: bytes) -> None:
        produce(self.bootstrap, self.prefix + name, ({"value": value, "key": value} for value in values))

    def arguments(self, *options: str) -> list[str]:
        pattern = self.prefix.replace(".", r"\.") + ".*"
        table = str(self.lake / "{topic}")
        chosen = ("--topics-pattern", pattern, "--table", table, "-b", self.bootstrap)
        return ["pipeline", "load", *chosen, *options]

    def load(self, *options: str) -> Result:
        return CliRunner().invoke(main.cli, self.arguments(*options))

    def loaded(self, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Objects by topic without the prefix, and totals, of a load that succeeds."""
        result = self.load(*options, "--json")
        assert result.exit_code == 0, (result.output, result.exception)
        return self.parsed(result.stdout)

    def parsed(self, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        found = json.loads(text)
        return {one["topic"].removeprefix(self.prefix): one for one in found["topics"]}, found["totals"]

    def table(self, name: str) -> Path:
        return self.lake / (self.prefix + name)

    def values(self, name: str) -> list[bytes]:
        """Values in the table of a topic, read by another library."""
        found = deltalake.DeltaTable(self.table(name)).to_pyarrow_table().column("value").to_pylist()
        return sorted(found)


@pytest.fixture
def shop(bootstrap: str, tmp_path: Path) -> Shop:
    return Shop(bootstrap, tmp_path / "lake")


def test_each_topic_has_its_own_table_and_new_ones_join(shop: Shop) -> None:
    shop.create("orders", "users-v2")
    with Cluster(shop.bootstrap) as cluster:
        cluster.topics.create(f"not-{shop.prefix}orders")
    found, totals = shop.loaded()
    assert {name: one["rows"] for name, one in found.items()} == {"orders": 3, "users-v2": 3}
    assert found["orders"]["table"] == str(shop.table("orders"))
    assert found["orders"]["group"] == f"ottla-load.{shop.prefix}orders.default"
    assert (totals["topics"], totals["failed"], totals["rows"], totals["exit_code"]) == (2, 0, 6, 0)

    shop.create("payments", rows=5)
    shop.produce("orders", b"3")
    printed = shop.load("--parallel-tables", "1")
    assert printed.exit_code == 0, printed.output
    lines = [line.split() for line in printed.stdout.splitlines()]
    assert lines[0] == ["TOPIC", "TABLE", "ROWS", "DEAD", "LETTERS", "VERSION", "SECONDS", "RESULT"]
    results = {line[0].removeprefix(shop.prefix): (line[2], line[-1]) for line in lines[1:4]}
    assert results == {"orders": ("1", "loaded"), "payments": ("5", "loaded"), "users-v2": ("0", "new")}
    assert " ".join(lines[4]).startswith("Loaded 6 rows from 2 topics: 3 topics in ")
    for name, rows in (("orders", 4), ("users-v2", 3), ("payments", 5)):
        assert shop.values(name) == [b"%d" % number for number in range(rows)]

    status = CliRunner().invoke(main.cli, ["pipeline", "status", str(shop.lake), "-b", shop.bootstrap, "--json"])
    tables = {one["table"]: sum(part["lag"] for part in one["partitions"]) for one in json.loads(status.stdout)}
    assert tables == {str(shop.table(name)): 0 for name in ("orders", "payments", "users-v2")}


def test_failed_topic_does_not_stop_others(shop: Shop) -> None:
    shop.create("bad", "good", "occupied", rows=0)
    for name in ("bad", "good", "occupied"):
        shop.produce(name, b'{"n": 1}')
    shop.produce("bad", b"{")
    shop.table("occupied").mkdir(parents=True)
    (shop.table("occupied") / "file").touch()
    options = ("--decode", "json", "--max-dead-letters", "0")
    printed = shop.load(*options, "--json")
    found, totals = shop.parsed(printed.stdout)
    assert [(one["exit_code"], one["retriable"]) for one in (found["bad"], found["occupied"], found["good"])] == [
        (3, False),
        (2, False),
        (0, False),
    ]
    assert "--max-dead-letters is 0" in found["bad"]["error"]
    assert "contains other files" in found["occupied"]["error"]
    assert (found["good"]["rows"], found["good"]["error"]) == (1, None)
    assert (totals["failed"], totals["rows"], totals["exit_code"], printed.exit_code) == (2, 1, 3, 3)
    again = shop.load(*options)
    assert again.exit_code == 3
    rows = [line for line in again.stdout.splitlines() if line.startswith(shop.prefix)]
    assert [line.partition("  failed")[2] for line in rows] == [", exit code 3", "", ", exit code 2"]
    assert again.stderr.startswith(f"ottla: 2 of 3 topics were not loaded: {shop.prefix}bad: ")
    assert shop.values("good") == [b'{"n": 1}']


@pytest.mark.promise("P1")
def test_load_killed_between_tables_is_completed_by_next(shop: Shop) -> None:
    shop.create("a", "b", "c", rows=20)
    options = ("--parallel-tables", "1", "--engine", "local", "-q")
    script = [sys.executable, "-c", KILLED_AT_OPEN, str(shop.table("b"))]
    run = subprocess.run([*script, *shop.arguments(*options)], timeout=RUN_S, check=False)
    assert run.returncode == -signal.SIGKILL
    values = sorted(b"%d" % number for number in range(20))
    assert shop.values("a") == values
    assert not shop.table("c").exists()
    found, _ = shop.loaded(*options)
    assert {name: one["rows"] for name, one in found.items()} == {"a": 0, "b": 20, "c": 20}
    assert [shop.values(name) for name in "abc"] == [values] * 3


def test_schedule_continues_with_failed_and_new_topics(shop: Shop) -> None:
    shop.create("a", "occupied")
    shop.table("occupied").mkdir(parents=True)
    (shop.table("occupied") / "file").touch()
    command = [
        sys.executable,
        "-m",
        "ottla",
        *shop.arguments("--schedule", EVERY_SECOND, "--json", "--from", "earliest"),
    ]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert load.stdout is not None
    try:
        found, totals = shop.parsed(load.stdout.readline())
        assert (found["a"]["rows"], found["occupied"]["exit_code"], totals["exit_code"]) == (3, 2, 2)
        shop.create("b", rows=5)
        rows = 0
        while rows < 5:
            found, totals = shop.parsed(load.stdout.readline())
            assert (found["a"]["error"], totals["failed"]) == (None, 1)
            rows += found["b"]["rows"] if "b" in found else 0
    finally:
        load.send_signal(signal.SIGTERM)
        _, errors = load.communicate(timeout=RUN_S)
    assert load.returncode == 0
    assert "Schedule: this run failed: 1 of 2 topics were not loaded: " in errors
    assert shop.values("b") == [b"%d" % number for number in range(5)]


def test_one_named_topic_fills_the_template(shop: Shop) -> None:
    """Its result is that of any load into one table."""
    shop.create("orders")
    at = ("--table", str(shop.lake / "{topic}"), "-b", shop.bootstrap, "--json")
    result = CliRunner().invoke(main.cli, ["pipeline", "load", "-t", f"{shop.prefix}orders", *at])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["table"] == str(shop.table("orders"))


def test_pattern_without_template_fills_one_table(shop: Shop) -> None:
    shop.create("a", "b")
    result = shop.load("--table", str(shop.lake / "all"), "--json")
    assert result.exit_code == 0, result.output
    assert (json.loads(result.stdout)["rows"], len(json.loads(result.stdout)["topics"])) == (6, 2)


def test_pattern_without_match_is_refused(shop: Shop) -> None:
    result = shop.load()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "matches no topic" in result.stderr


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")
    from .catalog_server import CatalogServer

    server = CatalogServer(tmp_path)
    yield server.url
    server.stop()


def test_catalog_tables_of_topics(shop: Shop, catalog: str) -> None:
    shop.create("a-b", "a_b", "c.d")
    result = shop.load("--table", "lake.{topic}", "--catalog", catalog, "--json")
    found, totals = shop.parsed(result.stdout)
    assert (result.exit_code, totals["failed"], found["c.d"]["error"]) == (2, 2, None), result.output
    shared = f"topics '{shop.prefix}a-b', '{shop.prefix}a_b' would share the table lake.{shop.prefix[:-1]}_a_b: "
    assert found["a-b"]["error"] == found["a_b"]["error"]
    assert found["a-b"]["error"].startswith(shared)
    name = f"lake.{shop.prefix[:-1]}_c_d"
    assert found["c.d"]["table"] == name
    assert sum(file.rows for file in open_table(name, catalog_url=catalog).data_files()) == 3


@pytest.mark.pipeline
@pytest.mark.usefixtures("commands_in_session")
def test_tables_are_loaded_in_one_spark_session(shop: Shop) -> None:
    shop.create("a", "b", "c", rows=50)
    found, totals = shop.loaded("--engine", "spark", "--master", "local[2]", "--parallel-tables", "3")
    assert {one["engine"] for one in found.values()} == {"spark"}
    assert totals["rows"] == 150
    assert all(len(set(shop.values(name))) == 50 for name in "abc")
