"""Positions of a consumer: assigns and seeks the library's consumer, and knows which fetched records were not returned
yet. Commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.api.consuming.buffer import FetchedRecords
from ottla.api.consuming.library import LibraryConsumer
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition


class ConsumerPositions:
    """The assigned partitions of one consumer and their next offsets."""

    def __init__(self, library: LibraryConsumer, buffer: FetchedRecords[Any, Any]) -> None:
        self.owned: set[TopicPartition] = set()
        self.reassigned = False
        """True if the assignment has changed since this was set to False."""
        self.assigning: dict[TopicPartition, int] | None = None
        """Start offsets of new partitions, while `on_assign` runs."""
        self.sought: dict[TopicPartition, int] = {}
        """Partitions without a returned record since their last seek."""
        self._library = library
        self._buffer = buffer

    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from offsets, or (None) from the group's committed offsets."""
        self._buffer.clear()
        self._buffer.held.clear()
        self.sought.clear()
        self.owned = set(starts)
        self._library.consumer.assign([self._start(key, offset) for key, offset in starts.items()])

    def _start(self, key: TopicPartition, offset: int | None) -> Any:
        if offset is None:
            offset = self._library.kafka.OFFSET_STORED if self._library.in_group else self._library.reset_offset
        return self._library.kafka.TopicPartition(*key, offset)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, after all returned records; unknown ones are omitted."""
        return {(each.topic, each.partition): each.offset for each in self.resume_points(self._buffer.next)}

    def resume_points(self, start: int) -> list[Any]:
        """The same for the library, with the records of the batch from `start` counted as not returned."""
        kind = self._library.kafka.TopicPartition
        asked = self._library.partitions(self.owned)
        found = self._library.consumer.position(asked) if asked else ()
        moved = dict(self.sought)
        for key, records in self._buffer.held.items():
            moved[key] = records[0].offset
        for record in reversed(self._buffer.batch[start:]):
            moved[record.topic, record.partition] = record.offset
        if moved:
            for each in found:
                each.offset = moved.get((each.topic, each.partition), each.offset)
        return [kind(each.topic, each.partition, each.offset) for each in found if each.offset >= 0]

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Continue at that offset; in `on_assign`, start there. Raises KafkaError for an unassigned partition."""
        if self.assigning is not None:
            self.assigning[key] = offset
            self.sought[key] = offset
            return
        if key not in self.owned:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"partition {key[0]}-{key[1]} is not assigned")
        self.drop([key])
        self.sought[key] = offset
        self._library.seek(key, offset)

    def seek_all(self, offsets: Mapping[TopicPartition, int | None], otherwise: int) -> None:
        """Continue at these offsets; None means the bound `otherwise` (`OFFSET_BEGINNING`, `OFFSET_END`)."""
        for key, offset in offsets.items():
            self.seek(key, self._library.bound(key, otherwise) if offset is None else offset)

    def rewind_to(self, messages: list[Any]) -> None:
        """Fetch these messages again, which were not returned."""
        for message in reversed(messages):
            self.sought[message.topic(), message.partition()] = message.offset()
        for key in {(message.topic(), message.partition()) for message in messages}:
            self._library.seek(key, self.sought[key])

    def wanted(self, partitions: Iterable[TopicPartition] | None) -> list[TopicPartition]:
        """These partitions, or all assigned ones."""
        if partitions is not None:
            return list(partitions)
        return sorted(self.owned if self.assigning is None else self.assigning)

    def drop(self, keys: list[TopicPartition]) -> None:
        """Drop fetched records and seeks of these partitions."""
        for key in keys:
            self.sought.pop(key, None)
        self._buffer.drop(keys)

    def revoke(self, keys: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self.drop(keys)
        self.owned -= set(keys)
        self.reassigned = True
