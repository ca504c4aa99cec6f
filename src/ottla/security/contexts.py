"""TLS contexts from Kafka's `ssl.*` settings, for both sides of a listener and for clients.

A private key is passed to OpenSSL through memory (`memfd_create`), never through a file system.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ottla.common.config.config_def import ConfigValue
from ottla.common.config.config_keys_tls import TLS_CONFIGS
from ottla.common.errors import KafkaError, OperatorError
from ottla.security.stores import Identity, pem_identity, read_identity, read_revocation_lists, read_trusted

MAX_STORE_BYTES = 16 * 1024 * 1024
"""Size limit of a file; protects against a wrong path."""

ReadFile = Callable[[str, int], bytes]
"""Reads a file of limited size; raises OSError, also for a larger file."""

_KEYS = {key.name: key for key in TLS_CONFIGS}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_OF_13 = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsSettings(NamedTuple):
    """Parsed `ssl.*` settings."""

    keystore: str | None
    keystore_password: str | None
    key_password: str | None
    key: str | None
    chain: str | None
    truststore: str | None
    truststore_password: str | None
    trusted: str | None
    revoked: str | None
    client_auth: str
    protocols: tuple[str, ...]
    suites: tuple[str, ...]
    checks_names: bool
    mapping_rules: str

    @classmethod
    def of(cls, get: Callable[[str], ConfigValue]) -> TlsSettings:
        """Read the settings with `get`. Raises OperatorError for settings that contradict each other."""

        def text(name: str) -> str | None:
            value = get(name)
            return str(value) if value else None

        def items(name: str) -> tuple[str, ...]:
            value = get(name)
            return value if isinstance(value, tuple) else ()

        settings = cls(
            keystore=text("ssl.keystore.location"),
            keystore_password=text("ssl.keystore.password"),
            key_password=text("ssl.key.password"),
            key=text("ssl.keystore.key"),
            chain=text("ssl.keystore.certificate.chain"),
            truststore=text("ssl.truststore.location"),
            truststore_password=text("ssl.truststore.password"),
            trusted=text("ssl.truststore.certificates"),
            revoked=text("ssl.crl.location"),
            client_auth=text("ssl.client.auth") or "none",
            protocols=items("ssl.enabled.protocols"),
            suites=items("ssl.cipher.suites"),
            checks_names=bool(text("ssl.endpoint.identification.algorithm")),
            mapping_rules=text("ssl.principal.mapping.rules") or "DEFAULT",
        )
        settings._check()
        return settings

    @classmethod
    def parse(cls, properties: Mapping[str, str], place: str) -> TlsSettings:
        """Parse `properties`, which are in `place`; missing ones get their defaults. Raises OperatorError."""

        def get(name: str) -> ConfigValue:
            key, text = _KEYS[name], properties.get(name)
            try:
                return key.default if text is None else key.parse(text)
            except KafkaError as error:
                raise OperatorError(f"{error.message} (in {place})") from error

        return cls.of(get)

    def _check(self) -> None:
        if self.keystore and (self.key or self.chain):
            raise OperatorError("ssl.keystore.location and ssl.keystore.key are both set; remove one of them")
        if bool(self.key) != bool(self.chain):
            raise OperatorError("ssl.keystore.key and ssl.keystore.certificate.chain belong together; set both")
        if self.truststore and self.trusted:
            raise OperatorError("ssl.truststore.location and ssl.truststore.certificates are both set; remove one")


class TlsFiles(NamedTuple):
    """Contents of the files that the settings name."""

    identity: Identity | None
    trusted: str | None
    """PEM; None to use the system's trusted certificates."""
    revoked: bytes | None
    """Revocation lists as PEM; None without `ssl.crl.location`."""


def read_material(settings: TlsSettings, read: ReadFile) -> TlsFiles:
    """The key, chain and trusted certificates. Raises OperatorError that names setting or file."""
    identity = None
    if settings.keystore:
        data = _read(read, settings.keystore, "ssl.keystore.location")
        what = f"ssl.keystore.location {settings.keystore}"
        identity = read_identity(data, what, settings.keystore_password, settings.key_password)
    elif settings.key and settings.chain:
        identity = pem_identity(
            settings.key.encode(), settings.chain.encode(), "ssl.keystore.key", settings.key_password
        )
    trusted = None
    if settings.truststore:
        data = _read(read, settings.truststore, "ssl.truststore.location")
        what = f"ssl.truststore.location {settings.truststore}"
        trusted = read_trusted(data, what, settings.truststore_password)
    elif settings.trusted:
        trusted = read_trusted(settings.trusted.encode(), "ssl.truststore.certificates", None)
    revoked = None
    if settings.revoked:
        data = _read(read, settings.revoked, "ssl.crl.location")
        revoked = read_revocation_lists(data, f"ssl.crl.location {settings.revoked}")
    return TlsFiles(identity, trusted, revoked)


