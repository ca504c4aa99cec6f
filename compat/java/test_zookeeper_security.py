"""An Ottla broker on a real ZooKeeper with access control: SASL, ACLs, TLS, and Kafka's migration tool."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from test_zookeeper_broker import START_S, WITHIN_S, consume, produce, refused, settings
from test_zookeeper_session import Calls, Listener, Relay, until
from zookeeper_tree import JAVA, ZooKeeper

from ottla import KafkaError, LegacyConsumer, Producer
from ottla.app.pool import ThreadPool
from ottla.app.ports import free_ports
from ottla.client.zookeeper.zookeeper_access import DigestLogin, ZooKeeperAccess
from ottla.client.zookeeper.zookeeper_session import KazooSession
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Create
from ottla.security.authority import Authority
from ottla.testing import Broker

CLIENT = 'Client {{\n  // identity of the brokers\n  {module} required username="kafka" password="{password}";\n}};\n'
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
PASSWORD = 'of "all"'
PROVIDERS = "org.apache.zookeeper.server.auth"


class SecuredZooKeeper(ZooKeeper):
    """A server with SASL users on one port, and mutual TLS on another."""

    def __init__(self, classpath: str) -> None:
        super().__init__(classpath)
        self._classpath = classpath
        (self._secure_port,) = free_ports(1)
        self.secure_address = f"localhost:{self._secure_port}"
        authority, now = Authority.make("test", datetime.now(UTC)), datetime.now(UTC)
        self.trusted = self._file("trusted.pem", authority.pem)
        self.own = self._file("broker.pem", authority.issue("broker", [], now))
        self.others = self._file("others.pem", Authority.make("other", now).pem)
        server = self._file("server.pem", authority.issue("server", ["localhost"], now))
        users = self._file(
            "server.jaas",
            f'Server {{ {DIGEST} required user_kafka="{PASSWORD.replace(chr(34), chr(92) + chr(34))}"; }};\n',
        )
        self._java = [
            *JAVA,
            f"-Djava.security.auth.login.config={users}",
            f"-Dzookeeper.authProvider.sasl={PROVIDERS}.SASLAuthenticationProvider",
            f"-Dzookeeper.authProvider.x509={PROVIDERS}.X509AuthenticationProvider",
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"-Dzookeeper.ssl.keyStore.location={server}",
            f"-Dzookeeper.ssl.trustStore.location={self.trusted}",
            "-cp",
            classpath,
        ]

    def __enter__(self) -> Self:
        config = self._file(
            "server.cfg",
            f"tickTime=1000\ndataDir={self.home / 'zookeeper'}\nclientPort={self._port}\n"
            f"clientPortAddress=127.0.0.1\nsecureClientPort={self._secure_port}\n",
        )
        self.begin(self._listens, "org.apache.zookeeper.server.ZooKeeperServerMain", str(config))
        return self

    def restart(self) -> None:
        """Kill the server by kill -9 and start it again."""
        process = self._processes.pop()
        process.kill()
        process.wait()
        self.__enter__()

    def _file(self, name: str, content: str | bytes) -> Path:
        path = self.home / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def as_user(self, password: str = PASSWORD, module: str = DIGEST) -> str:
        """Returns the KAFKA_OPTS of a user."""
        escaped = password.replace('"', '\\"')
        path = self._file(
            f"client-{abs(hash((password, module)))}.jaas", CLIENT.format(module=module, password=escaped)
        )
        return f"-Xmx1g -Djava.security.auth.login.config={path}"

    def secure(self, kafka_opts: str) -> None:
        """Run `zookeeper-security-migration --zookeeper.acl=secure`."""
        command = ["java", *kafka_opts.split(), "-cp", self._classpath, "kafka.admin.ZkSecurityMigrator"]
        arguments = ["--zookeeper.acl", "secure", "--zookeeper.connect", self.address]
        subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=START_S)


@pytest.fixture
def server(kafka_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> SecuredZooKeeper:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    return SecuredZooKeeper(kafka_of("3.9"))


class UnauthenticatedClient:
    """An unauthenticated client that inspects the tree."""

    def __init__(self, address: str) -> None:
        self._client = KazooClient(address)
        self._client.start(WITHIN_S)

    def rights(self, path: str) -> set[tuple[str, str, int]]:
        """Returns scheme, id and permissions in the ACL of the znode, which does not require access to its data."""
        return {(each.id.scheme, each.id.id, each.perms) for each in self._client.get_acls(path)[0]}

    def may_not_read(self, path: str) -> bool:
        try:
            self._client.get(path)
        except NoAuthError:
            return True
        return False

    def may_not_write(self, path: str) -> bool:
        try:
            self._client.set(path, b"mine")
        except NoAuthError:
            return True
        return False

    def end(self) -> None:
        self._client.stop()
        self._client.close()


def read_by_legacy(address: str, **more: object) -> bytes:
    """Returns the first record of `t`, read by a group in ZooKeeper."""
    given = {"zookeeper.connect": address, "group.id": "legacy", "auto.offset.reset": "smallest", **more}
    with LegacyConsumer(
        {name: value if isinstance(value, bool) else str(value) for name, value in given.items()}
    ) as reader:
        (stream,) = reader.create_message_streams({"t": 1})["t"]
        record = next(iter(stream))
    return bytes(record.value)


def produce_by_first_clients(address: str, tls: dict[str, object]) -> None:
    """Produce with the brokers found in ZooKeeper."""
    more = {name: value if isinstance(value, bool) else str(value) for name, value in tls.items()}
    with Producer(config={"zk.connect": address, **more}) as producer:
        producer.send("t", b"b").result(WITHIN_S)


ALL, READ = 31, 1
OWN = {("sasl", "kafka", ALL), ("world", "anyone", READ)}
OPEN = {("world", "anyone", ALL)}


def work(broker: Broker, topic: str = "t") -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WITHIN_S)
    if topic == "t":
        produce(broker, "a")
    return admin


def test_znodes_of_a_user_are_restricted_to_it(
    server: SecuredZooKeeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with server:
        monkeypatch.setenv("KAFKA_OPTS", server.as_user())
        options = {**settings(f"{server.address}/made/here"), "zookeeper.set.acl": True}
        with Broker(configs=options, start_timeout_s=START_S) as broker:
            admin = work(broker)
            secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            change = UserScramCredentialUpsertion("alice", secret, b"of alice")
            admin.alter_user_scram_credentials([change])["alice"].result(WITHIN_S)
            unauthenticated = UnauthenticatedClient(f"{server.address}/made/here")
            for path in (paths.topic("t"), paths.CONTROLLER_EPOCH, paths.broker(7), paths.CLUSTER_ID):
                assert unauthenticated.rights(path) == OWN
                assert unauthenticated.may_not_write(path)
                assert not unauthenticated.may_not_read(path)
            assert unauthenticated.rights(paths.CONSUMERS) == OPEN
            for path in (paths.entity(paths.CONFIG_USERS, "alice"), paths.CONFIG_BROKERS):
                assert unauthenticated.may_not_read(path)
            unauthenticated.end()
            broker.kill()
            broker.start()
            assert consume(broker, 1) == ["a"]
            server.restart()
            work(broker, "after-the-servers-end")
            assert read_by_legacy(f"{server.address}/made/here") == b"a"
        monkeypatch.setenv("KAFKA_OPTS", server.as_user("another"))
        assert "ZooKeeper rejected the user 'kafka'" in refused(server.address, tmp_path / "a")
        monkeypatch.delenv("KAFKA_OPTS")
        asked = refused(f"{server.address}/made/here/below", tmp_path / "b")
        assert "ZooKeeper denies this broker access" in asked


def test_cluster_is_secured_after_its_creation(server: SecuredZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    with server, Broker(configs=settings(server.address), start_timeout_s=START_S) as broker:
        work(broker)
        unauthenticated = UnauthenticatedClient(server.address)
        assert unauthenticated.rights(paths.topic("t")) == OPEN
        broker.stop()
        monkeypatch.setenv("KAFKA_OPTS", server.as_user())
        broker.start()
        server.secure(server.as_user())
        assert unauthenticated.rights(paths.topic("t")) == OWN
        work(broker, "u")
        assert unauthenticated.rights(paths.topic("u")) == OPEN, "zookeeper.set.acl is not on yet"
        produce(broker, "b")
        assert sorted(consume(broker, 2)) == ["a", "b"]
        unauthenticated.end()


def test_tls_with_a_client_certificate(
    server: SecuredZooKeeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with server:
        tls = {
            "zookeeper.ssl.client.enable": True,
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": server.own,
            "zookeeper.ssl.truststore.location": server.trusted,
        }
        options = {**settings(server.secure_address), **tls, "zookeeper.set.acl": True}
        with Broker(configs=options, start_timeout_s=START_S) as broker:
            work(broker)
            unauthenticated = UnauthenticatedClient(server.address)
            assert unauthenticated.rights(paths.topic("t")) == {("x509", "CN=broker", ALL), ("world", "anyone", READ)}
            broker.kill()
            broker.start()
            assert consume(broker, 1) == ["a"]
            del tls["zookeeper.clientCnxnSocket"]
            assert read_by_legacy(server.secure_address, **tls) == b"a"
            with pytest.raises(KafkaError, match=r"no response from ZooKeeper .*TLS with localhost"):
                read_by_legacy(server.secure_address, **{**tls, "zookeeper.ssl.truststore.location": server.others})
            produce_by_first_clients(server.secure_address, tls)
            unauthenticated.end()
        said = refused(
            server.secure_address, tmp_path / "a", **{**tls, "zookeeper.ssl.truststore.location": server.others}
        )
        assert "TLS with localhost" in said
        named = {**tls, "zookeeper.ssl.truststore.location": server.trusted}
        said = refused(server.secure_address.replace("localhost", "127.0.0.1"), tmp_path / "b", **named)
        assert "TLS with 127.0.0.1" in said, "its certificate names another host"


async def broken_off(server: str) -> None:
    loop = asyncio.get_running_loop()
    relay, pool, listener = Relay(server), ThreadPool(loop), Listener()
    access = ZooKeeperAccess(login=DigestLogin("kafka", PASSWORD), secures=True)
    session = KazooSession(relay.address, 60_000, post=loop.call_soon_threadsafe, pool=pool, access=access)
    cuts = iter((relay.cut,))
    # Called on kazoo's thread: connected, and about to authenticate.
    session._client.add_listener(lambda state: next(cuts, lambda: None)() if state == "CONNECTED" else None)
    try:
        session.start(listener)
        await until(lambda: len(listener.events) == 3)
        first, lost, again = listener.events
        assert (first, lost) == (again, "disconnected")
        assert "rejected the user 'kafka'" in session.trouble
        assert await Calls(session).multi(Create("/own", b"")) == ["/own"]
    finally:
        closed: list[bool] = []
        session.close(lambda: closed.append(True))
        await until(lambda: closed)
        relay.close()
        pool.close()


def test_session_survives_server_loss_during_authentication(server: SecuredZooKeeper) -> None:
    with server:
        asyncio.run(broken_off(server.address))
        unauthenticated = UnauthenticatedClient(server.address)
        assert unauthenticated.rights("/own") == OWN
        unauthenticated.end()
