"""Pending offsets of open transactions: committed or discarded with their transaction (KIP-98).

For each place, a partition of a topic in a group, this stores the producers with a pending offset, and the newest
record that committed an offset there meanwhile: a pending offset from an older record is discarded, so that it does not
overwrite a newer commit. All of it is timeline state. Its size is limited by open transactions, which end by their
timeout; a place without pending offsets has no entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ottla.coordinator.group.records import OffsetPlace
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

NO_RECORD = -1


class PendingOffset(NamedTuple):
    """An offset that a producer will commit for a place."""

    record_offset: int
    """Offset of its record in the coordinator's log."""
    packed: bytes


class _Place:
    """One place with pending offsets."""

    __slots__ = ("by_producer", "committed_by_record")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.by_producer: TimelineDict[int, PendingOffset] = TimelineDict(registry)
        self.committed_by_record = TimelineValue(registry, NO_RECORD)
        """Offset of the newest record that committed an offset for this place since this object was created."""


_Partitions = TimelineDict[int, _Place]
_Topics = TimelineDict[str, _Partitions]


class PendingOffsets:
    """The pending offsets of one shard."""

    __slots__ = ("_producers", "_registry", "groups")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self.groups: TimelineDict[str, _Topics] = TimelineDict(registry)
        """Groups with pending offsets; modified only in this class."""
        self._producers: TimelineDict[int, TimelineDict[OffsetPlace, None]] = TimelineDict(registry)

    # -- queries -------------------------------------------------------------------------------------------------------

    def topics(self, group_id: str) -> Collection[str]:
        """Return the topics of a group with pending offsets."""
        return self.groups.get(group_id, ())

    def partitions(self, group_id: str, topic: str) -> Collection[int]:
        """Return the partitions of a topic of a group with pending offsets."""
        topics = self.groups.get(group_id)
        return () if topics is None else topics.get(topic, ())

    def packed(self, place: OffsetPlace) -> list[bytes]:
        """Return the pending offsets of a place."""
        found = self._find(place)
        return [] if found is None else [pending.packed for pending in found.by_producer.values()]

    # -- changes, only in a replay -------------------------------------------------------------------------------------

    def put(self, place: OffsetPlace, producer_id: int, pending: PendingOffset) -> None:
        """Store an offset until its transaction ends."""
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
        """Register that the record at `record_offset` committed an offset for a place."""
        found = self._find(place)
        if found is not None:
            found.committed_by_record.value = record_offset

    def forget(self, place: OffsetPlace) -> None:
        """Remove a place after its offset was deleted, with its pending offsets."""
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
        """Remove a producer's pending offsets; return those that no newer commit superseded."""
        newest = []
        for place in self._producers.pop(producer_id, ()):
            found = self.groups[place.group][place.topic][place.partition]
            pending = found.by_producer[producer_id]
            if pending.record_offset > found.committed_by_record.value:
                newest.append((place, pending))
            if len(found.by_producer) == 1:
                self._remove(place)  # unchanged inside: a delta for each would double the time
            else:
                del found.by_producer[producer_id]
        return newest

    def release(self) -> Iterator[None]:
        """Remove everything, once nothing can read or revert it any more."""
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

    # -- internals -----------------------------------------------------------------------------------------------------

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
