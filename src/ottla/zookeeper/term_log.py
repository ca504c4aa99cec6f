"""The metadata log of one reign, in memory: a snapshot of what was read from the tree, then what was written to it.

Those who follow the controller read it as they would read a quorum's log. There is nothing in it that is not in the
tree, so its end is its high watermark, and it may go with the reign: the next one begins with a snapshot of its own.

Invariants:
- Batches lie without a gap between the end of the oldest snapshot and the end of the log.
- Before somebody asks for the first time there are none, and the snapshot is the newest image: a broker that nobody
  follows pays for nothing.
- There are at most two snapshots and `2 * MAX_BYTES` of batches, the newest aside: when as much was appended since the
  newest, another one begins, and the oldest goes with what follows it. One that a follower is about to fetch stays till
  then. A snapshot is an image until somebody asks for its bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode
from ottla.common.platform.clock import Clock, Scheduler
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ApiMessageAndVersion, encode_record
from ottla.metadata.snapshot import image_records
from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch
from ottla.quorum.snapshot_file import SnapshotBuilder
from ottla.quorum.snapshots import encode_in_steps
from ottla.record.builder import RecordData, build_batch

MAX_BYTES = 4 * 1024 * 1024
"""Of batches after a snapshot, before the next: some tens of thousands of partitions' changes."""

SnapshotDone = Callable[[bytes | None], None]
"""Told the bytes of a snapshot, or None where it is not needed any more."""


class _Snapshot:
    """An image, and its bytes from the first time on that somebody asks for them."""

    __slots__ = ("_data", "_image", "_waiting", "is_gone", "place")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._data: bytes | None = None
        self._waiting: list[SnapshotDone] = []
        self.place = OffsetAndEpoch(image.offset + 1, image.epoch)
        self.is_gone = False

    def read(self, clock: Clock, scheduler: Scheduler, done: SnapshotDone) -> None:
        if self._data is not None:
            done(self._data)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            now_ms = clock.time_ms()
            builder = SnapshotBuilder(self.place.epoch, now_ms, now_ms, ())
            encode_in_steps(builder, image_records(self._image), scheduler, self._encoded, lambda: self.is_gone)

    def _encoded(self, data: bytes | None) -> None:
        self._data = data
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(data)

    def give_up(self) -> None:
        self.is_gone = True
        self._encoded(None)


class ControllerTermLog:
    """All methods belong to the loop."""

    __slots__ = (
        "_batches",
        "_bytes_since",
        "_clock",
        "_is_followed",
        "_offsets",
        "_scheduler",
        "_snapshots",
        "end_offset",
        "epoch",
    )

    def __init__(self, image: MetadataImage, clock: Clock, scheduler: Scheduler) -> None:
        """Begins with `image`, whose epoch is the reign's."""
        self._clock = clock
        self._scheduler = scheduler
        self._snapshots = [_Snapshot(image)]
        self._offsets: list[int] = []
        """Where each batch begins."""
        self._batches: list[bytes] = []
        self._bytes_since = 0
        self._is_followed = False
        self.epoch = image.epoch
        self.end_offset = image.offset + 1

    @property
    def start_offset(self) -> int:
        """The end of the oldest snapshot, which is older than all batches."""
        return self._snapshots[0].place.end_offset

    def append(self, records: Sequence[ApiMessageAndVersion], image: MetadataImage) -> None:
        """Add what was written to the tree; `image` is the one with it."""
        if not self._is_followed:
            self._snapshots = [_Snapshot(image)]
            self.end_offset = image.offset + 1
            return
        now_ms = self._clock.time_ms()
        data = [RecordData(now_ms, None, encode_record(record)) for record in records]
        batch = bytes(build_batch(data, base_offset=self.end_offset, leader_epoch=self.epoch))
        self._offsets.append(self.end_offset)
        self._batches.append(batch)
        self.end_offset = image.offset + 1
        self._bytes_since += len(batch)
        if self._bytes_since >= MAX_BYTES:
            self._begin_snapshot(image)

    def _begin_snapshot(self, image: MetadataImage) -> None:
        self._bytes_since = 0
        self._snapshots.append(_Snapshot(image))
        while len(self._snapshots) > 2:
            self._snapshots.pop(0).give_up()
        kept = bisect_right(self._offsets, self.start_offset - 1)
        del self._offsets[:kept], self._batches[:kept]

    def place(self, place: OffsetAndEpoch) -> FetchVerdict:
        """Where a follower's log, which ends at `place`, stands to this one: another reign's has nothing of it."""
        self._is_followed = True
        if place.end_offset < 0 or place.epoch < 0:
            return FetchVerdict(ErrorCode.INVALID_REQUEST)
        if place.epoch != self.epoch or place.end_offset < self.start_offset:
            return FetchVerdict(snapshot=self._snapshots[-1].place)
        if place.end_offset > self.end_offset:
            return FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        return FetchVerdict()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one with `offset` on; the first comes whatever its size."""
        first = last = max(bisect_right(self._offsets, offset) - 1, 0)
        size = 0
        for batch in self._batches[first:]:
            size += len(batch)
            if size > max_bytes and last > first:
                break
            last += 1
        return b"".join(self._batches[first:last])

    def read_snapshot(self, place: OffsetAndEpoch, done: SnapshotDone) -> None:
        """Call `done` with the bytes of a snapshot, perhaps before this returns; None where there is no such one."""
        for snapshot in self._snapshots:
            if snapshot.place == place:
                snapshot.read(self._clock, self._scheduler, done)
                return
        done(None)

    def close(self) -> None:
        """The reign is over: nobody gets a snapshot of it any more."""
        for snapshot in self._snapshots:
            snapshot.give_up()
