"""The console in this process at a broker with SASL and ACLs: `admin` may do everything, `reader` may look."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import ClientSecurity
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.console.application import create_application
from ottla.console.context import Services
from ottla.console.routes import ROUTES
from ottla.console.sessions import SessionStore
from ottla.console.settings import ConsoleSettings, read_transport
from ottla.console.sign_in import SignInThrottle, credentials
from ottla.security.sasl.jaas import PLAIN_MODULE
from ottla.testing import Broker

from ..console.browsing import Browser, CountingRng
from .browser import open_chromium

PASSWORDS = {"admin": "admin-password", "reader": "reader-password"}
TRANSPORT = read_transport({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "the test")
_USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
CONFIGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required "
    f'username="admin" password="{PASSWORDS["admin"]}" {_USERS};',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
}


class Clock:
    """The real clock."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    with Broker(configs=CONFIGS) as broker:
        yield broker.bootstrap_servers


def security_of(name: str) -> ClientSecurity:
    return credentials(TRANSPORT, "PLAIN", name, PASSWORDS[name])


@pytest.fixture(scope="session")
def admin(servers: str) -> Iterator[Cluster]:
    """A client that may do everything; `reader` may describe and read topics and groups."""
    with Cluster(servers, security=security_of("admin")) as cluster:
        allowed = [
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.TOPIC, AclOperation.DESCRIBE_CONFIGS),
            (ResourceType.GROUP, AclOperation.DESCRIBE),
            (ResourceType.CLUSTER, AclOperation.DESCRIBE),
            (ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE),
        ]
        cluster.acls.create(
            [
                Acl(
                    kind,
                    "kafka-cluster" if kind is ResourceType.CLUSTER else "*",
                    PatternType.LITERAL,
                    "User:reader",
                    "*",
                    operation,
                    Permission.ALLOW,
                )
                for kind, operation in allowed
            ]
        )
        yield cluster


SignIn = Callable[[str], Browser]


@pytest.fixture(scope="session")
def sign_in(servers: str, admin: Cluster) -> Iterator[SignIn]:
    """A browser of a user, which is signed in."""
    clock = Clock()
    settings = ConsoleSettings(servers, TRANSPORT)
    sessions = SessionStore(clock, CountingRng())

    def open_cluster(security: ClientSecurity) -> Cluster:
        return Cluster(servers, client_id="console-test", security=security)

    services = Services(settings, sessions, SignInThrottle(clock), clock, open_cluster)
    app = create_application(services, ROUTES)

    def start(name: str) -> Browser:
        browser = Browser(app, services)
        assert browser.sign_in(name, PASSWORDS[name]).status == 303
        return browser

    yield start
    sessions.end_all()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with open_chromium() as driver:
        yield driver
