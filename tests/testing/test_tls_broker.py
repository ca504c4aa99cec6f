"""A TLS-only broker with its own authority, and client authentication."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from kafka import KafkaConsumer

from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.client.wire.security import PLAINTEXT, read_security
from ottla.common.config.properties import format_properties, load_properties
from ottla.common.errors import OperatorError
from ottla.security.authority import Authority
from ottla.testing import Broker

RECORDS = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security="ssl") as broker:
        yield broker


@pytest.fixture(scope="module")
def keys(broker) -> Path:
    return broker.client_properties.parent


@pytest.fixture(scope="module")
def topic(broker, keys) -> str:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **library(keys)})
    for number in range(RECORDS):
        producer.produce("secret", str(number).encode())
    assert producer.flush(30) == 0
    return "secret"


def library(keys: Path) -> dict[str, str]:
    return {
        "security.protocol": "ssl",
        "ssl.ca.location": str(keys / "ca.pem"),
        "ssl.certificate.location": str(keys / "client.pem"),
        "ssl.key.location": str(keys / "client.pem"),
    }


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ottla", *arguments], capture_output=True, text=True, check=False)


def test_librdkafka_and_kafka_python_read_what_was_produced(broker, keys, topic):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **library(keys),
        }
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < RECORDS:
        found += [message.value() for message in consumer.consume(RECORDS, 1.0)]
    consumer.close()
    assert found == [str(number).encode() for number in range(RECORDS)]
    other = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        security_protocol="SSL",
        ssl_cafile=str(keys / "ca.pem"),
        ssl_certfile=str(keys / "client.pem"),
        ssl_keyfile=str(keys / "client.pem"),
    )
    values = [next(other).value for _ in range(RECORDS)]
    other.close()
    assert values == found


def test_tools_take_the_properties_of_kafkas(broker, topic):
    where = ("-b", broker.bootstrap_servers, "--command-config", str(broker.client_properties))
    assert topic in ottla("topic", "list", *where).stdout
    for arguments in (("--max", str(RECORDS)), ("--max", str(RECORDS), "--group", "tool")):
        printed = ottla("consume", topic, "--from-beginning", *arguments, *where)
        assert printed.stdout.split() == [str(number) for number in range(RECORDS)], printed.stderr


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        (("ssl.truststore.location",), "its certificate is not trusted"),
        (("ssl.keystore.location",), "certificate required"),
    ],
)
def test_client_without_certificate_gets_one_line(broker, tmp_path, left_out, words):
    properties = load_properties(str(broker.client_properties))
    for name in left_out:
        del properties[name]
    path = tmp_path / "client.properties"
    path.write_text(format_properties(properties))
    with (
        Cluster(broker.bootstrap_servers, timeout_s=5, security=read_security(str(path))) as cluster,
        pytest.raises(BrokerUnreachable, match=words),
    ):
        cluster.describe()


def test_a_keystore_that_cannot_be_used_is_refused_in_the_answer(broker, keys, tmp_path):
    bad, foreign = tmp_path / "bad.pem", tmp_path / "foreign.pem"
    bad.write_text("no key\n")
    now = datetime.datetime.now(datetime.UTC)
    foreign.write_bytes(Authority.make("other", now).issue("another", ("localhost", "127.0.0.1"), now))
    os.mkfifo(tmp_path / "pipe")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **library(keys)})
    name = "listener.name.ssl.ssl.keystore.location"
    for path, words in (
        (bad, "PKCS12 needs"),
        (tmp_path / "none.pem", "no such file"),
        (foreign, "another subject"),
        (tmp_path / "pipe", "regular file"),
    ):
        entry = ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        (answer,) = admin.incremental_alter_configs([resource]).values()
        with pytest.raises(KafkaException, match=words) as refused:
            answer.result(30)
        assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    assert name not in described.result(30), "nothing was written"
    admin.list_topics(timeout=30)


class Crowd:
    """Clients that connect one after the other, as fast as they can."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        host, _, port = address.rpartition(":")
        self.address = host, int(port)
        self.context = context
        self.served: list[bytes] = []
        self.failures: list[Exception] = []
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.connect) for _ in range(2)]

    def connect(self) -> None:
        api_versions = bytes.fromhex("0000000a 0012 0000 00000007 ffff")
        while not self.stop.is_set():
            try:
                with (
                    socket.create_connection(self.address, 30) as raw,
                    self.context.wrap_socket(raw, server_hostname="localhost") as client,
                ):
                    client.sendall(api_versions)
                    assert client.recv(8)[4:] == bytes.fromhex("00000007")
                    self.served.append(client.getpeercert(binary_form=True) or b"")
            except Exception as error:
                self.failures.append(error)

    def has_met(self, certificate: bytes) -> bool:
        return certificate in self.served[-2:] or bool(self.failures)

    def __enter__(self) -> Crowd:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.promise("S5")
