"""Broker settings of TLS, each also for one listener alone by `listener.name.<name>.` before it (KIP-103, KIP-651)."""

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
        "File with this node's key and certificate chain, PEM or PKCS12, which its content tells.",
    ),
    _tls("ssl.keystore.password", ConfigType.PASSWORD, None, "Password of the keystore; PEM has none."),
    _tls(
        "ssl.keystore.type",
        ConfigType.STRING,
        "JKS",
        "Taken as in Apache Kafka; what a keystore is its content tells.",
    ),
    _tls("ssl.key.password", ConfigType.PASSWORD, None, "Password of the private key in the keystore."),
    _tls(
        "ssl.keystore.key",
        ConfigType.PASSWORD,
        None,
        "The private key itself as PEM (PKCS8), in place of ssl.keystore.location.",
    ),
    _tls(
        "ssl.keystore.certificate.chain",
        ConfigType.PASSWORD,
        None,
        "The certificate chain of ssl.keystore.key as PEM, the node's own first.",
    ),
    _tls(
        "ssl.truststore.location",
        ConfigType.STRING,
        None,
        "File with the certificates that are trusted, PEM or PKCS12; without any those of the system are.",
    ),
    _tls("ssl.truststore.password", ConfigType.PASSWORD, None, "Password of the truststore; PEM has none."),
    _tls(
        "ssl.truststore.type",
        ConfigType.STRING,
        "JKS",
        "Taken as in Apache Kafka; what a truststore is its content tells.",
    ),
    _tls(
        "ssl.truststore.certificates",
        ConfigType.PASSWORD,
        None,
        "The trusted certificates themselves as PEM, in place of ssl.truststore.location.",
    ),
    _tls(
        "ssl.crl.location",
        ConfigType.STRING,
        None,
        "File with revocation lists (PEM), one of each authority whose certificates are shown; a certificate on it, or "
        "of an authority without a valid list, is refused. The name is librdkafka's; Apache Kafka has none.",
    ),
    _tls(
        "ssl.client.auth",
        ConfigType.STRING,
        "none",
        "Whether clients show a certificate, which then says who they are.",
        OneOf(("required", "requested", "none")),
    ),
    _tls("ssl.enabled.protocols", ConfigType.LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS that are spoken."),
    _tls("ssl.protocol", ConfigType.STRING, "TLSv1.3", "Taken as in Apache Kafka; ssl.enabled.protocols decides."),
    _tls(
        "ssl.cipher.suites",
        ConfigType.LIST,
        (),
        "Cipher suites that are spoken, by their IANA names; those of OpenSSL's default when empty.",
    ),
    _tls(
        "ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "https",
        "How this node checks the names of nodes that it connects to; an empty value checks none.",
    ),
    _tls(
        "ssl.principal.mapping.rules",
        ConfigType.STRING,
        "DEFAULT",
        "Rules that make a user's name of the distinguished name in a client's certificate, the first that fits.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _tls(
        "ssl.allow.dn.changes",
        ConfigType.BOOLEAN,
        False,
        "Take a new certificate of another subject while the broker runs.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _tls(
        "ssl.allow.san.changes",
        ConfigType.BOOLEAN,
        False,
        "Take a new certificate that lacks names of hosts which the old one had, while the broker runs.",
        update_mode=UpdateMode.READ_ONLY,
    ),
]
