"""The table of what a broker serves: one row an API, in the order of their keys."""

from __future__ import annotations

from ottla.server.dispatch import DeclaredApi, HotApi
from ottla.server.handlers.admin.alter_client_quotas import ALTER_CLIENT_QUOTAS
from ottla.server.handlers.admin.alter_configs import ALTER_CONFIGS
from ottla.server.handlers.admin.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from ottla.server.handlers.admin.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from ottla.server.handlers.admin.api_versions import API_VERSIONS
from ottla.server.handlers.admin.create_acls import CREATE_ACLS
from ottla.server.handlers.admin.create_partitions import CREATE_PARTITIONS
from ottla.server.handlers.admin.create_topics import CREATE_TOPICS
from ottla.server.handlers.admin.delete_acls import DELETE_ACLS
from ottla.server.handlers.admin.delete_topics import DELETE_TOPICS
from ottla.server.handlers.admin.describe_acls import DESCRIBE_ACLS
from ottla.server.handlers.admin.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from ottla.server.handlers.admin.describe_cluster import DESCRIBE_CLUSTER
from ottla.server.handlers.admin.describe_configs import DESCRIBE_CONFIGS
from ottla.server.handlers.admin.describe_log_dirs import DESCRIBE_LOG_DIRS
from ottla.server.handlers.admin.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from ottla.server.handlers.admin.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from ottla.server.handlers.admin.elect_leaders import ELECT_LEADERS
from ottla.server.handlers.admin.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from ottla.server.handlers.admin.list_config_resources import LIST_CONFIG_RESOURCES
from ottla.server.handlers.admin.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from ottla.server.handlers.admin.metadata import METADATA
from ottla.server.handlers.admin.unregister_broker import UNREGISTER_BROKER
from ottla.server.handlers.admin.update_features import UPDATE_FEATURES
from ottla.server.handlers.data.delete_records import DELETE_RECORDS
from ottla.server.handlers.data.describe_producers import DESCRIBE_PRODUCERS
from ottla.server.handlers.data.fetch import FETCH
from ottla.server.handlers.data.init_producer_id import INIT_PRODUCER_ID
from ottla.server.handlers.data.list_offsets import LIST_OFFSETS
from ottla.server.handlers.data.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from ottla.server.handlers.data.produce import PRODUCE
from ottla.server.handlers.groups.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from ottla.server.handlers.groups.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from ottla.server.handlers.groups.delete_groups import DELETE_GROUPS
from ottla.server.handlers.groups.describe_groups import DESCRIBE_GROUPS
from ottla.server.handlers.groups.find_coordinator import FIND_COORDINATOR
from ottla.server.handlers.groups.heartbeat import HEARTBEAT
from ottla.server.handlers.groups.join_group import JOIN_GROUP
from ottla.server.handlers.groups.leave_group import LEAVE_GROUP
from ottla.server.handlers.groups.list_groups import LIST_GROUPS
from ottla.server.handlers.groups.offset_commit import OFFSET_COMMIT
from ottla.server.handlers.groups.offset_delete import OFFSET_DELETE
from ottla.server.handlers.groups.offset_fetch import OFFSET_FETCH
from ottla.server.handlers.groups.sync_group import SYNC_GROUP
from ottla.server.handlers.quorum.add_raft_voter import ADD_RAFT_VOTER
from ottla.server.handlers.quorum.describe_quorum import DESCRIBE_QUORUM
from ottla.server.handlers.quorum.remove_raft_voter import REMOVE_RAFT_VOTER

BROKER_APIS: tuple[HotApi | DeclaredApi, ...] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    CREATE_PARTITIONS,
    DELETE_GROUPS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    OFFSET_DELETE,
    DESCRIBE_CLIENT_QUOTAS,
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DESCRIBE_QUORUM,
    UPDATE_FEATURES,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    UNREGISTER_BROKER,
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_GROUP_DESCRIBE,
    LIST_CONFIG_RESOURCES,
    DESCRIBE_TOPIC_PARTITIONS,
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
)
"""What a broker listener serves."""
