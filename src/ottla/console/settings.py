"""Settings of the console: the cluster, the listener, sign-in and bounds. None can be set from a browser."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.client.views.pushed_metrics import MetricsSource
from ottla.client.wire.security import PLAINTEXT, ClientSecurity, parse_security
from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.https import is_private
from ottla.console.openid_settings import ISSUER, OpenIdSettings, read_openid
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.settings import open_registry
from ottla.security.sasl.credentials import BY_NAME
from ottla.security.sasl.oauthbearer import MECHANISM as OAUTHBEARER
from ottla.security.sasl.plain import MECHANISM as PLAIN

LOGIN_MECHANISMS = (*BY_NAME, PLAIN)
"""Mechanisms for a name and a password; the first is preselected."""
REGISTRY_URL, REGISTRY_CA = "schema.registry.url", "schema.registry.ssl.truststore.location"
"""Client properties with the address of the schema registry, as Confluent's serializers name them."""
_TO_TLS = {"SASL_PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SSL"}


class Transport(NamedTuple):
    """How the console connects to the brokers, without a user: TLS settings, and the ways to sign in.

    Without any the listener is anonymous, and users do not sign in.
    """

    security: ClientSecurity = PLAINTEXT
    protocol: str = "PLAINTEXT"
    mechanisms: tuple[str, ...] = ()
    """Mechanisms for a name and a password."""
    openid: OpenIdSettings | None = None
    """Sign-in at an issuer, for OAUTHBEARER."""

    @property
    def requires_sign_in(self) -> bool:
        """True for a listener with SASL."""
        return bool(self.mechanisms) or self.openid is not None


class ConsoleSettings(NamedTuple):
    """All settings. `public_url` is the address behind a reverse proxy, without a slash at its end."""

    bootstrap_servers: str
    transport: Transport = Transport()
    host: str = "127.0.0.1"
    port: int = 8080
    tls: tuple[str, str] | None = None
    """Files of the certificate chain and the key."""
    public_url: str | None = None
    is_read_only: bool = False
    tables: str | None = None
    """Directory or URL of the tables of the pipeline; None for none."""
    metrics: tuple[MetricsSource, ...] = ()
    """Metrics of brokers, from which the metrics of clients are read."""

    @property
    def base_path(self) -> str:
        """Path of the console at the proxy, such as /kafka; empty for the root."""
        return "" if self.public_url is None else urlsplit(self.public_url).path.rstrip("/")

    @property
    def is_secure(self) -> bool:
        """True if browsers reach the console over TLS."""
        return self.tls is not None or (self.public_url or "").startswith("https:")

    @property
    def address(self) -> str:
        """The URL at which browsers reach the console, without a slash at its end."""
        if self.public_url is not None:
            return self.public_url
        scheme, default_port = ("http", 80) if self.tls is None else ("https", 443)
        place = format_address(self.host, self.port)
        if self.port == default_port:
            place = place.removesuffix(f":{default_port}")
        return f"{scheme}://{place}"

    def origins(self) -> frozenset[str]:
        """Origins at which browsers may reach the console; other values of Host and Origin are refused."""
        scheme = "https" if self.tls is not None else "http"
        names = {self.host}
        if is_loopback(self.host):
            names |= {"localhost", "127.0.0.1", "::1"}
        found = {f"{scheme}://{format_address(name, self.port)}" for name in names}
        if self.port == (443 if self.tls is not None else 80):
            found |= {f"{scheme}://{f'[{name}]' if ':' in name else name}" for name in names}
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            found.add(f"{parts.scheme}://{parts.netloc}".lower())
        return frozenset(found)


