"""DescribeQuorum (55): versions 0 to 2, forwarded to the active controller (KIP-836, KIP-853)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Leader, voters and observers of the metadata log, and how far each is."""
    return context.quorum.service.describe(message)


def error_response(message: DescribeQuorumRequest, code: ErrorCode, text: str) -> DescribeQuorumResponse:
    """The error, of the request as a whole."""
    return DescribeQuorumResponse(error_code=code, error_message=text or None)


DESCRIBE_QUORUM = DeclaredApi(ApiKey.DESCRIBE_QUORUM, handle, error_response, forwarded=True)
