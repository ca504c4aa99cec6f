"""One shard of the group coordinator: the groups and offsets of one partition of `__consumer_offsets`.

Handlers get a request and return records and a response; only `replay` changes what must survive. The work is done by
three parts that share one `ShardContext`: `ClassicGroups` (JoinGroup and its companions), `ConsumerGroups` (KIP-848),
`Offsets` (commits, whatever the group's type). Every group of whatever type is in `context.groups`.

Left out: transactional offset commits (pending offsets arrive with the transaction coordinator) and share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.classic_handlers import ClassicGroups
from ottla.coordinator.group.consumer_handlers import ConsumerGroups
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.offsets import Offsets
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.list_groups import ListedGroup

EXPIRATION_TIMER = "expire-group-metadata"


class GroupCoordinatorShard:
    """What the runtime loads, replays into and calls."""

    __slots__ = ("_replays", "classic", "consumer", "context", "offsets")

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.classic = ClassicGroups(context)
        self.consumer = ConsumerGroups(context)
        self.offsets = Offsets(context)
        self._replays: dict[type, Callable[[Any, Any], None]] = {
            **self.classic.replays(),
            **self.consumer.replays(),
            **self.offsets.replays(),
        }

    # -- CoordinatorShard ----------------------------------------------------------------------------------------------

    def replay(self, offset: int, record: GroupRecord) -> None:
        """Apply one record, while loading or right after it was appended."""
        self._replays[type(record.key)](record.key, record.value)

    def loaded(self) -> None:
        """Everything was replayed: members that were known get a full session to come back."""
        self.classic.loaded()
        self.consumer.loaded()
        self._schedule_expiration()

    def unloaded(self) -> None:
        """Leadership went: whoever waits in a rebalance is told NOT_COORDINATOR."""
        self.classic.unloaded()
        self.consumer.unloaded()

    # -- groups of any type --------------------------------------------------------------------------------------------

    def list_groups(
        self, states: Iterable[str], types: Iterable[str], request_context: RequestContext, committed_offset: int
    ) -> list[ListedGroup]:
        """Groups whose state and type are asked for (empty: any), compared without case."""
        ...

    def delete_groups(
        self, group_ids: Sequence[str], request_context: RequestContext
    ) -> CoordinatorResult[GroupRecord, list[DeletableGroupResult]]:
        """Delete the groups that are empty, with their offsets."""
        ...

    def _schedule_expiration(self) -> None: ...
