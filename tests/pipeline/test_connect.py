"""Source and sink in programs on Spark Connect: batch, stream, and exactly-once results of the stream."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("grpc", reason="needs the extra `connect`")

import pyspark

from ottla.pipeline.spark.session import find_java, launch_home

from ..cluster.nodes import eventually
from .committed import read_committed
from .limits import RUN_S
from .topics import new_topic, produce

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("connect_driver.py")
JOBS = Path(__file__).with_name("cluster_driver.py")
START_S = 300.0
STARTED = re.compile(r"Spark Connect server started at: (127\.0\.0\.1:\d+)")
ROWS = 300


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Connect server with two cores and the Python of the tests."""
    folder = tmp_path_factory.mktemp("connect")
    home = Path(pyspark.__file__).parent
    (folder / "java").mkdir()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    log = folder / "connect.log"
    variables = os.environ | {
        "JAVA_HOME": str(launch_home(find_java(), folder / "java")),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        server = subprocess.Popen(
            [
                *("bash", str(home / "bin" / "spark-submit"), "--master", "local[2]"),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            ],
            env=variables,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        started = eventually(lambda: STARTED.search(log.read_text()), "the Connect server", START_S)
        yield f"sc://{started[1]}"
    finally:
        server.terminate()
        server.wait()


def run(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(DRIVER), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert process.returncode == 0, process.stderr
    found: list[dict[str, Any]] = json.loads(process.stdout)
    return found


@pytest.mark.timeout(START_S + 2 * RUN_S)
def test_batch_stream_and_sink(connect: str, bootstrap: str, tmp_path: Path) -> None:
    """Twice: the second program resumes from the checkpoint of the first."""
    source, target = new_topic(bootstrap, 3), new_topic(bootstrap, 2)
    for runs in (1, 2):
        numbers = range(ROWS * (runs - 1), ROWS * runs)
        produce(bootstrap, source, ({"value": b"%d" % number, "partition": number % 3} for number in numbers))
        rows = run(connect, bootstrap, source, target, str(tmp_path / "checkpoint"))
        assert sorted(int(row["value"]) for row in rows) == list(range(ROWS * runs))
        assert Counter(row["partition"] for row in rows) == dict.fromkeys(range(3), ROWS * runs // 3)
        copied = read_committed(bootstrap, target, (ROWS + 1) * runs)
        streamed = [int(each.value()) for each in copied if each.key() != b"batch"]
        assert sorted(streamed) == list(range(ROWS * runs))
        assert len(copied) - len(streamed) == runs


@pytest.mark.timeout(START_S + 2 * RUN_S)
def test_jobs(connect: str, bootstrap: str, tmp_path: Path) -> None:
    """Each command that supports Spark Connect; writing statements are refused there too."""
    topic = new_topic(bootstrap, 3)
    numbers = range(ROWS)
    produce(bootstrap, topic, ({"value": b"%d" % n, "key": b"%d" % (n % 30), "partition": n % 3} for n in numbers))
    rows, latest, of_topic, of_table, written = (
        str(tmp_path / name) for name in ("rows", "latest", "of-topic", "of-table", "written")
    )
    at = ("-b", bootstrap)
    commands = [
        ["load", "-t", topic, "--table", rows, *at],
        ["snapshot", "-t", topic, "--table", latest, "--buckets", "2", *at],
        ["replay", "--topic", topic, "--to", "60", "--to-table", of_topic, *at],
        ["replay", "--table", rows, "--from", "60", "--to-table", of_table, *at],
        ["sql", "select sum(cast(cast(value as string) as int)) as total from records", "--table", rows],
        ["sql", f"create table t using parquet location '{written}' as select * from records", "--table", rows],
        ["sql", "select nothing from records", "--table", rows],
    ]
    settings = {"master": connect, "conf": {}, "commands": commands, "graves": ""}
    process = subprocess.run(
        [sys.executable, str(JOBS), json.dumps(settings)], capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert process.returncode == 0, process.stderr
    loaded, shot, of_records, of_rows, total, *refused = json.loads(process.stdout)
    assert (loaded["rows"], shot["inserted"], of_records["rows"], of_rows["rows"]) == (ROWS, 30, 180, ROWS - 180)
    assert total == [{"total": sum(numbers)}]
    assert "it runs queries" in refused[0]
    assert not Path(written).exists()
    assert "`nothing`" in refused[1]
    assert process.stderr == ""
