"""Security of client connections: Kafka's client properties `ssl.*` and `sasl.*`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from ottla.client.wire.login import Login, read_login
from ottla.common.config.config_keys_tls import TLS_CONFIGS
from ottla.common.config.listener_configs import SECURITY_PROTOCOLS
from ottla.common.config.properties import load_properties
from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file
from ottla.security.contexts import TlsFiles, TlsSettings, client_context, read_material
from ottla.security.sasl.kerberos_login import SERVICE_NAME
from ottla.security.sasl.token_source import CLIENT_ID, CLIENT_SECRET, SCOPE, URL

OPTION = "--command-config"
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
"""Properties that `parse_security` reads."""
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


class ClientSecurity(NamedTuple):
    """Security of a connection."""

    tls: ssl.SSLContext | None = None
    of_library: Mapping[str, Any] | None = {}
    """See `library`; None if librdkafka does not support the mechanism."""
    login: Login | None = None
    portable: Mapping[str, str] = {}
    """The original properties, with file contents instead of file names, so that another machine can use them."""

    @property
    def library(self) -> Mapping[str, Any]:
        """The settings for librdkafka, by its own names. Raises OperatorError if it does not support the mechanism."""
        if self.of_library is None:
            raise OperatorError(
                "sasl.mechanism=GSSAPI is not supported by librdkafka from PyPI: use "
                "another mechanism, read with ottla consume without --group or SimpleConsumer, or write with kcat or "
                "Apache Kafka's tools"
            )
        return self.of_library

    def __reduce__(self) -> tuple[Callable[[Mapping[str, str]], ClientSecurity], tuple[Mapping[str, str]]]:
        """Pickled for Spark's workers as properties: OpenSSL contexts cannot be pickled."""
        return _arrived, (self.portable,)

    @property
    def settings(self) -> Hashable:
        """All inputs, including secrets, for comparison."""
        return tuple(sorted(self.portable.items()))

    def __repr__(self) -> str:
        """A representation without secrets."""
        return f"<ClientSecurity {self.portable.get('security.protocol', 'PLAINTEXT')}>"


def _arrived(portable: Mapping[str, str]) -> ClientSecurity:
    return parse_security(portable, "the properties of the job")


PLAINTEXT = ClientSecurity()


def read_security(path: str, option: str = OPTION) -> ClientSecurity:
    """Read a file of client properties, which `option` of the command selected. Raises OperatorError."""
    return parse_security(load_properties(path, option), path)


def parse_security(properties: Mapping[str, str], place: str) -> ClientSecurity:
    """Parse client properties; `place` is their source, for messages. Raises OperatorError."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise OperatorError(f"security.protocol in {place} is {protocol}: use one of {', '.join(SECURITY_PROTOCOLS)}")
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    login, library = read_login(properties, place) if protocol.startswith("SASL_") else (None, {})
    if library is not None:
        library["security.protocol"] = protocol.lower()
    if protocol == "SASL_PLAINTEXT":
        return ClientSecurity(None, library, login, _portable(properties, None))

    settings = TlsSettings.parse(properties, place)
    material = read_material(settings, read_file)
    if library is not None:
        library |= _for_library(settings, material)
    return ClientSecurity(client_context(settings, material), library, login, _portable(properties, material))


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
