"""Keystores by content, user names, and TLS versions and suites by Kafka's names."""

from __future__ import annotations

import datetime
import ssl
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from ottla.common.config.config_keys_tls import TLS_CONFIGS
from ottla.common.errors import OperatorError
from ottla.security.authority import Authority
from ottla.security.contexts import TlsSettings, client_context, read_material, server_context
from ottla.security.distinguished_names import PrincipalMapping, distinguished_name
from ottla.security.stores import JCEKS_MAGIC, JKS_MAGIC, read_identity, read_trusted

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = Authority.make("authority", NOW)
PEM = AUTHORITY.issue("alice", ["localhost"], NOW)
KEY = cast(EllipticCurvePrivateKey, load_pem_private_key(PEM, None))
CERTIFICATE = x509.load_pem_x509_certificate(PEM[PEM.index(b"-----BEGIN CERTIFICATE") :])


def settings(**values: object) -> TlsSettings:
    table = {key.name: key.default for key in TLS_CONFIGS}
    table.update({name.replace("_", "."): value for name, value in values.items()})  # type: ignore[misc]
    return TlsSettings.of(table.__getitem__)


def test_pkcs12_is_detected_by_its_content() -> None:
    data = pkcs12.serialize_key_and_certificates(
        b"alice", KEY, CERTIFICATE, [AUTHORITY.certificate], BestAvailableEncryption(b"secret")
    )
    identity = read_identity(data, "ssl.keystore.location /k.jks", "secret", None)
    assert identity.hosts == {"localhost"}
    assert identity.pem.count(b"BEGIN CERTIFICATE") == 2
    assert identity.pem.startswith(PEM)
    with pytest.raises(OperatorError, match=r"ssl\.keystore\.password opens"):
        read_identity(data, "ssl.keystore.location /k.jks", "wrong", None)
    with pytest.raises(OperatorError, match=r"set ssl\.keystore\.password"):
        read_identity(data, "ssl.keystore.location /k.jks", None, None)
    trusted = pkcs12.serialize_key_and_certificates(
        None, None, None, [AUTHORITY.certificate], BestAvailableEncryption(b"secret")
    )
    assert read_trusted(trusted, "ssl.truststore.location /t", "secret").encode() == AUTHORITY.pem


@pytest.mark.parametrize("magic", [JKS_MAGIC, JCEKS_MAGIC])
def test_jks_file_is_refused_with_a_conversion_command(magic: bytes) -> None:
    for read in (
        lambda: read_identity(magic + b"...", "ssl.keystore.location /k.jks", "p", None),
        lambda: read_trusted(magic + b"...", "ssl.keystore.location /k.jks", "p"),
    ):
        with pytest.raises(OperatorError) as caught:
            read()
        command = "keytool -importkeystore -srckeystore /k.jks -destkeystore /k.jks.p12 -deststoretype PKCS12"
        assert command in str(caught.value)


def test_an_encrypted_key_needs_its_password() -> None:
    key = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    data = key + CERTIFICATE.public_bytes(Encoding.PEM)
    assert read_identity(data, "store", None, "secret").pem == PEM
    with pytest.raises(OperatorError, match=r"set ssl\.key\.password"):
        read_identity(data, "store", None, None)
    with pytest.raises(OperatorError, match="does not open it") as caught:
        read_identity(data, "store", None, "hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (PEM[: PEM.index(b"-----BEGIN CERTIFICATE")], "no certificate"),
        (CERTIFICATE.public_bytes(Encoding.PEM), "no private key"),
        (PEM.replace(b"\nM", b"\nA", 1), "can't be read"),
        (
            Authority.make("x", NOW).key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + CERTIFICATE.public_bytes(Encoding.PEM),
            "does not match its private key",
        ),
        (b"nonsense", "PKCS12"),
    ],
)
def test_invalid_keystore_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        read_identity(data, "store", "p", None)


