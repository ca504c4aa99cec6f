"""One broker for the whole run, and the packages of each client family; a test skips when they are unavailable."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from ottla.testing import Broker

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "java"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "clients"))

import fetch

T = TypeVar("T")
P = ParamSpec("P")


def had(get: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the result of `get`; skips the test with the reason when it is unavailable on this machine."""
    try:
        return get(*args, **kwargs)
    except fetch.NotToBeHad as error:
        pytest.skip(str(error))


class Elsewhere:
    """An external broker, to validate the tests themselves: OTTLA_TEST_BOOTSTRAP=host:port."""

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


@pytest.fixture(scope="session")
def java_classpath() -> str:
    """Apache Kafka's broker and clients, followed by its tools with older modules."""
    from apache import record_classes

    kafka, tools = (had(fetch.java_libraries, name) for name in ("kafka", "tools"))
    with fetch.alone("java-classes"):
        record_classes(kafka)
    return f"{kafka}:{tools}"


@pytest.fixture(scope="session")
def kafka_of() -> Callable[[str], str]:
    """Returns the class path of Apache Kafka's broker of a version: 4.4, or one with its own file in java/."""
    return lambda version: had(fetch.java_libraries, "kafka" if version == "4.4" else f"kafka-{version}")


@pytest.fixture(scope="session")
def zookeeper_classpath() -> str:
    """ZooKeeper servers."""
    return had(fetch.java_libraries, "zookeeper")


@pytest.fixture(scope="session")
def java_tools_classpath() -> str:
    """Apache Kafka's tools with the older modules that they were built with."""
    return had(fetch.java_libraries, "tools")


@pytest.fixture(scope="session")
def java_streams_classpath() -> str:
    """Kafka Streams."""
    return had(fetch.java_libraries, "streams")


@pytest.fixture(scope="session")
def spark_connector() -> list[Path]:
    """The jars of Spark's Kafka connector."""
    return sorted(Path(had(fetch.java_libraries, "spark")).parent.glob("*.jar"))


@pytest.fixture(scope="session")
def iceberg_classpath() -> str:
    """Iceberg's REST catalog."""
    return had(fetch.java_libraries, "iceberg")


@pytest.fixture(scope="session")
def java_older_classpath() -> str:
    """Java clients from before transactions version 2."""
    return had(fetch.java_libraries, "older")


@pytest.fixture(scope="session")
def java_programs(java_classpath: str, java_streams_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of compat/java/programs, compiled."""
    classes = tmp_path_factory.mktemp("java-programs")
    sources = sorted((fetch.ROOT / "compat" / "java" / "programs").glob("*.java"))
    command = [had(fetch.need, "javac"), "-nowarn", "-d", str(classes)]
    command += ["-cp", f"{java_classpath}:{java_streams_classpath}", *map(str, sources)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    return classes


@pytest.fixture(scope="session")
def java_logging_classpath(java_classpath: str) -> str:
    """`java_classpath` with a log on stderr, the only output for some client events; slf4j-nop silences the default
    one.
    """
    return f"{had(fetch.log_jar)}:{java_classpath}"


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """A folder with kafkajs, installed by npm once."""
    return had(fetch.kafkajs)


@pytest.fixture(scope="session")
def kazoo() -> Path:
    """A Python environment with kazoo, a ZooKeeper client."""
    return had(fetch.python_environment, "kazoo")


@pytest.fixture(scope="session")
def quixstreams() -> Path:
    """A Python environment with quixstreams, which requires older clients than the other tests."""
    return had(fetch.python_environment, "quixstreams")


@pytest.fixture(scope="session")
def confluent_serializers() -> Path:
    """A Python environment with confluent-kafka's serializers for a schema registry."""
    return had(fetch.python_environment, "registry")


@pytest.fixture(scope="session")
def registry_jar() -> Path:
    """The Apicurio Registry program, with its libraries in the same directory."""
    return had(fetch.registry_jar)


@pytest.fixture(scope="session")
def older_python() -> Path:
    """A Python environment with kafka-python 1.4."""
    return had(fetch.python_environment, "older")


@pytest.fixture(scope="session")
def spark_python() -> Path:
    """A Python environment with the pyspark version of the connector."""
    return had(fetch.python_environment, "spark")


@pytest.fixture(scope="module")
def light_java() -> Iterator[None]:
    """Runs commands that start Spark with the Java of tests/pipeline and the class archive that `make test` built."""
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    from tests.pipeline.light_java import java_home

    from ottla.common.errors import OperatorError

    with pytest.MonkeyPatch.context() as patch:
        with suppress(OperatorError):  # without Java the commands report the error themselves
            patch.setenv("JAVA_HOME", str(java_home()))
        yield


@pytest.fixture(scope="session")
def go_build(tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """The compiled program of compat/go, or the reason why it is unavailable on this machine."""
    try:
        return fetch.go_program(tmp_path_factory.mktemp("go") / "compat")
    except fetch.NotToBeHad as error:
        return str(error)


@pytest.fixture
def go_program(go_build: Path | str) -> Path:
    if isinstance(go_build, str):
        pytest.skip(go_build)
    return go_build
