"""EndQuorumEpoch (54): versions 0 and 1, on the controller's listener (KIP-595)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: QuorumContext, request: Request, message: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """Handle the resignation of the metadata quorum's leader."""
    return context.service.end_quorum_epoch(message)


END_QUORUM_EPOCH = SchemaApi(
    ApiKey.END_QUORUM_EPOCH,
    handle,
    bare_error(EndQuorumEpochResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