def server_context(settings: TlsSettings, material: TlsFiles) -> ssl.SSLContext:
    """Context of a listener. Raises OperatorError."""
    if material.identity is None:
        raise OperatorError(
            "a listener uses TLS and has no key: set ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain (`ottla security init` creates them)"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings, material)
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


def client_context(settings: TlsSettings, material: TlsFiles) -> ssl.SSLContext:
    """Context of a client; presents its certificate, if it has one, on request. Raises OperatorError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings, material)
    context.check_hostname = settings.checks_names
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _context(protocol: int, settings: TlsSettings, material: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a truststore entry needs no issuer, as in Java
    _choose_versions(context, settings.protocols, settings.suites)
    if material.identity is not None:
        _load_identity(context, material.identity.pem)
    if material.trusted is not None:
        context.load_verify_locations(cadata=material.trusted)
    else:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH if protocol == ssl.PROTOCOL_TLS_SERVER else ssl.Purpose.SERVER_AUTH
        )
    if material.revoked is not None:
        with _in_memory(material.revoked) as path:
            context.load_verify_locations(cafile=path)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _choose_versions(context: ssl.SSLContext, protocols: Sequence[str], suites: Sequence[str]) -> None:
    unknown = [name for name in protocols if name not in _VERSIONS]
    if unknown or not protocols:
        raise OperatorError(
            f"ssl.enabled.protocols has {unknown[0] if unknown else 'no value'}; choose from {', '.join(_VERSIONS)}"
        )
    chosen = {_VERSIONS[name] for name in protocols}
    if suites:
        of_13 = _SUITES_OF_13.intersection(suites)
        if of_13 and of_13 != _SUITES_OF_13:
            raise OperatorError(
                "ssl.cipher.suites names only some suites of TLS 1.3, but OpenSSL always offers all of them: name "
                f"{', '.join(sorted(_SUITES_OF_13))}, or none of them for TLS 1.2 only"
            )
        older = [name for name in suites if name not in _SUITES_OF_13]
        if not of_13:
            chosen.discard(ssl.TLSVersion.TLSv1_3)
        if older:
            _choose_suites(context, older)
        else:
            chosen.discard(ssl.TLSVersion.TLSv1_2)
        if not chosen:
            raise OperatorError("ssl.cipher.suites has no suite for any version in ssl.enabled.protocols; add one")
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)


def _choose_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    for name in names:
        try:
            context.set_ciphers(_openssl_name(name))
        except ssl.SSLError as error:
            raise OperatorError(f"ssl.cipher.suites has {name!r}, which OpenSSL does not know; remove it") from error
    context.set_ciphers(":".join(map(_openssl_name, names)))


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2 by its IANA name: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not cipher:
        return name
    for bits in ("128", "256"):
        cipher = cipher.replace(f"AES_{bits}_CBC_", f"AES{bits}-").replace(f"AES_{bits}_", f"AES{bits}_")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = [cipher.replace("AES128_", "AES128-").replace("AES256_", "AES256-").replace("GCM_", "GCM-")]
    if exchange != "RSA":
        parts.insert(0, exchange.replace("_", "-"))
    return "-".join(parts).replace("CHACHA20_POLY1305", "CHACHA20-POLY1305")


def _load_identity(context: ssl.SSLContext, pem: bytes) -> None:
    try:
        with _in_memory(pem) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise OperatorError(f"OpenSSL rejects the key or the certificates of ssl.keystore: {error.reason}") from error


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path under which OpenSSL reads `content` from memory."""
    descriptor = os.memfd_create("content", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _read(read: ReadFile, path: str, setting: str) -> bytes:
    try:
        return read(path, MAX_STORE_BYTES)
    except OSError as error:
        raise OperatorError(f"{setting} {path} can't be read: {(error.strerror or str(error)).lower()}") from error
