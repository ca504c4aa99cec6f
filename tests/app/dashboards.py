"""Names and labels that dashboards of Kafka query, by dashboard, with the reason for each one that Ottla lacks.

Facts about other projects' dashboards, collected by hand. `__quantile` and similar template variables are labels here.
"""

from __future__ import annotations

from typing import NamedTuple


class Board(NamedTuple):
    """One dashboard."""

    spelling: str
    """`--metrics-names`."""
    names: dict[str, tuple[str, ...]]
    """Labels by metric."""
    missing: dict[str, str]
    """Reason by metric that Ottla does not export."""


def same(prefix: str, names: str, *labels: str) -> dict[str, tuple[str, ...]]:
    return {prefix + name: labels for name in names.split()}


NO_QUEUE = "one event loop reads, serves and sends, without queues of requests or responses and without a sender thread"
NO_EVENTS = "the controller decides on the event loop, without a queue of events"
NO_RECORDS_WITHOUT_CHANGES = "without changes no metadata record is written, so the age of the last one is not a lag"
NO_ERRORS = "a node that cannot apply a record of the metadata log stops, so there is nothing to count"

_REPLICAS = same(
    "kafka_server_replicamanager_",
    "partitioncount leadercount underreplicatedpartitions underminisrpartitioncount atminisrpartitioncount",
)
_PARTITIONS = same(
    "kafka_cluster_partition_", "underminisr atminisr replicascount underreplicated", "topic", "partition"
)
_LOGS = same("kafka_log_log_", "size logendoffset logstartoffset", "topic", "partition") | same(
    "", "kafka_log_logmanager_offlinelogdirectorycount"
)
_CONTROLLER = same(
    "kafka_controller_kafkacontroller_",
    "activecontrollercount offlinepartitionscount preferredreplicaimbalancecount globaltopiccount "
    "globalpartitioncount activebrokercount fencedbrokercount",
)
_GROUPS = same(
    "kafka_coordinator_group_groupmetadatamanager_",
    "numgroups numgroupsstable numgroupsempty numgroupsdead numgroupspreparingrebalance numgroupscompletingrebalance",
)
_NODE = same("kafka_server_kafkaserver_", "brokerstate linux_disk_read_bytes linux_disk_write_bytes") | same(
    "kafka_server_replicafetchermanager_", "maxlag", "clientId"
)
_TIMES = same("kafka_network_requestmetrics_", "totaltimems localtimems remotetimems", "request", "quantile")
_NO_TIMES = {
    f"kafka_network_requestmetrics_{phase}timems": NO_QUEUE
    for phase in ("requestqueue", "responsequeue", "responsesend")
}
_COMMON = _REPLICAS | _PARTITIONS | _LOGS | _CONTROLLER | _GROUPS | _NODE | _TIMES
_TOPIC_METERS = (
    "bytesin bytesout messagesin totalproducerequests totalfetchrequests failedproducerequests failedfetchrequests"
)


def _meters(end: str) -> dict[str, tuple[str, ...]]:
    return {
        **{f"kafka_server_brokertopicmetrics_{name}{end}": ("topic",) for name in _TOPIC_METERS.split()},
        f"kafka_server_replicamanager_isrshrinks{end}": (),
        f"kafka_server_replicamanager_isrexpands{end}": (),
        f"kafka_controller_controllerstats_uncleanleaderelections{end}": (),
        f"kafka_network_requestmetrics_requests{end}": ("request",),
        f"kafka_network_requestmetrics_errors{end}": ("request", "error"),
    }


def _idle(network: str, handlers: str) -> dict[str, tuple[str, ...]]:
    return {
        f"kafka_network_socketserver_networkprocessoravgidle{network}": (),
        f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle{handlers}": (),
    }


def _sockets(prefix: str) -> dict[str, tuple[str, ...]]:
    return same(prefix, "connection_count", "listener", "networkProcessor")


def _raft(prefix: str, channel: str, end: str = "") -> dict[str, tuple[str, ...]]:
    names = "current_leader current_epoch current_vote high_watermark log_end_offset"
    rates = "append_records_rate fetch_records_rate commit_latency_avg election_latency_max"
    counts = " ".join(f"{name}{end}" for name in ("incoming_byte", "outgoing_byte", "request", "response"))
    return same(prefix, f"{names} {rates}") | same(channel, counts)


