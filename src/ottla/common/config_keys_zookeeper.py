"""The settings of a broker that ZooKeeper coordinates: names, types and defaults of Apache Kafka 3.9, texts our own."""

from __future__ import annotations

from ottla.common.config_def import ConfigKey, ConfigType, Importance, at_least

ZOOKEEPER_CONNECT = "zookeeper.connect"

ZOOKEEPER_CONFIGS = [
    ConfigKey(
        ZOOKEEPER_CONNECT,
        ConfigType.STRING,
        None,
        "Servers of ZooKeeper as host:port, separated by commas, and perhaps a path at the end below which all lies. "
        "Without process.roles the cluster is kept there; with it this has no effect.",
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
]
