"""The settings of a broker that ZooKeeper coordinates: names, types and defaults of Apache Kafka 3.9, texts our own."""

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
"""Those that mean the same as `ssl.*` of a listener."""


def _security(name: str, kind: ConfigType, default: ConfigValue, doc: str) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, importance=Importance.MEDIUM)


ZOOKEEPER_CONFIGS = [
    ConfigKey(
        ZOOKEEPER_CONNECT,
        ConfigType.STRING,
        None,
        "Servers of ZooKeeper as host:port, separated by commas, and perhaps a path at the end below which all lies. "
        "Without process.roles the cluster is kept there; with it only a migration from there reads this.",
        importance=Importance.HIGH,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        ConfigType.INT,
        18_000,
        "How long ZooKeeper waits for a broker that it does not hear of, before it counts as gone.",
        at_least(1),
        Importance.HIGH,
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        ConfigType.INT,
        None,
        "How long a start waits for a server of ZooKeeper; without it zookeeper.session.timeout.ms.",
        at_least(1),
        Importance.HIGH,
    ),
    _security(
        "zookeeper.set.acl",
        ConfigType.BOOLEAN,
        False,
        "Whether znodes that this broker makes belong to its user, for everybody to read but for what is secret.",
    ),
    _security(
        "zookeeper.ssl.client.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether TLS is spoken with ZooKeeper, at the port of its secureClientPort.",
    ),
    _security(
        "zookeeper.clientCnxnSocket",
        ConfigType.STRING,
        None,
        "Taken as in Apache Kafka, where TLS needs it; here TLS is spoken by zookeeper.ssl.client.enable alone.",
    ),
    _security(
        "zookeeper.ssl.keystore.location",
        ConfigType.STRING,
        None,
        "File with the key and certificates that are shown to ZooKeeper, PEM or PKCS12, which its content tells.",
    ),
    _security(
        "zookeeper.ssl.keystore.password",
        ConfigType.PASSWORD,
        None,
        "Password of that keystore, and of its key; PEM without encryption has none.",
    ),
    _security("zookeeper.ssl.keystore.type", ConfigType.STRING, None, "Taken; what a keystore is its content tells."),
    _security(
        "zookeeper.ssl.truststore.location",
        ConfigType.STRING,
        None,
        "File with the certificates that are trusted of ZooKeeper; without any those of the system are.",
    ),
    _security("zookeeper.ssl.truststore.password", ConfigType.PASSWORD, None, "Password of that truststore."),
    _security(
        "zookeeper.ssl.truststore.type", ConfigType.STRING, None, "Taken; what a truststore is its content tells."
    ),
    _security(
        "zookeeper.ssl.protocol", ConfigType.STRING, "TLSv1.2", "Taken; zookeeper.ssl.enabled.protocols decides."
    ),
    _security(
        "zookeeper.ssl.enabled.protocols",
        ConfigType.LIST,
        None,
        "Versions of TLS towards ZooKeeper; without any TLSv1.2 and TLSv1.3.",
    ),
    _security(
        "zookeeper.ssl.cipher.suites",
        ConfigType.LIST,
        None,
        "Cipher suites towards ZooKeeper by their IANA names; without any those of OpenSSL.",
    ),
    _security(
        "zookeeper.ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "HTTPS",
        "Empty: ZooKeeper's certificate need not name the host that was connected to.",
    ),
    _security(
        "zookeeper.ssl.crl.enable",
        ConfigType.BOOLEAN,
        False,
        "Revocation lists for ZooKeeper's certificates, which are not there: true is refused.",
    ),
    _security(
        "zookeeper.ssl.ocsp.enable",
        ConfigType.BOOLEAN,
        False,
        "OCSP for ZooKeeper's certificates, which is not there: true is refused.",
    ),
    ConfigKey(
        MIGRATION,
        ConfigType.BOOLEAN,
        False,
        "Whether the cluster moves from ZooKeeper to the quorum; of controllers, until the move is to be for good.",
        importance=Importance.HIGH,
    ),
]
