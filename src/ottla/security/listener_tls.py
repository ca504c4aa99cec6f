"""TLS of one listener: its server context, and the client context with which this node connects to such listeners.

The contexts are replaced as a whole when a broker setting is written (KIP-226); the files are then read again. Open
connections continue with their contexts; new connections use the new ones. Unusable settings change nothing.
"""

from __future__ import annotations

import logging
import ssl

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.kafka.acl import ANONYMOUS
from ottla.security.contexts import ReadFile, TlsFiles, TlsSettings, client_context, read_material, server_context
from ottla.security.distinguished_names import PrincipalMapping, distinguished_name

logger = logging.getLogger(__name__)


class ListenerTls:
    """Contexts of one listener, of this node or of others."""

    __slots__ = ("_client", "_mapping", "_material", "_read", "_server", "_settings", "name")

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        read: ReadFile,
        *,
        listens: bool,
        read_again: ReadFile | None = None,
    ) -> None:
        """`listens` is whether this node opens the listener, and so needs a key; `read_again` reads files at runtime.

        Raises OperatorError.
        """
        self.name = name
        self._read = read if read_again is None else read_again
        self._settings = self._settings_of(config)
        self._material = read_material(self._settings, read)
        self._mapping = PrincipalMapping(self._settings.mapping_rules)
        self._client = client_context(self._settings, self._material)
        self._server = server_context(self._settings, self._material) if listens else None

    @property
    def expiry_s(self) -> float | None:
        """End of the validity of the own certificate chain, in seconds since the epoch; None without a certificate."""
        identity = self._material.identity
        return None if identity is None else identity.expiry_s

    @property
    def server(self) -> ssl.SSLContext:
        """Context for an incoming connection. Raises KeyError on a listener that this node does not open."""
        if self._server is None:
            raise KeyError(self.name)
        return self._server

    @property
    def client(self) -> ssl.SSLContext:
        """Context for an outgoing connection."""
        return self._client

    def principal(self, certificate: bytes | None) -> str:
        """Principal of a verified certificate (DER); anonymous without one. Raises ValueError."""
        if certificate is None:
            return ANONYMOUS
        from cryptography.x509 import load_der_x509_certificate

        subject = load_der_x509_certificate(certificate).subject
        return f"User:{self._mapping.name(distinguished_name(subject))}"

    def follow(self, config: BrokerConfig) -> None:
        """Apply changed broker settings: files are reloaded even if these settings are the same, as in Apache Kafka."""
        try:
            prepared = self._prepared(config)
        except OperatorError as error:
            logger.error("listener %s keeps its certificates, because the new ones are invalid: %s", self.name, error)
            return
        if prepared is not None:
            self._settings, self._material, self._client, self._server = prepared
            logger.info("listener %s loaded new certificates or TLS settings", self.name)

    def check(self, config: BrokerConfig) -> None:
        """Check proposed settings. Raises OperatorError if they can't be applied."""
        self._prepared(config)

    def _prepared(
        self, config: BrokerConfig
    ) -> tuple[TlsSettings, TlsFiles, ssl.SSLContext, ssl.SSLContext | None] | None:
        """Contexts from the settings and the current files; None if nothing has changed."""
        settings = self._settings_of(config)
        material = read_material(settings, self._read)
        if settings == self._settings and material == self._material:
            return None
        _refuse_another_identity(self._material, material, config, self.name)
        client = client_context(settings, material)
        server = server_context(settings, material) if self._server is not None else None
        return settings, material, client, server

    def _settings_of(self, config: BrokerConfig) -> TlsSettings:
        return TlsSettings.of(lambda setting: config.of_listener(self.name, setting))


def _refuse_another_identity(old: TlsFiles, new: TlsFiles, config: BrokerConfig, name: str) -> None:
    """Reject a new certificate with another subject or missing hosts, unless the settings allow it (KIP-978)."""
    if old.identity is None or new.identity is None:
        return
    if new.identity.subject != old.identity.subject and not config.of_listener(name, "ssl.allow.dn.changes"):
        raise OperatorError("the new certificate has another subject; set ssl.allow.dn.changes=true to allow that")
    if not new.identity.hosts >= old.identity.hosts and not config.of_listener(name, "ssl.allow.san.changes"):
        raise OperatorError("the new certificate lacks host names; set ssl.allow.san.changes=true to allow that")
