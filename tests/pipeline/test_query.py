"""SQL over tables in any directory, read-only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.pipeline.sql.query import register_tables, run_sql  # noqa: E402

from .memory_cluster import MemoryCluster  # noqa: E402
from .sinks.test_delta import ODD_NAMES, load  # noqa: E402

pytestmark = pytest.mark.pipeline


def table(path: Path, *columns: str) -> DeltaTarget:
    """A table of ten records."""
    cluster = MemoryCluster()
    cluster.create("clicks", 2)
    for index in range(2):
        cluster.partitions["clicks", index].append_values([b"%d" % number for number in range(5)])
    target = DeltaTarget(path, columns)
    load(cluster, target)
    return target


@pytest.mark.parametrize("name", ODD_NAMES)
def test_tables_in_directories_of_any_name(spark: Any, tmp_path: Path, name: str) -> None:
    register_tables(spark, [table(tmp_path / name / "inner", "topic", "partition")])
    query = "select topic, partition, count(distinct value) as n from inner group by all order by partition"
    assert run_sql(spark, f"{query};").to_pylist() == [
        {"topic": "clicks", "partition": index, "n": 5} for index in range(2)
    ]


def test_missing_data_file_is_reported_in_one_sentence(spark: Any, tmp_path: Path) -> None:
    target = table(tmp_path / "clicks")
    for path in target.files():
        os.unlink(path)
    with pytest.raises(OperatorError, match=r"can't read the table .*PATH_NOT_FOUND"):
        register_tables(spark, [target])


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    "statement",
    [
        "create table made as select 1",
        "create table made (a int)",
        "insert into records select * from records",
        "with a as (select * from records) insert into records select * from a",
        "from records insert into records select *",
        "insert overwrite directory '{out}' using parquet select 1",
        "drop view records",
        "delete from records",
        "explain drop view records",
        "explain extended execute immediate 'create table made (a int)'",
        "begin create table made (a int); end",
        "execute immediate 'create table made (a int)'",
    ],
)
def test_a_statement_that_would_write_is_not_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.chdir(tmp_path)
    target = table(tmp_path / "clicks")
    register_tables(spark, [target])
    out = tmp_path / "out"
    with pytest.raises(OperatorError, match="is read-only"):
        run_sql(spark, statement.format(out=out))
    assert target.version() == 1
    assert not out.exists()
    assert not spark.catalog.tableExists("made")
    assert run_sql(spark, "select count(*) as n from records").to_pylist() == [{"n": 10}]


@pytest.mark.promise("P12")
def test_writes_and_mistakes_are_refused(spark: Any, tmp_path: Path) -> None:
    register_tables(spark, [table(tmp_path / "clicks")])
    with pytest.raises(
        OperatorError, match=r"not a query: .*Syntax error at or near '1': .*; `ottla pipeline sql` is read-only"
    ):
        run_sql(spark, "selec 1")
    with pytest.raises(OperatorError, match="`nope` cannot be resolved"):
        run_sql(spark, "select nope from records")
    with pytest.raises(OperatorError, match="not a query"):
        run_sql(spark, " ; ")


@pytest.mark.parametrize(
    "statement",
    [
        "show tables",
        "show views like 'records'",
        "describe table extended records",
        "EXPLAIN\nextended select * from records",
        "with a as (select * from records) select * from a order by 1, 2 -- to the end",
        "from records select topic",
        "/* one */ values 1, 2",
        "table records",
        "select a.topic, b.topic from records a join records b using (offset)",
    ],
)
def test_reading_statements_are_run(spark: Any, tmp_path: Path, statement: str) -> None:
    register_tables(spark, [table(tmp_path / "clicks")])
    assert run_sql(spark, statement).num_rows > 0


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "select " + "- " * 10_000 + "1",
            "^Spark refused the statement: it is nested too deep for Spark: use WITH",
        ),
        (
            f"select {'abs(' * 450}1{')' * 450}",
            "^Spark refused the statement: it is nested too deep for Spark: use WITH",
        ),
        (
            f"select {'array(' * 100}1{')' * 100}",
            "^the result can't be converted to Arrow: .*; convert .* with to_json$",
        ),
        ("(" * 20_000 + "select 1" + ")" * 20_000, "^the statement has more than 500 parentheses open at once"),
    ],
    ids=["stack", "parser", "result", "parentheses"],
)
def test_too_deep_statement_is_refused(spark: Any, statement: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        run_sql(spark, statement)
