"""Settings of a ZooKeeper broker: names, types and defaults of Apache Kafka 3.9, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, ConfigValue, Importance, at_least

ZOOKEEPER_CONNECT = "zookeeper.connect"
MIGRATION = "zookeeper.metadata.migration.enable"
SSL_PREFIX = "zookeeper.ssl."
SSL_SETTINGS = (
    "keystore.location",
    "keystore.password",
    "keystore.type",
    "truststore.location",
    "truststore.password",
    "truststore.type",
    "enabled.protocols",
    "cipher.suites",
    "endpoint.identification.algorithm",
)
"""Settings with the same meaning as `ssl.*` of a listener."""


def _security(name: str, kind: ConfigType, default: ConfigValue, doc: str) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, importance=Importance.MEDIUM)


ZOOKEEPER_CONFIGS = [
    ConfigKey(
        ZOOKEEPER_CONNECT,
        ConfigType.STRING,
        None,
        "ZooKeeper servers as host:port, separated by commas, with an optional chroot path at the end. Without "
        "process.roles the cluster's metadata is in ZooKeeper; with process.roles only a migration from ZooKeeper "
        "reads this.",
        importance=Importance.HIGH,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        ConfigType.INT,
        18_000,
        "Time without contact after which ZooKeeper expires a broker's session.",
        at_least(1),
        Importance.HIGH,
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        ConfigType.INT,
        None,
        "Time that the start waits for a ZooKeeper server; zookeeper.session.timeout.ms if not set.",
        at_least(1),
        Importance.HIGH,
    ),
    _security(
        "zookeeper.set.acl",
        ConfigType.BOOLEAN,
        False,
        "Restrict znodes that this broker creates to its own user; others may read them, except znodes with secrets.",
    ),
    _security(
        "zookeeper.ssl.client.enable",
        ConfigType.BOOLEAN,
        False,
        "Use TLS for connections to ZooKeeper, to the port of its secureClientPort.",
    ),
    _security(
        "zookeeper.clientCnxnSocket",
        ConfigType.STRING,
        None,
        "Accepted as in Apache Kafka without effect: zookeeper.ssl.client.enable alone enables TLS.",
    ),
    _security(
        "zookeeper.ssl.keystore.location",
        ConfigType.STRING,
        None,
        "File with the key and certificates for connections to ZooKeeper, PEM or PKCS12, detected from the content.",
    ),
    _security(
        "zookeeper.ssl.keystore.password",
        ConfigType.PASSWORD,
        None,
        "Password of the keystore and its key; not used for unencrypted PEM.",
    ),
    _security(
        "zookeeper.ssl.keystore.type",
        ConfigType.STRING,
        None,
        "Accepted without effect: the format is detected from the content.",
    ),
    _security(
        "zookeeper.ssl.truststore.location",
        ConfigType.STRING,
        None,
        "File with the certificates trusted for ZooKeeper; if not set, those of the system.",
    ),
    _security("zookeeper.ssl.truststore.password", ConfigType.PASSWORD, None, "Password of the truststore."),
    _security(
        "zookeeper.ssl.truststore.type",
        ConfigType.STRING,
        None,
        "Accepted without effect: the format is detected from the content.",
    ),
    _security(
        "zookeeper.ssl.protocol",
        ConfigType.STRING,
        "TLSv1.2",
        "Accepted without effect: see zookeeper.ssl.enabled.protocols.",
    ),
    _security(
        "zookeeper.ssl.enabled.protocols",
        ConfigType.LIST,
        None,
        "TLS versions for connections to ZooKeeper; if not set, TLSv1.2 and TLSv1.3.",
    ),
    _security(
        "zookeeper.ssl.cipher.suites",
        ConfigType.LIST,
        None,
        "Cipher suites for connections to ZooKeeper, by their IANA names; if not set, OpenSSL's default.",
    ),
    _security(
        "zookeeper.ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "HTTPS",
        "Verification of the host name in ZooKeeper's certificate; empty disables it.",
    ),
    _security(
        "zookeeper.ssl.crl.enable",
        ConfigType.BOOLEAN,
        False,
        "Certificate revocation lists for ZooKeeper's certificates. Not supported: true is rejected.",
    ),
    _security(
        "zookeeper.ssl.ocsp.enable",
        ConfigType.BOOLEAN,
        False,
        "OCSP for ZooKeeper's certificates. Not supported: true is rejected.",
    ),
    ConfigKey(
        MIGRATION,
        ConfigType.BOOLEAN,
        False,
        "Migrate the cluster from ZooKeeper to the metadata quorum. Set on controllers until the migration is "
        "finalized.",
        importance=Importance.HIGH,
    ),
]
ZOOKEEPER_CLIENT_PROPERTIES = frozenset(key.name for key in ZOOKEEPER_CONFIGS if key.name.startswith(SSL_PREFIX))
"""TLS properties that clients of ZooKeeper have too."""
