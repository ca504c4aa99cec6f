"""SASL_PLAINTEXT with librdkafka and by hand: accepted and rejected logins, and leaked secrets."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.login import read_login
from ottla.client.wire.model import ResourceType
from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import OperatorError
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import API
from ottla.security.sasl.plain import PlainClient
from ottla.testing import Broker

PASSWORD = "very-secret-7f3a"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
REAUTH_MS = 5_000
"""librdkafka authenticates again after nine tenths of it, and has half a second for that."""
PAUSE_S = 0.05
"""Delay between two requests of a client that works beyond the end of a session."""
KEYS = {spec.request: spec.key for spec in API.values()}


class Served:
    """A broker with one open listener, and one with authentication."""

    def __init__(self, broker: Broker, directory: Path, key: rsa.RSAPrivateKey) -> None:
        self.broker = broker
        self.directory = directory
        self.key = key
        self.asking = broker.ready["listeners"]["ASKING"]

    def token(self, **claims: Any) -> str:
        now = int(time.time())
        return jwt.encode(
            {"sub": "tok", "iss": "me", "aud": "us", "iat": now, "exp": now + 300, **claims}, self.key, "RS256"
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("sasl")
    key = rsa.generate_private_key(65537, 2048)
    keys = directory / "keys.json"
    keys.write_text('{"keys":[' + RSAAlgorithm.to_jwk(key.public_key()) + "]}")
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,ASKING://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ASKING:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.asking.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        f'required user_ann="{PASSWORD}";',
        "listener.name.asking.plain.connections.max.reauth.ms": str(REAUTH_MS),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "me",
        "sasl.oauthbearer.expected.audience": "us",
    }
    with Broker(configs=configs, data_dir=directory / "data") as broker:
        made = Served(broker, directory, key)
        with Cluster(broker.bootstrap_servers, client_id="test", timeout_s=30) as cluster:
            for mechanism in SCRAM:
                cluster.users.put("bob", mechanism, PASSWORD)
        yield made


def client_of(served: Served, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": served.asking,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        token = served.token() if password == PASSWORD else served.token(aud="others")
        settings["oauth_cb"] = lambda _: (token, time.time() + 300)
    else:
        settings |= {"sasl.username": "ann" if mechanism == "PLAIN" else "bob", "sasl.password": password}
    return settings


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM, "OAUTHBEARER"])
def test_librdkafka_gets_in(served: Served, mechanism: str) -> None:
    producer = Producer(client_of(served, mechanism))
    delivered: list[Any] = []
    producer.produce("t", b"value", on_delivery=lambda error, message: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None]


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM, "OAUTHBEARER"])
def test_and_does_not_with_another_secret(served: Served, mechanism: str) -> None:
    errors: list[str] = []
    settings = client_of(served, mechanism, "wrong")
    producer = Producer({**settings, "error_cb": lambda error: errors.append(error.name())})
    deadline = time.monotonic() + 60
    while "_AUTHENTICATION" not in errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert "_AUTHENTICATION" in errors
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.2)


def test_librdkafka_continues_beyond_its_session_lifetime(served: Served) -> None:
    errors: list[Any] = []
    producer = Producer({**client_of(served, "PLAIN"), "error_cb": errors.append})
    deadline = time.monotonic() + 2.2 * REAUTH_MS / 1000
    count = 0
    while time.monotonic() < deadline:
        producer.produce("t", b"value", on_delivery=lambda error, message: errors.extend([error] if error else []))
        assert producer.flush(30) == 0
        count += 1
        time.sleep(PAUSE_S)
    assert errors == []
    assert count > 3


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_tools_get_in_by_client_properties(served: Served, mechanism: str, tmp_path: Path) -> None:
    module, name = ("plain.Plain", "ann") if mechanism == "PLAIN" else ("scram.Scram", "bob")

    def run(*arguments: str, password: str = PASSWORD, exit_code: int = 0) -> Result:
        path = tmp_path / "client.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config=org.apache.kafka.common."
            f'security.{module}LoginModule required username="{name}" password="{password}";\n'
        )
        done = CliRunner().invoke(cli, [*arguments, "-b", served.asking, "--command-config", str(path)], input="v\n")
        assert done.exit_code == exit_code, done.output
        return done

    run("topic", "create", f"tools-{mechanism}")
    run("produce", f"tools-{mechanism}")
    assert f"tools-{mechanism}" in run("topic", "list").stdout
    shown = run("topic", "list", password="wrong-secret", exit_code=2).stderr
    assert "rejected the login" in shown
    assert "wrong-secret" not in shown
    assert shown.count("\n") == 1


class Issuer(BaseHTTPRequestHandler):
    """Returns a token for the right secret, as in RFC 6749."""

    served: Served
    asked: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(body)
        right = self.headers["Authorization"] == "Basic " + b64encode(f"tools:{PASSWORD}".encode()).decode()
        answer = json.dumps({"access_token": self.served.token(), "token_type": "Bearer"}).encode() if right else b"{}"
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize("source", ["file", "issuer"])
def test_tools_get_in_by_tokens(served: Served, source: str, tmp_path: Path) -> None:
    path, token = tmp_path / "client.properties", tmp_path / "token"
    issuer = ThreadingHTTPServer(("127.0.0.1", 0), type("OfServed", (Issuer,), {"served": served, "asked": []}))
    thread = threading.Thread(target=issuer.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def run(*arguments: str, secret: str = PASSWORD, exit_code: int = 0) -> Result:
        url = token.as_uri() if source == "file" else f"http://127.0.0.1:{issuer.server_port}/token"
        token.write_text(served.token() if secret == PASSWORD else served.token(aud="others"))
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.scope=a b\n"
            f"sasl.oauthbearer.token.endpoint.url={url}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            f'clientId="tools" clientSecret="{secret}";\n'
        )
        done = CliRunner().invoke(cli, [*arguments, "-b", served.asking, "--command-config", str(path)], input="v\n")
        assert done.exit_code == exit_code, done.output
        return done

    try:
        run("topic", "create", f"tokens-{source}")
        run("produce", f"tokens-{source}")
        assert run("consume", f"tokens-{source}", "--from-beginning", "--max", "1", "--group", source).stdout == "v\n"
        shown = run("topic", "list", secret="wrong-secret", exit_code=2).stderr
    finally:
        issuer.shutdown()
        thread.join()
        issuer.server_close()
    assert ("the issuer returned HTTP 401" if source == "issuer" else "rejected the login") in shown
    assert "wrong-secret" not in shown
    asked = issuer.RequestHandlerClass.asked  # type: ignore[attr-defined]
    assert set(asked) == ({b"grant_type=client_credentials&scope=a+b"} if source == "issuer" else set())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "needs a token"),
        ("http://issuer.example.com/token", "file: or https:"),
        ("https://issuer.example.com/token", "client.secret"),
        ("file:///nowhere/token", "can't be read"),
    ],
)
def test_missing_token_is_reported(tmp_path: Path, url: str, words: str) -> None:
    properties = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": url}
    with pytest.raises(OperatorError, match=words):
        read_login(properties, "client.properties")[0]("host")


def test_tools_continue_beyond_their_session_lifetime(served: Served) -> None:
    security = ClientSecurity(login=lambda _: PlainClient("ann", PASSWORD))
    with Cluster(served.asking, client_id="test", timeout_s=30, security=security) as cluster:
        cluster.topics.all()
        (connection,) = {cluster._router.any_connection()}
        until = time.monotonic() + 1.2 * REAUTH_MS / 1000
        while time.monotonic() < until:
            cluster.topics.all()
            time.sleep(PAUSE_S)
        assert cluster._router.any_connection() is connection


class Wire:
    """A client by hand."""

    def __init__(self, served: Served) -> None:
        host, _, port = served.asking.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """The next frame; empty at the end."""
        data = b""
        wanted = 4
        while len(data) < wanted:
            try:
                more = self.socket.recv(wanted - len(data))
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            data += more
            if wanted == 4 and len(data) == 4:
                wanted += struct.unpack(">i", data)[0]
        return data[4:]

    def ask(self, message: Any, version: int) -> Any:
        """The response, None where the connection was closed."""
        key = KEYS[type(message)]
        self.send(encode_request(key, version, 7, "by hand", message))
        data = self.frame()
        return decode_response(key, version, data)[1] if data else None


def plain(password: str) -> bytes:
    return f"\0ann\0{password}".encode()


def test_a_session_that_is_over_is_closed(served: Served) -> None:
    with Wire(served) as wire:
        assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=plain(PASSWORD)), 2)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, REAUTH_MS)
        assert wire.ask(MetadataRequest(topics=[]), 9) is not None
        deadline = time.monotonic() + 60
        while wire.ask(MetadataRequest(topics=[]), 9) is not None:
            assert time.monotonic() < deadline
            time.sleep(PAUSE_S)


def test_tokens_without_headers(served: Served) -> None:
    with Wire(served) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        token = plain(PASSWORD)
        wire.send(struct.pack(">i", len(token)) + token)
        assert wire.frame() == b""
        assert wire.ask(MetadataRequest(topics=[]), 9) is not None


def test_without_headers_and_with_another_password(served: Served) -> None:
    with Wire(served) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        token = plain("wrong")
        wire.send(struct.pack(">i", len(token)) + token)
        assert wire.frame() == b""
        assert wire.socket.recv(1) == b""


def test_unknown_mechanism_gets_the_supported_ones(served: Served) -> None:
    with Wire(served) as wire:
        answer = wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == 33
        assert answer.mechanisms == ["PLAIN", *SCRAM, "OAUTHBEARER"]
        assert wire.frame() == b""


HOSTILE = {
    "another request": encode_request(3, 9, 1, "x", MetadataRequest(topics=[])),
    "a token without a handshake": encode_request(36, 2, 1, "x", SaslAuthenticateRequest(auth_bytes=plain(PASSWORD))),
    "a large request": struct.pack(">i", 512 * 1024 + 1),
    "a huge request": struct.pack(">i", 2**31 - 1),
    "a negative one": struct.pack(">i", -1),
    "no header": struct.pack(">i", 3) + b"abc",
    "an unknown request": struct.pack(">ihhih", 10, 9999, 0, 1, -1),
    "a version that is not there": struct.pack(">ihhih", 10, 17, 9, 1, -1),
    "a handshake that ends early": struct.pack(">ihhihh", 12, 17, 1, 1, -1, 500),
    "many tags": struct.pack(">ihhih", 15, 36, 2, 1, -1) + b"\xff\xff\xff\xff\x07",
    "a ticket of Kerberos": struct.pack(">i", 60) + b"\x60" * 60,
}


@pytest.mark.promise("S4")
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_comes_before_authentication(served: Served, name: str) -> None:
    with Wire(served) as wire:
        wire.send(HOSTILE[name])
        assert wire.frame() == b""
    with Wire(served) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        if name != "a token without a handshake":
            wire.send(HOSTILE[name])
            assert wire.frame() == b""


@pytest.mark.promise("S4")
def test_a_crowd_that_guesses_is_late_and_others_are_served(served: Served) -> None:
    with Wire(served) as patient:
        crowd = [Wire(served) for _ in range(100)]
        for wire in crowd:
            wire.send(
                encode_request(17, 1, 1, "x", SaslHandshakeRequest(mechanism="PLAIN"))
                + encode_request(36, 2, 2, "x", SaslAuthenticateRequest(auth_bytes=plain("guess")))
                + encode_request(36, 2, 3, "x", SaslAuthenticateRequest(auth_bytes=plain(PASSWORD)))
            )
        assert patient.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert patient.ask(SaslAuthenticateRequest(auth_bytes=plain(PASSWORD)), 2).error_code == 0
        for wire in crowd:
            with wire:
                assert wire.frame()
                refused = decode_response(36, 2, wire.frame())[1]
                assert refused.error_code == 58
                assert wire.frame() == b"", "one guess a connection"


def test_nothing_secret_is_found_anywhere(served: Served) -> None:
    """No secret in any broker output of all tests above; the module's last test."""
    with Cluster(served.broker.bootstrap_servers, client_id="test", timeout_s=30) as cluster:
        entries = cluster.configs.describe(ResourceType.BROKER, str(served.broker.ready["node_id"]), None)
    assert PASSWORD not in repr(entries)
    assert PASSWORD not in served.broker.logs()
    found = [
        path
        for path in (served.directory / "data").rglob("*")
        if path.is_file() and (PASSWORD.encode() in path.read_bytes() or b"eyJ" in path.read_bytes())
    ]
    assert found == []
    assert "eyJ" not in served.broker.logs()
