"""FetchSnapshot (59): versions 0 and 1, on the controller's listener (KIP-630)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: FetchSnapshotRequest) -> None:
    """A piece of a snapshot; the channel parks while the pool reads it."""
    context.quorum.service.fetch_snapshot(message, lambda response: request.answer(lambda: response))


def error_response(message: FetchSnapshotRequest, code: ErrorCode, text: str) -> FetchSnapshotResponse:
    """The error, of the request as a whole."""
    return FetchSnapshotResponse(error_code=code)


FETCH_SNAPSHOT = DeclaredApi(ApiKey.FETCH_SNAPSHOT, handle, error_response)
