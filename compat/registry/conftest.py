"""One registry for all tests in the folder, and one topic for each test."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from registry_process import RegistryProcess

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("fastavro", reason="needs the extra `pipeline`")
pytest.importorskip("google.protobuf", reason="needs the extra `pipeline`")

from tests.pipeline.transform.topic_table import TopicTable

from ottla.client.admin.cluster import Cluster
from ottla.pipeline.spark.session import MINIMUM_JAVA, java_version

if TYPE_CHECKING:
    from ottla.testing import Broker

PRODUCER = Path(__file__).with_name("serializers.py")
PRODUCE_S = 120
Produce = Callable[..., None]
"""Runs a scenario of `serializers.py` into the test's topic; `registry` overrides the shared one."""
_numbers = itertools.count()


@pytest.fixture(scope="session")
def registry(registry_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    version = java_version(Path(shutil.which("java") or "java"))
    if version is None or version < MINIMUM_JAVA:
        pytest.skip(f"Apicurio Registry needs Java {MINIMUM_JAVA} or newer, and this machine's is {version}")
    process = RegistryProcess(registry_jar, tmp_path_factory.mktemp("registry"))
    yield process
    process.stop()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A new topic of one partition."""
    name = f"orders-{next(_numbers)}"
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.topics.create(name, 1)
    return name


@pytest.fixture
def produce(broker: Broker, topic: str, registry: RegistryProcess, confluent_serializers: Path) -> Produce:
    def run(scenario: str, **arguments: Any) -> None:
        settings = {"bootstrap": broker.bootstrap_servers, "registry": registry.url, "topic": topic, **arguments}
        command = [str(confluent_serializers), str(PRODUCER), scenario, json.dumps(settings)]
        made = subprocess.run(command, capture_output=True, text=True, timeout=PRODUCE_S, check=False)
        assert made.returncode == 0, made.stderr

    return run


@pytest.fixture
def open_table(broker: Broker, topic: str, tmp_path: Path) -> Callable[[str], TopicTable]:
    """Returns a function that opens a new table of a format for the test's topic."""
    open_cluster = partial(Cluster, broker.bootstrap_servers)
    return lambda table_format: TopicTable(open_cluster, topic, tmp_path / "table", table_format=table_format)


@pytest.fixture
def table(open_table: Callable[[str], TopicTable]) -> TopicTable:
    return open_table("delta")
