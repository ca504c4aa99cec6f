"""Fetch (1) of the metadata log, on the controller's listener: versions as on the broker's (KIP-595).

Separate from `fetch`: one partition, no sessions, no zero copy, and the response reports where a follower's log
diverges from the leader's.
"""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import ServingContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: ServingContext, request: Request, message: FetchRequest) -> None:
    """Answered when there are records, a new high watermark, or the maximum wait is over."""
    context.service.fetch(message, request.answer_with)


METADATA_FETCH = SchemaApi(
    ApiKey.FETCH,
    handle,
    bare_error(FetchResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
