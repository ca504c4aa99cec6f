"""EndQuorumEpoch (54): versions 0 and 1, on the controller's listener (KIP-595)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """The leader of the metadata quorum resigns."""
    return context.quorum.service.end_quorum_epoch(message)


def error_response(message: EndQuorumEpochRequest, code: ErrorCode, text: str) -> EndQuorumEpochResponse:
    """The error, of the request as a whole."""
    return EndQuorumEpochResponse(error_code=code)


END_QUORUM_EPOCH = DeclaredApi(ApiKey.END_QUORUM_EPOCH, handle, error_response)