def test_inline_keys_create_contexts() -> None:
    chosen = settings(
        ssl_keystore_key=PEM.decode(),
        **{"ssl.keystore.certificate.chain": PEM.decode(), "ssl.truststore.certificates": AUTHORITY.pem.decode()},
        ssl_client_auth="required",
    )
    material = read_material(chosen, lambda path, limit: b"")
    server = server_context(chosen, material)
    assert server.verify_mode == ssl.CERT_REQUIRED
    assert server.options & ssl.OP_NO_RENEGOTIATION
    client = client_context(chosen, material)
    assert client.check_hostname
    assert client.verify_mode == ssl.CERT_REQUIRED
    trusting = client_context(settings(**{"ssl.endpoint.identification.algorithm": ""}), material)
    assert not trusting.check_hostname
    assert trusting.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("protocols", "suites", "lowest", "highest"),
    [
        (("TLSv1.2", "TLSv1.3"), (), "TLSv1_2", "TLSv1_3"),
        (("TLSv1.3",), (), "TLSv1_3", "TLSv1_3"),
        (("TLSv1.2", "TLSv1.3"), ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), "TLSv1_2", "TLSv1_2"),
    ],
)
def test_versions_and_suites(protocols, suites, lowest, highest) -> None:
    chosen = settings(ssl_enabled_protocols=protocols, ssl_cipher_suites=suites)
    context = client_context(chosen, read_material(chosen, lambda path, limit: b""))
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)
    if suites:
        older = [suite["name"] for suite in context.get_ciphers() if suite["protocol"] == "TLSv1.2"]
        assert older == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


@pytest.mark.parametrize(
    ("name", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
    ],
)
def test_cipher_suites_have_java_names(name, openssl) -> None:
    chosen = settings(ssl_cipher_suites=(name,))
    context = client_context(chosen, read_material(chosen, lambda path, limit: b""))
    assert [suite["name"] for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"] == [openssl]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"ssl.enabled.protocols": ("TLSv1",)}, "ssl.enabled.protocols"),
        ({"ssl.enabled.protocols": ()}, "ssl.enabled.protocols"),
        ({"ssl.cipher.suites": ("TLS_MADE_UP_WITH_NOTHING",)}, "ssl.cipher.suites"),
        ({"ssl.cipher.suites": ("TLS_AES_128_GCM_SHA256",)}, "ssl.cipher.suites"),
        (
            {"ssl.cipher.suites": ("TLS_RSA_WITH_AES_128_CBC_SHA256",), "ssl.enabled.protocols": ("TLSv1.3",)},
            "ssl.cipher.suites",
        ),
    ],
)
def test_settings_unsupported_by_openssl_are_refused(values, named) -> None:
    chosen = settings(**values)
    with pytest.raises(OperatorError, match=named):
        client_context(chosen, read_material(chosen, lambda path, limit: b""))


def test_a_subject_is_written_as_java_writes_it() -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "SE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc. "),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"),
            x509.NameAttribute(NameOID.COMMON_NAME, "a+b=\u00e5"),
        ]
    )
    text = distinguished_name(name)
    assert text == "CN=a\\+b\\=\u00e5,1.2.840.113549.1.9.1=#1603614062,O=Acme\\, Inc.\\ ,C=SE"


def test_a_long_value_without_keyword_is_hexadecimal() -> None:
    parts = [x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a" * 200), x509.NameAttribute(NameOID.COMMON_NAME, "b")]
    name = x509.Name([x509.RelativeDistinguishedName(parts)])
    assert distinguished_name(name) == f"1.2.840.113549.1.9.1=#1681c8{'61' * 200}+CN=b"


def test_escaped_common_name_cannot_forge_another_subject() -> None:
    """A client-chosen common name can't add a second part to the subject."""
    forged = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin,OU=operators")])
    text = distinguished_name(forged)
    mapping = PrincipalMapping(r"RULE:^CN=([^,\\]+),OU=operators$/$1/,RULE:.*/nobody/")
    assert mapping.name("CN=admin,OU=operators") == "admin"
    assert mapping.name(text) == "nobody"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Duke,OU=Java,O=Sun"),
        ("", "CN=Duke,OU=Java,O=Sun"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/", "Duke@Java"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L", "duke@java"),
        ("RULE:^CN=(.*?),OU=None.*$/$1/ , RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "DUKE"),
        (r"RULE:^CN=(\w+),.*$/team\/$1/", "team/Duke"),
    ],
)
def test_rules_map_subjects_to_names(rules: str, name: str) -> None:
    assert PrincipalMapping(rules).name("CN=Duke,OU=Java,O=Sun") == name


@pytest.mark.parametrize("rules", ["RULE:^CN=(.*$/$1/", "RULE:a", "RULE:a/$1/", "NONE", "RULE:a/b/X"])
def test_rules_that_can_not_be_read_are_refused(rules: str) -> None:
    with pytest.raises(OperatorError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
