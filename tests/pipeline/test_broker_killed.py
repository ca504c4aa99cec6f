"""The broker is killed while Spark's workers read: the read continues after a restart, and is complete; if the broker
stays down, the command ends with an error, and nothing is half done."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.app import main
from ottla.client.admin.cluster import Cluster
from ottla.client.admin.records import RecordService
from ottla.client.wire.model import FetchResult
from ottla.common.errors import OperatorError
from ottla.pipeline.load.driver import LoadSummary, Observer, load
from ottla.pipeline.load.shape import Shape
from ottla.pipeline.model.plan import LoadPlan, PlanSettings
from ottla.pipeline.operations.status import row_counts
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.snapshot.run import Run, SnapshotObserver, SnapshotSummary, snapshot_plan_settings
from ottla.testing import Broker

from ..cluster.nodes import eventually
from .topics import new_topic, produce

pytestmark = pytest.mark.pipeline

WAIT_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@contextmanager
def struck(broker: Broker, folder: Path, *, comes_back: bool) -> Iterator[None]:
    """Kill the broker when `folder`/reading appears, and then create `folder`/killed."""

    def strike() -> None:
        eventually((folder / "reading").exists, "a task that reads", WAIT_S)
        broker.kill()
        (folder / "killed").touch()
        if comes_back:
            broker.start()

    folder.mkdir()
    striker = threading.Thread(target=strike)
    striker.start()
    try:
        yield
    finally:
        (folder / "reading").touch()  # also if no task reached it
        striker.join(WAIT_S)


def wait_for_the_kill(folder: Path) -> None:
    """In a worker: signal that it reads, and continue after the kill of the broker."""
    (folder / "reading").touch()
    eventually((folder / "killed").exists, "a broker that was killed", WAIT_S)


def snapshot(spark: Any, table: Path, servers: str, topic: str, folder: Path, timeout_s: float) -> SnapshotSummary:
    """A snapshot with tasks that fetch a batch at a time, and meet the kill after the first."""
    driver = os.getpid()

    class SlowRecords(RecordService):
        def fetch(self, topic: str, partition: int, offset: int, **named: Any) -> FetchResult:
            if os.getpid() != driver:
                named["max_bytes"] = 1
            result = super().fetch(topic, partition, offset, **named)
            if os.getpid() != driver and not (folder / "killed").exists():
                wait_for_the_kill(folder)
            return result

    class Slow(Cluster):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.records = SlowRecords(self._router)

    shape = Shape(2)
    target = open_table(table, partition_by=shape.partition_columns)
    run = Run(target, partial(Slow, servers, timeout_s=timeout_s), snapshot_plan_settings(), shape, SnapshotObserver())
    return run.run([topic], lambda: nullcontext(spark), None)[0]


class Killing(Observer):
    """Kills the broker between the plan of a load and its tasks."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def landing(self, plan: LoadPlan, counters: object) -> None:
        self._broker.kill()


@pytest.mark.parametrize("comes_back", [True, False])
def test_tasks_started_while_broker_is_down(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """There are more tasks than run at once; those that Spark has not started when it gives up would only wait as
    well."""
    servers, table, begun = broker.bootstrap_servers, tmp_path / "table", tmp_path / "begun"
    topic = new_topic(servers, 8)
    produce(servers, topic, ({"value": b"%d" % number, "partition": number % 8} for number in range(80)))
    driver = os.getpid()
    begun.mkdir()

    class AwayRecords(RecordService):
        def fetch(self, topic: str, partition: int, offset: int, **named: Any) -> FetchResult:
            if os.getpid() != driver:
                (begun / f"{partition}-{os.getpid()}").touch()
            return super().fetch(topic, partition, offset, **named)

    class Away(Cluster):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.records = AwayRecords(self._router)

    monkeypatch.setattr("ottla.pipeline.load.driver.Cluster", partial(Away, timeout_s=60.0 if comes_back else 1.0))

    def run() -> LoadSummary:
        return load([topic], open_table(table), servers, lambda: nullcontext(spark), PlanSettings(), Killing(broker))

    if comes_back:
        starter = threading.Thread(
            target=lambda: (eventually(lambda: any(begun.iterdir()), "a task that begins", WAIT_S), broker.start())
        )
        starter.start()
        try:
            assert run().rows == 80
        finally:
            (begun / "driver").touch()
            starter.join(WAIT_S)
        assert row_counts(open_table(table)) == {(topic, partition): 10 for partition in range(8)}
        return
    try:
        with pytest.raises(OperatorError, match=r"^cannot connect to \S+: connection refused; is a broker running"):
            run()
    finally:
        broker.start()
    assert len({path.name.partition("-")[0] for path in begun.iterdir()}) < 8
    assert open_table(table).files() == []
    assert not list(table.rglob("*.parquet"))


def test_a_snapshot(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """It is run twice: the first run fails, the second is complete."""
    servers, table = broker.bootstrap_servers, tmp_path / "table"
    topic = new_topic(servers, 1)
    records = [{"key": b"k%d" % (number % 40), "value": b"%d" % number, "partition": 0} for number in range(100)]
    produce(servers, topic, records, batch_num_messages=10)
    with (
        struck(broker, away := tmp_path / "away", comes_back=False),
        pytest.raises(OperatorError, match=r"^cannot connect to \S+: connection refused; is a broker running there\?$"),
    ):
        snapshot(spark, table, servers, topic, away, 5.0)
    assert open_table(table).files() == []
    assert not [path for path in table.rglob("*") if path.suffix in (".arrow", ".parquet")]
    broker.start()
    with struck(broker, back := tmp_path / "back", comes_back=True):
        summary = snapshot(spark, table, servers, topic, back, 60.0)
    assert (summary.records, summary.inserted) == (100, 40)
    latest = row_counts(open_table(table))
    assert latest == {(topic, 0): 40}


@pytest.mark.usefixtures("commands_in_session")
def test_a_query_over_a_topic(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Its function gets a hundred rows at once, 6 MiB, and meets the kill after the first; a fetch returns 2 MiB."""
    servers, folder = broker.bootstrap_servers, tmp_path / "deaths"
    topic = new_topic(servers, 1)
    produce(servers, topic, ({"value": b"%05d" % number + bytes(1 << 16), "partition": 0} for number in range(512)))

    def met(offset: int, value: bytes) -> int:
        if not (folder / "killed").exists():
            wait_for_the_kill(folder)
        return offset

    spark.udf.register("met", met, "bigint")
    statement = f"select count(*) as n, sum(met(offset, value)) as s from topic.`{topic}`"
    with struck(broker, folder, comes_back=True):
        result = CliRunner().invoke(main.cli, ["pipeline", "sql", statement, "--json", "-b", servers])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == [{"n": 512, "s": 512 * 511 // 2}]
