"""The same SQL by DuckDB: rows as from Spark, read-only, and bounded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pc = pytest.importorskip("pyarrow.compute", reason="needs the extra `pipeline`")
pytest.importorskip("duckdb", reason="needs the extra `duckdb`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.app import main  # noqa: E402
from ottla.pipeline.datasource.bounds import GREATEST, LEAST, UNBOUNDED, Bounds  # noqa: E402
from ottla.pipeline.datasource.records import read_records  # noqa: E402
from ottla.pipeline.load.driver import load  # noqa: E402
from ottla.pipeline.model.plan import PlanSettings  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.spark.engines import ENGINES  # noqa: E402
from ottla.pipeline.sql import duckdb_query  # noqa: E402
from ottla.pipeline.sql.duckdb_query import open_query  # noqa: E402
from ottla.pipeline.sql.topic_dataset import bounds_of  # noqa: E402
from ottla.pipeline.transform.decode_options import DecodeOptions  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from .limits import RUN_S  # noqa: E402
from .topics import produce  # noqa: E402

pytestmark = pytest.mark.pipeline

TOPIC = "page-views"
FIRST_MS = 1_700_000_000_000


def value_of(number: int) -> bytes:
    if number == 7:
        return b"\xff no JSON"
    fields = {"id": number, "price": number / 4, "tags": ["a", None] * (number % 2), "spot": {"x": number % 3 or None}}
    if number >= 10:
        fields["late"] = number % 2 == 0
    return json.dumps(fields).encode()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with one topic: ten records a partition, the second partition an hour later."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 2)
        for number in range(20):
            record: dict[str, Any] = {"value": value_of(number), "partition": number // 10}
            record |= {"key": None if number % 4 == 0 else b"k%d" % (number % 4)}
            record |= {"headers": [("h", b"\x00\xff")] if number == 3 else []}
            record |= {"timestamp": FIRST_MS + number // 10 * 3_600_000 + number}
            produce(broker.bootstrap_servers, TOPIC, [record])
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def tables(spark: Any, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The topic as a table of each format: two loads, the second of which adds a column; one table is partitioned."""
    directory = tmp_path_factory.mktemp("lake")
    found = []
    for name, by in (("delta", ["partition"]), ("iceberg", []), ("parquet", ["partition"])):
        if name == "iceberg":
            pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
        target = open_table(directory / name, format=name, partition_by=by)
        value_format = open_format(DecodeOptions("json"))
        load([TOPIC], target, bootstrap, lambda: nullcontext(spark), PlanSettings(), value_format=value_format)
        found.append(directory / name)
    return found


