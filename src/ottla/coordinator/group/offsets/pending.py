"""Offsets of open transactions: committed when their transaction is, gone when it is aborted (KIP-98).

For each place, a partition of a topic in a group, this knows the producers that have an offset pending there, and the
newest record that has committed one meanwhile: a pending offset whose record is older than that is not taken over.
Everything is timeline state. What is kept beside committed offsets is bounded by open transactions, which end by their
timeout; a place without pending offsets costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ottla.coordinator.group.records import OffsetPlace
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

NO_RECORD = -1


class PendingOffset(NamedTuple):
    """What a producer wants to commit for a place."""

    record_offset: int
    """Of its record in the log of the coordinator."""
    packed: bytes


class _Place:
    """One place with pending offsets."""

    __slots__ = ("by_producer", "committed_by_record")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.by_producer: TimelineDict[int, PendingOffset] = TimelineDict(registry)
        self.committed_by_record = TimelineValue(registry, NO_RECORD)
        """Offset of the newest record that committed something here since this object was made."""


_Partitions = TimelineDict[int, _Place]
_Topics = TimelineDict[str, _Partitions]


class PendingOffsets:
    """The pending offsets of one shard."""

    __slots__ = ("_producers", "_registry", "groups")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self.groups: TimelineDict[str, _Topics] = TimelineDict(registry)
        """Those that have any; changed here only."""
        self._producers: TimelineDict[int, TimelineDict[OffsetPlace, None]] = TimelineDict(registry)

    # -- questions -----------------------------------------------------------------------------------------------------

    def topics(self, group_id: str) -> Collection[str]:
        """Topics of a group that have any."""
        return self.groups.get(group_id, ())

    def partitions(self, group_id: str, topic: str) -> Collection[int]:
        """Partitions of a topic of a group that have any."""
        topics = self.groups.get(group_id)
        return () if topics is None else topics.get(topic, ())

    def packed(self, place: OffsetPlace) -> list[bytes]:
        """What is pending for a place."""
        found = self._find(place)
        return [] if found is None else [pending.packed for pending in found.by_producer.values()]

    # -- changes, in a replay only -------------------------------------------------------------------------------------

    def put(self, place: OffsetPlace, producer_id: int, pending: PendingOffset) -> None:
        """Keep an offset until its transaction ends."""
        topics = self.groups.get(place.group)
        if topics is None:
            topics = self.groups[place.group] = TimelineDict(self._registry)
        partitions = topics.get(place.topic)
        if partitions is None:
            partitions = topics[place.topic] = TimelineDict(self._registry)
        found = partitions.get(place.partition)
        if found is None:
            found = partitions[place.partition] = _Place(self._registry)
        found.by_producer[producer_id] = pending
        places = self._producers.get(producer_id)
        if places is None:
            places = self._producers[producer_id] = TimelineDict(self._registry)
        if place not in places:
            places[place] = None

    def note_commit(self, place: OffsetPlace, record_offset: int) -> None:
        """An offset was committed for a place by the record at `record_offset`."""
        found = self._find(place)
        if found is not None:
            found.committed_by_record.value = record_offset

    def forget(self, place: OffsetPlace) -> None:
        """The offset of a place was deleted, and what is pending for it too."""
        found = self._find(place)
        if found is None:
            return
        for producer_id in found.by_producer:
            places = self._producers[producer_id]
            del places[place]
            if not places:
                del self._producers[producer_id]
        self._remove(place)

    def end(self, producer_id: int) -> list[tuple[OffsetPlace, PendingOffset]]:
        """Forget what a producer has pending; what of it nothing newer has overtaken comes back."""
        newest = []
        for place in self._producers.pop(producer_id, ()):
            found = self.groups[place.group][place.topic][place.partition]
            pending = found.by_producer[producer_id]
            if pending.record_offset > found.committed_by_record.value:
                newest.append((place, pending))
            if len(found.by_producer) == 1:
                self._remove(place)  # as it is: a delta for each would be half of the time
            else:
                del found.by_producer[producer_id]
        return newest

    def release(self) -> Iterator[None]:
        """Let go of everything, when nobody will read or revert it any more."""
        while self._producers:
            places = dict.popitem(self._producers)[1]
            while places:
                dict.popitem(places)
                yield
        while self.groups:
            topics = dict.popitem(self.groups)[1]
            while topics:
                dict.popitem(topics)
                yield

    # -- inside --------------------------------------------------------------------------------------------------------

    def _find(self, place: OffsetPlace) -> _Place | None:
        topics = self.groups.get(place.group)
        partitions = None if topics is None else topics.get(place.topic)
        return None if partitions is None else partitions.get(place.partition)

    def _remove(self, place: OffsetPlace) -> None:
        topics = self.groups[place.group]
        partitions = topics[place.topic]
        del partitions[place.partition]
        if not partitions:
            del topics[place.topic]
            if not topics:
                del self.groups[place.group]
