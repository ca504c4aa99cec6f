"""A standalone cluster of one master and two workers, as operators run Spark on their own machines; the commands on it.

If the workers' Python has every package except Ottla, only Ottla is sent with the job; if it has none, all packages
are.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import uuid
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pq = pytest.importorskip("pyarrow.parquet")

from ottla import record  # noqa: E402
from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.spark.session import find_java, launch_home  # noqa: E402
from ottla.pipeline.sql.topic_views import DATABASE, DATABASE_SETTING  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from .committed import read_committed  # noqa: E402
from .topics import produce  # noqa: E402

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(900)]

DRIVER = Path(__file__).with_name("cluster_driver.py")
WORKERS = 2
ROWS = 1_000
START_TIMEOUT_S, RUN_S = 240.0, 600.0
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.cores.max": WORKERS,
    "spark.sql.shuffle.partitions": 2,
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": 1,
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_TIMEOUT_S:.0f}s",
}
"""Tasks start after both workers have an executor."""
ONE_CORE = {"spark.cores.max": 1}
"""For jobs that need only one executor, which saves a JVM."""
REGISTERED = "Successfully registered with master"
COUNTS = '''
name = "counts"
[sources.numbers]
topic = "jobs"
[query]
sql = """select cast(key as string) as id, count(*) as n, max(cast(cast(value as string) as int)) as latest
from numbers group by key"""
output = "complete"
[result]
table = "counts"
'''


@dataclass
class Standalone:
    """A running cluster: URL of the master, directories of the workers, start of its processes."""

    url: str
    work_dirs: list[Path]
    start: Callable[..., Path]

    def run(self, *arguments: str, conf: Mapping[str, object] = CONF) -> subprocess.CompletedProcess[str]:
        """Run `ottla pipeline ...` on the cluster."""
        return pipeline(*arguments, "--master", self.url, *(part for item in conf.items() for part in as_conf(*item)))

    def add_worker(self) -> None:
        """Add one more worker, or replace a dead one."""
        directory = self.work_dirs[-1].with_name(f"work-{uuid.uuid4().hex}")
        wait_for(self.start(directory.name, "spark-class", *worker(directory, self.url)), REGISTERED)
        self.work_dirs.append(directory)

    def used_packages(self) -> list[set[str]]:
        """For each worker, the modules of `ottla.record` that its executors received."""
        return [modules(directory.glob("app-*/*/ottla/record/*")) for directory in self.work_dirs]


def as_conf(name: str, value: object) -> tuple[str, str]:
    return "--conf", f"{name}={value}"


def pipeline(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)


def bare_python(home: Path) -> Path:
    """A Python without any package; the directory of its commands."""
    venv.create(home, symlinks=True)
    run = subprocess.run([home / "bin" / "python", "-c", "import pyarrow"], capture_output=True, text=True, check=False)
    assert run.stderr.endswith("No module named 'pyarrow'\n")
    return home / "bin"


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


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive created by the command."""
    path = tmp_path_factory.mktemp("it's an environment, or 2 ") / "environment.tar.gz"
    run = pipeline("package", "--output", str(path))
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Packed Ottla ")
    return path


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Master and workers by the classes of the installed PySpark, on loopback, on ports that the system assigns.

    Their own Python has no packages.
    """
    folder = tmp_path_factory.mktemp("standalone")
    home = Path(pyspark.__file__).parent
    scratch = folder / "java"
    scratch.mkdir()
    variables = os.environ | {
        "JAVA_HOME": str(launch_home(find_java(), scratch)),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "600m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PATH": f"{bare_python(folder / 'bare')}:{os.environ['PATH']}",
    }
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        variables.pop(name, None)
    with ExitStack() as stack:

        def start(name: str, command: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    ["bash", str(home / "bin" / command), *arguments],
                    env=variables,
                    cwd=folder,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return log

        master = "org.apache.spark.deploy.master.Master"
        url = wait_for(start("master", "spark-class", master, *address()), r"spark://127\.0\.0\.1:\d+")
        directories = [folder / f"work-{number}" for number in range(WORKERS)]
        logs = [start(directory.name, "spark-class", *worker(directory, url)) for directory in directories]
        for log in logs:
            wait_for(log, REGISTERED)
        yield Standalone(url, directories, start)


def worker(directory: Path, master: str) -> list[str]:
    """Starts a worker with one core."""
    resources = ("--cores", "1", "--memory", "600m", "--work-dir", str(directory))
    return ["org.apache.spark.deploy.worker.Worker", *address(), *resources, master]


def address() -> tuple[str, ...]:
    return ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


def modules(paths: Iterable[Path]) -> set[str]:
    """Names of Python modules, including compiled ones."""
    return {path.name for path in paths if path.suffix in (".py", ".so")}


def wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not in {log.name}:\n{log.read_text()}")


def produced(bootstrap: str, topic: str) -> None:
    """ROWS records of a hundred keys in four partitions."""
    with Cluster(bootstrap) as cluster:
        cluster.topics.create(topic, 4)
    numbers = range(ROWS)
    produce(bootstrap, topic, ({"value": b"%d" % n, "key": b"%d" % (n % 100), "partition": n % 4} for n in numbers))


def values(table: Path) -> list[int]:
    """Values in order, read by another library."""
    files = open_table(table).files()
    return sorted(int(one) for file in files for one in pq.ParquetFile(file).read(["value"])[0].to_pylist())


def run_jobs(master: str, folder: Path, conf: Mapping[str, object], graves: Path, *commands: list[str]) -> list[Any]:
    """Outputs of `ottla pipeline` commands in one session on the master, while its workers are killed."""
    settings_conf = {name: str(value) for name, value in conf.items()}
    settings = json.dumps({"master": master, "conf": settings_conf, "commands": commands, "graves": str(graves)})
    command = [sys.executable, str(DRIVER), settings]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert run.returncode == 0, run.stderr
    found: list[Any] = json.loads(run.stdout)
    return found


def test_package_is_sent_with_job(
    ottla_broker: Broker, standalone: Standalone, python_without_ottla: Path, tmp_path: Path
) -> None:
    bootstrap, table = ottla_broker.bootstrap_servers, str(tmp_path / "clicks")
    python = as_conf("spark.pyspark.python", python_without_ottla)
    produced(bootstrap, "standalone")
    load = standalone.run("load", "--topics", "standalone", "--table", table, "-b", bootstrap, *python)
    assert load.returncode == 0, load.stderr
    assert "Loaded 1,000 rows from 4 partitions of standalone" in load.stdout
    assert load.stderr == ""
    here = modules(Path(record.__file__).parent.iterdir())
    assert "walk.py" in here
    assert standalone.used_packages() == [here] * WORKERS  # each worker ran a task


def test_environment_is_sent_to_bare_workers(
    ottla_broker: Broker, standalone: Standalone, environment: Path, tmp_path: Path
) -> None:
    bootstrap, table = ottla_broker.bootstrap_servers, str(tmp_path / "clicks")
    produced(bootstrap, "bare")
    options = ["--topics", "bare", "--table", table, "-b", bootstrap, "--environment", str(environment), "--json"]
    load = standalone.run("load", *options, conf=CONF | ONE_CORE)
    assert load.returncode == 0, load.stderr
    assert json.loads(load.stdout)["rows"] == 1_000
    unpacked = [list(directory.glob("app-*/*/environment/lib/pyarrow")) for directory in standalone.work_dirs]
    assert any(unpacked)


def test_jobs_while_workers_are_killed(ottla_broker: Broker, standalone: Standalone, tmp_path: Path) -> None:
    """The load loses a worker after its task has read all, the stream a machine after its task has written all."""
    bootstrap = ottla_broker.bootstrap_servers
    produced(bootstrap, "jobs")
    with Cluster(bootstrap) as cluster:
        cluster.topics.create("jobs-again", 1)
    names = ("rows", "latest", "of-topic", "of-table", "counts", "graves")
    rows, latest, of_topic, of_table, counts, graves = (tmp_path / name for name in names)
    graves.mkdir()
    definition = tmp_path / "counts.toml"
    definition.write_text(COUNTS)
    at = ("-b", bootstrap)
    standalone.add_worker()  # replaces the first that dies
    results = run_jobs(
        standalone.url,
        tmp_path,
        {**CONF, "spark.pyspark.python": sys.executable, DATABASE_SETTING: DATABASE},
        graves,
        ["load", "-t", "jobs", "--table", str(rows), *at],
        ["snapshot", "-t", "jobs", "--table", str(latest), "--buckets", "2", *at],
        ["replay", "--topic", "jobs", "--to", "200", "--to-table", str(of_topic), *at],
        ["replay", "--table", str(rows), "--from", "200", "--to-table", str(of_table), *at],
        ["push", str(rows), "--topic", "jobs-again", *at],
        ["sql", "select count(*) as n, count(distinct value) as different from records", "--table", str(rows)],
        ["sql", "select count(*) as n from topic.jobs", *at],
        ["stream", str(definition), "--once", *at],
        ["sql", "select id, n, latest from counts", "--table", str(counts)],
    )
    for grave in graves.iterdir():
        (dead,) = [directory for directory in standalone.work_dirs if directory in Path(grave.read_text()).parents]
        standalone.work_dirs.remove(dead)
    standalone.add_worker()
    assert len(standalone.work_dirs) == WORKERS
    assert [results[number]["rows"] for number in (0, 2, 3, 4)] == [ROWS, 800, 200, ROWS]
    assert results[5] == [{"n": ROWS, "different": ROWS}]
    assert results[6] == [{"n": ROWS}]
    everything = list(range(ROWS))
    assert values(rows) == everything
    assert values(latest) == everything[-100:]
    assert sorted(values(of_topic) + values(of_table)) == everything
    pushed = read_committed(bootstrap, "jobs-again", ROWS)
    assert sorted(int(each.value()) for each in pushed) == everything
    assert results[7]["rows_out"] == 100
    wanted = [{"id": str(key), "n": ROWS // 100, "latest": ROWS - 100 + key} for key in range(100)]
    assert sorted(results[8], key=lambda row: row["latest"]) == wanted


def test_environment_is_sent_by_spark_connect(
    ottla_broker: Broker, standalone: Standalone, environment: Path, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="needs the extra `connect`")
    settings = {
        **CONF,
        **ONE_CORE,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": 0,
    }
    log = standalone.start(
        "connect",
        "spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", standalone.url),
        *(part for item in settings.items() for part in as_conf(*item)),
    )
    started = wait_for(log, r"Spark Connect server started at: 127\.0\.0\.1:\d+")
    bootstrap, table = ottla_broker.bootstrap_servers, str(tmp_path / "clicks")
    produced(bootstrap, "connect")
    options = ["--topics", "connect", "--table", table, "-b", bootstrap, "--environment", str(environment), "--json"]
    load = pipeline("load", *options, "--master", f"sc://{started.rpartition(' ')[2]}")
    assert load.returncode == 0, load.stderr
    assert json.loads(load.stdout)["rows"] == ROWS
