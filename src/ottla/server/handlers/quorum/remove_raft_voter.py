"""RemoveRaftVoter (81): version 0, forwarded to the active controller (KIP-853)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: RemoveRaftVoterRequest) -> None:
    """Take a voter out of the quorum; answered when that is committed."""
    context.quorum.service.remove_voter(message, lambda response: request.answer(lambda: response))


def error_response(message: RemoveRaftVoterRequest, code: ErrorCode, text: str) -> RemoveRaftVoterResponse:
    """The error, of the request as a whole."""
    return RemoveRaftVoterResponse(error_code=code, error_message=text or None)


REMOVE_RAFT_VOTER = DeclaredApi(ApiKey.REMOVE_RAFT_VOTER, handle, error_response, forwarded=True)
