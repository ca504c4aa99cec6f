"""The commands with tables in a REST catalog of Iceberg: into them, between them, and back into topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")

from ottla.pipeline.cli import pipeline
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table

from .catalog_server import CatalogServer
from .committed import read_committed
from .topics import new_topic, produce

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("commands_in_session")]

ROWS = 90
RANGE = ("--from", "10", "--to", "20")
"""For each of three partitions."""

Run = Callable[..., Any]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[str]:
    server = CatalogServer(tmp_path)
    yield server.url
    server.stop()


def invoke(bootstrap: str, *arguments: str | Path) -> Result:
    return CliRunner().invoke(pipeline, [*map(str, arguments), "-b", bootstrap])


@pytest.fixture
def run(bootstrap: str) -> Run:
    """JSON output of a successful command."""

    def run(*arguments: str | Path) -> Any:
        result = invoke(bootstrap, *arguments, "--json")
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout)

    return run


def rows(spark: Any, table: Table) -> list[int]:
    return sorted(int(row.value) for row in spark.read.parquet(*table.files()).select("value").collect())


def test_from_and_into_a_catalog(
    run: Run, spark: Any, bootstrap: str, topic: str, catalog: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, ({"value": b"%d" % number, "partition": number % 3} for number in range(ROWS)))
    there = ("--catalog", catalog)
    assert run("load", "-t", topic, "--table", "lake.clicks", "--partition-by", "partition", *there)["rows"] == ROWS
    middle = list(range(30, 60))

    again = ("replay", "--table", "lake.clicks", *RANGE, "--to-table", "lake.again", *there)
    assert run(*again)["rows"] == 30
    assert run(*again)["version"] is None  # it adds nothing
    copy = open_table("lake.again", catalog_url=catalog)
    assert rows(spark, copy) == middle
    assert copy.layout().partition_columns == ("partition",)

    out = tmp_path / "out"
    assert run("replay", "--table", "lake.clicks", *RANGE, "--to-table", out, *there)["rows"] == 30
    assert (open_table(out).format, rows(spark, open_table(out))) == ("iceberg", middle)
    assert run("replay", "--table", out, "--to-table", "lake.back", *there)["rows"] == 30
    assert open_table("lake.back", catalog_url=catalog).layout().partition_columns == ("partition",)
    assert run("replay", "--topic", topic, *RANGE, "--to-table", "lake.topic", *there)["rows"] == 30

    target = new_topic(bootstrap, 1)
    push = ("push", "lake.clicks", *there, "--topic", target)
    assert run(*push)["rows"] == ROWS
    assert run(*push)["rows"] == 0
    assert sorted(int(each.value()) for each in read_committed(bootstrap, target, ROWS)) == list(range(ROWS))
    replayed = f"{target}-replayed"
    assert run("replay", "--table", "lake.clicks", *RANGE, "--to-topic", replayed, *there)["rows"] == 30
    assert sorted(int(each.value()) for each in read_committed(bootstrap, replayed, 30)) == middle


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("push", "lake.none", "--topic", "TOPIC"), "no Iceberg table lake.none found"),
        (("push", "lake.a", "lake.b", "--topic", "TOPIC"), "one table, or some files"),
        (("push", "./a", "--topic", "TOPIC"), "'a' is not a table name in a catalog"),
        (("replay", "--table", "lake.none", "--to-topic", "TOPIC"), "no Iceberg table lake.none found"),
        (("replay", "--table", "lake.none", "--to-table", "lake.a"), "no Iceberg table lake.none found"),
        (
            ("replay", "--topic", "TOPIC", "--to-table", "lake.a", "--format", "delta"),
            "a catalog contains Iceberg tables",
        ),
        (("replay", "--topic", "TOPIC", "--to-table", "/lake/a"), "--catalog has no effect"),
        (("replay", "--topic", "TOPIC", "--to-topic", "b"), "--catalog has no effect"),
    ],
)
def test_missing_catalog_table_is_reported(
    bootstrap: str, topic: str, catalog: str, arguments: tuple[str, ...], sentence: str
) -> None:
    given = [topic if each == "TOPIC" else each for each in arguments]
    result = invoke(bootstrap, *given, "--catalog", catalog)
    assert result.exit_code != 0
    assert sentence in f"{result.output}{result.exception}"
