"""GSSAPI with a KDC of MIT Kerberos: Java's client and kcat with tickets, and a raw client for abnormal exchanges."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.kdc import REALM, Kdc
from tools import TOOL_S, JavaTools

from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.errors import OperatorError
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import ApiKey
from ottla.security.sasl.kerberos_tickets import Acceptor
from ottla.testing import Broker

gssapi = pytest.importorskip(
    "gssapi", reason="the extra gssapi is not installed, which needs libkrb5-dev: make .venv/.kerberos"
)

SERVICE = "kafka/localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
RULES = r"RULE:[1:$1](bot-.*)s/^bot-//,DEFAULT"
SASL_AUTHENTICATION_FAILED = 58
NO_LAYER = b"\x01\0\0\0"


class World(NamedTuple):
    """A realm, a broker with a keytab of it, and keytabs of ann and bot-ann (the same user) and of bob."""

    kdc: Kdc
    broker: Broker
    asking: str
    keytab: Path


def module_of(keytab: Path, principal: str) -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}";'


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("kerberos")
    with pytest.MonkeyPatch.context() as environment, Kdc(home) as kdc:
        environment.setenv("KRB5_CONFIG", str(kdc.config))
        environment.setenv("KRB5RCACHENAME", f"file2:{home / 'seen'}")
        configs = {
            "listeners": "PLAINTEXT://127.0.0.1:0,ASKING://localhost:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ASKING:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.asking.gssapi.sasl.jaas.config": module_of(kdc.keytab("service", SERVICE), SERVICE),
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": RULES,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        clients = kdc.keytab("clients", "ann", "bot-ann", "bob")
        with Broker(configs=configs, data_dir=home / "data") as broker:
            for topic in ("java", "kcat"):
                cli.main(["topic", "create", topic, "-b", broker.bootstrap_servers], standalone_mode=False)
                add = ["acl", "add", "--allow-principal", "User:ann", "--producer", "--topic", topic]
                cli.main([*add, "-b", broker.bootstrap_servers], standalone_mode=False)
            yield World(kdc, broker, broker.ready["listeners"]["ASKING"], clients)


def end_of(world: World, topic: str) -> int:
    """Returns the end offset of the topic."""
    with Cluster(world.broker.bootstrap_servers, client_id="test", timeout_s=30) as cluster:
        return cluster.records.list_offsets({(topic, 0): LATEST_TIMESTAMP})[(topic, 0)].offset


def test_java_authenticates_with_its_ticket(
    world: World, java_classpath: str, java_tools_classpath: str, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={module_of(world.keytab, 'ann')}\n"
    )
    options = (f"-Djava.security.krb5.conf={world.kdc.config}",)
    with JavaTools(java_classpath, java_tools_classpath, options) as tools:
        command = tools.command(
            "kafka-producer-perf-test",
            *["--topic", "java", "--num-records", "1", "--record-size", "10", "--throughput", "-1"],
            *["--producer.config", str(properties), "--producer-props", f"bootstrap.servers={world.asking}"],
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    assert end_of(world, "java") == 1, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed on this machine")
@pytest.mark.skipif(shutil.which("kinit") is None, reason="kinit (krb5-user) is not installed on this machine")
@pytest.mark.skipif(
    not list(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so")),
    reason="Cyrus SASL's module of GSSAPI (libsasl2-modules-gssapi-mit) is not installed on this machine",
)
def test_kcat_authenticates_with_its_ticket(world: World, tmp_path: Path) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(world.keytab),
        "sasl.kerberos.principal": f"bot-ann@{REALM}",
    }
    command = ["kcat", "-P", "-b", world.asking, "-t", "kcat", "-p", "0"]
    command += [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    done = subprocess.run(
        command,
        input="value\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "KRB5CCNAME": f"FILE:{tmp_path / 'tickets'}"},
    )
    assert done.returncode == 0, done.stderr
    assert end_of(world, "kcat") == 1


class Client:
    """One connection and a GSS-API initiator, by the same library that the broker uses."""

    def __init__(self, world: World, principal: str, tickets: str = "shared") -> None:
        host, _, port = world.asking.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._world = world
        self.context = gssapi.SecurityContext(
            name=gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service),
            creds=gssapi.Credentials(
                name=gssapi.Name(f"{principal}@{REALM}", gssapi.NameType.kerberos_principal),
                usage="initiate",
                store={"client_keytab": f"FILE:{world.keytab}", "ccache": f"MEMORY:{tickets}-{principal}"},
            ),
            usage="initiate",
            flags=[gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity],
        )
        self._ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="GSSAPI"))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, token: bytes) -> SaslAuthenticateResponse:
        return self._ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))

    def offered(self) -> None:
        """Run the exchange up to the offer of security layers."""
        answer = self.say(self.context.step())
        assert answer.error_code == 0, answer
        self.context.step(bytes(answer.auth_bytes))
        offer = self.say(b"")
        assert self.context.unwrap(bytes(offer.auth_bytes)).message == NO_LAYER

    def choose(self, choice: bytes) -> SaslAuthenticateResponse:
        return self.say(self.context.wrap(choice, False).message)

    def _ask(self, key: int, version: int, message: object) -> Any:
        self.socket.sendall(encode_request(key, version, 1, "by hand", message))
        return decode_response(key, version, self._frame())[1]

    def _frame(self) -> bytes:
        with self.socket.makefile("rb") as stream:
            (length,) = struct.unpack(">i", stream.read(4))
            return stream.read(length)


@pytest.mark.parametrize("choice", [NO_LAYER, NO_LAYER + b"ann@OTTLA.TEST", NO_LAYER + b"ann"])
def test_client_has_the_identity_of_its_ticket(world: World, choice: bytes) -> None:
    with Client(world, "ann") as client:
        client.offered()
        assert client.choose(choice).error_code == 0


@pytest.mark.parametrize("choice", [NO_LAYER + b"bob", NO_LAYER + b"bob@OTTLA.TEST", b"\x02\0\xff\xff", b""])
def test_other_identities_are_refused(world: World, choice: bytes) -> None:
    with Client(world, "ann") as client:
        client.offered()
        assert client.choose(choice).error_code == SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("place", ["ticket", "choice"])
def test_tampered_tokens_are_refused(world: World, place: str) -> None:
    with Client(world, "ann") as client:
        if place == "ticket":
            answer = client.say(changed(client.context.step()))
        else:
            client.offered()
            answer = client.say(changed(client.context.wrap(NO_LAYER, False).message))
        assert answer.error_code == SASL_AUTHENTICATION_FAILED


def changed(token: bytes) -> bytes:
    return token[:-1] + bytes((token[-1] ^ 1,))


def test_replayed_ticket_is_refused(world: World) -> None:
    with Client(world, "ann") as client:
        ticket = client.context.step()
        assert client.say(ticket).error_code == 0
    with Client(world, "bob") as thief:
        assert thief.say(ticket).error_code == SASL_AUTHENTICATION_FAILED, "the same ticket comes in once"


def test_new_keys_take_effect_without_restart(world: World) -> None:
    world.kdc.keytab("service", SERVICE)
    with Client(world, "ann", "later") as client:
        client.offered()
        assert client.choose(NO_LAYER).error_code == 0


def test_keytab_without_the_keys_is_reported(world: World) -> None:
    with pytest.raises(OperatorError, match="has no keys of kafka/elsewhere") as caught:
        Acceptor("the setting", f"kafka/elsewhere@{REALM}", str(world.keytab))
    assert "\n" not in str(caught.value)
