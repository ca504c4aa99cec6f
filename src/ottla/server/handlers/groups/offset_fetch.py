"""OffsetFetch (9): versions 1 to 10; from 8 on for several groups at once (KIP-709). Committed offsets only."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.authorization import Need
from ottla.server.handlers.groups.group_requests import coordinated

NO_OFFSET = -1


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


OFFSET_FETCH = coordinated(
    ApiKey.OFFSET_FETCH,
    GroupCoordinator.offset_fetch,
    error_response,
    item_needs=(Need(AclOperation.DESCRIBE, ResourceType.GROUP), Need(AclOperation.DESCRIBE, ResourceType.TOPIC)),
)