BOARDS = {
    "Strimzi Kafka": Board(
        "strimzi",
        _COMMON | _meters("_total") | _idle("_percent", "_percent") | _sockets("kafka_server_socket_server_metrics_"),
        _NO_TIMES,
    ),
    "Strimzi Kafka of the metrics reporter": Board(
        "reporter",
        _COMMON
        | _meters("persec_total")
        | _idle("percent", "percent_total")
        | _sockets("kafka_server_socket_server_metrics_"),
        _NO_TIMES,
    ),
    "Strimzi KRaft": Board(
        "strimzi",
        _raft("kafka_server_raftmetrics_", "kafka_server_raftchannelmetrics_", "_total")
        | same("kafka_server_raftmetrics_", "current_state", "current_state"),
        {},
    ),
    "Strimzi KRaft of the metrics reporter": Board(
        "reporter",
        _raft("kafka_server_raft_metrics_", "kafka_server_raft_channel_metrics_")
        | same("kafka_server_raft_metrics_", "current_state_info", "current_state"),
        {},
    ),
    "Strimzi Kafka Exporter and board 7589": Board(
        "strimzi",
        same(
            "kafka_topic_partition_",
            "current_offset oldest_offset in_sync_replica leader leader_is_preferred replicas "
            "under_replicated_partition",
            *("topic", "partition"),
        )
        | same("kafka_consumergroup_", "current_offset lag", "consumergroup", "topic", "partition")
        | same("kafka_consumergroup_", "current_offset_sum lag_sum", "consumergroup", "topic")
        | {
            "kafka_consumergroup_members": ("consumergroup",),
            "kafka_topic_partitions": ("topic",),
            "kafka_brokers": (),
            "kafka_broker_info": ("id", "address"),
            "kafka_exporter_build_info": ("version",),
        }
        | same("kafka_cluster_partition_", "atminisr underminisr", "topic", "partition"),
        {},
    ),
    "Confluent Kafka cluster and topics": Board(
        "confluent",
        _COMMON
        | _meters("persec")
        | _idle("percent", "percent_oneminuterate")
        | _idle("percent", "percent_total")
        | same("kafka_server_replicafetchermanager_", "maxlag", "clientid")
        | same("kafka_server_socketservermetrics_", "connection_creation_rate connection_close_rate")
        | same("kafka_server_fetchsessioncache_", "incrementalfetchsessionevictionspersec")
        | same("kafka_server_brokertopicmetrics_", "producemessageconversionspersec fetchmessageconversionspersec")
        | same("kafka_server_replicafetchermanager_", "minfetchrate", "clientid")
        | same("kafka_server_socketservermetrics_", "connections", "client_software_name", "client_software_version")
        | _sockets("kafka_server_socketservermetrics_")
        | same(
            "kafka_server_transaction_coordinator_metrics_",
            "transactional_id_count partition_load_time_max partition_load_time_avg",
        ),
        _NO_TIMES,
    ),
    "Confluent KRaft": Board(
        "confluent",
        _raft("kafka_server_raft_metrics_", "kafka_server_raft_channel_metrics_") | _CONTROLLER,
        {
            "kafka_controller_kafkacontroller_lastappliedrecordlagms": NO_RECORDS_WITHOUT_CHANGES,
            "kafka_controller_kafkacontroller_metadataerrorcount": NO_ERRORS,
            "kafka_controller_controllereventmanager_eventqueuetimems": NO_EVENTS,
            "kafka_controller_controllereventmanager_eventqueueprocessingtimems": NO_EVENTS,
        },
    ),
    "Confluent quotas": Board(
        "confluent",
        same("kafka_server_produce_", "byte_rate throttle_time", "user", "client_id")
        | same("kafka_server_fetch_", "byte_rate throttle_time", "user", "client_id")
        | same("kafka_server_request_", "request_time throttle_time", "user", "client_id"),
        {},
    ),
    "kminion": Board(
        "strimzi",
        same("kminion_kafka_", "consumer_group_topic_lag", "group_id", "topic_name")
        | same("kminion_kafka_", "consumer_group_topic_partition_lag", "group_id", "topic_name", "partition_id")
        | same("kminion_kafka_", "topic_high_water_mark_sum topic_log_dir_size_total_bytes", "topic_name")
        | same("kminion_kafka_", "topic_low_water_mark_sum", "topic_name")
        | same(
            "kminion_kafka_topic_", "partition_low_water_mark partition_high_water_mark", "topic_name", "partition_id"
        )
        | same("kminion_kafka_topic_", "info", "topic_name", "cleanup_policy", "partition_count", "replication_factor")
        | same("kminion_kafka_", "consumer_group_topic_offset_sum", "group_id", "topic_name")
        | same("kminion_kafka_", "consumer_group_members", "group_id")
        | same("kminion_kafka_", "consumer_group_info", "group_id", "coordinator_id", "protocol_type", "state")
        | same("kminion_kafka_", "broker_log_dir_size_total_bytes", "broker_id")
        | same("kminion_kafka_", "cluster_info", "broker_count", "cluster_id", "cluster_version", "controller_id")
        | same("kminion_kafka_", "broker_info", "broker_id", "address", "port"),
        {},
    ),
}
