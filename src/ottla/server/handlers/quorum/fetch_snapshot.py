"""FetchSnapshot (59): versions 0 and 1, on the controller's listener (KIP-630)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import ServingContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: ServingContext, request: Request, message: FetchSnapshotRequest) -> None:
    """A chunk of a snapshot; the channel parks while the pool reads it."""
    context.service.fetch_snapshot(message, request.answer_with)


FETCH_SNAPSHOT = SchemaApi(
    ApiKey.FETCH_SNAPSHOT,
    handle,
    bare_error(FetchSnapshotResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
