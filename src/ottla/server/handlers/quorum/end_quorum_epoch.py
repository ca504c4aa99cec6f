"""EndQuorumEpoch (54): versions 0 and 1, on the controller's listener (KIP-595)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.request import Request


def handle(context: QuorumContext, request: Request, message: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """The leader of the metadata quorum resigns."""
    return context.service.end_quorum_epoch(message)


END_QUORUM_EPOCH = DeclaredApi(
    ApiKey.END_QUORUM_EPOCH,
    handle,
    bare_error(EndQuorumEpochResponse),
    listeners=Listeners.CONTROLLER,
    needs=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
    throttled=False,
)
