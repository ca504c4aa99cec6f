"""Requests of a node to an issuer over https: trust, and behaviour while the issuer is unavailable."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from ottla.app.clock import SystemRng
from ottla.app.disk import RealDisk
from ottla.app.sasl import SaslOfListeners
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import ListenerInfo
from ottla.common.platform.runtime import NodeRuntime
from ottla.security.sasl.oauthbearer import OAuthBearerClient

from ..issuer import Answer, Issuer
from .logins import begun, no_waiters

SECRET = "s3cret"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OF_LISTENER = "listener.name.x.oauthbearer."
TOKEN_URL, KEYS_URL = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwks.endpoint.url"
LIFE_S = 100


class Now:
    def __init__(self) -> None:
        self.s = 1_800_000_000

    def time_ms(self) -> int:
        return self.s * 1000

    def monotonic(self) -> float:
        return float(self.s)


class Loop:
    """Timers that the test lets fire, and a pool that works at once."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Loop:
        self.timers.append((delay, callback, args))
        return self

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Loop:
        return self.call_later(0, callback, *args)

    def cancel(self) -> None:
        self.timers.clear()

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            result = work()
        except BaseException as error:
            done(None, error)
        else:
            done(result, None)

    def fire(self) -> float:
        """The one timer there is; when it was due."""
        ((delay, callback, args),) = self.timers
        self.timers.clear()
        callback(*args)
        return delay


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with Issuer(tmp_path_factory.mktemp("issuer")) as issuer:
        yield issuer


