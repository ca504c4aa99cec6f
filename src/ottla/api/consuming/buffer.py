"""`FetchedRecords`: records that the library has returned, and how far the caller has received them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Generic

from ottla.api.messages import Record
from ottla.api.records import RK, RV
from ottla.common.kafka.topic_partition import TopicPartition

STAY_S = 1.0
"""Longest time of returning fetched records without a library call: otherwise the member is removed from the group
(`max.poll.interval.ms`)."""


class FetchedRecords(Generic[RK, RV]):
    """The batch: `current` is its first record that is being processed, `next` its first that was not returned."""

    def __init__(self) -> None:
        self.batch: list[Record[RK, RV]] = []
        self.current = self.next = 0
        self.held: dict[TopicPartition, list[Record[RK, RV]]] = {}
        """Records of paused partitions that the library has already returned."""
        self.asked_at = 0.0
        """Time of the last fetch from the library."""

    @property
    def must_stay(self) -> bool:
        """True if a library call is due to keep the group membership."""
        return time.monotonic() - self.asked_at >= STAY_S

    @property
    def is_ready(self) -> bool:
        """True if fetched records can be returned without a library call."""
        return self.next < len(self.batch) and time.monotonic() - self.asked_at < STAY_S

    def take(self, count: int | None) -> list[Record[RK, RV]]:
        """Return at most `count` records, or all; the previously returned ones count as processed."""
        self.current = self.next
        self.next = len(self.batch) if count is None else min(len(self.batch), self.next + count)
        return self.batch[self.current : self.next]

    def clear(self) -> None:
        """Drop the batch."""
        self.batch, self.current, self.next = [], 0, 0

    def drop_returned(self) -> None:
        """Drop the returned part of the batch."""
        del self.batch[: self.next]
        self.current = self.next = 0

    def hold(self, keys: list[TopicPartition]) -> None:
        """Keep the records of paused partitions aside."""
        for key in keys:
            records = [each for each in self.batch[self.next :] if (each.topic, each.partition) == key]
            if records:
                self.held.setdefault(key, []).extend(records)
        self._take_out(keys)

    def release(self, keys: Iterable[TopicPartition]) -> None:
        """Return the records of resumed partitions next."""
        self.batch[self.next : self.next] = [record for key in keys for record in self.held.pop(key, ())]

    def drop(self, keys: list[TopicPartition]) -> None:
        """Drop the records of these partitions that were not returned."""
        for key in keys:
            self.held.pop(key, None)
        self._take_out(keys)

    def _take_out(self, keys: list[TopicPartition]) -> None:
        rest = [each for each in self.batch[self.next :] if (each.topic, each.partition) not in keys]
        self.batch[self.next :] = rest
