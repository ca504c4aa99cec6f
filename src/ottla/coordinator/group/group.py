"""Interface that every group type implements, and the registry of a shard's groups.

The registry is timeline state: a failed append also reverts which groups exist. The state inside a group is up to its
type: classic groups have soft state (members that wait for a rebalance), the others have timeline state only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.records import GroupRecord
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.timeline import SnapshotRegistry, TimelineDict

LATEST = None
"""Reads current state; pass an offset instead to read the state as of that offset."""


class GroupType(Enum):
    """Group types, with their names in ListGroups (KIP-848, version 5; KIP-932)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class OffsetExpiration(NamedTuple):
    """Start of the retention period of a group's offsets (KIP-211)."""

    since_ms: int | None
    """Milliseconds since the epoch; None starts the period of each offset at its commit."""


PartitionCheck = Callable[[str, Uuid, int], None]
"""Takes topic name, topic id (zero if the client sent none) and partition; raises KafkaError."""


class Group(Protocol):
    """One group of any type. `as_of` is an offset of the log, or None for the current state."""

    group_id: str

    @property
    def members(self) -> Mapping[str, object]:
        """The current members by id."""
        ...

    @property
    def type(self) -> GroupType: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def group_epoch(self) -> int:
        """Incremented with every membership change; for a classic group it is the generation."""
        ...

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the group's members, in bytes (`member_memory`)."""
        ...

    def state_name(self, as_of: int | None = LATEST) -> str:
        """Return the state as ListGroups and the describe APIs print it, e.g. `Stable`."""
        ...

    def is_empty(self) -> bool:
        """Return whether the group has no members."""
        ...

    def as_listed_group(self, as_of: int | None = LATEST) -> ListedGroup: ...

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int, api_version: int
    ) -> PartitionCheck | None:
        """Raises KafkaError when this member may not commit.

        The returned check, if any, runs for every partition of the commit; the commit fails as a whole.
        """
        ...

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int
    ) -> PartitionCheck | None:
        """Validate a commit in a transaction; the producer may have no member id (KIP-447). Raises KafkaError."""
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, as_of: int | None) -> None:
        """Raises KafkaError when this member may not read offsets (OffsetFetch 9+)."""
        ...

    def validate_offset_delete(self) -> None:
        """Raises KafkaError when no offsets of this group can be deleted."""
        ...

    def validate_delete_group(self) -> None:
        """Raises KafkaError, e.g. NON_EMPTY_GROUP."""
        ...

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Return whether a member subscribes to `topic`, so that its offsets are in use."""
        ...

    def offset_expiration(self) -> OffsetExpiration | None:
        """Return the start of offset retention; None while offsets of this group don't expire."""
        ...

    def tombstone_records(self) -> Sequence[GroupRecord]:
        """Return the records that delete the group."""
        ...


class GroupRegistry:
    """All groups of one shard, by id."""

    __slots__ = ("_groups",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._groups: TimelineDict[str, Group] = TimelineDict(registry)

    def find(self, group_id: str, as_of: int | None = LATEST) -> Group | None:
        """Return the group, or None if it does not exist."""
        if as_of is None:
            return self._groups.get(group_id)
        return self._groups.get_at(group_id, as_of)

    def get(self, group_id: str, as_of: int | None = LATEST) -> Group:
        """Return the group as `find` does. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.find(group_id, as_of)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def put(self, group: Group) -> None:
        """Add a group or replace the one with its id; only in an operation or a replay."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str, group_type: GroupType) -> None:
        """Remove a group if it still has that type; only in an operation or a replay.

        A group that changes its type registers the new group before the tombstones of the old one are replayed.
        """
        group = self._groups.get(group_id)
        if group is not None and group.type is group_type:
            del self._groups[group_id]

    def ids(self) -> Iterator[str]:
        """Return current ids in order of creation."""
        return iter(list(self._groups))

    def groups(self, as_of: int | None = LATEST) -> list[Group]:
        """Return all groups in order of creation."""
        if as_of is None:
            return list(self._groups.values())
        return list(self._groups.values_at(as_of))

    def held_bytes(self) -> int:
        """Return the approximate memory of all groups' members, in bytes."""
        return sum(group.held_bytes for group in self._groups.values())

    def release(self) -> Iterator[None]:
        """Remove the groups one by one, once nothing can read or revert them any more."""
        while self._groups:
            dict.popitem(self._groups)
            yield

    def __len__(self) -> int:
        return len(self._groups)
