"""BeginQuorumEpoch (53): versions 0 and 1, on the controller's listener (KIP-595)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: QuorumContext, request: Request, message: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    """Follow the new leader of the metadata quorum."""
    return context.service.begin_quorum_epoch(message)


BEGIN_QUORUM_EPOCH = SchemaApi(
    ApiKey.BEGIN_QUORUM_EPOCH,
    handle,
    bare_error(BeginQuorumEpochResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
