"""franz-go, kafkajs and aiokafka over TLS, with certificates and each SASL mechanism, across session expiry.

Each family uses all its login methods at once: it produces to a topic of its user, and its group reads the records,
across session expiry. Another topic and another group are refused with Kafka's errors, and so are wrong credentials.
(librdkafka does this in tests/clients/test_sasl.py, Java in java/test_security.py.)
"""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from aiokafka.protocol.metadata import MetadataRequest
from secured_broker import (
    CLOSED,
    MUTUAL_TLS,
    OAUTHBEARER,
    PLAIN,
    REAUTH_MS,
    SCRAM_256,
    SCRAM_512,
    TLS,
    TOKEN,
    USERS,
    Login,
    SecuredBroker,
)

pytestmark = pytest.mark.timeout(900)  # the first test builds the program, which is slow on a loaded machine

TIMEOUT_S = 90.0
LASTING_MS = REAUTH_MS + 1_000
PAUSE_S = 0.005
WAYS = (TLS, MUTUAL_TLS, PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)
FAMILIES = ("franz-go", "kafkajs", "aiokafka")
WAYS_OF = {family: (*WAYS, TOKEN) if family == "franz-go" else WAYS for family in FAMILIES}
"""The other families do not support `tokenauth`."""
AGAIN = "kafka_server_socket_server_metrics_successful_reauthentication_total"
EXPIRED = "ottla_network_expired_sessions_closed_total"


def trial(broker: SecuredBroker, family: str, way: str) -> dict[str, Any]:
    """Returns the instructions for a client, as the programs of Go and Node.js read them."""
    user = USERS[way]
    return {
        "right": asdict(broker.right(way)),
        "wrong": asdict(broker.wrong(way)),
        "topic": f"{user}-{family}-{way.replace(' ', '-')}",
        "group": f"{user}-{family}-{way.replace(' ', '-')}",
        "closed": CLOSED,
        "millis": LASTING_MS if broker.right(way).mechanism else 0,
    }


def by_program(command: Callable[[str, dict[str, Any]], list[str]], cwd: Path | None = None) -> Any:
    """A family with a client process: the trial is its input, and the result is its output line."""

    def run(servers: str, asked: dict[str, Any]) -> dict[str, Any]:
        ended = subprocess.run(
            command(servers, asked),
            cwd=cwd,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return json.loads(ended.stdout) if ended.returncode == 0 else {"failed": ended.stdout + ended.stderr}

    return run


class Token(AbstractTokenProvider):
    """OAUTHBEARER token provider for aiokafka."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def entering(servers: str, login: Login) -> dict[str, Any]:
    """Returns aiokafka's connection settings."""
    keys = {"certfile": login.certificate} if login.certificate else {}
    settings = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_SSL" if login.mechanism else "SSL",
        "ssl_context": create_ssl_context(cafile=login.authority, **keys),
    }
    if not login.mechanism:
        return settings
    settings["sasl_mechanism"] = login.mechanism
    if login.mechanism == OAUTHBEARER:
        return {**settings, "sasl_oauth_token_provider": Token(login.secret)}
    return {**settings, "sasl_plain_username": login.name, "sasl_plain_password": login.secret}


async def aiokafka_reads(servers: str, asked: dict[str, Any], stack: AsyncExitStack) -> tuple[Any, list[str]]:
    """Returns an authenticated producer, and the records that its group read."""
    settings = entering(servers, Login(**asked["right"]))
    producer = await stack.enter_async_context(AIOKafkaProducer(acks="all", **settings))
    await producer.send_and_wait(asked["topic"], b"0", partition=0)
    consumer = AIOKafkaConsumer(
        asked["topic"], group_id=asked["group"], auto_offset_reset="earliest", fetch_max_wait_ms=50, **settings
    )
    await stack.enter_async_context(consumer)
    read = [(await consumer.getone()).value.decode()]
    until = time.monotonic() + asked["millis"] / 1000
    while time.monotonic() < until:
        await producer.send_and_wait(asked["topic"], str(len(read)).encode(), partition=0)
        read.append((await consumer.getone()).value.decode())
        await asyncio.sleep(PAUSE_S)
    await consumer.commit()
    return producer, read


async def refusal(call: Any) -> str | None:
    """Returns aiokafka's name of the error."""
    try:
        await call
    except (KafkaError, OSError) as error:
        return type(error).__name__
    return None


async def knock(host: str, port: int, settings: dict[str, Any]) -> None:
    """Open one connection and send one request: a producer would retry for a long time and report no reason."""
    settings.pop("bootstrap_servers")
    connection = await create_conn(host, port, **settings)
    try:
        await connection.send(MetadataRequest([]))
    finally:
        connection.close()


