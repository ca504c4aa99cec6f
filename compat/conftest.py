"""One broker for the whole run, and what each family needs from its registry."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.testing import Broker

ROOT = Path(__file__).resolve().parents[1]
for folder in (".", "compat", "compat/java", "tests/clients"):
    sys.path.insert(0, str(ROOT / folder))

CACHE = ROOT / ".cache" / "compat"
LOG_ARTIFACT = ("org.slf4j", "slf4j-simple", "1.7.36")
"""Of the version of slf4j-nop in java/tools.xml."""
REGISTRY_ARTIFACT = ("io.apicurio", "apicurio-registry-app", "3.0.9", "tar.gz", "all")
JAVA_LIBRARIES = ("kafka", "tools")
"""What is resolved by compat/java/<name>.xml, in this order on a class path: the newer clients under the tools."""
GO_MODULES = ("newest.mod", "go.mod")
"""Sets of versions of Go's libraries: the first that this machine's Go can build is taken."""


def need(command: str) -> str:
    """The path of `command`, or a skip that says what is missing."""
    found = shutil.which(command)
    if found is None:
        pytest.skip(f"{command} is not installed on this machine")
    return found


@contextmanager
def alone(what: str) -> Iterator[None]:
    """One worker of a run fetches `what`; the others wait, and find it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Elsewhere:
    """A broker that somebody else started, to judge the tests themselves: OTTLA_TEST_BOOTSTRAP=host:port."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker | Elsewhere]:
    elsewhere = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if elsewhere:
        yield Elsewhere(elsewhere)
        return
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def group_configs() -> dict[str, object]:
    """Short intervals, so that groups settle in seconds."""
    return {
        "group.initial.rebalance.delay.ms": 100,
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.session.timeout.ms": 6000,
        "group.consumer.min.session.timeout.ms": 3000,
    }


@pytest.fixture(scope="session")
def group_broker(group_configs: dict[str, object]) -> Iterator[Broker | Elsewhere]:
    elsewhere = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if elsewhere:
        yield Elsewhere(elsewhere)
        return
    with Broker(configs=group_configs) as running:
        yield running


def java_libraries(name: str) -> str:
    """The class path of the jars of compat/java/<name>.xml, resolved once by Maven."""
    need("java")
    libraries = CACHE / f"java-{name}"
    pom = ROOT / "compat" / "java" / f"{name}.xml"
    stamp = libraries / "pom.xml"
    with alone(libraries.name):
        if not stamp.exists() or stamp.read_bytes() != pom.read_bytes():
            shutil.rmtree(libraries, ignore_errors=True)
            command = [need("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            result = subprocess.run(
                [*command, f"-DoutputDirectory={libraries}"], capture_output=True, text=True, timeout=900, check=False
            )
            if result.returncode != 0:
                pytest.skip(f"Maven could not resolve compat/java/{name}.xml: {result.stdout.strip()[-300:]}")
            shutil.copy(pom, stamp)
    return str(libraries / "*")


@pytest.fixture(scope="session")
def java_classpath() -> str:
    """Apache Kafka's broker and clients, and its tools behind them."""
    from apache import record_classes

    kafka, tools = (java_libraries(name) for name in JAVA_LIBRARIES)
    with alone("java-classes"):
        record_classes(kafka)
    return f"{kafka}:{tools}"


@pytest.fixture(scope="session")
def kafka_of() -> Callable[[str], str]:
    """The class path of Apache Kafka's broker of a version: 4.4, or one that has a file of its own in java/."""
    return lambda version: java_libraries("kafka" if version == "4.4" else f"kafka-{version}")


@pytest.fixture(scope="session")
def java_tools_classpath() -> str:
    """Apache Kafka's tools with the older modules that they were built with."""
    return java_libraries("tools")


@pytest.fixture(scope="session")
def java_streams_classpath() -> str:
    """Kafka Streams."""
    return java_libraries("streams")


@pytest.fixture(scope="session")
def spark_connector() -> list[Path]:
    """The jars of Spark's Kafka connector."""
    return sorted(Path(java_libraries("spark")).parent.glob("*.jar"))


@pytest.fixture(scope="session")
def iceberg_classpath() -> str:
    """Iceberg's REST catalog."""
    return java_libraries("iceberg")


@pytest.fixture(scope="session")
def java_older_classpath() -> str:
    """Clients from before the second version of transactions."""
    return java_libraries("older")


