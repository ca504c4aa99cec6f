"""Batches, limits and a store for tests of share partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.common.kafka.share_state import RecordState, SharePartitionKey, ShareState, StateBatch
from ottla.record.batch import CONTROL_MASK
from ottla.share.acknowledgements import AcknowledgeType, RecordDecision
from ottla.share.acquisition import AcquiredRange, AcquireLimits
from ottla.share.settings import ShareSettings
from ottla.share.share_partition import SharePartition, StateWrite
from ottla.storage.log.batch_extents import BatchExtent

MANY = AcquireLimits(max_records=500, batch_size=500, record_limit=False)
NO_STATE = ShareState(0, -1, ())
KEY = SharePartitionKey("group", b"t" * 16, 0)


def strict(max_records: int) -> AcquireLimits:
    """Limits of the record-limit mode."""
    return AcquireLimits(max_records, 500, True)


def log_of(*batches: tuple[int, int] | tuple[int, int, bool]) -> list[BatchExtent]:
    """Batches with these first and last offsets; a third value marks control batches."""
    return [
        BatchExtent(100 * number, 100, batch[0], batch[1], CONTROL_MASK if batch[2:] else 0, -1)
        for number, batch in enumerate(batches)
    ]


def decision(first: int, last: int, kind: AcknowledgeType) -> list[RecordDecision]:
    return [RecordDecision(first, last, kind)]


class Store:
    """A share coordinator's state of one share partition, offset by offset."""

    def __init__(self) -> None:
        self.start_offset = -1
        self.complete_count = 0
        self.records: dict[int, tuple[int, int]] = {}
        """(delivery count, state) by offset."""

    def write(self, write: StateWrite) -> None:
        """Add batches: a higher delivery count replaces a lower one, then a higher state."""
        for batch in write.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                news = (batch.delivery_count, int(batch.state))
                self.records[offset] = max(self.records.get(offset, (-1, -1)), news)
        if write.start_offset != -1:
            self.start_offset = max(self.start_offset, write.start_offset)
        self.complete_count = write.delivery_complete_count
        for offset in [offset for offset in self.records if offset < self.start_offset]:
            del self.records[offset]

    def read(self) -> ShareState:
        batches = [StateBatch(offset, offset, state, count) for offset, (count, state) in sorted(self.records.items())]
        return ShareState(0, self.start_offset, tuple(batches))


class Member:
    """A share partition with one way to call it: at a time that only moves when it is set."""

    def __init__(self, start_offset: int = 0, settings: ShareSettings | None = None) -> None:
        self.settings = settings or ShareSettings()
        self.partition = SharePartition(KEY, NO_STATE, start_offset, 0, self.settings, 0)
        self.store = Store()
        self.now_ms = 0

    def acquire(
        self,
        batches: Sequence[BatchExtent],
        limits: AcquireLimits = MANY,
        member: str = "m",
        aborted: Iterable[int] = (),
    ) -> list[AcquiredRange]:
        self.partition.expire(self.now_ms)
        offset = self.partition.next_fetch_offset()
        assert offset is not None
        read = [batch for batch in batches if batch.last_offset >= offset]
        skipped = len(batches) - len(read)
        return self.partition.acquire(member, offset, read, {index - skipped for index in aborted}, limits, self.now_ms)

    def acknowledge(self, first: int, last: int, kind: AcknowledgeType, member: str = "m") -> int:
        return self.partition.acknowledge(member, decision(first, last, kind), self.now_ms)

    def store_all(self, *, stored: bool = True) -> StateWrite | None:
        """One write, which succeeds or fails."""
        write = self.partition.begin_write()
        if write is not None:
            if stored:
                self.store.write(write)
            self.partition.end_write(self.now_ms, stored=stored)
        return write

    def change_leader(self) -> None:
        """A leader of the next epoch reads the stored state."""
        state = self.store.read()
        start = max(state.start_offset, 0)
        epoch = self.partition.leader_epoch + 1
        self.partition = SharePartition(KEY, state, start, epoch, self.settings, self.now_ms)

    def states(self) -> dict[int, tuple[RecordState, int]]:
        return {
            offset: (run.state, run.delivery_count)
            for run in self.partition.in_flight()
            for offset in range(run.first, run.last + 1)
        }