@pytest.fixture
def sql(spark: Any, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`ottla pipeline sql`; with Spark in the shared session."""
    monkeypatch.setattr("ottla.pipeline.cli.sql.open_session", lambda *_: nullcontext(spark))

    def run(statement: str, *arguments: str) -> Any:
        return CliRunner().invoke(main.cli, ["pipeline", "sql", statement, "-b", bootstrap, *arguments])

    return run


QUERIES = [
    "select * from {}",
    "select count(*) n, sum(partition) s, avg(partition) a, min(timestamp) t, max(key) k from {}",
    "select partition p, count(*) n from {} where timestamp >= timestamp '2023-11-14 23:00:00+00' group by partition",
    "select partition, value from {} where partition in (1, 2) and key is null",
    "select a.timestamp, b.value from {0} a join {0} b on a.timestamp = b.timestamp where a.key = b.key",
    "select x.partition, count(*) n from {0} x where x.partition <> (select max(partition) from {0}) group by 1",
    "select headers[{first}].value v, headers h from {} where timestamp = timestamp '2023-11-14 22:13:20.003+00'",
    "select cast(1.50 as decimal(5, 2)) d, cast('2020-01-02' as date) dated, null nothing, true yes, "
    "cast(1 as float) f, cast('nan' as double) nan, cast(null as binary) nb, 'ü' u from {} limit 1",
    "with one as (select distinct timestamp_type t, topic from {}) select * from one",
]


@pytest.mark.parametrize("statement", QUERIES)
def test_both_engines_give_the_same_of_topics_and_of_tables(sql: Any, tables: list[Path], statement: str) -> None:
    for place, options in [(None, []), *((path.name, ["--table", str(path)]) for path in tables)]:
        answers = []
        for engine, topic, first in (("spark", f"topic.`{TOPIC}`", "0"), ("duckdb", f'topic."{TOPIC}"', "1")):
            text = statement.format(place or topic, first=first)
            result = sql(text, "--engine", engine, "--json", *options)
            assert result.exit_code == 0, (engine, place, result.output)
            answers.append(sorted(map(json.dumps, json.loads(result.stdout))))
        assert answers[0] == answers[1], place
        assert answers[0]


def test_decoded_columns_are_alike(sql: Any, tables: list[Path]) -> None:
    for path in tables:
        for statement in (
            "select id, price, tags, spot, late from records order by id",
            "select sum(id) s, count(late) l, sum(price) p, max(spot.x) x from records",
            "select id from records where price between 1 and 2 and late is null order by 1",
        ):
            spark, duckdb = (sql(statement, "--engine", engine, "--json", "--table", str(path)) for engine in ENGINES)
            assert duckdb.exit_code == 0, duckdb.output
            assert json.loads(duckdb.stdout) == json.loads(spark.stdout), (path, statement)


def test_results_of_each_kind_are_alike(sql: Any, tmp_path: Path) -> None:
    statement = "select partition, key, value, timestamp, headers from topic.{} where partition = 0 order by timestamp"
    for arguments in ([], ["--csv"], ["--json"]):
        spark, duckdb = (
            sql(statement.format(f"`{TOPIC}`"), *arguments),
            sql(statement.format(f'"{TOPIC}"'), "--engine", "duckdb", *arguments),
        )
        assert (duckdb.exit_code, duckdb.output) == (0, spark.output)
    files = []
    for engine, name in (("spark", f"`{TOPIC}`"), ("duckdb", f'"{TOPIC}"')):
        path = tmp_path / f"{engine}.parquet"
        assert sql(statement.format(name), "--engine", engine, "--output", str(path)).exit_code == 0
        files.append(pa.parquet.read_table(path))
    assert files[0].to_pylist() == files[1].to_pylist()
    assert files[0].schema.types[:4] == files[1].schema.types[:4]


def test_filter_limits_fetched_offsets(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a statement reads a topic in two places."""
    read: list[tuple[int, int, int]] = []

    def spy(cluster: Any, whole: Any, *rest: Any) -> Any:
        read.append((whole.partition, whole.start_offset, whole.end_offset))
        return read_records(cluster, whole, *rest)

    monkeypatch.setattr("ottla.pipeline.sql.topic_dataset.read_records", spy)
    with open_query() as query:
        query.register_topics([TOPIC], bootstrap)
        name = f'topic."{TOPIC}"'
        for condition, ranges, rows in (
            ("partition = 1", [(1, 0, 10)], 10),
            ('partition = 1 and "offset" between 3 and 5', [(1, 3, 6)], 3),
            ("timestamp >= '2023-11-14 23:13:20.015Z'", [(1, 5, 10)], 5),
            ("topic = 'other'", [], 0),
            ("topic = 'page-views' and partition > 5", [], 0),
            ("timestamp is null", [(0, 0, 10), (1, 0, 10)], 0),
        ):
            read.clear()
            result = query.run(f"select count(*) from {name} where {condition}")
            assert (sorted(read), result.column(0).to_pylist()) == (ranges, [rows]), condition
        read.clear()
        joined = query.run(
            f'select count(*) from {name} a join {name} b on a."offset" = b."offset" where a.partition = 0 and '
            "b.partition = 1"
        )
        assert joined.column(0).to_pylist() == [10]
        assert sorted(read) == [(0, 0, 10), (1, 0, 10)]


def test_bounds_from_filters() -> None:
    def time(value: int) -> Any:
        return pa.scalar(value, pa.timestamp("us", tz="UTC"))

    offset, timestamp, partition = pc.field("offset"), pc.field("timestamp"), pc.field("partition")
    both = {"partition": frozenset({0, 1})}
    assert bounds_of(None, "t", [0, 1]) == Bounds()
    for filter, offsets, times in (
        ((offset >= 3) & (offset < 9), (3, 8), UNBOUNDED),
        ((offset == 3) | (offset == 7), (3, 7), UNBOUNDED),
        (offset > GREATEST - 1, (GREATEST - 1, GREATEST), UNBOUNDED),
        (timestamp > time(5), UNBOUNDED, (5, GREATEST)),
        ((timestamp <= time(-5)), UNBOUNDED, (LEAST, -1)),
        ((timestamp > time(5)) | timestamp.is_null(), UNBOUNDED, UNBOUNDED),
        ((timestamp > time(5)) | (offset == 1), UNBOUNDED, UNBOUNDED),
    ):
        assert bounds_of(filter, "t", [0, 1]) == Bounds({"offset": offsets, "timestamp": times}, both), filter
    assert bounds_of(partition == 1, "t", [0, 1]).sets == {"partition": frozenset({1})}
    assert bounds_of(pc.field("topic") != "t", "t", [0, 1]).sets == {"partition": frozenset()}


@pytest.mark.parametrize(
    "statement",
    [
        "create table made as select 1",
        "drop view records",
        "insert into records select * from records",
        "explain drop view records",
        "explain analyze create table made (a int)",
        "select 1; select 2",
        "copy (select 1) to '{out}'",
        "attach '{out}'",
        "set enable_external_access = true",
        "install httpfs",
        "load httpfs",
        "pragma version",
        " ; ",
    ],
)
def test_a_statement_that_would_write_is_not_run(tmp_path: Path, statement: str) -> None:
    out = tmp_path / "out"
    with open_query() as query, pytest.raises(OperatorError, match=r"not a query; .* is read-only"):
        query.run(statement.format(out=out))
    assert not out.exists()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("selec 1", "refused the statement: .*syntax error"),
        ("select nope from topic.nothing", "refused the statement"),
        ("select * from read_csv('{path}')", "disabled by configuration"),
        ("select * from glob('/*')", "disabled by configuration"),
        ("select * from '{path}'", "refused the statement"),
        ("select * from statement", "statement does not exist"),
        ("select * from range(1000000000)", "larger than 1 MiB: aggregate it"),
        ("select len(list(range)) from range(100000000)", "more than 64MiB"),
    ],
)
def test_refused_statements_are_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, message: str
) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr(duckdb_query, "MAX_RESULT_BYTES", 1 << 20)
    monkeypatch.setattr(duckdb_query, "SPILL_LIMIT", "1MiB")
    with open_query("64MiB") as query, pytest.raises(OperatorError, match=message) as raised:
        query.run(statement.format(path=tmp_path / "secret.csv"))
    assert "\n" not in str(raised.value)


