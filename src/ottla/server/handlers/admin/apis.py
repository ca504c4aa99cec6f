"""API table of this package."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import ApiRow, Listeners

ADMIN_APIS: tuple[ApiRow[AdminContext], ...] = (
    ApiRow(ApiKey.ALTER_CLIENT_QUOTAS, "ottla.server.handlers.admin.alter_client_quotas", Listeners.BOTH),
    ApiRow(ApiKey.ALTER_CONFIGS, "ottla.server.handlers.admin.alter_configs", Listeners.BOTH),
    ApiRow(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        "ottla.server.handlers.admin.alter_partition_reassignments",
        Listeners.BOTH,
    ),
    ApiRow(ApiKey.ALTER_REPLICA_LOG_DIRS, "ottla.server.handlers.admin.alter_replica_log_dirs"),
    ApiRow(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "ottla.server.handlers.admin.alter_user_scram_credentials", Listeners.BOTH
    ),
    ApiRow(ApiKey.API_VERSIONS, "ottla.server.handlers.admin.api_versions", Listeners.BOTH),
    ApiRow(ApiKey.CREATE_ACLS, "ottla.server.handlers.admin.create_acls", Listeners.BOTH),
    ApiRow(ApiKey.CREATE_DELEGATION_TOKEN, "ottla.server.handlers.admin.create_delegation_token", Listeners.BOTH),
    ApiRow(ApiKey.CREATE_PARTITIONS, "ottla.server.handlers.admin.create_partitions", Listeners.BOTH),
    ApiRow(ApiKey.CREATE_TOPICS, "ottla.server.handlers.admin.create_topics", Listeners.BOTH),
    ApiRow(ApiKey.DELETE_ACLS, "ottla.server.handlers.admin.delete_acls", Listeners.BOTH),
    ApiRow(ApiKey.DELETE_TOPICS, "ottla.server.handlers.admin.delete_topics", Listeners.BOTH),
    ApiRow(ApiKey.DESCRIBE_ACLS, "ottla.server.handlers.admin.describe_acls", Listeners.BOTH),
    ApiRow(ApiKey.DESCRIBE_CLIENT_QUOTAS, "ottla.server.handlers.admin.describe_client_quotas"),
    ApiRow(ApiKey.DESCRIBE_CLUSTER, "ottla.server.handlers.admin.describe_cluster", Listeners.BOTH),
    ApiRow(ApiKey.DESCRIBE_CONFIGS, "ottla.server.handlers.admin.describe_configs", Listeners.BOTH),
    ApiRow(ApiKey.DESCRIBE_DELEGATION_TOKEN, "ottla.server.handlers.admin.describe_delegation_token"),
    ApiRow(ApiKey.DESCRIBE_LOG_DIRS, "ottla.server.handlers.admin.describe_log_dirs"),
    ApiRow(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "ottla.server.handlers.admin.describe_topic_partitions"),
    ApiRow(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "ottla.server.handlers.admin.describe_user_scram_credentials"),
    ApiRow(ApiKey.ELECT_LEADERS, "ottla.server.handlers.admin.elect_leaders", Listeners.BOTH),
    ApiRow(ApiKey.EXPIRE_DELEGATION_TOKEN, "ottla.server.handlers.admin.expire_delegation_token", Listeners.BOTH),
    ApiRow(ApiKey.INCREMENTAL_ALTER_CONFIGS, "ottla.server.handlers.admin.incremental_alter_configs", Listeners.BOTH),
    ApiRow(ApiKey.LIST_CONFIG_RESOURCES, "ottla.server.handlers.admin.list_config_resources"),
    ApiRow(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, "ottla.server.handlers.admin.list_partition_reassignments", Listeners.BOTH
    ),
    ApiRow(ApiKey.METADATA, "ottla.server.handlers.admin.metadata"),
    ApiRow(ApiKey.RENEW_DELEGATION_TOKEN, "ottla.server.handlers.admin.renew_delegation_token", Listeners.BOTH),
    ApiRow(ApiKey.SASL_AUTHENTICATE, "ottla.server.handlers.admin.sasl_authenticate", Listeners.BOTH),
    ApiRow(ApiKey.SASL_HANDSHAKE, "ottla.server.handlers.admin.sasl_handshake", Listeners.BOTH),
    ApiRow(ApiKey.UNREGISTER_BROKER, "ottla.server.handlers.admin.unregister_broker", Listeners.BOTH),
    ApiRow(ApiKey.UNREGISTER_CONTROLLER, "ottla.server.handlers.admin.unregister_controller", Listeners.BOTH),
    ApiRow(ApiKey.UPDATE_FEATURES, "ottla.server.handlers.admin.update_features", Listeners.BOTH),
)
