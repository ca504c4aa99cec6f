"""UpdateRaftVoter (82): version 0, on the controller's listener (KIP-853)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.request import Request


def handle(context: QuorumContext, request: Request, message: UpdateRaftVoterRequest) -> None:
    """A voter tells where it is reached; answered when that is committed."""
    context.service.update_voter(message, request.answer_with)


UPDATE_RAFT_VOTER = DeclaredApi(
    ApiKey.UPDATE_RAFT_VOTER,
    handle,
    bare_error(UpdateRaftVoterResponse),
    listeners=Listeners.CONTROLLER,
    needs=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
    throttled=False,
)
