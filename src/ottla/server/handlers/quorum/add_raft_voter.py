"""AddRaftVoter (80): versions 0 and 1, forwarded to the active controller (KIP-853)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: QuorumContext, request: Request, message: AddRaftVoterRequest) -> None:
    """Make an observer a voter; answered when that is committed, unless the request waives the wait."""
    context.service.add_voter(message, request.answer_with)


ADD_RAFT_VOTER = SchemaApi(
    ApiKey.ADD_RAFT_VOTER,
    handle,
    error_with_message(AddRaftVoterResponse),
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
)
