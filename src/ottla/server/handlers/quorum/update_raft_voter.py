"""UpdateRaftVoter (82): version 0, on the controller's listener (KIP-853)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: UpdateRaftVoterRequest) -> None:
    """A voter tells where it is reached; answered when that is committed."""
    context.quorum.service.update_voter(message, lambda response: request.answer(lambda: response))


def error_response(message: UpdateRaftVoterRequest, code: ErrorCode, text: str) -> UpdateRaftVoterResponse:
    """The error, of the request as a whole."""
    return UpdateRaftVoterResponse(error_code=code)


UPDATE_RAFT_VOTER = DeclaredApi(ApiKey.UPDATE_RAFT_VOTER, handle, error_response)
