"""AddRaftVoter (80): versions 0 and 1, forwarded to the active controller (KIP-853)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: AddRaftVoterRequest) -> None:
    """Make an observer a voter; answered when that is committed, unless the request waives it."""
    context.quorum.service.add_voter(message, lambda response: request.answer(lambda: response))


def error_response(message: AddRaftVoterRequest, code: ErrorCode, text: str) -> AddRaftVoterResponse:
    """The error, of the request as a whole."""
    return AddRaftVoterResponse(error_code=code, error_message=text or None)


ADD_RAFT_VOTER = DeclaredApi(ApiKey.ADD_RAFT_VOTER, handle, error_response, forwarded=True)
