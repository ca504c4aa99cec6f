"""PromQL of dashboards for Kafka, and the reason for each expression that finds nothing on Ottla.

The expressions are facts about the dashboards of other projects, read in November 2026: Strimzi's Kafka, KRaft and
Kafka Exporter boards and those of its metrics reporter; Confluent's Kafka cluster and KRaft boards; board 7589. The
boards of KMinion are not in a repository, so each metric of its reference has an expression with the labels that it
documents. Variables have the values that the boards would choose here.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Board(NamedTuple):
    """One dashboard."""

    spelling: str
    """`--metrics-names`."""
    expressions: tuple[str, ...]


STRIMZI = 'namespace="kafka",strimzi_io_cluster="my"'
POD = 'kubernetes_pod_name=~"my-.*"'
NAME = 'strimzi_io_name="my-kafka"'
BROKERS = 'job="kafka-broker",env="test",instance=~".+"'
CONTROLLERS = 'env="test", job="kafka-controller"'
QUANTILES = 'quantile=~"0.50|0.75|0.95|0.98|0.99|0.999"'


def each(template: str, names: str, selector: str = "") -> tuple[str, ...]:
    """One expression for each name: `@` is the name, `#` the selector."""
    return tuple(template.replace("@", name).replace("#", selector) for name in names.split())


_TOPIC_METERS = (
    "bytesin bytesout messagesin totalproducerequests failedproducerequests totalfetchrequests failedfetchrequests"
)
_STRIMZI_STATE = (
    *each(
        "sum(@{#})",
        "kafka_controller_kafkacontroller_activecontrollercount "
        "kafka_controller_kafkacontroller_offlinepartitionscount "
        "kafka_server_replicamanager_partitioncount kafka_server_replicamanager_underreplicatedpartitions "
        "kafka_cluster_partition_atminisr kafka_cluster_partition_underminisr",
        STRIMZI,
    ),
    f"count(kafka_server_replicamanager_leadercount{{{STRIMZI}}})",
    f"kafka_cluster_partition_replicascount{{{STRIMZI},{POD}}}",
    f'kafka_log_log_size{{{STRIMZI},{POD},topic=~".+",partition=~".*"}}',
    f"sum(kafka_server_socket_server_metrics_connection_count{{{STRIMZI},{POD}}}) by (kubernetes_pod_name, listener)",
    'process_open_fds{namespace="kafka",pod=~"my-.*",container="kafka"}',
)
_OF_KUBERNETES = (
    'sum(container_memory_usage_bytes{namespace="kafka",pod=~"my-.*",container="kafka"}) by (pod)',
    'sum(rate(container_cpu_usage_seconds_total{namespace="kafka",pod=~"my-.*",container="kafka"}[5m])) by (pod)',
    'kubelet_volume_stats_available_bytes{namespace="kafka",persistentvolumeclaim=~"data(-[0-9]+)?-my-kafka-[0-9]+"}',
)
_OF_JVM = each(
    "sum(@{#}) by (kubernetes_pod_name)", "jvm_memory_bytes_used jvm_memory_used_bytes jvm_threads_current", NAME
) + each(
    "sum(rate(@{#}[5m])) by (kubernetes_pod_name)",
    "jvm_gc_collection_seconds_sum jvm_gc_collection_seconds_count",
    NAME,
)
_STRIMZI_METER = f'sum(irate(kafka_server_brokertopicmetrics_@{{{STRIMZI},topic=~".+",topic!="",{POD}}}[#]))'
_BY_POD = f"sum(@{{{STRIMZI},{POD}}}) by (kubernetes_pod_name)"
_RATE_BY_POD = f"sum(irate(@{{{STRIMZI},{POD}}}[5m])) by (kubernetes_pod_name)"
_RAFT = "current_leader current_vote current_epoch high_watermark log_end_offset append_records_rate fetch_records_rate"


def _raft(prefix: str, channel: str, end: str, state: str) -> tuple[str, ...]:
    names = " ".join(f"{prefix}{name}" for name in f"{_RAFT} commit_latency_avg".split())
    channels = " ".join(f"{channel}{name}{end}" for name in ("incoming_byte", "outgoing_byte", "request", "response"))
    return (
        *each(_BY_POD, names),
        *each(_RATE_BY_POD, channels),
        f"max({prefix}{state}) by (kubernetes_pod_name, current_state)",
        f'sum(process_open_fds{{namespace="kafka",{POD},container="kafka"}}) by (kubernetes_pod_name)',
        *_OF_KUBERNETES[:2],
        *_OF_JVM,
    )


_CONFLUENT_REQUESTS = ("Produce", "Fetch", "FetchFollower")
_PHASES = "requestqueuetimems localtimems remotetimems responsequeuetimems responsesendtimems"
_CONFLUENT_SUMS = (
    "kafka_server_replicamanager_partitioncount kafka_server_replicamanager_underreplicatedpartitions "
    "kafka_controller_kafkacontroller_offlinepartitionscount kafka_server_replicamanager_straypartitionscount "
    "kafka_server_replicamanager_straypartitionsmisclassifiedcount "
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable "
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance "
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead "
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance "
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty "
    "kafka_server_brokertopicmetrics_producemessageconversionspersec "
    "kafka_server_brokertopicmetrics_fetchmessageconversionspersec"
)
_CONFLUENT_VALUES = (
    "kafka_server_replicamanager_leadercount kafka_server_replicamanager_straypartitionstotalsize "
    "kafka_server_kafkaserver_linux_disk_read_bytes kafka_network_requestchannel_requestqueuesize "
    "kafka_network_requestchannel_responsequeuesize kafka_server_fetchsessioncache_numincrementalfetchsessions "
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec "
    "kafka_network_acceptor_acceptorblockedpercent kafka_coordinator_group_groupmetadatamanager_numgroups "
    "kafka_tier_tasks_archive_tierarchiver_bytespersec kafka_tier_tasks_archive_tierarchiver_totallag "
    "kafka_tier_tasks_tiertasks_numpartitionsinerror"
)
_CONFLUENT_CLUSTER = (
    f"count(kafka_server_replicamanager_leadercount{{{BROKERS}}})",
    f"sum(kafka_controller_kafkacontroller_preferredreplicaimbalancecount{{{CONTROLLERS}}})",
    f"sum(kafka_controller_controllerstats_uncleanleaderelectionspersec{{{CONTROLLERS}}})",
    'sum(kafka_cluster_partition_underminisr{job="kafka-broker",env="test"})',
    *each("sum(@{#})", _CONFLUENT_SUMS, BROKERS),
    *each("@{#}", _CONFLUENT_VALUES, BROKERS),
    *each(
        'sum without(topic)(rate(kafka_server_brokertopicmetrics_@{#,topic!=""}[5m]))',
        "bytesinpersec bytesoutpersec messagesinpersec",
        BROKERS,
    ),
    f"sum(rate(kafka_network_requestmetrics_requestspersec{{{BROKERS}}}[5m]))",
    *each(
        'sum(rate(kafka_network_requestmetrics_requestspersec{#,request="@"}[5m]))',
        "Produce Fetch FetchConsumer OffsetCommit Metadata",
        BROKERS,
    ),
    'rate(kafka_network_requestmetrics_errorspersec{error!="NONE"}[5m])',
    *(
        expression
        for request in _CONFLUENT_REQUESTS
        for expression in each(f'kafka_network_requestmetrics_@{{#,{QUANTILES},request="{request}"}}', _PHASES, BROKERS)
    ),
    *each(
        f'kafka_network_requestmetrics_@{{#,{QUANTILES},request="Metadata"}}', "requestqueuetimems totaltimems", BROKERS
    ),
    f"irate(process_cpu_seconds_total{{{BROKERS}}}[5m])*100",
    f"sum without(area)(jvm_memory_bytes_used{{{BROKERS}}})",
    f"sum without(gc)(rate(jvm_gc_collection_seconds_sum{{{BROKERS}}}[5m]))",
    f"rate(kafka_server_kafkaserver_linux_disk_write_bytes{{{BROKERS}}}[5m])",
    f"1-kafka_network_socketserver_networkprocessoravgidlepercent{{{BROKERS}}}",
    f"1 - kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total{{{BROKERS}}}",
    f"1 - kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate{{{BROKERS}}}",
    *each("rate(kafka_server_replicamanager_@{#}[5m])", "isrshrinkspersec isrexpandspersec", BROKERS),
    *each("sum(kafka_log_log_size{#}) by (@)", "topic instance", BROKERS),
    *each('kafka_server_replicafetchermanager_@{#,clientid="Replica"}', "minfetchrate maxlag", BROKERS),
    *each(
        "sum(kafka_server_socketservermetrics_@{#}) by (listener)",
        "connection_count connection_creation_rate connection_close_rate",
        BROKERS,
    ),
    f"sum(kafka_server_socketservermetrics_connections{{{BROKERS}}}) "
    "by (client_software_name, client_software_version)",
    "sum(kafka_log_log_tiersize)",
    f"rate(kafka_tier_tasks_archive_tierarchiver_retriespersec{{{BROKERS}}}[5m])",
    'kafka_server_kafkaserver_brokerstate{env="test"}',
)
_CONFLUENT_KRAFT = (
    *each(
        "max(@{#})",
        "kafka_server_raft_metrics_high_watermark kafka_controller_kafkacontroller_fencedbrokercount "
        "kafka_server_raft_metrics_current_epoch kafka_controller_kafkacontroller_metadataerrorcount",
        CONTROLLERS,
    ),
    *each(
        "sum(@{#})/count(@{#})",
        "kafka_controller_kafkacontroller_activebrokercount kafka_server_raft_metrics_current_leader",
        CONTROLLERS,
    ),
    *each(
        "@{#}",
        "kafka_controller_kafkacontroller_activebrokercount kafka_controller_kafkacontroller_lastappliedrecordlagms "
        "kafka_server_raft_metrics_election_latency_max kafka_server_raft_metrics_append_records_rate "
        "kafka_server_raft_metrics_commit_latency_avg kafka_server_raft_metrics_fetch_records_rate "
        "kafka_controller_controllereventmanager_eventqueuetimems "
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems",
        CONTROLLERS,
    ),
    f"irate(process_cpu_seconds_total{{{CONTROLLERS}}}[5m])*100",
    f"sum without(area)(jvm_memory_used_bytes{{{CONTROLLERS}}})",
)
_EXPORTER = (
    "kafka_exporter_build_info",
    f"kafka_broker_info{{{STRIMZI}}}",
    f"kafka_consumergroup_current_offset{{{STRIMZI}}}",
    f"kafka_topic_partition_current_offset{{{STRIMZI}}}",
    'count(kafka_topic_partitions{topic=~".+"})',
    *each(
        'sum(@{topic=~".+"})',
        "kafka_topic_partitions kafka_topic_partition_replicas kafka_topic_partition_in_sync_replica "
        "kafka_topic_partition_under_replicated_partition kafka_cluster_partition_atminisr "
        "kafka_cluster_partition_underminisr",
    ),
    'count(kafka_topic_partition_leader_is_preferred{topic=~".+"}<1)',
    'sum(rate(kafka_topic_partition_current_offset{topic=~".+"}[1m])) by (topic)',
    'sum(delta(kafka_consumergroup_current_offset{consumergroup=~".+",topic=~".+"}[1m])/60) by (consumergroup, topic)',
    'sum(kafka_consumergroup_lag{consumergroup=~".+",topic=~".+"}) by (consumergroup, topic) ',
    *each(
        'sum(@{consumergroup=~".+",topic=~".+"}) by (consumergroup,partition,topic)',
        "kafka_consumergroup_current_offset kafka_consumergroup_lag",
    ),
    *each(
        'sum(@{topic=~".+"}) by (partition,topic)',
        "kafka_topic_partition_current_offset kafka_topic_partition_oldest_offset",
    ),
    *each(
        'sum by(consumergroup, topic) (@{instance=~".+"})',
        "kafka_consumergroup_lag_sum kafka_consumergroup_current_offset_sum",
    ),
    'sum by(consumergroup) (kafka_consumergroup_members{instance=~".+"})',
    "max(kafka_brokers)",
)
_KMINION = (
    'kminion_exporter_up{version=~".+"}',
    'kminion_kafka_broker_info{address=~".+",broker_id=~".+",is_controller=~".+",port=~".+"}',
    'kminion_kafka_cluster_info{broker_count=~".+",cluster_id=~".+",cluster_version=~".+",controller_id=~".+"}',
    'sum by (broker_id) (kminion_kafka_broker_log_dir_size_total_bytes{broker_id=~".+"})',
    'sum by (topic_name) (kminion_kafka_topic_log_dir_size_total_bytes{topic_name=~".+"})',
    'kminion_kafka_topic_info{cleanup_policy=~".+",partition_count=~".+",replication_factor=~".+",topic_name=~".+"}',
    *each('kminion_kafka_topic_partition_@{partition_id=~".+",topic_name=~".+"}', "low_water_mark high_water_mark"),
    *each(
        'sum by (topic_name) (rate(kminion_kafka_topic_@{topic_name=~".+"}[1m]))',
        "low_water_mark_sum high_water_mark_sum",
    ),
    'kminion_kafka_consumer_group_info{coordinator_id=~".+",group_id=~".+",protocol_type=~".+",state=~".+"}',
    *each('kminion_kafka_consumer_group_@{group_id=~".+"}', "members empty_members offset_commits_total"),
    *each(
        'kminion_kafka_consumer_group_topic_@{group_id=~".+",topic_name=~".+"}',
        "members assigned_partitions offset_sum lag",
    ),
    'kminion_kafka_consumer_group_topic_partition_lag{group_id=~".+",partition_id=~".+",topic_name=~".+"}',
    "rate(kminion_end_to_end_messages_produced_total[5m])",
)

BOARDS = {
    "Strimzi Kafka": Board(
        "strimzi",
        (
            *_STRIMZI_STATE,
            *each(_STRIMZI_METER, " ".join(f"{name}_total" for name in _TOPIC_METERS.split()), "1m"),
            f"sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total{{{STRIMZI}}}[5m]))",
            *each(
                f"@{{{STRIMZI},{POD}}}*100",
                "kafka_network_socketserver_networkprocessoravgidle_percent "
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            ),
            *each(
                f"irate(kafka_server_kafkaserver_linux_disk_@_bytes{{{STRIMZI},{POD}}}[1m])",
                "write read",
            ),
            *_OF_KUBERNETES,
            *_OF_JVM,
        ),
    ),
    "Strimzi Kafka of the metrics reporter": Board(
        "reporter",
        (
            *_STRIMZI_STATE,
            *each(_STRIMZI_METER, " ".join(f"{name}persec_total" for name in _TOPIC_METERS.split()), "5m"),
            f"sum(irate(kafka_controller_controllerstats_uncleanleaderelectionspersec_total{{{STRIMZI}}}[5m]))",
            f"sum(kafka_network_socketserver_networkprocessoravgidlepercent{{{STRIMZI},{POD}}}*100) "
            "by (kubernetes_pod_name)",
            "sum by (kubernetes_pod_name) (rate(kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"
            f"{{{STRIMZI},{POD}}}[5m]) / 1e9 * 100)",
            *each(
                _RATE_BY_POD,
                "kafka_server_kafkaserver_linux_disk_write_bytes kafka_server_kafkaserver_linux_disk_read_bytes",
            ),
        ),
    ),
    "Strimzi KRaft": Board(
        "strimzi", _raft("kafka_server_raftmetrics_", "kafka_server_raftchannelmetrics_", "_total", "current_state")
    ),
    "Strimzi KRaft of the metrics reporter": Board(
        "reporter", _raft("kafka_server_raft_metrics_", "kafka_server_raft_channel_metrics_", "", "current_state_info")
    ),
    "Strimzi Kafka Exporter and board 7589": Board("strimzi", _EXPORTER),
    "Confluent Kafka cluster": Board("confluent", _CONFLUENT_CLUSTER),
    "Confluent KRaft": Board("confluent", _CONFLUENT_KRAFT),
    "KMinion": Board("strimzi", _KMINION),
}

NO_QUEUE = "one event loop reads, serves and sends, so there are no queues of requests or responses"
REASONS = {
    r"\bjvm_": "Ottla runs without a JVM",
    r"\bcontainer_|\bkubelet_": "Kubernetes exports it, not the broker",
    r"requestmetrics_(requestqueue|responsequeue|responsesend)timems": NO_QUEUE,
    r"requestchannel_re(quest|sponse)queuesize": NO_QUEUE,
    r'request="Fetch(Consumer|Follower)"': "requests of consumers and followers are counted together, as Fetch",
    r"kafka_tier_|tiersize": "tiered storage is not implemented",
    r"straypartitions": "Confluent Server exports it; Ottla renames stray partitions at the start and logs them",
    r"acceptorblockedpercent": "connections are accepted on the event loop, without a thread that blocks",
    r"controllereventmanager_": "the controller decides on the event loop, without a queue of events",
    r"lastappliedrecordlagms": "without changes no metadata record is written, so the age of the last one is not a lag",
    r"metadataerrorcount": "a node that cannot apply a record of the metadata log stops, so there is nothing to count",
    r"leader_is_preferred\{.*<1": "all leaders are the preferred replicas, so there is nothing to count",
    r"kminion_exporter_up": "there is no exporter beside the broker; Prometheus's `up` has its state",
    r"kminion_end_to_end_": "KMinion measures it with records of its own",
    r"consumer_group_(empty_members|topic_members|topic_assigned_partitions)": "a coordinator of classic groups does "
    "not read assignments",
    r"consumer_group_offset_commits_total": "commits are counted by broker, as requests OffsetCommit",
}
"""Reasons by the pattern of expressions that return nothing."""


def reason_for(expression: str) -> str | None:
    """The reason for an expression that returned nothing; None if there is none."""
    return next((reason for pattern, reason in REASONS.items() if re.search(pattern, expression)), None)
