"""How tools reach a cluster that asks for more than a connection: Kafka's client properties `ssl.*` and `sasl.*`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.login import Login, read_login
from ottla.common.config_def import ConfigValue
from ottla.common.config_keys_tls import TLS_CONFIGS
from ottla.common.errors import KafkaError, OperatorError
from ottla.common.listener_configs import SECURITY_PROTOCOLS
from ottla.common.properties import load_properties
from ottla.security.contexts import Material, TlsSettings, client_context, read_material

OPTION = "--command-config"
_KEYS = {key.name: key for key in TLS_CONFIGS}
_CERTIFICATE = b"-----BEGIN CERTIFICATE"


class ClientSecurity(NamedTuple):
    """What a connection needs beside an address."""

    tls: ssl.SSLContext | None = None
    library: Mapping[str, str] = {}
    """The same for librdkafka, by its own names."""
    login: Login | None = None


PLAINTEXT = ClientSecurity()


def read_security(path: str) -> ClientSecurity:
    """From a file of client properties. Raises OperatorError."""
    properties = load_properties(path, OPTION)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise OperatorError(
            f"security.protocol in {path} is {protocol}, which is none of {', '.join(SECURITY_PROTOCOLS)}"
        )
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    login, library = read_login(properties, path) if protocol.startswith("SASL_") else (None, {})
    library["security.protocol"] = protocol.lower()
    if protocol == "SASL_PLAINTEXT":
        return ClientSecurity(None, library, login)

    def get(name: str) -> ConfigValue:
        key, text = _KEYS[name], properties.get(name)
        try:
            return key.default if text is None else key.parse(text)
        except KafkaError as error:
            raise OperatorError(f"{error.message} (in {path})") from error

    settings = TlsSettings.of(get)
    material = read_material(settings, _read)
    return ClientSecurity(client_context(settings, material), _for_library(settings, material) | library, login)


def _for_library(settings: TlsSettings, material: Material) -> dict[str, str]:
    properties = {
        "ssl.endpoint.identification.algorithm": "https" if settings.checks_names else "none",
    }
    if material.trusted is not None:
        properties["ssl.ca.pem"] = material.trusted
    if material.identity is not None:
        key, begin, certificates = material.identity.pem.partition(_CERTIFICATE)
        properties["ssl.key.pem"] = key.decode()
        properties["ssl.certificate.pem"] = (begin + certificates).decode()
    return properties


def _read(path: str, limit: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(limit)