def test_certificate_rotation_under_load_fails_no_connection(broker, keys):
    name = "listener.name.ssl.ssl.keystore.location"
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.make("authority of a crowd", now)
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    context.load_verify_locations(cadata=authority.pem.decode())
    context.load_cert_chain(keys / "client.pem")
    first = (keys / "server.pem").read_bytes()
    with Cluster(broker.bootstrap_servers, security=read_security(str(broker.client_properties))) as admin:
        with Crowd(broker.bootstrap_servers, context) as crowd:
            for content in (authority.issue("server", ("localhost", "127.0.0.1"), now), first) * 3:
                (keys / "server.pem").write_bytes(content)
                admin.configs.alter(ResourceType.BROKER, "1", [(name, ConfigOperation.SET, str(keys / "server.pem"))])
                certificate = load_pem_x509_certificate(content[content.index(b"-----BEGIN CERTIFICATE") :])
                new = certificate.public_bytes(Encoding.DER)
                wait_until(partial(crowd.has_met, new))
        admin.configs.alter(ResourceType.BROKER, "1", [(name, ConfigOperation.DELETE, None)])
    assert not crowd.failures


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_expiring_certificate_is_in_log_and_cluster_describe(tmp_path):
    keys = tmp_path / "keys"
    assert ottla("security", "init", str(keys), "--days", "20").returncode == 0
    free = {"listeners": "SSL://localhost:0", "advertised.listeners": "SSL://localhost:0"}
    with Broker(arguments=("--config", str(keys / "server.properties")), configs=free) as short:
        assert "the certificate of listener SSL expires in 19 days" in short.logs()
        described = ottla(
            "cluster", "describe", "-b", short.bootstrap_servers, "--command-config", str(keys / "admin.properties")
        )
    assert "the certificate of broker 1 expires on " in described.stdout, described


def test_new_certificate_is_used_without_restart_or_disconnect(broker, keys):
    security = read_security(str(broker.client_properties))
    with Cluster(broker.bootstrap_servers, security=security) as old:
        old.describe()
        authority = Authority.make("next authority", datetime.datetime.now(datetime.UTC))
        renewed = authority.issue("server", ("localhost", "127.0.0.1"), datetime.datetime.now(datetime.UTC))
        (keys / "server.pem").write_bytes(renewed)
        name = "listener.name.ssl.ssl.keystore.location"
        for _ in range(2):  # the second time nothing but the file could have changed
            old.configs.alter(ResourceType.BROKER, "1", [(name, ConfigOperation.SET, str(keys / "server.pem"))])
        old.describe()
        next_ca = keys / "next-ca.pem"
        next_ca.write_bytes(authority.pem)
        context = ssl.create_default_context(cafile=str(next_ca))
        context.load_cert_chain(keys / "client.pem")
        with Cluster(broker.bootstrap_servers, timeout_s=30, security=PLAINTEXT._replace(tls=context)) as new:
            new.describe()
        old.describe()
        (entry,) = (each for each in old.configs.describe(ResourceType.BROKER, "1", None) if each.name == name)
        assert entry.value == str(keys / "server.pem")
    assert "PRIVATE KEY" not in broker.logs()


def test_keys_and_settings_from_one_command(tmp_path):
    done = CliRunner().invoke(cli, ["security", "init", str(tmp_path / "keys"), "--client", "alice"])
    assert done.exit_code == 0, done.output
    folder = tmp_path / "keys"
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))
    free = {"listeners": "SSL://localhost:0", "advertised.listeners": "SSL://localhost:0"}
    with (
        Broker(arguments=("--config", str(folder / "server.properties")), configs=free) as broker,
        Cluster(broker.bootstrap_servers, security=read_security(str(folder / "admin.properties"))) as admin,
        Cluster(broker.bootstrap_servers, security=read_security(str(folder / "alice.properties"))) as alice,
    ):
        admin.topics.create("t", partitions=1, replication_factor=1)
        assert "t" in admin.topics.all()
        assert "t" not in alice.topics.all(), "nothing is allowed that no ACL allows"
        mine = load_properties(str(folder / "admin.properties")) | {"bootstrap.servers": broker.bootstrap_servers}
        profile = tmp_path / "ottla" / "default.properties"
        profile.parent.mkdir()
        profile.write_text(format_properties(mine))
        profile.chmod(0o600)
        environment = {"XDG_CONFIG_HOME": str(tmp_path), "OTTLA_BOOTSTRAP_SERVER": "", "OTTLA_COMMAND_CONFIG": ""}
        listed = CliRunner(env=environment).invoke(cli, ["topic", "list", "--json"])
        assert '"t"' in listed.output, "it is found by the profile alone"
    again = CliRunner().invoke(cli, ["security", "init", str(folder)])
    assert again.exit_code == 2
    assert "already" in again.output


@pytest.mark.parametrize("name", ["admin", "cluster", "ca-key"])
def test_names_that_are_taken_are_refused(tmp_path, name):
    refused = CliRunner().invoke(cli, ["security", "init", str(tmp_path / "keys"), "--client", name])
    assert refused.exit_code == 2
    assert "reserved" in refused.output


def test_a_cluster_that_asks_for_passwords(tmp_path):
    with Broker(security="sasl_ssl", brokers=2) as cluster:
        login = {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "client",
            "sasl.password": cluster.client_password,
            "ssl.ca.location": str(cluster.client_properties.parent / "ca.pem"),
        }
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **login})
        admin.create_topics([NewTopic("t", 2, 2)])["t"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **login})
        for number in range(RECORDS):
            producer.produce("t", str(number).encode(), partition=number % 2)
        assert producer.flush(30) == 0
        with Cluster(cluster.bootstrap_servers, security=read_security(str(cluster.client_properties))) as tool:
            assert all(len(partition.isr) == 2 for partition in tool.topics.get("t").partitions)
        stranger = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **login, "sasl.password": "wrong"})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=2)
        assert cluster.client_password not in cluster.logs()


def test_tools_report_missing_sasl_settings(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(OperatorError, match=r"sasl\.mechanism in .* is GSSAPI: set it to one of PLAIN"):
        read_security(str(path))
