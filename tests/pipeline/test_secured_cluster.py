"""A cluster that requires a certificate and a password: every way from a topic and back to one."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.app import main
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import PLAINTEXT, read_security
from ottla.common.config.properties import format_properties, load_properties
from ottla.spark import register
from ottla.testing import Broker

pytestmark = pytest.mark.pipeline

PASSWORD = "secret-83jd"
ROWS = 40
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
STREAM = """
name = "again"
[sources.lines]
topic = "numbers"
[query]
sql = "select cast(value as string) as value, cast(key as string) as id from lines"
[result]
topic = "streamed"
key = "id"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    configs = {
        "listeners": "SASL_SSL://localhost:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN}user_ann="{PASSWORD}";',
    }
    with Broker(security="ssl", configs=configs) as broker:
        yield broker


@pytest.fixture(scope="module")
def properties(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Client properties with file paths, as an operator writes them."""
    path = tmp_path_factory.mktemp("ann") / "client.properties"
    login = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{LOGIN}username="ann" password="{PASSWORD}";'}
    held = load_properties(str(broker.client_properties), "")
    path.write_text(format_properties({**held, **login, "security.protocol": "SASL_SSL"}))
    return path


def test_pickled_security_has_no_file_and_shows_no_secret(broker: Broker, properties: Path) -> None:
    security = read_security(str(properties))
    arrived = pickle.loads(pickle.dumps(security))
    assert not any(str(broker.client_properties.parent) in text for text in arrived.portable.values())
    assert arrived.portable == security.portable
    assert arrived.library == security.library
    assert PASSWORD not in repr(security)
    assert pickle.loads(pickle.dumps(PLAINTEXT)) == PLAINTEXT
    with Cluster(broker.bootstrap_servers, security=arrived) as cluster:
        cluster.describe()


@pytest.mark.usefixtures("commands_in_session")
def test_commands_and_their_workers_get_in(
    broker: Broker, properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(properties))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.jsonl").write_text("".join(f'{{"n": {row}}}\n' for row in range(ROWS)))
    (tmp_path / "again.toml").write_text(STREAM)

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(main.cli, ["pipeline", *arguments, "--json", "-b", servers])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    with Cluster(servers, security=read_security(str(properties))) as cluster:
        for topic in ("numbers", "streamed"):
            cluster.topics.create(topic, 2)
    assert run("push", "numbers.jsonl", "-t", "numbers", "--key-column", "n")["rows"] == ROWS
    loaded = run("load", "-t", "numbers", "--table", "lake/numbers", "--decode", "json")
    assert (loaded["rows"], loaded["notes"]) == (ROWS, [])
    assert [one["lag"] for one in run("status", "lake")[0]["partitions"]] == [0, 0]
    assert run("snapshot", "-t", "numbers", "--table", "lake/latest")["inserted"] == ROWS
    assert run("stream", "again.toml", "--once")["rows_out"] == ROWS
    assert run("replay", "--topic", "streamed", "--to-topic", "replayed")["rows"] == ROWS
    for engine in ("spark", "duckdb"):
        if engine == "duckdb":
            pytest.importorskip("duckdb")
        assert run("sql", "select count(*) as n from topic.replayed", "--engine", engine) == [{"n": ROWS}]


def test_programs_of_pyspark_get_in(broker: Broker, properties: Path, spark: Any) -> None:
    register(spark)
    options = {f"kafka.{name}": text for name, text in load_properties(str(properties), "").items()}
    options["kafka.bootstrap.servers"] = broker.bootstrap_servers
    with Cluster(broker.bootstrap_servers, security=read_security(str(properties))) as cluster:
        cluster.topics.create("frames", 1)
    frame = spark.sql(f"select cast(id as string) as value from range({ROWS})")
    frame.write.format("ottla").mode("append").options(**options, topic="frames").save()
    assert spark.read.format("ottla").options(**options, subscribe="frames").load().count() == ROWS


def test_failed_authentication_is_reported(broker: Broker, properties: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(properties.read_text().replace(PASSWORD, "guessed"))
    (tmp_path / "a.jsonl").write_text("1\n")
    command = ["pipeline", "push", str(tmp_path / "a.jsonl"), "-t", "numbers", "-b", broker.bootstrap_servers]
    done = CliRunner().invoke(main.cli, [*command, "--command-config", str(wrong)])
    assert done.exit_code == 2
    assert "rejected the login" in done.stderr
    assert done.stderr.count("\n") == 1
