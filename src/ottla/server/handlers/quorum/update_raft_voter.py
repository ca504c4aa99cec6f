"""UpdateRaftVoter (82): version 0, on the controller's listener (KIP-853)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: QuorumContext, request: Request, message: UpdateRaftVoterRequest) -> None:
    """Update a voter's endpoints; answered when that is committed."""
    context.service.update_voter(message, request.answer_with)


UPDATE_RAFT_VOTER = SchemaApi(
    ApiKey.UPDATE_RAFT_VOTER,
    handle,
    bare_error(UpdateRaftVoterResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