def is_loopback(host: str) -> bool:
    """True for localhost and addresses of the loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(settings: ConsoleSettings) -> None:
    """Refuse a bind that would give a cluster to the network. Raises OperatorError."""
    if is_loopback(settings.host):
        return
    if settings.tls is None or not settings.transport.requires_sign_in:
        lacking = "TLS" if settings.tls is None else "sign-in"
        raise OperatorError(
            f"--host {settings.host} is not a loopback address, and the console would serve it without {lacking}: "
            "give --tls-cert and --tls-key, and a SASL listener of the cluster with security.protocol in "
            "--command-config; or keep the default 127.0.0.1 behind a reverse proxy"
        )


def check_redirect_address(settings: ConsoleSettings) -> None:
    """Refuse an address to which an issuer cannot send browsers safely. Raises OperatorError."""
    if settings.transport.openid is None:
        return
    url = settings.public_url
    if url is None and not is_loopback(settings.host):
        raise OperatorError(f"{ISSUER} needs --public-url: the issuer sends browsers back to that address")
    if url is not None and not is_private(url):
        raise OperatorError(
            f"--public-url {url} must begin with https: since {ISSUER} is set: the issuer sends codes to that address"
        )


def check_public_url(text: str | None) -> str | None:
    """The URL without a slash at its end. Raises OperatorError."""
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or parts.query or parts.fragment or parts.username is not None or "//" in parts.path:
        raise OperatorError(f"--public-url {text} is not of the form https://HOST[:PORT][/PATH]")
    return text.rstrip("/")


def read_transport(properties: Mapping[str, str], place: str) -> Transport:
    """The connection of client properties without their user: each browser signs in. Raises OperatorError.

    Credentials in `sasl.jaas.config` and `sasl.oauthbearer.*` are refused, since every browser would act as that user.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    shared = [name for name in properties if name == "sasl.jaas.config" or name.startswith("sasl.oauthbearer.")]
    if shared and protocol in _TO_TLS:
        raise OperatorError(
            f"{shared[0]} in {place} would make every browser act as one user: remove it; users sign in on the "
            "first page of the console"
        )
    plain = {name: value for name, value in properties.items() if not name.startswith("sasl.")}
    plain["security.protocol"] = _TO_TLS.get(protocol, protocol)
    security = parse_security(plain, place)
    if protocol == "SSL" and any(name.startswith("ssl.keystore.") for name in properties):
        raise OperatorError(
            f"ssl.keystore.* in {place} would make every browser act as the owner of that certificate: remove it, and "
            "use a SASL listener, at which users sign in"
        )
    openid = read_openid(properties, place)
    if openid is not None and protocol not in _TO_TLS:
        raise OperatorError(f"{openid.setting} needs a SASL listener: set security.protocol to SASL_SSL")
    return Transport(security, protocol, _mechanisms(properties, protocol, place, openid), openid)


def _mechanisms(
    properties: Mapping[str, str], protocol: str, place: str, openid: OpenIdSettings | None
) -> tuple[str, ...]:
    if protocol not in _TO_TLS:
        return ()
    text = properties.get("sasl.mechanism")
    if text is None:
        return LOGIN_MECHANISMS
    mechanism = text.strip().upper()
    if mechanism == OAUTHBEARER:
        if openid is None:
            raise OperatorError(f"sasl.mechanism in {place} is {mechanism}: set {ISSUER}, at which users sign in")
        return ()
    if mechanism not in LOGIN_MECHANISMS:
        offered = ", ".join((*LOGIN_MECHANISMS, OAUTHBEARER))
        raise OperatorError(
            f"sasl.mechanism in {place} is {mechanism}: set it to one of {offered}; "
            "other users sign in with a delegation token, by SCRAM"
        )
    return (mechanism,)


def read_registry(
    url: str | None, authorities: object, properties: Mapping[str, str], place: str
) -> SchemaRegistry | None:
    """The schema registry of the command line, or of `schema.registry.url` in the client properties; None without one.

    `authorities`: path of certificates in PEM. Raises OperatorError.
    """
    if url is not None:
        return open_registry(url, authorities, is_interactive=True)
    url = properties.get(REGISTRY_URL)
    if url is None:
        if authorities is not None:
            raise OperatorError(
                f"--schema-registry-ca applies to a schema registry: add --schema-registry URL, or {REGISTRY_URL} in "
                "--command-config"
            )
        return None
    try:
        return open_registry(url.strip(), authorities or properties.get(REGISTRY_CA), is_interactive=True)
    except OperatorError as error:
        raise OperatorError(f"{REGISTRY_URL} in {place}: {error}") from error
