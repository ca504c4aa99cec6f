"""AddRaftVoter (80): versions 0 and 1, forwarded to the active controller (KIP-853)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners, error_with_message
from ottla.server.authorization import Need
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.request import Request


def handle(context: QuorumContext, request: Request, message: AddRaftVoterRequest) -> None:
    """Make an observer a voter; answered when that is committed, unless the request waives it."""
    context.service.add_voter(message, request.answer_with)


ADD_RAFT_VOTER = DeclaredApi(
    ApiKey.ADD_RAFT_VOTER,
    handle,
    error_with_message(AddRaftVoterResponse),
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.ALTER, ResourceType.CLUSTER),
    throttled=False,
    forwarded=True,
)