class Site:
    """A node of listener X."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.clock, self.loop = Now(), Loop()
        issuer.asked.clear()
        issuer.answer = self._grant
        self.number = 0

    def made(self, **settings: str) -> SaslOfListeners:
        listeners = {"listeners": "X://h:1", "listener.security.protocol.map": "X:SASL_PLAINTEXT"}
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        by_default = {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.x.plain.sasl.jaas.config": f'{plain} required user_n="p";',
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.login.refresh.window.jitter": "0",
            **self.trusting(),
        }
        config, _ = BrokerConfig.parse(listeners | by_default | settings)
        runtime = NodeRuntime(RealDisk(), self.clock, SystemRng(), self.loop, self.loop)
        return SaslOfListeners(config, runtime, lambda *_: None, lambda _: None, bytes, no_waiters)

    def trusting(self, options: str | None = None) -> dict[str, str]:
        options = f'ssl.truststore.location="{self.issuer.ca}"' if options is None else options
        return {f"{OF_LISTENER}sasl.jaas.config": f"{MODULE} required {options};"}

    def token(self, **settings: str) -> Callable[[], bytes]:
        """The login of the node."""
        settings = {
            TOKEN_URL: f"{self.issuer.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": "node",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            **settings,
        }
        sasl = self.made(**{name: text for name, text in settings.items() if text})
        login = sasl.login(ListenerInfo("X", "SASL_PLAINTEXT"), "sasl.mechanism.inter.broker.protocol")
        assert login is not None
        return lambda: begun(login).first()

    def jwt(self) -> str:
        """One that lives for `LIFE_S`."""
        self.number += 1
        claims = urlsafe_b64encode(json.dumps({"exp": self.clock.s + LIFE_S}).encode()).decode().rstrip("=")
        return f"{self.number}.{claims}.x"

    def _grant(self, request: Answer) -> tuple[int, dict[str, str], bytes]:
        right = "Basic " + b64encode(f"node:{SECRET}".encode()).decode()
        if request.headers.get("Authorization") != right:
            return 401, {}, b""
        return 200, {}, json.dumps({"access_token": self.jwt()}).encode()


@pytest.fixture
def site(running: Issuer) -> Site:
    return Site(running)


def test_a_node_asks_an_issuer_that_its_login_module_trusts(site: Site) -> None:
    assert site.token()().startswith(b"n,,\x01auth=Bearer 1.")
    inline = site.issuer.authority.pem.decode().replace("\n", "\\n")
    site.token(**site.trusting(f'ssl.truststore.certificates="{inline}"'), **{"sasl.oauthbearer.scope": "a b"})
    older = f'{site.trusting()[OF_LISTENER + "sasl.jaas.config"][:-1]} clientId="node" clientSecret="{SECRET}" scope=c;'
    nothing = {f"sasl.oauthbearer.client.credentials.client.{name}": "" for name in ("id", "secret")}
    site.token(**nothing, **{f"{OF_LISTENER}sasl.jaas.config": older})
    grant = b"grant_type=client_credentials"
    assert [body for _, _, body in site.issuer.asked] == [grant, grant + b"&scope=a+b", grant + b"&scope=c"]


@pytest.mark.parametrize(
    ("options", "settings", "words"),
    [
        ("", {}, f"listener.name.x.oauthbearer.{TOKEN_URL} can't be read: .*certificate verify failed"),
        ("ssl.truststore.location=/not/there", {}, "ssl.truststore.location /not/there can't be read"),
        ("ssl.enabled.protocols=SSLv3", {}, "SSLv3"),
        (None, {"sasl.oauthbearer.client.credentials.client.secret": ""}, "set .*client.id and .*client.secret"),
        (None, {"sasl.oauthbearer.client.credentials.client.id": "eve"}, "the issuer returned HTTP 401"),
        (None, {TOKEN_URL: "http://issuer.example.com/token"}, "https: URL of its issuer"),
        (None, {TOKEN_URL: "https://127.0.0.1:1/token"}, "can't be read: .*refused"),
    ],
)
def test_a_node_that_gets_no_token_does_not_start(
    site: Site, options: str | None, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(OperatorError, match=words) as refused:
        site.token(**site.trusting(options), **settings)
    assert SECRET not in str(refused.value)
    assert not site.loop.timers


def test_secret_is_not_sent_to_redirect_targets(site: Site) -> None:
    site.issuer.answer = lambda _: (302, {"Location": f"{site.issuer.url}/elsewhere"}, b"")
    with pytest.raises(OperatorError, match="the issuer returned HTTP 302"):
        site.token()
    assert [path for path, _, _ in site.issuer.asked] == ["/token"]


def test_token_is_renewed_early_and_used_while_issuer_is_down(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    say = site.token(**{"sasl.login.retry.backoff.ms": "1000", "sasl.login.retry.backoff.max.ms": "3000"})
    grant = site.issuer.answer
    site.clock.s += 80
    assert site.loop.fire() == 80
    assert b"Bearer 2." in say()
    site.issuer.answer = lambda _: (503, {}, b"")
    assert site.loop.fire() == 80
    assert [site.loop.fire() for _ in range(4)] == [1, 2, 3, 3]
    assert "the issuer returned HTTP 503" in caplog.text
    site.clock.s += 99
    assert b"Bearer 2." in say()
    site.clock.s += 1
    with pytest.raises(ConnectionError, match="has expired"):
        say()
    site.issuer.answer = grant
    site.loop.fire()
    assert b"Bearer 3." in say()
    site.issuer.answer = lambda _: (503, {}, b"")
    site.loop.fire()
    assert site.loop.fire() == 1, "the failure count is reset"
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("settings", "due_s"),
    [
        ({"window.factor": "0.5"}, 50),
        ({"min.period.seconds": "90", "buffer.seconds": "5"}, 90),
        ({"min.period.seconds": "10", "buffer.seconds": "40"}, 60),
        ({"min.period.seconds": "90", "buffer.seconds": "40"}, 80),
    ],
)
def test_when_a_token_is_renewed_is_a_setting(site: Site, settings: dict[str, str], due_s: float) -> None:
    site.token(**{f"sasl.login.refresh.{name}": text for name, text in settings.items()})
    assert site.loop.fire() == due_s


def test_a_token_that_is_over_is_none(site: Site) -> None:
    late = site.jwt()
    site.clock.s += LIFE_S
    site.issuer.answer = lambda _: (200, {}, json.dumps({"access_token": late}).encode())
    with pytest.raises(OperatorError, match="synchronize the clocks"):
        site.token()


KEYS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.issuer": "me",
    "sasl.oauthbearer.expected.audience": "us",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000",
}


@cache
def key(_: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def keys_of(key_id: str) -> bytes:
    row = RSAAlgorithm.to_jwk(key(key_id).public_key(), as_dict=True)
    return json.dumps({"keys": [{**row, "kid": key_id}]}).encode()


@pytest.fixture(scope="module")
def key_set() -> bytes:
    return keys_of("old")


def test_key_set_server_must_be_trusted_by_login_module(site: Site, key_set: bytes) -> None:
    url = {KEYS_URL: f"{site.issuer.url}/keys"}
    site.issuer.answer = lambda request: (
        (302, {"Location": f"{site.issuer.url}/moved"}, b"") if request.path == "/keys" else (200, {}, key_set)
    )
    site.made(**KEYS, **url)
    assert [path for path, _, _ in site.issuer.asked] == ["/keys", "/moved"]
    with pytest.raises(OperatorError, match=f"{KEYS_URL} can't be read: .*certificate verify failed"):
        site.made(**KEYS, **url, **site.trusting(""))
    plain = f"http://127.0.0.1:{site.issuer.server_port}/keys"
    site.issuer.answer = lambda _: (302, {"Location": plain}, b"")
    with pytest.raises(OperatorError, match="the issuer returned HTTP 302"):
        site.made(**KEYS, **url)
    site.issuer.answer = lambda _: (200, {}, bytes(1024 * 1024 + 1))
    with pytest.raises(OperatorError, match="larger than 1048576 bytes"):
        site.made(**KEYS, **url)


def test_the_handlers_that_apache_kafka_needs_named_are_taken(site: Site, key_set: bytes) -> None:
    site.issuer.answer = lambda _: (200, {}, key_set)
    package = MODULE.rpartition(".")[0]
    handlers = {
        f"{OF_LISTENER}sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        f"{OF_LISTENER}sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
    }
    url = {KEYS_URL: f"{site.issuer.url}/keys"}
    site.made(**KEYS, **url, **handlers)
    for name in handlers:
        with pytest.raises(OperatorError, match="security feature that is not implemented"):
            site.made(**KEYS, **url, **{name: "com.example.Handler"})


def test_keys_are_read_again_soon_where_that_failed(
    site: Site, key_set: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    site.issuer.answer = lambda _: (200, {}, key_set)
    site.made(**KEYS, **{KEYS_URL: f"{site.issuer.url}/keys"})
    assert site.loop.fire() == 60
    site.issuer.answer = lambda _: (200, {}, b"no keys")
    assert [site.loop.fire() for _ in range(4)] == [60, 0.1, 0.2, 0.4]
    assert "is not a key set" in caplog.text
    site.issuer.answer = lambda _: (200, {}, key_set)
    assert [site.loop.fire() for _ in range(2)] == [0.8, 60]


def test_unknown_signing_key_refreshes_key_set_once_a_minute(site: Site, key_set: bytes) -> None:
    site.issuer.answer = lambda _: (200, {}, key_set)
    sasl = site.made(**KEYS, **{KEYS_URL: f"{site.issuer.url}/keys"})

    def comes_in(key_id: str) -> bool:
        claims = {"iss": "me", "aud": "us", "sub": "ann", "exp": site.clock.s + LIFE_S}
        token = jwt.encode(claims, key(key_id), "RS256", {"kid": key_id})
        exchange = sasl._offers["X"]["OAUTHBEARER"].begin()
        exchange.evaluate(OAuthBearerClient(token).first())
        return exchange.complete

    assert comes_in("old")
    site.issuer.answer = lambda _: (200, {}, keys_of("new"))
    site.clock.s += 59
    assert not comes_in("new")
    assert len(site.issuer.asked) == 1, "they were read less than a minute ago"
    site.clock.s += 1
    assert not comes_in("new"), "the keys are read behind it"
    assert comes_in("new")
    assert not comes_in("old")
    assert len(site.issuer.asked) == 2
    assert site.loop.fire() == 60


def test_login_module_of_other_mechanism_is_ignored(site: Site, key_set: bytes) -> None:
    site.issuer.answer = lambda _: (200, {}, key_set)
    scram = (
        f'org.apache.kafka.common.security.scram.ScramLoginModule required ssl.truststore.location="{site.issuer.ca}";'
    )
    with pytest.raises(OperatorError, match="certificate verify failed"):
        site.made(**KEYS, **{KEYS_URL: f"{site.issuer.url}/keys", f"{OF_LISTENER}sasl.jaas.config": scram})
