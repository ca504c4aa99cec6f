"""BeginQuorumEpoch (53): versions 0 and 1, on the controller's listener (KIP-595)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    """Follow the new leader of the metadata quorum."""
    return context.quorum.service.begin_quorum_epoch(message)


def error_response(message: BeginQuorumEpochRequest, code: ErrorCode, text: str) -> BeginQuorumEpochResponse:
    """The error, of the request as a whole."""
    return BeginQuorumEpochResponse(error_code=code)


BEGIN_QUORUM_EPOCH = DeclaredApi(ApiKey.BEGIN_QUORUM_EPOCH, handle, error_response)
