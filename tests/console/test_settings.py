"""Settings that would expose a cluster are refused."""

from __future__ import annotations

import re

import pytest

from ottla.common.errors import OperatorError
from ottla.console.settings import (
    LOGIN_MECHANISMS,
    ConsoleSettings,
    Transport,
    check_exposure,
    check_public_url,
    check_redirect_address,
    read_registry,
    read_transport,
)

from .browsing import SASL

TLS = ("chain.pem", "key.pem")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_loopback_needs_neither_tls_nor_sign_in(host):
    check_exposure(ConsoleSettings("a:1", host=host))


@pytest.mark.parametrize(("transport", "tls"), [(Transport(), None), (SASL, None), (Transport(), TLS)])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "console.example"])
def test_other_hosts_need_tls_and_sign_in(host, transport, tls):
    with pytest.raises(OperatorError, match=r"--host .* without (TLS|sign-in)"):
        check_exposure(ConsoleSettings("a:1", transport, host, tls=tls))
    check_exposure(ConsoleSettings("a:1", SASL, host, tls=TLS))


def test_sasl_listener_offers_its_mechanism_or_all():
    assert read_transport({"security.protocol": "SASL_PLAINTEXT"}, "f").mechanisms == LOGIN_MECHANISMS
    one = read_transport({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "scram-sha-256"}, "f")
    assert one.mechanisms == ("SCRAM-SHA-256",)
    assert read_transport({}, "f") == Transport()


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"},
        {"security.protocol": "TELNET"},
    ],
)
def test_properties_that_would_share_an_identity_are_refused(properties):
    with pytest.raises(OperatorError, match=r"in f|in the"):
        read_transport(properties, "f")


@pytest.mark.parametrize(
    "url", ["ftp://a", "https://", "a.example", "https://a/b?c", "https://u@a", "https://a//b", "https://a:x"]
)
def test_malformed_public_url_is_refused(url):
    with pytest.raises(OperatorError, match="--public-url"):
        check_public_url(url)


def test_public_url_gives_origin_and_base_path():
    settings = ConsoleSettings("a:1", public_url=check_public_url("https://Ops.example:8443/kafka/"))
    assert settings.base_path == "/kafka"
    assert settings.is_secure
    assert "https://ops.example:8443" in settings.origins()
    assert ConsoleSettings("a:1", port=80).origins() >= {"http://localhost", "http://localhost:80"}


@pytest.fixture
def openid(tmp_path) -> dict[str, str]:
    (tmp_path / "secret").write_text("s3cret\n")
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "oidc.issuer": "https://id.example",
        "oidc.client.id": "console",
        "oidc.client.secret.file": str(tmp_path / "secret"),
    }


def test_issuer_replaces_passwords_or_is_offered_beside_them(openid):
    transport = read_transport(openid, "f")
    assert transport.openid is not None
    assert (transport.openid.client_secret, transport.mechanisms) == ("s3cret", ())
    assert transport.requires_sign_in
    assert "s3cret" not in repr(transport)
    assert read_transport({**openid, "sasl.mechanism": "PLAIN"}, "f").mechanisms == ("PLAIN",)
    del openid["sasl.mechanism"]
    assert read_transport(openid, "f").mechanisms == LOGIN_MECHANISMS


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"oidc.issuer": ""}, "oidc.issuer in f is missing"),
        ({"oidc.client.secret.file": ""}, "oidc.client.secret.file in f is missing"),
        ({"oidc.client.secret": "x"}, "oidc.client.secret in f is not a setting"),
        ({"oidc.issuer": "http://id.example"}, "set it to the https: URL"),
        ({"oidc.issuer": "https://id.example?x"}, "set it to the https: URL"),
        ({"oidc.scope": "profile"}, "add openid"),
        ({"oidc.client.secret.file": "/not/there"}, "/not/there, which can't be read: No such file"),
        ({"oidc.client.secret.file": "/dev/null"}, "does not contain a secret"),
        ({"oidc.ssl.truststore.location": "/not/there"}, "/not/there can't be read"),
        ({"security.protocol": "SSL"}, "needs a SASL listener"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}, "every browser act as one user"),
    ],
)
def test_wrong_settings_of_an_issuer_are_named(openid, replaced, message):
    with pytest.raises(OperatorError, match=re.escape(message)):
        read_transport({**openid, **replaced}, "f")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "0.0.0.0", "tls": TLS}, "needs --public-url"),
        ({"public_url": "http://ops.example"}, "must begin with https:"),
        ({"public_url": "https://ops.example"}, None),
        ({"public_url": "http://localhost:9999"}, None),
        ({}, None),
    ],
)
def test_issuer_needs_an_address_that_it_can_return_to(openid, settings, message):
    chosen = ConsoleSettings("a:1", read_transport(openid, "f"), **settings)
    if message is None:
        check_redirect_address(chosen)
    else:
        with pytest.raises(OperatorError, match=message):
            check_redirect_address(chosen)


def test_address_leaves_out_the_default_port():
    assert ConsoleSettings("a:1", host="::1", port=80).address == "http://[::1]"
    assert ConsoleSettings("a:1", port=443, tls=TLS).address == "https://127.0.0.1"
    assert ConsoleSettings("a:1", port=443).address == "http://127.0.0.1:443"


def test_registry_comes_from_the_option_or_the_client_properties():
    url = "https://user:secret@registry:8081"
    for found in (read_registry(url, None, {}, "f"), read_registry(None, None, {"schema.registry.url": url}, "f")):
        assert found is not None
        assert (found.url, found.is_interactive) == (url, True)
    assert read_registry(None, None, {}, "f") is None
    with pytest.raises(OperatorError, match=r"schema\.registry\.url in f: .*registry:8081, not 'ftp://x'"):
        read_registry(None, None, {"schema.registry.url": "ftp://user:secret@x"}, "f")
    with pytest.raises(OperatorError, match="--schema-registry-ca applies"):
        read_registry(None, "ca.pem", {}, "f")
