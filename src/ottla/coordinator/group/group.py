"""What every kind of group has in common, and the registry of a shard's groups.

The registry is timeline state: which groups exist goes back with a failed append. What a group keeps inside is its own
affair: classic groups keep soft state (members that wait for a rebalance), consumer groups only timeline state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.records import GroupRecord
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.timeline import SnapshotRegistry, TimelineDict

LATEST = None
"""Reads current state; an offset in its place reads the state as of that offset."""


class GroupType(Enum):
    """Kinds of groups, by their names in ListGroups (KIP-848, version 5)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class OffsetExpiration(NamedTuple):
    """From when on the retention of a group's offsets runs (KIP-211)."""

    since_ms: int | None
    """Milliseconds since the epoch; None: from the commit of each offset."""


PartitionCheck = Callable[[str, Uuid, int], None]
"""Of topic name, topic id (zero where the client gave none) and partition; raises KafkaError."""


class Group(Protocol):
    """One group of any type. `as_of` is an offset of the log, or None for the current state."""

    group_id: str

    @property
    def type(self) -> GroupType: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def group_epoch(self) -> int:
        """Rises with every change of the members; of a classic group it is the generation."""
        ...

    @property
    def held_bytes(self) -> int:
        """About what its members keep in memory (`member_memory`)."""
        ...

    def state_name(self, as_of: int | None = LATEST) -> str:
        """As ListGroups and the describe APIs print it, e.g. `Stable`."""
        ...

    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        ...

    def as_listed_group(self, as_of: int | None = LATEST) -> ListedGroup: ...

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int, api_version: int
    ) -> PartitionCheck | None:
        """Raises KafkaError when this member may not commit.

        The check that comes back, if any, is made for every partition of the commit, which fails as a whole.
        """
        ...

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int
    ) -> PartitionCheck | None:
        """The same for offsets of a transaction, whose producer may know no member (KIP-447)."""
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, as_of: int | None) -> None:
        """Raises KafkaError when this member may not read offsets (OffsetFetch 9+)."""
        ...

    def validate_offset_delete(self) -> None:
        """Raises KafkaError when offsets of this group can't be deleted at all."""
        ...

    def validate_delete_group(self) -> None:
        """Raises KafkaError NON_EMPTY_GROUP and the like."""
        ...

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`, hence its offsets are in use."""
        ...

    def offset_expiration(self) -> OffsetExpiration | None:
        """None while offsets of this group don't expire."""
        ...

    def tombstone_records(self) -> Sequence[GroupRecord]:
        """The records that delete the group."""
        ...


class GroupRegistry:
    """All groups of one shard, by id."""

    __slots__ = ("_groups",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._groups: TimelineDict[str, Group] = TimelineDict(registry)

    def find(self, group_id: str, as_of: int | None = LATEST) -> Group | None:
        """The group, None when there is none."""
        if as_of is None:
            return self._groups.get(group_id)
        return self._groups.get_at(group_id, as_of)

    def get(self, group_id: str, as_of: int | None = LATEST) -> Group:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.find(group_id, as_of)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def put(self, group: Group) -> None:
        """Add a group or replace the one with its id; in an operation or a replay only."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str, group_type: GroupType) -> None:
        """Forget a group if it still has that type; in an operation or a replay only.

        A group that changes its type writes the tombstones of the old one when the new one is in place already.
        """
        group = self._groups.get(group_id)
        if group is not None and group.type is group_type:
            del self._groups[group_id]

    def ids(self) -> Iterator[str]:
        """Current ids in order of creation."""
        return iter(list(self._groups))

    def groups(self, as_of: int | None = LATEST) -> list[Group]:
        """All groups, in order of creation."""
        if as_of is None:
            return list(self._groups.values())
        return list(self._groups.values_at(as_of))

    def held_bytes(self) -> int:
        """What the members of all groups keep in memory."""
        return sum(group.held_bytes for group in self._groups.values())

    def release(self) -> Iterator[None]:
        """Let go of the groups one by one, when nobody will read or revert them any more."""
        while self._groups:
            dict.popitem(self._groups)
            yield

    def __len__(self) -> int:
        return len(self._groups)
