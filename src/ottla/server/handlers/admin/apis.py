"""API table of this package."""

from __future__ import annotations

from ottla.server.handlers.admin.alter_client_quotas import ALTER_CLIENT_QUOTAS
from ottla.server.handlers.admin.alter_configs import ALTER_CONFIGS
from ottla.server.handlers.admin.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from ottla.server.handlers.admin.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from ottla.server.handlers.admin.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from ottla.server.handlers.admin.api_versions import API_VERSIONS
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.admin.create_acls import CREATE_ACLS
from ottla.server.handlers.admin.create_delegation_token import CREATE_DELEGATION_TOKEN
from ottla.server.handlers.admin.create_partitions import CREATE_PARTITIONS
from ottla.server.handlers.admin.create_topics import CREATE_TOPICS
from ottla.server.handlers.admin.delete_acls import DELETE_ACLS
from ottla.server.handlers.admin.delete_topics import DELETE_TOPICS
from ottla.server.handlers.admin.describe_acls import DESCRIBE_ACLS
from ottla.server.handlers.admin.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from ottla.server.handlers.admin.describe_cluster import DESCRIBE_CLUSTER
from ottla.server.handlers.admin.describe_configs import DESCRIBE_CONFIGS
from ottla.server.handlers.admin.describe_delegation_token import DESCRIBE_DELEGATION_TOKEN
from ottla.server.handlers.admin.describe_log_dirs import DESCRIBE_LOG_DIRS
from ottla.server.handlers.admin.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from ottla.server.handlers.admin.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from ottla.server.handlers.admin.elect_leaders import ELECT_LEADERS
from ottla.server.handlers.admin.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from ottla.server.handlers.admin.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from ottla.server.handlers.admin.list_config_resources import LIST_CONFIG_RESOURCES
from ottla.server.handlers.admin.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from ottla.server.handlers.admin.metadata import METADATA
from ottla.server.handlers.admin.renew_delegation_token import RENEW_DELEGATION_TOKEN
from ottla.server.handlers.admin.sasl_authenticate import SASL_AUTHENTICATE
from ottla.server.handlers.admin.sasl_handshake import SASL_HANDSHAKE
from ottla.server.handlers.admin.unregister_broker import UNREGISTER_BROKER
from ottla.server.handlers.admin.unregister_controller import UNREGISTER_CONTROLLER
from ottla.server.handlers.admin.update_features import UPDATE_FEATURES
from ottla.server.requests.api import Api

ADMIN_APIS: tuple[Api[AdminContext], ...] = (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    ALTER_USER_SCRAM_CREDENTIALS,
    API_VERSIONS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    EXPIRE_DELEGATION_TOKEN,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    UNREGISTER_BROKER,
    UNREGISTER_CONTROLLER,
    UPDATE_FEATURES,
)
