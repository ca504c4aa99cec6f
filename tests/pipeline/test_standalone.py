"""A standalone cluster of one master and two workers, as Spark is run on machines of one's own; the commands on it.

The workers' Python has every package but Ottla, which must come with the job.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")
pyspark = pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla import record  # noqa: E402
from ottla.client.cluster import Cluster  # noqa: E402
from ottla.pipeline.session import find_java, launch_home  # noqa: E402
from ottla.testing import Broker  # noqa: E402

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(400)]

WORKERS = 2
START_TIMEOUT_S = 120.0


@dataclass
class Standalone:
    """A running cluster: the master's URL, the workers' directories, what the driver is told."""

    url: str
    work_dirs: list[Path]
    python: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`ottla pipeline ...` on the cluster; tasks begin once both workers have an executor."""
        conf = {
            "spark.pyspark.python": self.python,
            "spark.driver.host": "127.0.0.1",
            "spark.cores.max": WORKERS,
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": 1,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_TIMEOUT_S:.0f}s",
        }
        options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        command = [sys.executable, "-m", "ottla", "pipeline", *arguments, "--master", self.url, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=350, check=False)

    def used_packages(self) -> list[set[str]]:
        """For each worker, the modules of `ottla.record` that its executors got."""
        return [modules(directory.glob("app-*/*/ottla/record/*")) for directory in self.work_dirs]


@pytest.fixture
def python_without_ottla(tmp_path: Path) -> Path:
    """A virtual environment that sees the packages of this one, but not Ottla, which is installed by a .pth file."""
    home = tmp_path / "python"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = home / "bin" / "python"
    script = "import pyarrow, deltalake, cramjam, ottla"
    run = subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.stderr.endswith("No module named 'ottla'\n")
    return python


@pytest.fixture
def standalone(tmp_path: Path, python_without_ottla: Path) -> Iterator[Standalone]:
    """Master and workers by the classes of the installed PySpark, on loopback, on ports that the system chooses."""
    home = Path(pyspark.__file__).parent
    scratch = tmp_path / "java"
    scratch.mkdir()
    environment = os.environ | {
        "JAVA_HOME": str(launch_home(find_java(), scratch)),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    environment.pop("PYTHONPATH", None)
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            log = tmp_path / f"{name}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    ["bash", str(home / "bin" / "spark-class"), *arguments],
                    env=environment,
                    cwd=tmp_path,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return log

        url = wait_for(
            start("master", "org.apache.spark.deploy.master.Master", *address()), r"spark://127\.0\.0\.1:\d+"
        )
        directories = [tmp_path / f"work-{number}" for number in range(WORKERS)]
        worker = "org.apache.spark.deploy.worker.Worker"
        logs = [
            start(
                directory.name,
                worker,
                *address(),
                *("--cores", "1", "--memory", "600m", "--work-dir", str(directory), url),
            )
            for directory in directories
        ]
        for log in logs:
            wait_for(log, "Successfully registered with master")
        yield Standalone(url, directories, python_without_ottla)


def address() -> tuple[str, ...]:
    return ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


def modules(paths: Iterable[Path]) -> set[str]:
    """Names of Python's modules, the compiled ones too."""
    return {path.name for path in paths if path.suffix in (".py", ".so")}


def wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not in {log.name}:\n{log.read_text()}")


def test_the_package_travels_with_a_job(ottla_broker: Broker, standalone: Standalone, tmp_path: Path) -> None:
    bootstrap, table = ottla_broker.bootstrap_servers, str(tmp_path / "clicks")
    with Cluster(bootstrap) as cluster:
        cluster.create_topic("standalone", 4)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(1_000):
        producer.produce("standalone", b"%d" % number, partition=number % 4)
    assert producer.flush(30) == 0
    load = standalone.run("load", "--topics", "standalone", "--table", table, "-b", bootstrap)
    assert load.returncode == 0, load.stderr
    assert "Loaded 1,000 rows from 4 partitions of standalone" in load.stdout
    assert load.stderr == ""
    here = modules(Path(record.__file__).parent.iterdir())
    assert "walk.py" in here
    assert standalone.used_packages() == [here] * WORKERS  # each worker ran a task
    query = "select count(*) as n, count(distinct value) as different from clicks"
    result = standalone.run("sql", query, "--table", table, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [{"n": 1_000, "different": 1_000}]
    assert result.stderr == ""
