"""SASL authentication of tools: `sasl.mechanism` and `sasl.jaas.config` of Kafka's client properties.

OAUTHBEARER sends a token from `sasl.oauthbearer.token.endpoint.url`. With `tokenauth="true"`, name and password of
SCRAM are the id and HMAC of a delegation token (KIP-48). librdkafka does not support this, nor GSSAPI in its PyPI
build, so tools based on it cannot authenticate with either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ottla.common.errors import OperatorError
from ottla.security.sasl.credentials import BY_NAME
from ottla.security.sasl.jaas import KERBEROS_MODULE, OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from ottla.security.sasl.kerberos_login import SERVICE_NAME, login_of
from ottla.security.sasl.mechanism import GSSAPI, ClientMechanism
from ottla.security.sasl.oauthbearer import MECHANISM as OAUTHBEARER
from ottla.security.sasl.oauthbearer import OAuthBearerClient
from ottla.security.sasl.plain import MECHANISM as PLAIN
from ottla.security.sasl.plain import PlainClient
from ottla.security.sasl.scram import ScramClient

MECHANISMS = (PLAIN, *BY_NAME, OAUTHBEARER, GSSAPI)
Login = Callable[[str], ClientMechanism]
"""Starts an exchange with a host; each connection needs its own."""


def read_login(properties: Mapping[str, str], path: str) -> tuple[Login, dict[str, Any] | None]:
    """The login of client properties, and the librdkafka settings, None if it has none. Raises OperatorError."""
    mechanism = properties.get("sasl.mechanism", GSSAPI).strip().upper()
    if mechanism not in MECHANISMS:
        raise OperatorError(f"sasl.mechanism in {path} is {mechanism}: set it to one of {', '.join(MECHANISMS)}")
    setting = f"sasl.jaas.config in {path}"
    if mechanism == OAUTHBEARER:
        module = parse_jaas(setting, properties.get("sasl.jaas.config") or f"{OAUTH_MODULE} required;")
        if module.name != OAUTH_MODULE:
            raise OperatorError(f"{setting} must be {OAUTH_MODULE} for {mechanism}")
        from ottla.client.wire.tokens import TokenSource  # imported here: HTTP modules are slow to load

        source = TokenSource(properties, module.options, path)
        return lambda _: OAuthBearerClient(source.token()), {"sasl.mechanism": mechanism, "oauth_cb": source}
    if mechanism == GSSAPI:
        return _kerberos(properties, setting, path), None
    module = parse_jaas(setting, properties.get("sasl.jaas.config", ""))
    wanted = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
    name, password = module.options.get("username"), module.options.get("password")
    if module.name != wanted or not name or not password:
        raise OperatorError(f"{setting} must be {wanted} with a username and a password for {mechanism}")
    library = {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
    if mechanism == PLAIN:
        return lambda _: PlainClient(name, password), library
    by_token = module.options.get("tokenauth", "").lower() == "true"
    return lambda _: ScramClient(BY_NAME[mechanism], name, password, os.urandom, by_token=by_token), library


def _kerberos(properties: Mapping[str, str], setting: str, path: str) -> Login:
    text = properties.get("sasl.jaas.config", "")
    if not text.strip():  # GSSAPI is the default of sasl.mechanism, so it may be unintended
        raise OperatorError(
            f"sasl.mechanism in {path} is {GSSAPI}: set it to one of {', '.join(MECHANISMS[:-1])}, or sasl.jaas.config "
            f"to {KERBEROS_MODULE} required useTicketCache=true;"
        )
    module = parse_jaas(setting, text)
    if module.name != KERBEROS_MODULE:
        raise OperatorError(f"{setting} must be {KERBEROS_MODULE} for {GSSAPI}")
    from ottla.client.wire.kerberos import KerberosClient  # imported here: rarely needed

    service = properties.get(SERVICE_NAME, "").strip()
    return KerberosClient(login_of(setting, module.options, service, f"{SERVICE_NAME} in {path}"))
