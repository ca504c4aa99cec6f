"""The table of what a controller's listener serves: one row an API, in the order of their keys.

A module of its own, since a single node has no such listener and starts faster without it.
"""

from __future__ import annotations

from ottla.server.dispatch import DeclaredApi, HotApi
from ottla.server.handlers.admin.alter_client_quotas import ALTER_CLIENT_QUOTAS
from ottla.server.handlers.admin.alter_configs import ALTER_CONFIGS
from ottla.server.handlers.admin.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from ottla.server.handlers.admin.api_versions import API_VERSIONS
from ottla.server.handlers.admin.create_acls import CREATE_ACLS
from ottla.server.handlers.admin.create_partitions import CREATE_PARTITIONS
from ottla.server.handlers.admin.create_topics import CREATE_TOPICS
from ottla.server.handlers.admin.delete_acls import DELETE_ACLS
from ottla.server.handlers.admin.delete_topics import DELETE_TOPICS
from ottla.server.handlers.admin.describe_acls import DESCRIBE_ACLS
from ottla.server.handlers.admin.describe_cluster import DESCRIBE_CLUSTER
from ottla.server.handlers.admin.describe_configs import DESCRIBE_CONFIGS
from ottla.server.handlers.admin.elect_leaders import ELECT_LEADERS
from ottla.server.handlers.admin.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from ottla.server.handlers.admin.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from ottla.server.handlers.admin.unregister_broker import UNREGISTER_BROKER
from ottla.server.handlers.admin.update_features import UPDATE_FEATURES
from ottla.server.handlers.quorum.add_raft_voter import ADD_RAFT_VOTER
from ottla.server.handlers.quorum.allocate_producer_ids import ALLOCATE_PRODUCER_IDS
from ottla.server.handlers.quorum.alter_partition import ALTER_PARTITION
from ottla.server.handlers.quorum.begin_quorum_epoch import BEGIN_QUORUM_EPOCH
from ottla.server.handlers.quorum.broker_heartbeat import BROKER_HEARTBEAT
from ottla.server.handlers.quorum.broker_registration import BROKER_REGISTRATION
from ottla.server.handlers.quorum.controller_registration import CONTROLLER_REGISTRATION
from ottla.server.handlers.quorum.describe_quorum import DESCRIBE_QUORUM
from ottla.server.handlers.quorum.end_quorum_epoch import END_QUORUM_EPOCH
from ottla.server.handlers.quorum.envelope import ENVELOPE
from ottla.server.handlers.quorum.fetch_snapshot import FETCH_SNAPSHOT
from ottla.server.handlers.quorum.metadata_fetch import METADATA_FETCH
from ottla.server.handlers.quorum.remove_raft_voter import REMOVE_RAFT_VOTER
from ottla.server.handlers.quorum.update_raft_voter import UPDATE_RAFT_VOTER
from ottla.server.handlers.quorum.vote import VOTE

CONTROLLER_APIS: tuple[HotApi | DeclaredApi, ...] = (
    METADATA_FETCH,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    ALTER_CLIENT_QUOTAS,
    VOTE,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    DESCRIBE_QUORUM,
    ALTER_PARTITION,
    UPDATE_FEATURES,
    ENVELOPE,
    FETCH_SNAPSHOT,
    DESCRIBE_CLUSTER,
    BROKER_REGISTRATION,
    BROKER_HEARTBEAT,
    UNREGISTER_BROKER,
    ALLOCATE_PRODUCER_IDS,
    CONTROLLER_REGISTRATION,
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
)
"""What a controller's listener serves: the quorum of the metadata log, brokers, and what brokers forward."""