def test_table_with_column_mapping_is_refused(tmp_path: Path) -> None:
    """Its files have other column names than its log: they would be read as nulls."""
    deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
    path = tmp_path / "mapped"
    deltalake.write_deltalake(path, pa.table({"a": [1]}))
    arguments = ["pipeline", "sql", "select * from mapped", "--engine", "duckdb", "--table", str(path), "--csv"]
    assert CliRunner().invoke(main.cli, arguments).output == "a\n1\n"
    [log] = (path / "_delta_log").glob("*.json")
    log.write_text(log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    refused = CliRunner().invoke(main.cli, arguments)
    assert refused.exit_code == 2
    assert "has column mapping (delta.columnMapping.mode)" in refused.output
    assert "Traceback" not in refused.output


@pytest.mark.parametrize(
    "statement",
    ["show tables", "describe one", "explain select 1", "/* a */ values (1)", "from one", "explain analyze select 1"],
)
def test_reading_statements_are_run(statement: str) -> None:
    with open_query() as query:
        query._connection.execute("create temp view one as select 1 as a")
        assert query.run(statement).num_rows > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--master", "local[1]"], "they say nothing with --engine duckdb"),
        (["--conf", "a=b"], "they say nothing with --engine duckdb"),
    ],
)
def test_options_of_spark_are_refused(sql: Any, arguments: list[str], message: str) -> None:
    result = sql("select 1 from topic.a", "--engine", "duckdb", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_missing_extra_is_reported_with_install_command(sql: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "duckdb" else object())
    result = sql("select 1 from topic.a", "--engine", "duckdb")
    assert result.exit_code == 2
    assert "-m pip install 'ottla[duckdb]'`" in result.output


def ottla_sql(statement: str, bootstrap: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A process of its own, without Java and with an empty PATH."""
    environment = {**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-m", "ottla", "pipeline", "sql", statement, "-b", bootstrap, "--engine", "duckdb"]
    return subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def test_it_needs_no_java_and_imports_no_spark(bootstrap: str) -> None:
    process = ottla_sql(f'select count(*) n from topic."{TOPIC}"', bootstrap, "--json")
    assert process.communicate(timeout=RUN_S) == (b'[\n  {\n    "n": 20\n  }\n]\n', b"")
    imports = "import sys, ottla.pipeline.sql.duckdb_query; print('pyspark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", imports]) == b"False\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_query_says_nothing(bootstrap: str, tmp_path: Path, number: signal.Signals) -> None:
    """The result's file is opened before the query starts."""
    statement = (
        f'select count(*) from topic."{TOPIC}" a, range(100000000) b, range(100000000) c where b.range < c.range'
    )
    process = ottla_sql(statement, bootstrap, "--output", str(tmp_path / "out.csv"))
    while not list(tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.communicate(timeout=RUN_S) == (b"", b"")
    assert process.returncode == 128 + number
    assert not list(tmp_path.iterdir())
