"""SQL over topics: topic names in a statement, fetched offsets, and results as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError

pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.app import main  # noqa: E402
from ottla.pipeline.load.driver import load  # noqa: E402
from ottla.pipeline.model.plan import PlanSettings  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.pipeline.sql.query import run_sql  # noqa: E402
from ottla.pipeline.sql.topic_views import (  # noqa: E402
    DATABASE,
    DATABASE_SETTING,
    PUSHDOWN_SETTING,
    names_in,
    register_topics,
    topics_in,
)
from ottla.testing import Broker  # noqa: E402

from .topics import produce  # noqa: E402

pytestmark = pytest.mark.pipeline

TOPIC = "page-views"
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with one topic: ten records a partition, the second partition an hour later."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 2)
        records = (
            {"value": b"v%d" % number, "partition": partition, "timestamp": FIRST_MS + partition * 3_600_000 + number}
            for partition in range(2)
            for number in range(partition * 10, partition * 10 + 10)
        )
        produce(broker.bootstrap_servers, TOPIC, records)
        yield broker.bootstrap_servers


def test_names_of_topics_in_a_statement() -> None:
    statement = "select topic.a.value, '`' from TOPIC . b join topic.`c-d``e` using (topic) -- topic.f"
    assert names_in(statement) == ["a", "b", "c-d`e", "f"]
    assert topics_in(statement, ["B", "c-d`e", "g", "mytopic"]) == ["B", "c-d`e"]
    with pytest.raises(OperatorError, match="can't distinguish the topics B and b"):
        topics_in(statement, ["b", "B"])


@pytest.mark.parametrize(
    ("statement", "pushed", "expected"),
    [
        ("select count(*) from {}", "true", 20),
        ("select count(*) from {} where timestamp > timestamp_millis(1700000000009)", "true", 10),
        ("select count(*) from {} where partition = 1 and offset < 3", "true", 3),
        (
            "select count(*) from {0} a join {0} b on a.offset = b.offset and a.partition = 0 and b.partition = 1",
            "false",
            10,
        ),
        (
            "with x as (select * from {0}) select (select count(*) from x where partition = 0) + count(*) from x",
            "false",
            30,
        ),
        ("select count(*) from {0} where offset < (select max(offset) from {0} where partition = 1)", "false", 18),
    ],
)
def test_filters_are_pushed_down_where_one_place_reads(
    spark: Any, bootstrap: str, statement: str, pushed: str, expected: int
) -> None:
    register_topics(spark, [TOPIC], bootstrap)
    result = run_sql(spark, statement.format(f"topic.`{TOPIC}`"), reads_topics=True)
    assert result.column(0).to_pylist() == [expected]
    assert spark.conf.get(PUSHDOWN_SETTING) == pushed


class Command:
    """`ottla pipeline sql` in the shared session."""

    def __init__(self, spark: Any, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bootstrap = bootstrap
        self.settings: dict[str, str] = {}

        @contextmanager
        def open_session(master: str, name: str, conf: dict[str, str]) -> Iterator[Any]:
            self.settings = conf
            yield spark

        monkeypatch.setattr("ottla.pipeline.cli.sql.open_session", open_session)

    def __call__(self, statement: str, *arguments: str) -> Any:
        return CliRunner().invoke(main.cli, ["pipeline", "sql", statement, "-b", self.bootstrap, *arguments])


@pytest.fixture
def sql(spark: Any, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(spark, bootstrap, monkeypatch)


def test_results_as_text_and_as_files(sql: Command, tmp_path: Path) -> None:
    statement = (
        "select offset, value, array(key) as k from topic.`page-views` where partition = 1 and offset < 2 order by 1"
    )
    rows = [{"offset": 0, "value": "v10", "k": [None]}, {"offset": 1, "value": "v11", "k": [None]}]
    assert json.loads(sql(statement, "--json").stdout) == rows
    assert sql.settings == {DATABASE_SETTING: DATABASE}
    assert sql(statement).stdout.splitlines()[0].split() == ["OFFSET", "VALUE", "K"]
    assert sql(statement, "--csv").stdout == "offset,value,k\n0,v10,[null]\n1,v11,[null]\n"
    for name in ("a.csv", "a.JSON", "a.parquet"):
        result = sql(statement, "--output", str(tmp_path / name))
        assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "a.csv").read_text() == "offset,value,k\n0,v10,[null]\n1,v11,[null]\n"
    assert json.loads((tmp_path / "a.JSON").read_text()) == rows
    assert pq.read_table(tmp_path / "a.parquet").column("value").to_pylist() == [b"v10", b"v11"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_table_and_a_topic_together(spark: Any, sql: Command, tmp_path: Path) -> None:
    load([TOPIC], DeltaTarget(tmp_path / "views"), sql.bootstrap, lambda: nullcontext(spark), PlanSettings())
    statement = "select count(*) as n from views join topic.`page-views` t using (partition, offset)"
    result = sql(statement, "--table", str(tmp_path / "views"), "--json")
    assert json.loads(result.stdout) == [{"n": 20}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["select 1"], "Name a table with --table, or a topic as topic.NAME"),
        (["select * from topic.nope"], "topic 'nope' does not exist on 127.0.0.1"),
        (["select * from topic.`page-views`", "--output", "x.txt"], "use a name ending in .csv, .json, .parquet"),
        (["select * from topic.`page-views`", "--output", "/nowhere/x.csv"], "/nowhere/x.csv can't be written"),
        (["select * from topic.`page-views`", "--csv", "--json"], "Give one of --output, --csv and --json"),
        (["select * from topic.`page-views`", "--master", "sc://h"], "topics can't be queried on Spark Connect"),
        (["select nope from topic.`page-views`"], "`nope` cannot be resolved"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(sql: Command, arguments: list[str], message: str) -> None:
    result = sql(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_driver_without_the_python_of_the_workers(spark: Any, sql: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    result = sql("select * from topic.`page-views`")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "Spark can't plan to read topic 'page-views': Cannot run program" in result.output
    assert "--conf spark.pyspark.python=PATH names the Python" in result.output
