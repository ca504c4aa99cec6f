"""Acquisition of available records of a share partition for one member: batch by batch, within the limits of a fetch.

Records that failed in half of their permitted deliveries are acquired apart from others.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.common.kafka.share_state import RecordState
from ottla.share.runs import OffsetRun, RunList
from ottla.share.settings import ShareSettings


class AcquiredRange(NamedTuple):
    """Consecutive offsets, both inclusive, acquired with the same delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquireLimits(NamedTuple):
    """Limits of one acquisition.

    `record_limit`: `max_records` is strict (KIP-1206). Otherwise a batch of the log that begins within it is acquired
    whole. Ranges end with a batch of the log once they have `batch_size` records.
    """

    max_records: int
    batch_size: int
    record_limit: bool


class AcquirablePartition(Protocol):
    """The share partition whose records are acquired. Implementation: `share.share_partition.SharePartition`."""

    settings: ShareSettings

    @property
    def window_end(self) -> int:
        """First offset that may not be acquired."""
        ...

    def archive_undeliverable(self, run: OffsetRun) -> bool:
        """Archive a run that was delivered often enough; returns whether it was."""
        ...


class Acquisition:
    """One acquisition in progress."""

    __slots__ = ("_limits", "_member_id", "_partition", "_runs", "is_full", "lock_until_ms", "ranges", "taken")

    def __init__(
        self, partition: AcquirablePartition, runs: RunList, member_id: str, limits: AcquireLimits, lock_until_ms: int
    ) -> None:
        self._partition = partition
        self._runs = runs
        self._member_id = member_id
        self._limits = limits
        self.lock_until_ms = lock_until_ms
        self.ranges: list[AcquiredRange] = []
        self.taken = 0
        self.is_full = limits.max_records <= 0

    def take(self, first: int, last: int) -> bool:
        """Acquire the available records of one batch of the log; returns whether the next batch may follow."""
        runs = self._runs
        fresh = True
        for run in runs.overlapping(first, last):
            if run.state is not RecordState.AVAILABLE or run.until_ms:
                continue
            low, high = max(run.first, first), min(run.last, last)
            if run.delivery_count >= self._partition.settings.isolation_delivery_count:
                if not self._take_isolated(low, high):
                    return False
                continue
            self._lock(low, self._clip(low, high), fresh=fresh)
            fresh = False
            if self._is_out_of_records:
                return False
        if last >= runs.end:
            first = runs.end
            end = min(self._clip(first, last), self._partition.window_end - 1)
            if end < first:
                self.is_full = True
                return False
            runs.append(end, RecordState.AVAILABLE, 0)
            self._lock(first, end, fresh=fresh)
            if end < last:
                self.is_full = True
        if self.taken >= self._limits.max_records:
            self.is_full = True
        return not self.is_full

    @property
    def _is_out_of_records(self) -> bool:
        self.is_full = self._limits.record_limit and self.taken >= self._limits.max_records
        return self.is_full

    def _clip(self, first: int, last: int) -> int:
        if not self._limits.record_limit:
            return last
        return min(last, first + self._limits.max_records - self.taken - 1)

    def _take_isolated(self, first: int, last: int) -> bool:
        """Deliver a part of records that failed before, and nothing else; returns whether others may follow."""
        partition = self._partition
        run = self._runs.isolated(first, last)[0]
        if partition.archive_undeliverable(run):
            return True
        self.is_full = True
        if self.taken:
            return False
        settings = partition.settings
        limit, threshold = settings.delivery_count_limit, settings.isolation_delivery_count
        size = max(1, run.count >> (run.delivery_count - threshold + 1))
        if limit > 2 and run.delivery_count == limit - 1:
            size = 1
        self._lock(first, self._clip(first, first + size - 1), fresh=True)
        return False

    def _lock(self, first: int, last: int, *, fresh: bool) -> None:
        """Lock available offsets; `fresh`: they are the first ones of a batch of the log."""
        for run in self._runs.isolated(first, last):
            run.state = RecordState.ACQUIRED
            run.delivery_count += 1
            run.member_id = self._member_id
            run.until_ms = self.lock_until_ms
            run.writing = False
            self.taken += run.count
            self._add(AcquiredRange(run.first, run.last, run.delivery_count), fresh=fresh)
            fresh = False

    def _add(self, acquired: AcquiredRange, *, fresh: bool) -> None:
        before = self.ranges[-1] if self.ranges else None
        if (
            before is None
            or before.last_offset != acquired.first_offset - 1
            or before.delivery_count != acquired.delivery_count
            or (fresh and before.last_offset - before.first_offset + 1 >= max(1, self._limits.batch_size))
        ):
            self.ranges.append(acquired)
        else:
            self.ranges[-1] = AcquiredRange(before.first_offset, acquired.last_offset, acquired.delivery_count)
