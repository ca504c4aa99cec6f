"""AssignReplicasToDirs (73): version 0, on the controller's listener (KIP-858)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.controller.directories import handle_assign_replicas_to_dirs
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners, bare_error
from ottla.server.authorization import Need
from ottla.server.decisions import decided

ASSIGN_REPLICAS_TO_DIRS = decided(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    handle_assign_replicas_to_dirs,
    bare_error(AssignReplicasToDirsResponse),
    listeners=Listeners.CONTROLLER,
    needs=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
