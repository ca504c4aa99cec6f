"""The console in this process at a broker with SASL and ACLs: `admin` may do everything, `reader` may look.

`watcher` may describe topics and groups, and read no record; `guest` has no permission.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.views.pushed_metrics import MetricsSource
from ottla.client.wire.security import ClientSecurity
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.common.platform.clock import Clock
from ottla.console.application import create_application
from ottla.console.client_scrapes import ClientScrapes
from ottla.console.context import Services
from ottla.console.flow_meter import FlowMeter
from ottla.console.routes import ROUTES
from ottla.console.sessions import SessionStore
from ottla.console.settings import ConsoleSettings, read_transport
from ottla.console.sign_in import SignInThrottle, credentials
from ottla.console.tables import TableIndex
from ottla.security.sasl.jaas import PLAIN_MODULE
from ottla.testing import Broker

from ..console.browsing import Browser, CountingRng
from ..console.metrics_server import MetricsServer, serving
from .browser import open_chromium

PASSWORDS = {name: f"{name}-password" for name in ("admin", "reader", "watcher", "guest")}
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


class WallClock:
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
    """A client that may do everything; it gives the others their rights."""
    with Cluster(servers, security=security_of("admin")) as cluster:
        allowed = [
            ("reader", ResourceType.TOPIC, AclOperation.READ),
            ("reader", ResourceType.TOPIC, AclOperation.DESCRIBE_CONFIGS),
            ("reader", ResourceType.GROUP, AclOperation.DESCRIBE),
            ("reader", ResourceType.CLUSTER, AclOperation.DESCRIBE),
            ("reader", ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE),
            ("watcher", ResourceType.TOPIC, AclOperation.DESCRIBE),
            ("watcher", ResourceType.GROUP, AclOperation.DESCRIBE),
        ]
        cluster.acls.create(
            [
                Acl(
                    kind,
                    "kafka-cluster" if kind is ResourceType.CLUSTER else "*",
                    PatternType.LITERAL,
                    f"User:{user}",
                    "*",
                    operation,
                    Permission.ALLOW,
                )
                for user, kind, operation in allowed
            ]
        )
        yield cluster


SignIn = Callable[[str], Browser]


@pytest.fixture(scope="session")
def metrics() -> Iterator[MetricsServer]:
    """The endpoint of the metrics that the console reads."""
    with serving() as server:
        yield server


@contextmanager
def consoles(
    servers: str,
    clock: Clock,
    timeout_s: float = 10.0,
    *,
    chosen: Mapping[str, Any] = MappingProxyType({}),
    **given: Any,
) -> Iterator[SignIn]:
    """Signs in users at a console of this cluster, with a time, settings and services of its own."""
    sessions = SessionStore(clock, CountingRng())

    def open_cluster(security: ClientSecurity) -> Cluster:
        return Cluster(servers, client_id="console-test", timeout_s=timeout_s, security=security)

    settings = ConsoleSettings(servers, TRANSPORT, **chosen)
    services = Services(
        settings,
        sessions,
        SignInThrottle(clock),
        clock,
        open_cluster,
        FlowMeter(),
        ClientScrapes(settings.metrics, clock),
        tables=None if settings.tables is None else TableIndex(settings.tables, clock),
        **given,
    )
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


@pytest.fixture(scope="session")
def open_console(servers: str, admin: Cluster, metrics: MetricsServer) -> Iterator[Callable[..., SignIn]]:
    """A console with these services; it returns browsers of users, which are signed in."""
    with ExitStack() as opened:
        chosen = {"metrics": (MetricsSource(metrics.url, "token"),)}
        yield lambda **given: opened.enter_context(consoles(servers, WallClock(), chosen=chosen, **given))


@pytest.fixture(scope="session")
def sign_in(open_console: Callable[..., SignIn]) -> SignIn:
    """A browser of a user, which is signed in."""
    return open_console()
