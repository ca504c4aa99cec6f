"""Three nodes that authenticate to each other by Kerberos, as brokers and controllers, and our own tools, with a
KDC."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.app.ports import free_ports
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import read_security
from ottla.common.config.properties import format_properties
from ottla.common.errors import KafkaError, OperatorError
from ottla.security.authority import Authority

from ..kdc import REALM, Kdc, need_of_system
from .nodes import Node, Nodes, Place, eventually

pytest.importorskip("gssapi", reason="the extra gssapi is not installed, which needs libkrb5-dev: make .venv/.kerberos")

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
TICKET_S = 20
"""Renewed after two fifths of it, which leaves a busy machine enough time."""
REAUTH_MS = 2_000
WAIT_S = 180.0
FIRST = "krbtgt/"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    "sasl.mechanism.controller.protocol": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "sasl.kerberos.ticket.renew.window.factor": "0.4",
    "sasl.kerberos.min.time.before.relogin": "1000",
    "broker.session.timeout.ms": "6000",
    "connections.max.reauth.ms": str(REAUTH_MS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:kafka;User:ann",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class World(NamedTuple):
    """A realm, a cluster of three in it, and the credentials of ann."""

    kdc: Kdc
    nodes: Nodes
    home: Path
    keytab: Path

    def properties(self, name: str, module: str, **more: str) -> Path:
        """Return a file of client properties."""
        path = self.home / f"{name}.properties"
        text = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.home / "ca.pem"),
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{MODULE} required {module};",
        }
        path.write_text(format_properties(text | {key.replace("_", "."): value for key, value in more.items()}))
        return path

    def by_keytab(self) -> Path:
        return self.properties("keytab", f'useKeyTab=true storeKey=true keyTab="{self.keytab}" principal="ann"')

    def call(self, properties: Path, *command: str, stdin: str = "") -> Result:
        """Run one of our tools."""
        servers = ["-b", self.nodes.bootstrap_servers, "--command-config", str(properties)]
        return CliRunner().invoke(cli, [*command, *servers], input=stdin)

    def all_live(self) -> bool:
        """Return whether the contacted broker reports all three brokers as live."""
        security = read_security(str(self.by_keytab()))
        try:
            with Cluster(self.nodes.bootstrap_servers, timeout_s=10, security=security) as cluster:
                return len(cluster.describe().brokers) == 3
        except (KafkaError, OperatorError):
            return False

    def follows(self, node: Node) -> bool:
        """Return whether a node is in sync with the other leaders of all partitions."""
        security = read_security(str(self.by_keytab()))
        try:
            with Cluster(self.nodes.bootstrap_servers, timeout_s=10, security=security) as cluster:
                return all(node.node_id in partition.isr for partition in cluster.topics.get("t").partitions)
        except (KafkaError, OperatorError):
            return False


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("kerberos")
    with pytest.MonkeyPatch.context() as environment, Kdc(home) as kdc:
        environment.setenv("KRB5_CONFIG", str(kdc.config))
        environment.setenv("KRB5RCACHENAME", f"file2:{home / 'seen'}")
        environment.delenv("KRB5CCNAME", raising=False)
        now = datetime.datetime.now(datetime.UTC)
        authority = Authority.make("authority", now)
        (home / "ca.pem").write_bytes(authority.pem)
        (home / "node.pem").write_bytes(authority.issue("node", list(HOSTS), now))
        stores = {"ssl.keystore.location": str(home / "node.pem"), "ssl.truststore.location": str(home / "ca.pem")}
        ports = free_ports(2 * len(HOSTS))
        places = [Place(*place) for place in zip(ports[::2], ports[1::2], HOSTS, strict=True)]
        nodes = Nodes(home, settings=SETTINGS | stores, places=places)
        for node in nodes.nodes:
            keep_keys(kdc, node)
        keytab = kdc.keytab("ann", "ann")
        kdc.short_tickets(TICKET_S)
        world = World(kdc, nodes, home, keytab)
        try:
            nodes.start()
            made = world.call(world.by_keytab(), "topic", "create", "t", "--partitions", "3")
            assert made.exit_code == 0, made.output
            yield world
        finally:
            nodes.close()


def keep_keys(kdc: Kdc, node: Node) -> None:
    """Each node has keys of its own host, for all of its listeners."""
    principal = f"kafka/{node.place.host}"
    keytab = kdc.keytab(f"node-{node.node_id}", principal)
    module = f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}";'
    with node.config.open("a") as config:
        for listener in ("plaintext", "controller"):
            config.write(f"listener.name.{listener}.gssapi.sasl.jaas.config={module}\n")


def test_nodes_renew_expiring_tickets(world: World) -> None:
    eventually(world.all_live, "all three are live", WAIT_S)
    given = [world.kdc.given(f"kafka/{host}", FIRST) for host in HOSTS]

    def renewed() -> bool:
        """Three times, for brokers and for controllers."""
        return all(world.kdc.given(f"kafka/{host}", FIRST) >= 6 + had for host, had in zip(HOSTS, given, strict=True))

    begun = time.monotonic()
    while not renewed() or time.monotonic() < begun + TICKET_S:  # beyond the expiry of tickets and sessions
        eventually(world.all_live, "all three are live", WAIT_S)
    for node in world.nodes.nodes:
        assert "rejected this node's authentication" not in node.log_text()
        assert "can't authenticate to" not in node.log_text()
    for host in HOSTS:
        assert any(world.kdc.given(f"kafka/{host}", f"kafka/{other}") for other in HOSTS if other != host)


@pytest.mark.parametrize("node_id", [1, 3])
def test_killed_node_authenticates_again(world: World, node_id: int) -> None:
    node = world.nodes[node_id]
    node.kill()
    node.start()
    eventually(lambda: world.follows(node), f"node {node_id} is in sync again", WAIT_S)


def test_unavailable_kdc_matters_only_after_ticket_expiry(world: World) -> None:
    eventually(world.all_live, "all three are live", WAIT_S)
    before = [len(node.log_text()) for node in world.nodes.nodes]
    world.kdc.kill()

    def logs() -> list[str]:
        return [node.log_text()[start:] for node, start in zip(world.nodes.nodes, before, strict=True)]

    begun = time.monotonic()
    eventually(
        lambda: all("Cannot contact any KDC" in text for text in logs()), "all report the unavailable KDC", WAIT_S
    )
    over = "has expired, and the KDC issued no new one"
    eventually(lambda: all(over in text for text in logs()), "tickets are over", WAIT_S)
    away_s = time.monotonic() - begun
    for text in logs():  # what lets a node in lasts longer than the KDC is heard
        assert text.index("Cannot contact any KDC") < text.index("can't authenticate to")
    counts = [len([line for line in text.splitlines() if "KDC" in line]) for text in logs()]
    assert max(counts) < 20 + 6 * away_s, f"{counts} lines in {away_s} s"
    assert world.kdc.start()
    eventually(world.all_live, "all three are live again", WAIT_S)


def test_node_without_kdc_fails_to_start_with_reason(world: World) -> None:
    node = world.nodes[2]
    node.kill()
    world.kdc.kill()
    try:
        start = len(node.log_text())
        node.start(wait=False)
        assert node.process is not None
        assert node.process.wait(WAIT_S) == 2
        node.process = None
        log = node.log_text()[start:]
        assert "no ticket of kafka/127.0.0.2" in log
        assert "Cannot contact any KDC for realm" in log
        assert "Traceback" not in log
    finally:
        assert world.kdc.start()
        node.start()
    eventually(lambda: world.follows(node), "it is in sync again", WAIT_S)


def test_tools_authenticate_by_keytab(world: World) -> None:
    listed = world.call(world.by_keytab(), "topic", "list")
    assert listed.exit_code == 0, listed.output
    assert "t" in listed.output.split()
    read = world.call(world.by_keytab(), "consume", "t", "--from-beginning", "--stop-at-end")
    assert (read.exit_code, read.stdout) == (0, ""), read.output


def test_tools_authenticate_by_ticket_cache(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kinit = need_of_system("kinit")

    def fill(cache: Path) -> None:
        command = [kinit, "-c", f"FILE:{cache}", "-k", "-t", str(world.keytab), "ann"]
        subprocess.run(command, check=True, env=os.environ, timeout=WAIT_S)

    cache = world.home / "tickets"
    named = world.properties("cache", f'useTicketCache=true ticketCache="{cache}"')
    empty = world.call(named, "topic", "list")
    assert empty.exit_code == 2
    assert f"no ticket of the ticket cache FILE:{cache}" in empty.output
    fill(cache)
    assert world.call(named, "topic", "list").exit_code == 0
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{world.home / 'own'}")
    fill(world.home / "own")
    mine = world.properties("mine", "useTicketCache=true", sasl_kerberos_service_name="")
    assert "sasl.kerberos.service.name in" in world.call(mine, "topic", "list").output
    mine = world.properties("mine", "useTicketCache=true serviceName=kafka", sasl_kerberos_service_name="")
    assert world.call(mine, "topic", "list").exit_code == 0


def test_tools_report_authentication_errors(world: World) -> None:
    unknown = world.properties("unknown", f'useKeyTab=true keyTab="{world.keytab}" principal="eve@{REALM}"')
    refused = world.call(unknown, "topic", "list")
    assert (refused.exit_code, len(refused.output.splitlines())) == (2, 1)
    assert f"the keytab {world.keytab} has no keys of eve@{REALM}" in refused.output
    module = f'useKeyTab=true keyTab="{world.keytab}" principal="ann"'
    stranger = world.call(world.properties("other", module, sasl_kerberos_service_name="http"), "topic", "list")
    assert (stranger.exit_code, len(stranger.output.splitlines())) == (2, 1)
    assert "no ticket for http/127.0.0." in stranger.output
    for command in (("produce", "t"), ("consume", "t", "--group", "g")):
        library = world.call(world.by_keytab(), *command, stdin="x\n")
        assert (library.exit_code, len(library.output.splitlines())) == (2, 1), library.output
        assert "sasl.mechanism=GSSAPI is not supported by librdkafka" in library.output