@pytest.fixture(scope="session")
def java_programs(java_classpath: str, java_streams_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of compat/java/programs, compiled."""
    classes = tmp_path_factory.mktemp("java-programs")
    sources = sorted((ROOT / "compat" / "java" / "programs").glob("*.java"))
    command = [need("javac"), "-nowarn", "-d", str(classes), "-cp", f"{java_classpath}:{java_streams_classpath}"]
    built = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    return classes


@pytest.fixture(scope="session")
def java_logging_classpath(java_classpath: str) -> str:
    """The same with a log on stderr, for what a client tells nowhere else; slf4j-nop keeps the usual one silent."""
    jar = CACHE / "java-log" / f"{LOG_ARTIFACT[1]}-{LOG_ARTIFACT[2]}.jar"
    with alone(jar.parent.name):
        if not jar.exists():
            command = [need("mvn"), "-q", "-B", "dependency:copy", f"-Dartifact={':'.join(LOG_ARTIFACT)}"]
            result = subprocess.run(
                [*command, f"-DoutputDirectory={jar.parent}"], capture_output=True, text=True, timeout=600, check=False
            )
            if result.returncode != 0:
                pytest.skip(f"Maven could not resolve {LOG_ARTIFACT[1]}: {result.stdout.strip()[-300:]}")
    return f"{jar}:{java_classpath}"


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """A folder with kafkajs installed by npm, once."""
    need("node")
    home = CACHE / "kafkajs"
    source = ROOT / "compat" / "kafkajs"
    home.mkdir(parents=True, exist_ok=True)
    with alone(home.name):
        stamp = home / "node_modules" / ".package.json"
        if not stamp.exists() or stamp.read_bytes() != (source / "package.json").read_bytes():
            shutil.copy(source / "package.json", home)
            result = subprocess.run(
                [need("npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"],
                cwd=home,
                capture_output=True,
                text=True,
                timeout=600,
                env={**os.environ, "CI": "true"},
                check=False,
            )
            if result.returncode != 0:
                pytest.skip(f"npm could not install kafkajs: {result.stderr.strip()[-300:]}")
            shutil.copy(source / "package.json", stamp)
        program = home / "client.mjs"
        if not program.exists() or program.read_bytes() != (source / program.name).read_bytes():
            shutil.copy(source / program.name, program)  # never while another worker runs it
    return home


def python_environment(name: str) -> Path:
    """The Python of an environment with what compat/<name>/requirements.txt pins, made once."""
    home = CACHE / name
    stamp, wanted = home / "requirements.txt", ROOT / "compat" / name / "requirements.txt"
    with alone(name):
        if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
            command = [str(home / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "-r", str(wanted)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if result.returncode != 0:
                pytest.skip(f"pip could not install what {name} needs: {result.stderr.strip()[-300:]}")
            shutil.copy(wanted, stamp)
    return home / "bin" / "python"


@pytest.fixture(scope="session")
def kazoo() -> Path:
    """A Python with kazoo, a client of ZooKeeper."""
    return python_environment("kazoo")


@pytest.fixture(scope="session")
def quixstreams() -> Path:
    """A Python with quixstreams, which needs older clients than the other tests."""
    return python_environment("quixstreams")


@pytest.fixture(scope="session")
def confluent_serializers() -> Path:
    """A Python with confluent-kafka's serializers for a schema registry."""
    return python_environment("registry")


@pytest.fixture(scope="session")
def registry_jar() -> Path:
    """The program of Apicurio Registry, with its libraries beside it."""
    need("java")
    _, name, version, kind, classifier = REGISTRY_ARTIFACT
    home = CACHE / f"apicurio-{version}"
    jar = home / f"{name}-{version}-runner.jar"
    with alone(home.name):
        if not jar.exists():
            partial = CACHE / f"{home.name}.part"  # what has its name is whole
            shutil.rmtree(partial, ignore_errors=True)
            command = [need("mvn"), "-q", "-B", "dependency:copy", f"-Dartifact={':'.join(REGISTRY_ARTIFACT)}"]
            result = subprocess.run(
                [*command, f"-DoutputDirectory={partial}"], capture_output=True, text=True, timeout=900, check=False
            )
            if result.returncode != 0:
                pytest.skip(f"Maven could not resolve {name}: {result.stdout.strip()[-300:]}")
            packed = partial / f"{name}-{version}-{classifier}.{kind}"
            with tarfile.open(packed) as archive:
                archive.extractall(partial, filter="data")
            packed.unlink()
            partial.rename(home)
    return jar


@pytest.fixture(scope="session")
def older_python() -> Path:
    """A Python with kafka-python 1.4."""
    return python_environment("older")


@pytest.fixture(scope="session")
def spark_python() -> Path:
    """A Python with the pyspark that the connector is for."""
    return python_environment("spark")


@pytest.fixture(scope="module")
def light_java() -> Iterator[None]:
    """Commands that start Spark have the Java of tests/pipeline, with the archive of classes that `make test` left."""
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    from tests.pipeline.light_java import java_home

    from ottla.common.errors import OperatorError

    with pytest.MonkeyPatch.context() as patch:
        with suppress(OperatorError):  # without Java, as the commands themselves tell
            patch.setenv("JAVA_HOME", str(java_home()))
        yield


@pytest.fixture(scope="session")
def go_build(tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """The program of compat/go, or why it can't be had on this machine."""
    go = shutil.which("go")
    if go is None:
        return "go is not installed on this machine"
    program = tmp_path_factory.mktemp("go") / "compat"
    refusals = []
    for modules in GO_MODULES:
        resolved = run_go(go, "mod", "download", f"-modfile={modules}")
        if resolved.returncode == 0:
            built = run_go(go, "build", f"-modfile={modules}", "-o", str(program), ".")
            assert built.returncode == 0, built.stderr
            return program
        refusals.append(f"Go could not resolve {modules}: {resolved.stderr.strip()[-300:]}")
    return "; ".join(refusals)


def run_go(go: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Go that is too old for a module file says so, instead of fetching another Go."""
    return subprocess.run(
        [go, *arguments],
        cwd=ROOT / "compat" / "go",
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "GOTOOLCHAIN": "local"},
        check=False,
    )


@pytest.fixture
def go_program(go_build: Path | str) -> Path:
    if isinstance(go_build, str):
        pytest.skip(go_build)
    return go_build
