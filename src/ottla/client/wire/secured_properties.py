"""Client properties of connections with TLS or SASL: `ssl.*` and `sasl.*`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from ottla.client.wire.login import Login, read_login
from ottla.common.config.config_keys_tls import TLS_CONFIGS
from ottla.common.config.listener_configs import SECURITY_PROTOCOLS
from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file
from ottla.security.contexts import TlsFiles, TlsSettings, client_context, read_material
from ottla.security.sasl.kerberos_login import SERVICE_NAME
from ottla.security.sasl.token_source import CLIENT_ID, CLIENT_SECRET, SCOPE, URL

_TLS = tuple(key.name for key in TLS_CONFIGS)
PROPERTIES = frozenset(
    (
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        SERVICE_NAME,
        URL,
        CLIENT_ID,
        CLIENT_SECRET,
        SCOPE,
        *_TLS,
    )
)
"""Properties that `client.wire.security.parse_security` reads."""
SECRETS = frozenset(
    (
        "sasl.jaas.config",
        CLIENT_SECRET,
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    )
)
"""Secrets, which other users must not be able to read."""
_OF_FILES = frozenset(name for name in _TLS if name.startswith(("ssl.keystore.", "ssl.truststore.", "ssl.key.")))
_CERTIFICATE = b"-----BEGIN CERTIFICATE"


Secured = tuple[ssl.SSLContext | None, Mapping[str, Any] | None, Login | None, Mapping[str, str]]
"""The fields of a `ClientSecurity`."""


def read_secured(protocol: str, properties: Mapping[str, str], place: str) -> Secured:
    """The security of `protocol`, which is not PLAINTEXT; `place` is for messages. Raises OperatorError."""
    if protocol not in SECURITY_PROTOCOLS:
        raise OperatorError(f"security.protocol in {place} is {protocol}: use one of {', '.join(SECURITY_PROTOCOLS)}")
    login, library = read_login(properties, place) if protocol.startswith("SASL_") else (None, {})
    if library is not None:
        library["security.protocol"] = protocol.lower()
    if protocol == "SASL_PLAINTEXT":
        return None, library, login, _portable(properties, None)

    settings = TlsSettings.parse(properties, place)
    material = read_material(settings, read_file)
    if library is not None:
        library |= _for_library(settings, material)
    return client_context(settings, material), library, login, _portable(properties, material)


def _portable(properties: Mapping[str, str], material: TlsFiles | None) -> dict[str, str]:
    found = {name: text for name, text in properties.items() if name in PROPERTIES and name not in _OF_FILES}
    if material is not None and material.identity is not None:
        found["ssl.keystore.key"], found["ssl.keystore.certificate.chain"] = _parted(material.identity.pem)
    if material is not None and material.trusted is not None:
        found["ssl.truststore.certificates"] = material.trusted
    return found


def _parted(pem: bytes) -> tuple[str, str]:
    """Split a PEM into the key and the certificates."""
    key, begin, certificates = pem.partition(_CERTIFICATE)
    return key.decode(), (begin + certificates).decode()


def _for_library(settings: TlsSettings, material: TlsFiles) -> dict[str, str]:
    properties = {
        "ssl.endpoint.identification.algorithm": "https" if settings.checks_names else "none",
    }
    if material.trusted is not None:
        properties["ssl.ca.pem"] = material.trusted
    if settings.revoked is not None:
        properties["ssl.crl.location"] = settings.revoked
    if material.identity is not None:
        properties["ssl.key.pem"], properties["ssl.certificate.pem"] = _parted(material.identity.pem)
    return properties
