"""Broker settings of TLS; the prefix `listener.name.<name>.` sets one for a single listener (KIP-103, KIP-651)."""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, ConfigValue, Importance, OneOf, UpdateMode, Validator


def _tls(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    validator: Validator | None = None,
    update_mode: UpdateMode = UpdateMode.PER_BROKER,
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, validator, Importance.MEDIUM, update_mode)


TLS_CONFIGS = [
    _tls(
        "ssl.keystore.location",
        ConfigType.STRING,
        None,
        "File with this node's key and certificate chain, PEM or PKCS12, detected from the content.",
    ),
    _tls("ssl.keystore.password", ConfigType.PASSWORD, None, "Password of the keystore; not used for PEM."),
    _tls(
        "ssl.keystore.type",
        ConfigType.STRING,
        "JKS",
        "Accepted as in Apache Kafka without effect: the format is detected from the content.",
    ),
    _tls("ssl.key.password", ConfigType.PASSWORD, None, "Password of the private key in the keystore."),
    _tls(
        "ssl.keystore.key",
        ConfigType.PASSWORD,
        None,
        "Private key as PEM (PKCS8), in place of ssl.keystore.location.",
    ),
    _tls(
        "ssl.keystore.certificate.chain",
        ConfigType.PASSWORD,
        None,
        "Certificate chain of ssl.keystore.key as PEM, the node's own certificate first.",
    ),
    _tls(
        "ssl.truststore.location",
        ConfigType.STRING,
        None,
        "File with the trusted certificates, PEM or PKCS12; if not set, those of the system.",
    ),
    _tls("ssl.truststore.password", ConfigType.PASSWORD, None, "Password of the truststore; not used for PEM."),
    _tls(
        "ssl.truststore.type",
        ConfigType.STRING,
        "JKS",
        "Accepted as in Apache Kafka without effect: the format is detected from the content.",
    ),
    _tls(
        "ssl.truststore.certificates",
        ConfigType.PASSWORD,
        None,
        "Trusted certificates as PEM, in place of ssl.truststore.location.",
    ),
    _tls(
        "ssl.crl.location",
        ConfigType.STRING,
        None,
        "PEM file with certificate revocation lists, one for each authority. A revoked certificate, or one of an "
        "authority without a valid list, is rejected. The name is from librdkafka; Apache Kafka has no such setting.",
    ),
    _tls(
        "ssl.client.auth",
        ConfigType.STRING,
        "none",
        "Client certificates: required, requested or none. The certificate's subject becomes the client's principal.",
        OneOf(("required", "requested", "none")),
    ),
    _tls("ssl.enabled.protocols", ConfigType.LIST, ("TLSv1.2", "TLSv1.3"), "Enabled TLS versions."),
    _tls(
        "ssl.protocol",
        ConfigType.STRING,
        "TLSv1.3",
        "Accepted as in Apache Kafka without effect: see ssl.enabled.protocols.",
    ),
    _tls(
        "ssl.cipher.suites",
        ConfigType.LIST,
        (),
        "Enabled cipher suites, by their IANA names; if empty, OpenSSL's default.",
    ),
    _tls(
        "ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "https",
        "Verification of host names in certificates of nodes that this node connects to; empty disables it.",
    ),
    _tls(
        "ssl.principal.mapping.rules",
        ConfigType.STRING,
        "DEFAULT",
        "Rules that map the distinguished name of a client certificate to a user name; the first rule that matches "
        "applies.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _tls(
        "ssl.allow.dn.changes",
        ConfigType.BOOLEAN,
        False,
        "Accept a new certificate with another subject while the broker runs.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _tls(
        "ssl.allow.san.changes",
        ConfigType.BOOLEAN,
        False,
        "Accept a new certificate without some host names of the old one while the broker runs.",
        update_mode=UpdateMode.READ_ONLY,
    ),
]
