"""Broker settings that can be set and described: names, types and defaults of Apache Kafka 4.4, texts our own.

Deviations from Kafka's defaults:

- `node.id` is 1, `process.roles` is broker and controller, `listeners` is the loopback address and `log.dir` is under
  the working directory, so that `ottla start` works without a file.
- The system sizes socket buffers, and the backlog is 4096, since Kafka's values are small.

Settings without effect, with the reasons, are in `unsupported_configs`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.config.config_def import (
    MAX_INT,
    MAX_LONG,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    OneOf,
    OneOfAnyCase,
    RangeOr,
    UnlimitedOrPositive,
    UpdateMode,
    Validator,
    at_least,
    between,
    key_table,
)
from ottla.common.config.config_keys_authorizer import AUTHORIZER_CONFIGS
from ottla.common.config.config_keys_cleaner import CLEANER_CONFIGS, SCRUBBER_CONFIGS
from ottla.common.config.config_keys_quorum import QUORUM_CONFIGS
from ottla.common.config.config_keys_quotas import QUOTA_CONFIGS
from ottla.common.config.config_keys_replication import REPLICATION_CONFIGS
from ottla.common.config.config_keys_sasl import SASL_CONFIGS
from ottla.common.config.config_keys_share import SHARE_COORDINATOR_CONFIGS
from ottla.common.config.config_keys_share_groups import SHARE_GROUP_CONFIGS
from ottla.common.config.config_keys_tls import TLS_CONFIGS
from ottla.common.config.config_keys_tokens import TOKEN_CONFIGS
from ottla.common.config.config_keys_transactions import TRANSACTION_CONFIGS
from ottla.common.config.config_keys_zookeeper import ZOOKEEPER_CONFIGS
from ottla.common.config.passive_configs import STORED_KEYS
from ottla.common.config.topic_configs import CLEANUP_POLICIES, COMPRESSION_TYPES, HOUR_MS, TIMESTAMP_TYPES, WEEK_MS
from ottla.common.kafka.ids import MIN_NODE_ID

DEFAULT_SECURITY_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


def _fixed(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    validator: Validator | None = None,
    *,
    importance: Importance = Importance.MEDIUM,
    internal: bool = False,
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, validator, importance, UpdateMode.READ_ONLY, internal=internal)


def _dynamic(
    name: str, kind: ConfigType, default: ConfigValue, doc: str, validator: Validator | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, validator, Importance.HIGH, UpdateMode.CLUSTER_WIDE)


_IDENTITY = [
    _fixed(
        "node.id",
        ConfigType.INT,
        1,
        "ID of this node, unique in the cluster; stored in meta.properties of the data directory.",
        at_least(MIN_NODE_ID),
        importance=Importance.HIGH,
    ),
    _fixed("broker.id", ConfigType.INT, -1, "Older name of node.id.", importance=Importance.HIGH),
    _fixed(
        "process.roles",
        ConfigType.LIST,
        ("broker", "controller"),
        "Roles of this process: broker, controller, or both.",
        OneOf(("broker", "controller")),
        importance=Importance.HIGH,
    ),
    _fixed("broker.rack", ConfigType.STRING, None, "Rack of this broker, returned to clients in Metadata responses."),
    _fixed(
        "listeners",
        ConfigType.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, as NAME://host:port; an empty host means all IPv4 and IPv6 addresses, port 0 "
        "selects a free port.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "advertised.listeners",
        ConfigType.LIST,
        None,
        "Addresses returned to clients, by listener name; the value of listeners if not set.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "listener.security.protocol.map",
        ConfigType.STRING,
        DEFAULT_SECURITY_PROTOCOL_MAP,
        "Security protocol of each listener name.",
    ),
    _fixed(
        "controller.listener.names",
        ConfigType.LIST,
        (),
        "Listener names of the controller; other nodes connect to the first. Not opened if no quorum controllers are "
        "configured.",
    ),
    _fixed(
        "inter.broker.listener.name",
        ConfigType.STRING,
        None,
        "Listener for connections between brokers. If not set: the listener named like "
        "security.inter.broker.protocol, else the first.",
    ),
    _fixed(
        "security.inter.broker.protocol",
        ConfigType.STRING,
        "PLAINTEXT",
        "Security protocol between brokers, used if inter.broker.listener.name is not set.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ),
    _fixed(
        "controller.quorum.voters",
        ConfigType.LIST,
        (),
        "Voters as id@host:port, for a cluster with kraft.version 0, where the metadata log has no voters. If the "
        "log contains the voters, these addresses are used for leader discovery only.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "controller.quorum.bootstrap.servers",
        ConfigType.LIST,
        (),
        "Controllers as host:port from which this node discovers the leader of the metadata quorum. If not set, the "
        "node is a quorum of its own.",
        importance=Importance.HIGH,
    ),
]

_TOPICS = [
    _fixed(
        "auto.create.topics.enable",
        ConfigType.BOOLEAN,
        True,
        "Create a missing topic when a client requests its metadata and allows creation, with this broker's "
        "num.partitions and default.replication.factor.",
        importance=Importance.HIGH,
    ),
    _fixed("delete.topic.enable", ConfigType.BOOLEAN, True, "Allow topics to be deleted.", importance=Importance.HIGH),
    _fixed("num.partitions", ConfigType.INT, 1, "Default number of partitions of a new topic.", at_least(1)),
    _fixed("default.replication.factor", ConfigType.INT, 1, "Default replication factor of a new topic.", at_least(1)),
]

_LOG_FIXED = [
    _fixed(
        "log.dir",
        ConfigType.STRING,
        "./ottla-data",
        "Data directory, used if log.dirs is not set.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "log.dirs",
        ConfigType.LIST,
        None,
        "Data directories, separated by commas; a new partition is created in the one with the fewest partitions.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "metadata.log.dir",
        ConfigType.STRING,
        None,
        "Directory of the metadata log; the first of log.dirs if not set.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "log.flush.offset.checkpoint.interval.ms",
        ConfigType.INT,
        60_000,
        "Interval at which recovery points are written to their checkpoint file.",
        at_least(0),
    ),
    _fixed(
        "log.flush.start.offset.checkpoint.interval.ms",
        ConfigType.INT,
        60_000,
        "Interval at which log start offsets are written to their checkpoint file.",
        at_least(0),
    ),
    _fixed(
        "log.flush.scheduler.interval.ms",
        ConfigType.LONG,
        MAX_LONG,
        "Interval at which logs are checked for flush.ms.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "log.initial.task.delay.ms",
        ConfigType.LONG,
        30_000,
        "Delay of the first retention check after the start, if log.retention.check.interval.ms is longer.",
        at_least(0),
    ),
    _fixed(
        "log.retention.check.interval.ms",
        ConfigType.LONG,
        300_000,
        "Interval at which logs are checked for retention by time and size.",
        at_least(1),
    ),
    _fixed(
        "log.retention.hours",
        ConfigType.INT,
        168,
        "Hours to retain a log, used if neither log.retention.ms nor log.retention.minutes is set.",
        UnlimitedOrPositive(),
        importance=Importance.HIGH,
    ),
    _fixed(
        "log.retention.minutes",
        ConfigType.INT,
        None,
        "Minutes to retain a log, used if log.retention.ms is not set.",
        UnlimitedOrPositive(),
        importance=Importance.HIGH,
    ),
    _fixed(
        "log.roll.hours",
        ConfigType.INT,
        168,
        "Hours after which a new segment is rolled, used if log.roll.ms is not set.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "log.roll.jitter.hours",
        ConfigType.INT,
        0,
        "Hours of jitter, used if log.roll.jitter.ms is not set.",
        at_least(0),
        importance=Importance.HIGH,
    ),
    _fixed(
        "replica.high.watermark.checkpoint.interval.ms",
        ConfigType.LONG,
        5_000,
        "Interval at which high watermarks are written to their checkpoint file.",
        at_least(1),
    ),
    _fixed(
        "metadata.log.max.record.bytes.between.snapshots",
        ConfigType.LONG,
        20 * 1024**2,
        "Bytes of metadata log after which a snapshot is created.",
        at_least(1),
    ),
    _fixed(
        "metadata.log.max.snapshot.interval.ms",
        ConfigType.LONG,
        HOUR_MS,
        "Time after which a snapshot is created if there are new records; 0 disables snapshots by time.",
        at_least(0),
    ),
    _fixed(
        "metadata.log.segment.bytes",
        ConfigType.INT,
        1024**3,
        "Segment size of the metadata log.",
        at_least(8 * 1024**2),
    ),
    _fixed("metadata.log.segment.ms", ConfigType.LONG, WEEK_MS, "Segment age of the metadata log.", at_least(1)),
    _fixed(
        "metadata.max.retention.bytes",
        ConfigType.LONG,
        100 * 1024**2,
        "Size of the metadata log and snapshots above which the log before the latest snapshot is deleted.",
    ),
    _fixed(
        "metadata.max.retention.ms",
        ConfigType.LONG,
        WEEK_MS,
        "Age at which the metadata log before the latest snapshot, and older snapshots, are deleted.",
    ),
]

_LOG_DYNAMIC = [
    ConfigKey(
        "cordoned.log.dirs",
        ConfigType.LIST,
        (),
        "Directories of log.dirs that get no new partitions while another one is available; * means all (KIP-1066). "
        "A broker with all directories cordoned gets no new partitions from metadata.version 4.3-IV0 on.",
        importance=Importance.MEDIUM,
        update_mode=UpdateMode.PER_BROKER,
    ),
    _dynamic(
        "log.cleanup.policy",
        ConfigType.LIST,
        ("delete",),
        "Default of cleanup.policy.",
        OneOf(CLEANUP_POLICIES),
    ),
    _dynamic(
        "log.cleaner.delete.retention.ms",
        ConfigType.LONG,
        24 * HOUR_MS,
        "Default of delete.retention.ms.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.max.compaction.lag.ms",
        ConfigType.LONG,
        MAX_LONG,
        "Default of max.compaction.lag.ms.",
        at_least(1),
    ),
    _dynamic("log.cleaner.min.compaction.lag.ms", ConfigType.LONG, 0, "Default of min.compaction.lag.ms.", at_least(0)),
    _dynamic(
        "log.cleaner.min.cleanable.ratio",
        ConfigType.DOUBLE,
        0.5,
        "Default of min.cleanable.dirty.ratio.",
        between(0, 1),
    ),
    _dynamic("log.flush.interval.messages", ConfigType.LONG, MAX_LONG, "Default of flush.messages.", at_least(1)),
    _dynamic(
        "log.flush.interval.ms",
        ConfigType.LONG,
        None,
        "Default of flush.ms; log.flush.scheduler.interval.ms when not set.",
        at_least(0),
    ),
    _dynamic("log.index.interval.bytes", ConfigType.INT, 4096, "Default of index.interval.bytes.", at_least(0)),
    _dynamic("log.index.size.max.bytes", ConfigType.INT, 10 * 1024**2, "Default of segment.index.bytes.", at_least(4)),
    _dynamic("log.local.retention.bytes", ConfigType.LONG, -2, "Default of local.retention.bytes.", at_least(-2)),
    _dynamic("log.local.retention.ms", ConfigType.LONG, -2, "Default of local.retention.ms.", at_least(-2)),
    _dynamic(
        "log.message.timestamp.after.max.ms",
        ConfigType.LONG,
        HOUR_MS,
        "Default of message.timestamp.after.max.ms.",
        at_least(0),
    ),
    _dynamic(
        "log.message.timestamp.before.max.ms",
        ConfigType.LONG,
        MAX_LONG,
        "Default of message.timestamp.before.max.ms.",
        at_least(0),
    ),
    _dynamic(
        "log.message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "Default of message.timestamp.type.",
        OneOf(TIMESTAMP_TYPES),
    ),
    _dynamic("log.preallocate", ConfigType.BOOLEAN, False, "Default of preallocate."),
    _dynamic("log.retention.bytes", ConfigType.LONG, -1, "Default of retention.bytes."),
    _dynamic(
        "log.retention.ms",
        ConfigType.LONG,
        None,
        "Default of retention.ms; log.retention.minutes, then log.retention.hours, when not set.",
        UnlimitedOrPositive(),
    ),
    _dynamic(
        "log.roll.jitter.ms",
        ConfigType.LONG,
        None,
        "Default of segment.jitter.ms; log.roll.jitter.hours when not set.",
        at_least(0),
    ),
    _dynamic("log.roll.ms", ConfigType.LONG, None, "Default of segment.ms; log.roll.hours when not set.", at_least(1)),
    _dynamic("log.segment.bytes", ConfigType.INT, 1024**3, "Default of segment.bytes.", at_least(1024**2)),
    _dynamic("log.segment.delete.delay.ms", ConfigType.LONG, 60_000, "Default of file.delete.delay.ms.", at_least(0)),
    _dynamic(
        "max.decompressed.message.bytes",
        ConfigType.INT,
        MAX_INT - 8,
        "Default of the topic setting.",
        between(1, MAX_INT - 8),
    ),
    _dynamic("message.max.bytes", ConfigType.INT, 1048588, "Default of max.message.bytes.", at_least(0)),
    _dynamic(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "Default of the topic setting. A new cluster copies it to the dynamic cluster-wide setting; later "
        "on it is changed there (kafka-configs --entity-default), and not by one broker's file.",
        at_least(1),
    ),
    _dynamic(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "Default of the topic setting.",
        OneOf(COMPRESSION_TYPES),
    ),
    _dynamic("compression.gzip.level", ConfigType.INT, -1, "Default of the topic setting.", RangeOr(1, 9, -1)),
    _dynamic("compression.lz4.level", ConfigType.INT, 9, "Default of the topic setting.", between(1, 17)),
    _dynamic("compression.zstd.level", ConfigType.INT, 3, "Default of the topic setting.", between(-131072, 22)),
    _dynamic("unclean.leader.election.enable", ConfigType.BOOLEAN, False, "Default of the topic setting."),
]

_NETWORK = [
    _fixed(
        "telemetry.max.bytes",
        ConfigType.INT,
        1048576,
        "Maximum size of metrics in a client's push, as sent and decompressed.",
        at_least(1),
        importance=Importance.LOW,
    ),
    _fixed(
        "socket.request.max.bytes",
        ConfigType.INT,
        100 * 1024**2,
        "Maximum size of a request; a connection that announces a larger one is closed.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "socket.receive.buffer.bytes",
        ConfigType.INT,
        -1,
        "SO_RCVBUF of client connections; -1 leaves the size to the operating system, which adapts it to the "
        "connection.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "socket.send.buffer.bytes",
        ConfigType.INT,
        -1,
        "SO_SNDBUF of client connections; -1 leaves the size to the operating system, which adapts it to the "
        "connection.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "socket.listen.backlog.size",
        ConfigType.INT,
        4096,
        "Maximum number of connections that wait to be accepted on each listener. The operating system limits it to "
        "net.core.somaxconn; a client that finds it full retries after a second.",
        at_least(1),
    ),
    _fixed(
        "connections.max.idle.ms",
        ConfigType.LONG,
        600_000,
        "Time without a request after which a connection is closed; -1 means never.",
    ),
    _dynamic(
        "max.connections",
        ConfigType.INT,
        MAX_INT,
        "Maximum number of concurrent connections over all listeners.",
        at_least(0),
    ),
    _dynamic(
        "max.connections.per.ip",
        ConfigType.INT,
        MAX_INT,
        "Maximum number of concurrent connections from one address.",
        at_least(0),
    ),
    _fixed(
        "fetch.max.bytes",
        ConfigType.INT,
        55 * 1024**2,
        "Maximum bytes of records in one fetch response.",
        at_least(1024),
    ),
    _fixed(
        "max.incremental.fetch.session.cache.slots",
        ConfigType.INT,
        1000,
        "Maximum number of cached incremental fetch sessions (KIP-227).",
        at_least(0),
    ),
    _fixed(
        "max.request.partition.size.limit",
        ConfigType.INT,
        2000,
        "Maximum number of partitions in one DescribeTopicPartitions response.",
        at_least(1),
    ),
]

_GROUPS = [
    _fixed("group.min.session.timeout.ms", ConfigType.INT, 6_000, "Minimum session timeout of classic group members."),
    _fixed(
        "group.max.session.timeout.ms",
        ConfigType.INT,
        30 * 60_000,
        "Maximum session timeout of classic group members.",
    ),
    _fixed(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        3_000,
        "Time that the first rebalance of an empty classic group waits for more members.",
    ),
    _fixed("group.max.size", ConfigType.INT, MAX_INT, "Maximum number of members in a classic group.", at_least(1)),
    _fixed(
        "group.coordinator.member.max.bytes",
        ConfigType.INT,
        1024 * 1024,
        "Maximum bytes of a member's metadata, subscription or assignment. Specific to Ottla.",
        at_least(1024),
    ),
    _fixed(
        "group.coordinator.group.max.bytes",
        ConfigType.INT,
        64 * 1024 * 1024,
        "Maximum bytes of coordinator memory for the members of one group. Specific to Ottla.",
        at_least(1024),
    ),
    _fixed(
        "group.coordinator.max.bytes",
        ConfigType.LONG,
        256 * 1024 * 1024,
        "Maximum bytes of broker memory for the members of all groups; half of it is for members larger than 16 KiB. "
        "Specific to Ottla.",
        at_least(1024),
    ),
    _fixed(
        "group.coordinator.rebalance.protocols",
        ConfigType.LIST,
        ("classic", "consumer"),
        "Group protocols that the broker serves.",
        OneOf(("classic", "consumer", "share", "streams")),
    ),
    _fixed(
        "group.consumer.assignors",
        ConfigType.LIST,
        ("uniform", "range"),
        "Assignors of the consumer protocol; the first is the default.",
        OneOf(("uniform", "range")),
    ),
    _fixed(
        "group.consumer.session.timeout.ms",
        ConfigType.INT,
        45_000,
        "Session timeout of the consumer protocol.",
        at_least(1),
    ),
    _fixed(
        "group.consumer.min.session.timeout.ms",
        ConfigType.INT,
        45_000,
        "Minimum session timeout of the consumer protocol.",
        at_least(1),
    ),
    _fixed(
        "group.consumer.max.session.timeout.ms",
        ConfigType.INT,
        60_000,
        "Maximum session timeout of the consumer protocol.",
        at_least(1),
    ),
    _fixed(
        "group.consumer.heartbeat.interval.ms",
        ConfigType.INT,
        5_000,
        "Heartbeat interval that the coordinator returns to members of the consumer protocol.",
        at_least(1),
    ),
    _fixed(
        "group.consumer.min.heartbeat.interval.ms",
        ConfigType.INT,
        5_000,
        "Minimum heartbeat interval of the consumer protocol.",
        at_least(1),
    ),
    _fixed(
        "group.consumer.max.heartbeat.interval.ms",
        ConfigType.INT,
        15_000,
        "Maximum heartbeat interval of the consumer protocol.",
        at_least(1),
    ),
    _dynamic(
        "group.consumer.assignment.interval.ms",
        ConfigType.INT,
        1_000,
        "Minimum time between two target assignments of a consumer group, so that members that join at the same time "
        "share one assignment.",
        at_least(0),
    ),
    _fixed(
        "group.consumer.min.assignment.interval.ms",
        ConfigType.INT,
        0,
        "Minimum value of consumer.assignment.interval.ms.",
        at_least(0),
    ),
    _fixed(
        "group.consumer.max.assignment.interval.ms",
        ConfigType.INT,
        15_000,
        "Maximum value of consumer.assignment.interval.ms.",
        at_least(0),
    ),
    _fixed(
        "group.consumer.max.size",
        ConfigType.INT,
        MAX_INT,
        "Maximum number of members in a group of the consumer protocol.",
        at_least(1),
    ),
    _fixed(
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        "Direction in which non-empty groups may convert between the classic and the consumer protocol.",
        OneOfAnyCase(("bidirectional", "upgrade", "downgrade", "disabled")),
    ),
    _fixed(
        "group.consumer.regex.refresh.interval.ms",
        ConfigType.INT,
        600_000,
        "Interval at which the topics that match a group's regular expressions are refreshed.",
        at_least(10_000),
        internal=True,
    ),
    _fixed(
        "offset.metadata.max.bytes",
        ConfigType.INT,
        4096,
        "Maximum size of the metadata of a committed offset.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "offsets.commit.timeout.ms",
        ConfigType.INT,
        5_000,
        "Time that a write of the group coordinator may wait for replication.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "offsets.retention.minutes",
        ConfigType.INT,
        7 * 24 * 60,
        "Minutes that committed offsets are retained after their group is empty, or after their topic has no "
        "subscriber (KIP-211).",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "offsets.retention.check.interval.ms",
        ConfigType.LONG,
        600_000,
        "Interval at which expired offsets are removed.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        50,
        "Number of partitions of __consumer_offsets; applied when the topic is created.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "offsets.topic.replication.factor",
        ConfigType.SHORT,
        3,
        "Replication factor of __consumer_offsets. If not set: the number of live brokers, up to 3. A set value is "
        "enforced: with fewer live brokers the topic is not created.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "offsets.topic.segment.bytes",
        ConfigType.INT,
        100 * 1024**2,
        "Segment size of __consumer_offsets.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "offsets.topic.compression.codec",
        ConfigType.INT,
        0,
        "Codec of the coordinator's batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        between(0, 4),
        importance=Importance.HIGH,
    ),
]

_MEMBERSHIP = [
    _fixed(
        "broker.session.timeout.ms",
        ConfigType.INT,
        9000,
        "Time without a heartbeat after which the controller fences a broker and moves its leaderships.",
        at_least(1),
    ),
    _fixed(
        "broker.heartbeat.interval.ms",
        ConfigType.INT,
        2000,
        "Interval of a broker's heartbeats to the controller.",
        at_least(1),
    ),
    _fixed(
        "initial.broker.registration.timeout.ms",
        ConfigType.INT,
        60_000,
        "Time that a starting broker tries to register with the controller before it exits.",
        at_least(1),
    ),
    _fixed(
        "auto.leader.rebalance.enable",
        ConfigType.BOOLEAN,
        True,
        "Periodically move leadership back to the preferred replicas.",
        importance=Importance.HIGH,
    ),
    _fixed(
        "leader.imbalance.check.interval.seconds",
        ConfigType.LONG,
        300,
        "Interval at which the controller checks the leader imbalance.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _fixed(
        "leader.imbalance.per.broker.percentage",
        ConfigType.INT,
        10,
        "Percentage of preferred leaderships that a broker may lack before the controller moves them back.",
        between(0, 100),
        importance=Importance.HIGH,
    ),
]

BROKER_CONFIGS: Mapping[str, ConfigKey] = key_table(
    [
        *_IDENTITY,
        *_TOPICS,
        *_LOG_FIXED,
        *_LOG_DYNAMIC,
        *_NETWORK,
        *_GROUPS,
        *SHARE_GROUP_CONFIGS,
        *_MEMBERSHIP,
        *AUTHORIZER_CONFIGS,
        *CLEANER_CONFIGS,
        *SCRUBBER_CONFIGS,
        *QUORUM_CONFIGS,
        *REPLICATION_CONFIGS,
        *TRANSACTION_CONFIGS,
        *SHARE_COORDINATOR_CONFIGS,
        *QUOTA_CONFIGS,
        *STORED_KEYS,
        *TLS_CONFIGS,
        *SASL_CONFIGS,
        *TOKEN_CONFIGS,
        *ZOOKEEPER_CONFIGS,
    ]
)

SYNONYM_CHAINS: tuple[tuple[str, ...], ...] = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
"""Settings with the same meaning in several units: the first one that is set applies."""
