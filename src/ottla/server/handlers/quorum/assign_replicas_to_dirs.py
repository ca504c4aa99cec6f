"""AssignReplicasToDirs (73): version 0, on the controller's listener (KIP-858)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.directories import handle_assign_replicas_to_dirs
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api

ASSIGN_REPLICAS_TO_DIRS = controller_api(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    handle_assign_replicas_to_dirs,
    bare_error(AssignReplicasToDirsResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
