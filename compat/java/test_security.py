"""Apache Kafka's tools over TLS with certificates, and an ACL-restricted user over SASL_SSL."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tools import JavaTools

from ottla.app.main import cli
from ottla.testing import Broker

PASSWORD, SECRET = "kept-from-logs-51c2", "of-all-nodes-9b1d"
TOPIC, CLOSED = "open", "closed"


def keys(folder: Path) -> Path:
    """Creates the files of `ottla security init`."""
    cli.main(["security", "init", str(folder), "--host", "localhost"], standalone_mode=False)
    return folder


def secured(folder: Path) -> dict[str, object]:
    """Returns the configs of a listener with client certificates, one with passwords, and an authorizer for both."""
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,CERTIFIED://localhost:0,ASKING://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CERTIFIED:SSL,ASKING:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "listener.name.certified.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:client",
        "delegation.token.secret.key": SECRET,
    }


def create_topics(bootstrap_servers: str, folder: Path) -> None:
    """Create the topics by librdkafka, with the client's certificate."""
    client = {"ssl.ca.location": str(folder / "ca.pem"), "bootstrap.servers": bootstrap_servers}
    client |= {f"ssl.{part}.location": str(folder / "client.pem") for part in ("certificate", "key")}
    admin = AdminClient({**client, "security.protocol": "SSL"})
    for made in admin.create_topics([NewTopic(name, 1) for name in (TOPIC, CLOSED)]).values():
        made.result(30)


def login(folder: Path, password: str, name: str = "ann", more: str = "") -> Path:
    """Writes client properties for ann with a given password, or for a token."""
    path = folder / f"{name}-{len(password)}.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{name}" password="{password}"{more};\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder / 'ca.pem'}\n"
    )
    return path


@pytest.fixture
def broker(tmp_path: Path):
    with Broker(configs=secured(keys(tmp_path / "keys"))) as running:
        yield running


def test_users_and_acls_by_apache_kafka_tools(broker: Broker, tools: JavaTools, tmp_path: Path) -> None:
    certified, asking = (broker.ready["listeners"][name] for name in ("CERTIFIED", "ASKING"))
    admin = ["--bootstrap-server", certified, "--command-config", str(tmp_path / "keys" / "client.properties")]
    user = ["--entity-type", "users", "--entity-name", "ann"]
    create_topics(certified, tmp_path / "keys")
    secret = f"SCRAM-SHA-512=[iterations=4096,password={PASSWORD}]"
    tools.run("kafka-configs", *admin, *user, "--alter", "--add-config", secret)
    assert "SCRAM-SHA-512=iterations=4096" in tools.run("kafka-configs", *admin, *user, "--describe")
    tools.run("kafka-acls", *admin, "--add", "--allow-principal", "User:ann", "--producer", "--topic", TOPIC)
    listed = tools.run("kafka-acls", *admin, "--list")
    assert f"name={TOPIC}" in listed
    assert "principal=User:ann" in listed

    def produce(topic: str, password: str, count: int = 100) -> str:
        return tools.run(
            "kafka-producer-perf-test",
            *["--topic", topic, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"],
            *["--producer.config", str(login(tmp_path / "keys", password))],
            *["--producer-props", f"bootstrap.servers={asking}"],
            check=False,
        )

    assert "100 records sent" in produce(TOPIC, PASSWORD)
    # One record: each refused record takes the client one second.
    assert "1 records sent" not in produce(CLOSED, PASSWORD, count=1)
    assert "1 records sent" not in produce(TOPIC, PASSWORD + "x", count=1)
    offsets = tools.run("kafka-get-offsets", *admin, "--topic", f"{TOPIC}|{CLOSED}")
    assert sorted(offsets.split()) == [f"{CLOSED}:0:0", f"{TOPIC}:0:100"]
    assert PASSWORD not in broker.logs()


def test_delegation_tokens_by_apache_kafka_tool(broker: Broker, tools: JavaTools, tmp_path: Path) -> None:
    """Created by a user, used by a producer, renewed and expired; a token cannot create another token."""
    certified, asking = (broker.ready["listeners"][name] for name in ("CERTIFIED", "ASKING"))
    folder = tmp_path / "keys"
    create_topics(certified, folder)
    (folder / "password").write_text(PASSWORD)
    mine = ["-b", certified, "--command-config", str(folder / "client.properties")]
    add_user = ["user", "add", "ann", "--password-file", str(folder / "password")]
    add_acl = ["acl", "add", "--allow-principal", "User:ann", "--producer", "--topic", TOPIC]
    for command in (add_user, add_acl):
        cli.main([*command, *mine], standalone_mode=False)

    def asked(properties: Path, *arguments: str, check: bool = True) -> str:
        where = ["--bootstrap-server", asking, "--command-config", str(properties)]
        return tools.run("kafka-delegation-tokens", *where, *arguments, check=check)

    ann = login(folder, PASSWORD)
    made = asked(ann, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:client")
    row = next(line for line in made.splitlines() if "User:ann" in line).split()
    token_id, hmac = row[0], row[1]
    described = asked(ann, "--describe", "--owner-principal", "User:ann")
    assert token_id in described
    assert hmac in described
    token = login(folder, hmac, token_id, ' tokenauth="true"')
    sent = tools.run(
        "kafka-producer-perf-test",
        *["--topic", TOPIC, "--num-records", "100", "--record-size", "100", "--throughput", "-1"],
        *["--producer.config", str(token), "--producer-props", f"bootstrap.servers={asking}"],
    )
    assert "100 records sent" in sent
    assert "User:ann" not in asked(token, "--create", "--max-life-time-period", "-1", check=False)
    assert "Completed renew" in asked(ann, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    asked(ann, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in asked(ann, "--describe", "--owner-principal", "User:ann")
    assert hmac not in broker.logs()
    assert SECRET not in broker.logs()