async def by_aiokafka(servers: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Runs the trial as a coroutine."""
    async with AsyncExitStack() as stack:
        producer, read = await aiokafka_reads(servers, asked, stack)
        admin = AIOKafkaAdminClient(**entering(servers, Login(**asked["right"])))
        await admin.start()
        stack.push_async_callback(admin.close)
        host, _, port = servers.rpartition(":")
        return {
            "read": read,
            "topic": await refusal(producer.send_and_wait(CLOSED, b"x", partition=0)),
            "group": await refusal(admin.list_consumer_group_offsets(CLOSED)),
            "wrong": await refusal(knock(host, int(port), entering(servers, Login(**asked["wrong"])))),
        }


def run_aiokafka(servers: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Runs the trial on a new event loop."""
    return asyncio.run(asyncio.wait_for(by_aiokafka(servers, asked), TIMEOUT_S))


TOPIC, GROUP = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
REFUSALS = {
    "franz-go": (TOPIC, GROUP),
    "kafkajs": (TOPIC, "Failed to find group coordinator"),
    "aiokafka": ("TopicAuthorizationFailedError", "GroupAuthorizationFailedError"),
}
"""Each family's names of the errors for another topic and another group."""

STRANGERS = {
    ("franz-go", TLS): "certificate signed by unknown authority",
    ("franz-go", MUTUAL_TLS): "tls: unknown certificate authority",
    ("franz-go", OAUTHBEARER): "unexpected data in oauth response",  # the defect of the token
    "franz-go": "SASL_AUTHENTICATION_FAILED",
    ("kafkajs", TLS): "self-signed certificate in certificate chain",
    ("kafkajs", MUTUAL_TLS): "alert unknown ca",
    ("kafkajs", OAUTHBEARER): "Closed connection",
    "kafkajs": "Authentication failed during authentication due to invalid credentials",
    ("aiokafka", TLS): "SSLCertVerificationError",
    ("aiokafka", MUTUAL_TLS): "KafkaConnectionError",
    ("aiokafka", OAUTHBEARER): "KafkaConnectionError",
    "aiokafka": "SaslAuthenticationFailed",
}
"""Part of the message for a failed login. kafkajs and aiokafka do not read the reason for a refused token: they
continue, and Ottla closes the connection as Apache Kafka does.
"""


class Family:
    """Results of the trials of one family, with all login methods at once."""

    def __init__(self, broker: SecuredBroker, name: str, run: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        asked = {way: trial(broker, name, way) for way in WAYS_OF[name]}
        broker.topics([each["topic"] for each in asked.values()])
        before = {counter: broker.counter(counter) for counter in (AGAIN, EXPIRED)}
        with ThreadPoolExecutor(len(asked)) as pool:
            running = {way: pool.submit(run, broker.servers(way), asked[way]) for way in asked}
        self.came = {way: each.result() for way, each in running.items()}
        self.counted = {counter: broker.counter(counter) - number for counter, number in before.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="module")
def families(request: pytest.FixtureRequest, secured: SecuredBroker) -> Callable[[str], Family]:
    """Runs the trials of each family once, on first use."""

    def run_of(name: str) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
        if name == "aiokafka":
            return run_aiokafka
        if name == "kafkajs":
            home = request.getfixturevalue("kafkajs")
            return by_program(lambda servers, asked: ["node", "client.mjs", "secured", servers, asked["topic"]], home)
        program = request.getfixturevalue("go_build")
        if isinstance(program, str):
            pytest.skip(program)
        return by_program(lambda servers, _: [str(program), "franz-secured", servers])

    return functools.cache(lambda name: Family(secured, name, run_of(name)))


CASES = [(family, way) for family in FAMILIES for way in WAYS_OF[family]]


@pytest.mark.parametrize(("family", "way"), CASES)
def test_authenticated_client_is_limited_by_acls(families: Callable[[str], Family], family: str, way: str) -> None:
    came = families(family).came[way]
    assert "failed" not in came, came["failed"]
    assert came["read"] == list(map(str, range(len(came["read"]))))
    assert (came["topic"], came["group"]) == REFUSALS[family]


@pytest.mark.parametrize(("family", "way"), CASES)
def test_wrong_credentials_are_refused(families: Callable[[str], Family], family: str, way: str) -> None:
    refusal_text = families(family).came[way]["wrong"]
    assert STRANGERS.get((family, way), STRANGERS.get(family)) in refusal_text


@pytest.mark.parametrize("family", FAMILIES)
def test_sessions_expired_during_the_trials(families: Callable[[str], Family], family: str) -> None:
    """Clients that reauthenticate do so; aiokafka reconnects instead and loses no record either."""
    asking = [way for way in WAYS_OF[family] if way not in (TLS, MUTUAL_TLS)]
    counter = EXPIRED if family == "aiokafka" else AGAIN
    assert families(family).counted[counter] >= len(asking)


def test_nothing_secret_is_in_the_log(secured: SecuredBroker) -> None:
    """The module's last test, so that the log covers all the others."""
    logs = secured.logs()
    assert [secret for secret in secured.secrets() if secret in logs] == []
