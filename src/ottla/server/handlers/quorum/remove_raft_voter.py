"""RemoveRaftVoter (81): version 0, forwarded to the active controller (KIP-853)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: QuorumContext, request: Request, message: RemoveRaftVoterRequest) -> None:
    """Remove a voter from the quorum; answered when that is committed."""
    context.service.remove_voter(message, request.answer_with)


REMOVE_RAFT_VOTER = SchemaApi(
    ApiKey.REMOVE_RAFT_VOTER,
    handle,
    error_with_message(RemoveRaftVoterResponse),
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
)
