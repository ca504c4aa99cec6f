"""Consumer groups (KIP-848): the heartbeat and describe handlers of a shard, and the replay of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.consumer_group_describe import DescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroups:
    """The consumer groups of one shard."""

    __slots__ = ("_context",)

    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def replays(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """For each class of record key, the method that applies (key, value or None)."""
        return {}

    def heartbeat(
        self, request_context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, ConsumerGroupHeartbeatResponse]:
        """Raises KafkaError, which the facade puts into the response."""
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def describe(self, group_ids: Sequence[str], committed_offset: int) -> list[DescribedGroup]:
        """As of the committed offset; groups of another type are GROUP_ID_NOT_FOUND."""
        return [DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND) for group_id in group_ids]

    def loaded(self) -> None:
        """All records were replayed and this broker coordinates: start timers."""

    def unloaded(self) -> None:
        """This broker no longer coordinates: let go of everything that waits."""

    def image_changed(self, changed_topics: frozenset[str]) -> None:
        """Topics were created, deleted or given partitions."""
