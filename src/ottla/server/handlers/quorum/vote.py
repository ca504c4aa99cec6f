"""Vote (52): versions 0 to 2, on the controller's listener (KIP-595, KIP-996)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.vote import VoteRequest, VoteResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: VoteRequest) -> VoteResponse:
    """Whether this replica of the metadata log votes for the sender, durable before it is said."""
    return context.quorum.service.vote(message)


def error_response(message: VoteRequest, code: ErrorCode, text: str) -> VoteResponse:
    """The error, of the request as a whole."""
    return VoteResponse(error_code=code)


VOTE = DeclaredApi(ApiKey.VOTE, handle, error_response)
