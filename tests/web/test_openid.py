"""Sign-in without a password at a real broker: tokens of an issuer, and delegation tokens.

The broker checks each token with the keys of the issuer. So the requests of a page are those of the user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import ClientSecurity
from ottla.common.config.properties import format_properties
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.console.application import create_application
from ottla.console.client_scrapes import ClientScrapes
from ottla.console.context import Services
from ottla.console.flow_meter import FlowMeter
from ottla.console.openid import OpenIdProvider
from ottla.console.routes import ROUTES
from ottla.console.sessions import SessionStore
from ottla.console.settings import ConsoleSettings, Transport, read_transport
from ottla.console.sign_in import SignInThrottle, credentials
from ottla.testing import Broker

from ..console.browsing import Browser, CountingRng
from ..issuer import Issuer
from ..openid_issuer import AUDIENCE, OpenIdIssuer, key_set
from .browser import needs_chromium, until
from .conftest import CONFIGS, WallClock, security_of
from .process import console

SCRAM = read_transport({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}, "the test")
WAIT_S = 60


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Issuer]:
    with Issuer(tmp_path_factory.mktemp("issuer")) as issuer:
        yield issuer


@pytest.fixture
def provider(running) -> OpenIdIssuer:
    return OpenIdIssuer(running, time.time)


@pytest.fixture(scope="module")
def token_servers(running, tmp_path_factory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set())
    configs = {
        **CONFIGS,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": running.url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "delegation.token.secret.key": "secret of the brokers",
    }
    with Broker(configs=configs) as broker:
        yield broker.bootstrap_servers


Open = Callable[[Transport], Browser]


@pytest.fixture
def browse(token_servers) -> Iterator[Open]:
    opened: list[Services] = []

    def open_cluster(security: ClientSecurity) -> Cluster:
        return Cluster(token_servers, client_id="console-test", security=security)

    def browse(transport: Transport) -> Browser:
        clock, openid = WallClock(), transport.openid
        services = Services(
            ConsoleSettings(token_servers, transport),
            SessionStore(clock, CountingRng()),
            SignInThrottle(clock),
            clock,
            open_cluster,
            FlowMeter(),
            ClientScrapes((), clock),
            None if openid is None else OpenIdProvider(openid, clock),
        )
        opened.append(services)
        return Browser(create_application(services, ROUTES), services)

    yield browse
    for services in opened:
        services.sessions.end_all()


@pytest.fixture
def browser(browse, provider, tmp_path) -> Browser:
    opened: Browser = browse(read_transport(provider.properties(tmp_path), "the file"))
    return opened


def enter(browser: Browser, provider: OpenIdIssuer) -> int:
    """Sign in at the issuer; the status of the page to which it returns."""
    parts = urlsplit(provider.authorize(str(browser.get("/sign-in/issuer").header("location"))))
    return browser.get(f"{parts.path}?{parts.query}").status


def test_requests_have_the_rights_of_the_user_at_the_issuer(browser, provider):
    for user, status in (("ada", 403), ("admin", 303)):
        provider.user = user
        assert enter(browser, provider) == 303
        fields = {"token": browser.token, "name": f"of-{user}", "partitions": "1"}
        assert browser.post("/create-topic", fields).status == status
        assert ("of-admin" in browser.get("/topics").text) == (user == "admin")


@pytest.mark.parametrize("claims", [{"aud": "others"}, {"iss": "https://evil.example"}, {"exp": 1}])
def test_access_token_for_another_service_is_rejected(browser, provider, claims):
    provider.access_claims = claims
    assert enter(browser, provider) == 401
    assert browser.get("/topics").status == 303


def test_session_outlives_its_first_token(browser, provider):
    provider.life_s, provider.has_refresh = 2, True
    assert enter(browser, provider) == 303
    deadline = time.monotonic() + WAIT_S
    while sum(grant["grant_type"] == "refresh_token" for grant in provider.grants) < 2:
        assert time.monotonic() < deadline
        assert browser.get("/topics").status == 200


def test_delegation_token_signs_in_as_its_owner(browse, token_servers):
    with Cluster(token_servers, security=security_of("admin")) as admin:
        admin.users.put("ada", "SCRAM-SHA-512", "password of ada", 4096)
        with Cluster(token_servers, security=credentials(SCRAM, "SCRAM-SHA-512", "ada", "password of ada")) as ada:
            token = ada.tokens.create(None, [])
            browser = browse(SCRAM)
            fields = {"mechanism": "SCRAM-SHA-512", "delegation": "1"}
            assert browser.sign_in(token.token_id, "wrong", **fields).status == 401
            assert browser.sign_in(token.token_id, token.hmac, **fields).status == 303
            assert f"delegation token {token.token_id}" in browser.get("/topics").text
            topic = {"token": browser.token, "name": "of-token", "partitions": "1"}
            assert browser.post("/create-topic", topic).status == 403
            admin.acls.create([owns_topic("User:ada", "of-token")])
            assert browser.post("/create-topic", topic).status == 303
            ada.tokens.expire(token)
            assert browse(SCRAM).sign_in(token.token_id, token.hmac, **fields).status == 401


def owns_topic(principal: str, topic: str) -> Acl:
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, principal, "*", AclOperation.ALL, Permission.ALLOW)


@needs_chromium
def test_browser_returns_from_the_issuer_signed_in(chromium: Any, token_servers, provider, tmp_path):
    provider.shows_page = True
    provider.user = "admin"
    properties = tmp_path / "console.properties"
    properties.write_text(format_properties(provider.properties(tmp_path)))
    arguments = ("-b", token_servers, "--command-config", str(properties))
    with console(tmp_path, "--host", "localhost", *arguments) as url:
        chromium.get(url + "/groups")
        chromium.find_element("partial link text", "Sign in at").click()
        until(chromium, "return document.getElementById('back') !== null")
        chromium.find_element("id", "back").click()
        until(chromium, "return document.title.startsWith('Groups')")
        assert chromium.find_element("css selector", ".user").text == "admin"
