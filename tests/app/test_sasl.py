"""SASL of listeners from settings: missing settings are reported at startup, in one message without secrets."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.sasl import SaslOfListeners, read_key_set
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.platform.clock import Clock
from ottla.common.platform.endpoint import ListenerInfo
from ottla.common.platform.runtime import NodeRuntime

from .logins import begun, no_waiters

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = "listener.name.x.plain.sasl.jaas.config"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
KERBEROS_JAAS = "listener.name.x.gssapi.sasl.jaas.config"
KEYTAB = f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="/not/there" principal="kafka/h@R";'
LISTENER = {"listeners": "X://h:1", "listener.security.protocol.map": "X:SASL_PLAINTEXT"}
PLAIN = {"sasl.enabled.mechanisms": "PLAIN"}
TOKENS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.issuer": "me",
    "sasl.oauthbearer.expected.audience": "us",
}


class Idle:
    """A loop and a pool that do nothing."""

    def __init__(self) -> None:
        self.timers: list[float] = []

    def call_later(self, delay: float, *_: object) -> Idle:
        self.timers.append(delay)
        return self

    def call_soon(self, *_: object) -> Idle:
        return self

    def submit(self, *_: object) -> None:
        raise AssertionError("nothing is due")

    def cancel(self) -> None:
        raise AssertionError("nothing ends")


def made(**settings: str) -> SaslOfListeners:
    config, _ = BrokerConfig.parse(LISTENER | settings)
    clock: Clock = SystemClock()
    runtime = NodeRuntime(RealDisk(), clock, SystemRng(), Idle(), Idle())
    return SaslOfListeners(config, runtime, lambda *_: None, lambda _: None, bytes, no_waiters)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    row = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True)
    path.write_text(json.dumps({"keys": [row]}))
    return path


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, f"GSSAPI needs {KERBEROS_JAAS}"),
        ({}, "(or sasl.enabled.mechanisms of listener X, where GSSAPI is the default, to some of PLAIN"),
        (
            {KERBEROS_JAAS: f"{KERBEROS_MODULE} required storeKey=true;"},
            f"{KERBEROS_JAAS} lacks options of the service keys",
        ),
        ({KERBEROS_JAAS: f'{KERBEROS_MODULE} required useKeyTab=true keyTab="/k";'}, "principal="),
        ({KERBEROS_JAAS: f'{PLAIN_MODULE} required user_a="secret";'}, f"{KERBEROS_JAAS} has the wrong login module"),
        ({KERBEROS_JAAS: KEYTAB, "sasl.kerberos.service.name": "other"}, "sasl.kerberos.service.name is other"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms of listener X is empty"),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"}, "DIGEST-MD5"),
        (PLAIN, f"PLAIN needs {JAAS}"),
        (PLAIN | {JAAS: "secret"}, f"{JAAS} is not a login module"),
        (PLAIN | {JAAS: 'a.B required user_a="secret";'}, f"{JAAS} has the wrong login module"),
        (PLAIN | {JAAS: f'{PLAIN_MODULE} required username="secret";'}, f"{JAAS} has no users"),
        (TOKENS, "sasl.oauthbearer.jwks.endpoint.url"),
        (TOKENS | {"sasl.oauthbearer.jwks.endpoint.url": "http://h/secret"}, "must start with file: or https:"),
        (TOKENS | {"sasl.oauthbearer.jwks.endpoint.url": "file:///not/there"}, "can't be read"),
    ],
)
def test_missing_settings_are_reported(settings: dict[str, str], words: str) -> None:
    with pytest.raises(OperatorError) as caught:
        made(**settings)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_kerberos_needs_its_library_and_a_keytab() -> None:
    with pytest.raises(OperatorError) as caught:
        made(**{KERBEROS_JAAS: KEYTAB})
    missing = "pip install 'ottla[gssapi]'" if find_spec("gssapi") is None else "the keytab /not/there has no keys of"
    assert missing in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.expected.audience"])
def test_missing_issuer_or_audience_fails_startup(keys: Path, missing: str) -> None:
    settings = TOKENS | {"sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}
    made(**settings)
    with pytest.raises(OperatorError, match=missing):
        made(**{key: text for key, text in settings.items() if key != missing})


def test_a_set_of_keys_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(1024 * 1024 + 1))
    with pytest.raises(OperatorError, match="larger than 1048576 bytes"):
        read_key_set(path.as_uri())


def test_a_mechanism_has_settings_of_its_own() -> None:
    config, _ = BrokerConfig.parse(
        LISTENER
        | {
            "connections.max.reauth.ms": "1",
            "listener.name.X.connections.max.reauth.ms": "2",
            "listener.name.x.plain.connections.max.reauth.ms": "3",
            JAAS: "kept-away",
        }
    )
    name = "connections.max.reauth.ms"
    found = [config.of_listener("X", name, "PLAIN"), config.of_listener("X", name, "SCRAM-SHA-256")]
    assert [*found, config.of_listener("Y", name)] == [3, 2, 1]
    assert "kept-away" not in repr(config.describe())


def test_nodes_show_the_token_that_stands_in_a_file_now(tmp_path: Path) -> None:
    path, listener = tmp_path / "a token", ListenerInfo("X", "SASL_PLAINTEXT")
    url = "listener.name.x.oauthbearer.sasl.oauthbearer.token.endpoint.url"

    def login(**settings: str) -> Any:
        users = f'{PLAIN_MODULE} required user_n="p";'
        by_token = {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
        return made(**PLAIN, **{JAAS: users}, **by_token, **settings).login(
            listener, "sasl.mechanism.inter.broker.protocol"
        )

    for settings, words in (
        ({}, "file: URL"),
        ({url: "http://x/y"}, "https: URL of its issuer"),
        ({url: "https://x/y"}, "client.credentials.client.id"),
        ({url: path.as_uri()}, "can't be read"),
    ):
        with pytest.raises(OperatorError, match=words):
            login(**settings)
    path.write_text("first\n")
    found = login(**{url: path.as_uri()})
    assert begun(found).first() == b"n,,\x01auth=Bearer first\x01\x01"
    path.write_text("sec\x01ond")
    with pytest.raises(ConnectionError, match="does not contain a token") as refused:
        begun(found)
    assert "ond" not in str(refused.value)
    path.write_text("third")
    assert b"third" in begun(found).first()


@pytest.mark.parametrize("mechanism", ["GSSAPI", ""])
def test_nodes_speak_by_a_password(mechanism: str) -> None:
    users = f'{PLAIN_MODULE} required username="n" password="p" user_n="p";'
    sasl = made(**PLAIN, **{JAAS: users, "sasl.mechanism.inter.broker.protocol": mechanism})
    listener = ListenerInfo("X", "SASL_PLAINTEXT")
    with pytest.raises(OperatorError, match=r"sasl\.mechanism\.inter\.broker\.protocol"):
        sasl.login(listener, "sasl.mechanism.inter.broker.protocol")
    sasl = made(**PLAIN, **{JAAS: users, "sasl.mechanism.inter.broker.protocol": "PLAIN"})
    login = sasl.login(listener, "sasl.mechanism.inter.broker.protocol")
    assert login is not None
    assert begun(login).first() == b"\0n\0p"
    assert sasl.login(ListenerInfo("Y", "PLAINTEXT"), "sasl.mechanism.inter.broker.protocol") is None
    with pytest.raises(OperatorError, match="has no username and password"):
        made(
            **PLAIN, **{JAAS: f'{PLAIN_MODULE} required user_n="p";', "sasl.mechanism.controller.protocol": "PLAIN"}
        ).login(listener, "sasl.mechanism.controller.protocol")
