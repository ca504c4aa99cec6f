"""Vote (52): versions 0 to 2, on the controller's listener (KIP-595, KIP-996)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.vote import VoteRequest, VoteResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: QuorumContext, request: Request, message: VoteRequest) -> VoteResponse:
    """Whether this replica of the metadata log votes for the sender; durable before the response."""
    return context.service.vote(message)


VOTE = SchemaApi(
    ApiKey.VOTE,
    handle,
    bare_error(VoteResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
