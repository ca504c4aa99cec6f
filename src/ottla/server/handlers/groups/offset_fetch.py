"""OffsetFetch (9): versions 1 to 10; from 8 on for several groups at once (KIP-709)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request

NO_OFFSET = -1


def handle(context: GroupContext, request: Request, message: OffsetFetchRequest) -> None:
    """Hand the request to the group coordinator, which answers with committed offsets only."""
    context.group_coordinator.offset_fetch(request_context(request), message, answering(request))


def error_response(message: OffsetFetchRequest, code: ErrorCode, text: str) -> OffsetFetchResponse:
    """The error where the version of the request carries it: groups, the top, or every partition."""
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics or []
        ],
        groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in message.groups],
    )


OFFSET_FETCH = DeclaredApi(
    ApiKey.OFFSET_FETCH,
    handle,
    error_response,
    item_needs=(Need(AclOperation.DESCRIBE, ResourceType.GROUP), Need(AclOperation.DESCRIBE, ResourceType.TOPIC)),
)
