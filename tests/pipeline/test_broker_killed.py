"""The broker is killed while Spark's workers read: what they read goes on when it is back, and comes whole; where it
stays away the command ends with a sentence, and nothing is half done."""

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
from ottla.client.cluster import Cluster
from ottla.client.model import FetchResult
from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.snapshot.run import Run, SnapshotObserver, SnapshotSummary, snapshot_plan_settings
from ottla.pipeline.snapshot.shape import Shape
from ottla.pipeline.status import row_counts
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
    """The broker is killed when somebody made `folder`/reading, and `folder`/killed made then."""

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
        (folder / "reading").touch()  # also when nobody came to it
        striker.join(WAIT_S)


def wait_for_the_kill(folder: Path) -> None:
    """In a worker: tell that it reads, and go on when the broker was killed."""
    (folder / "reading").touch()
    eventually((folder / "killed").exists, "a broker that was killed", WAIT_S)


def snapshot(spark: Any, table: Path, servers: str, topic: str, folder: Path, timeout_s: float) -> SnapshotSummary:
    """Whose tasks fetch a batch at a time, and meet the kill behind the first."""
    driver = os.getpid()

    class Slow(Cluster):
        def fetch(self, topic: str, partition: int, offset: int, **named: Any) -> FetchResult:
            if os.getpid() != driver:
                named["max_bytes"] = 1
            result = super().fetch(topic, partition, offset, **named)
            if os.getpid() != driver and not (folder / "killed").exists():
                wait_for_the_kill(folder)
            return result

    shape = Shape(2)
    target = open_table(table, partition_by=shape.partition_columns)
    run = Run(target, partial(Slow, servers, timeout_s=timeout_s), snapshot_plan_settings(), shape, SnapshotObserver())
    return run.run([topic], lambda: nullcontext(spark), None)[0]


def test_a_snapshot(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """It is run twice: in vain, and whole."""
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
    """Its function gets a hundred rows at once, 6 MiB, and meets the kill behind the first; a fetch brings 2 MiB."""
    servers, folder = broker.bootstrap_servers, tmp_path / "told"
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
