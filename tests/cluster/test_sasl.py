"""Three nodes that authenticate to each other: SCRAM to brokers, PLAIN to controllers, and one of them later with an
OAuth token; also delegation tokens."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator

import jwt
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from ottla.client.admin.cluster import Cluster
from ottla.client.admin.delegation_tokens import LEFT_TO_BROKER, Token, create_token, expire_token
from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.security.sasl.credentials import BY_NAME
from ottla.security.sasl.scram import ScramClient

from ..issuer import Answer, Issuer
from .nodes import ZOOKEEPER, Node, Nodes, eventually, of_the_quorum

PASSWORD = "secret-of-nodes-51c"
TOKEN_SECRET = "secret-of-tokens-08e"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISM = "SCRAM-SHA-512"
REAUTH_MS = 2_000
MOST_TOKENS = 100
TOKEN_LIFE_S = 5
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required username="node" '
    f'password="{PASSWORD}";',
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="node" password="{PASSWORD}" '
    f'user_node="{PASSWORD}";',
    "connections.max.reauth.ms": str(REAUTH_MS),
    "delegation.token.secret.key": TOKEN_SECRET,
    "metadata.max.delegation.tokens.per.owner": str(MOST_TOKENS),
}


def of_issuer(issuer: Issuer) -> dict[str, str]:
    """Settings of nodes for an issuer of their tokens."""
    key = rsa.generate_private_key(65537, 2048)

    def answer(request: Answer) -> tuple[int, dict[str, str], bytes]:
        if request.path == "/keys":
            return 200, {}, b'{"keys":[' + RSAAlgorithm.to_jwk(key.public_key()).encode() + b"]}"
        now = int(time.time())
        claims = {"sub": "node", "iss": "me", "aud": "us", "iat": now, "exp": now + TOKEN_LIFE_S}
        return 200, {}, json.dumps({"access_token": jwt.encode(claims, key, "RS256")}).encode()

    issuer.answer = answer
    prefix = "listener.name.controller.oauthbearer.sasl."
    return {
        f"{prefix}jaas.config": f'{OAUTH_MODULE} required ssl.truststore.location="{issuer.ca}";',
        f"{prefix}oauthbearer.jwks.endpoint.url": f"{issuer.url}/keys",
        f"{prefix}oauthbearer.token.endpoint.url": f"{issuer.url}/token",
        f"{prefix}oauthbearer.client.credentials.client.id": "node",
        f"{prefix}oauthbearer.client.credentials.client.secret": PASSWORD,
        f"{prefix}oauthbearer.expected.issuer": "me",
        f"{prefix}oauthbearer.expected.audience": "us",
    }


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with Issuer(tmp_path_factory.mktemp("issuer")) as running:
        yield running


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[Nodes]:
    user = f"SCRAM-SHA-512=[name=node,password={PASSWORD}]"
    settings = SETTINGS | of_issuer(issuer)
    running = Nodes(tmp_path_factory.mktemp("sasl"), settings=settings, first=("--add-scram", user))
    try:
        running.start()
        yield running
    finally:
        running.close()


def granted(issuer: Issuer) -> int:
    """Return the number of issued tokens."""
    return sum(path == "/token" for path, _, _ in issuer.asked)


def test_nodes_authenticate_each_other(nodes: Nodes, issuer: Issuer) -> None:
    client = {
        "bootstrap.servers": nodes.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "node",
        "sasl.password": PASSWORD,
    }
    admin = AdminClient(client)
    topic = NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})
    eventually(lambda: len(admin.list_topics(timeout=10).brokers) == 3, "three brokers")
    admin.create_topics([topic])["t"].result(30)
    producer = Producer({**client, "acks": "all"})
    errors: list[object] = []

    def produce() -> bool:
        """All three replicas have it."""
        for partition in range(3):
            producer.produce("t", b"v", partition=partition, on_delivery=lambda error, _: errors.append(error))
        return producer.flush(60) == 0

    # Beyond the expiry of several sessions, also between nodes.
    until = time.monotonic() + 2 * REAUTH_MS / 1000
    while time.monotonic() < until:
        assert produce()
    nodes[2].kill()
    if ZOOKEEPER:
        nodes[2].start()
        assert produce()
    else:
        come_in_by_token(nodes[2], issuer, produce)
    assert set(errors) == {None}
    assert all(PASSWORD not in node.log_text() for node in nodes.nodes)


def come_in_by_token(node: Node, issuer: Issuer, produce: Callable[[], bool]) -> None:
    """Authenticate with a token at the controllers, which have a listener of their own."""
    assert granted(issuer) == 0
    with node.config.open("a") as config:
        config.write("sasl.mechanism.controller.protocol=OAUTHBEARER\n")
    node.start()
    begun = granted(issuer)
    assert begun
    assert produce()
    eventually(lambda: granted(issuer) > begun, "a token is renewed before it ends")
    assert produce()


def entering(name: str, secret: str, *, by_token: bool = False) -> ClientSecurity:
    """Return the security settings of a SCRAM client."""
    return ClientSecurity(login=lambda _: ScramClient(BY_NAME[MECHANISM], name, secret, os.urandom, by_token=by_token))


def made_on(node: Node) -> Token:
    """Create a token through this broker, whichever node is the controller."""
    with Cluster(node.address, security=entering("node", PASSWORD)) as cluster:
        return cluster._router.retry(lambda: create_token(cluster._router.any_connection(), None, (), LEFT_TO_BROKER))


def end_on(node: Node, token: Token) -> None:
    """Expire it through this broker in a millisecond, so that it remains known but is invalid."""
    with Cluster(node.address, security=entering("node", PASSWORD)) as cluster:
        cluster._router.retry(lambda: expire_token(cluster._router.any_connection(), token, 1))


def served(cluster: Cluster) -> bool:
    """Return whether the client is authenticated."""
    try:
        cluster.topics.all()
    except OperatorError as error:
        if "rejected the login" not in str(error):
            raise
        return False
    return True


def lets_in(node: Node, token: Token) -> bool:
    """Return whether this broker accepts the token."""
    with Cluster(node.address, security=entering(token.token_id, token.hmac, by_token=True)) as cluster:
        return served(cluster)


def test_token_is_valid_on_all_brokers_until_expiry(nodes: Nodes) -> None:
    tokens = [made_on(node) for node in nodes.nodes]
    over = made_on(nodes[1])
    for node in nodes.nodes:
        for token in (*tokens, over):
            eventually(lambda: lets_in(node, token), f"node {node.node_id} knows a token")  # noqa: B023
    with Cluster(nodes[3].address, security=entering(over.token_id, over.hmac, by_token=True)) as cluster:
        assert served(cluster)
        end_on(nodes[2], over)
        for node in nodes.nodes:
            eventually(lambda: not lets_in(node, over), f"node {node.node_id} knows that a token is over")  # noqa: B023
        eventually(lambda: not served(cluster), "the session that it opened is over too")
    for node in nodes.nodes:
        node.kill()
    nodes.start()
    for node in nodes.nodes:
        for token in tokens:
            eventually(lambda: lets_in(node, token), f"node {node.node_id} knows a token again")  # noqa: B023
        assert not lets_in(node, over)


def flooded(node: Node, name: str) -> tuple[int, list[ErrorCode]]:
    """Create tokens as `name` with the longest lists of renewers until one is refused; their number and the errors."""
    created, refusals = 0, []
    with Cluster(node.address, security=entering(name, PASSWORD)) as cluster:
        for length in (32_000, 70):  # beyond the limit of renewers, and within it
            renewers = [f"User:{'r' * length}{number:02}" for number in range(100)]
            for _ in range(MOST_TOKENS + 1):
                try:
                    cluster.tokens.create(None, renewers, LEFT_TO_BROKER)
                    created += 1
                except KafkaError as error:
                    refusals.append(error.code)
                    break
    return created, refusals


def test_flood_of_tokens_ends_and_leaves_others_served(nodes: Nodes) -> None:
    with Cluster(nodes[1].address, security=entering("node", PASSWORD)) as cluster:
        eventually(lambda: served(cluster), "the nodes serve clients")
    admin = AdminClient(
        {
            "bootstrap.servers": nodes.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": "node",
            "sasl.password": PASSWORD,
        }
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("eve", info, PASSWORD.encode())
    for changed in admin.alter_user_scram_credentials([change]).values():
        changed.result(30)
    with Cluster(nodes[2].address, security=entering("eve", PASSWORD)) as cluster:
        eventually(lambda: served(cluster), "eve is a user")
    created, refusals = flooded(nodes[2], "eve")
    assert created == MOST_TOKENS
    assert refusals == [ErrorCode.POLICY_VIOLATION] * 2
    token = made_on(nodes[3])
    for node in nodes.nodes:
        node.kill()
    nodes.start()
    for node in nodes.nodes:
        eventually(lambda: lets_in(node, token), f"node {node.node_id} accepts a token again")  # noqa: B023


def offered_salt(node: Node, user: str) -> str:
    """Return the salt in the first SCRAM response to `user`."""
    offered: list[str] = []

    class Observed(ScramClient):
        def evaluate(self, challenge: bytes) -> bytes | None:
            offered.append(challenge.decode().split(",")[1])
            return super().evaluate(challenge)

    client = ClientSecurity(login=lambda _: Observed(BY_NAME[MECHANISM], user, "guess", os.urandom))
    with Cluster(node.address, security=client) as cluster:
        assert not served(cluster)
    return offered[0]


@of_the_quorum(reason="each broker has salts of its own")
def test_unknown_user_gets_one_salt_from_all_nodes_and_restarts(nodes: Nodes) -> None:
    salt = offered_salt(nodes[1], "unknown")
    assert salt != offered_salt(nodes[1], "unknown-too")
    assert {offered_salt(node, "unknown") for node in nodes.nodes} == {salt}
    nodes[2].kill()
    nodes[2].start()
    assert offered_salt(nodes[2], "unknown") == salt


def test_secrets_are_stored_nowhere(nodes: Nodes) -> None:
    """After all tests above; the module's last test."""
    for node in nodes.nodes:
        text = node.log_text()
        assert "rejected this node's authentication" not in text
        files = [path.read_bytes() for path in node.data_dir.rglob("*") if path.is_file()]
        for secret in (PASSWORD, TOKEN_SECRET):
            assert secret not in text
            assert not any(secret.encode() in content for content in files)
