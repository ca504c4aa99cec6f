"""Metadata log of one controller term, in memory: a snapshot of the tree as read, then the records written to it.

Followers of the controller read it like a quorum's log. All of its content is in the tree, so its end is its high
watermark, and it is dropped with the term: the next one begins with its own snapshot.

Invariants:
- Batches are contiguous between the end of the oldest snapshot and the end of the log.
- Before the first request no batch is stored, and the snapshot is the newest image: a broker without followers has no
  cost.
- There are at most two snapshots, and `2 * MAX_BYTES` of batches, not counting the batch that began the newest
  snapshot: after `MAX_BYTES` of batches another snapshot begins, and the oldest is dropped with its batches.
- A snapshot is dropped when two newer ones exist, even if a follower wants it: it then gets SNAPSHOT_NOT_FOUND.
- A snapshot is an image until its bytes are requested.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode
from ottla.common.platform.clock import Clock, Scheduler
from ottla.metadata.image import MetadataImage
from ottla.metadata.snapshot import image_records
from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch
from ottla.quorum.snapshot_file import SnapshotBuilder
from ottla.quorum.snapshots import encode_in_steps
from ottla.record.builder import RecordData, build_batch

MAX_BYTES = 4 * 1024 * 1024
"""Bytes of batches after a snapshot before the next one: some tens of thousands of partition changes."""

SnapshotDone = Callable[[bytes | None], None]
"""Callback with the bytes of a snapshot, or None if it is no longer needed."""


class _Snapshot:
    """An image, and its bytes from their first request on."""

    __slots__ = ("_data", "_image", "_waiting", "end", "is_gone")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._data: bytes | None = None
        self._waiting: list[SnapshotDone] = []
        self.end = OffsetAndEpoch(image.offset + 1, image.epoch)
        self.is_gone = False

    def read(self, clock: Clock, scheduler: Scheduler, done: SnapshotDone) -> None:
        if self._data is not None:
            done(self._data)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            now_ms = clock.time_ms()
            builder = SnapshotBuilder(self.end.epoch, now_ms, now_ms, ())
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
    """Log of one controller term. All methods run on the loop."""

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
        """Starts with `image`, which has the epoch of the term."""
        self._clock = clock
        self._scheduler = scheduler
        self._snapshots = [_Snapshot(image)]
        self._offsets: list[int] = []
        """Start offset of each batch."""
        self._batches: list[bytes] = []
        self._bytes_since = 0
        self._is_followed = False
        self.epoch = image.epoch
        self.end_offset = image.offset + 1

    @property
    def start_offset(self) -> int:
        """The end of the oldest snapshot, which is older than all batches."""
        return self._snapshots[0].end.end_offset

    def append(self, values: Sequence[bytes], image: MetadataImage) -> None:
        """Add the records written to the tree, encoded; `image` includes them."""
        if not self._is_followed:
            self._snapshots = [_Snapshot(image)]
            self.end_offset = image.offset + 1
            return
        now_ms = self._clock.time_ms()
        data = [RecordData(now_ms, None, value) for value in values]
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
        dropped = bisect_right(self._offsets, self.start_offset - 1)
        del self._offsets[:dropped], self._batches[:dropped]

    def check_log_end(self, log_end: OffsetAndEpoch) -> FetchVerdict:
        """Compare the log end of a follower with this term: a log of another term shares nothing with it."""
        self._is_followed = True
        if log_end.end_offset < 0 or log_end.epoch < 0:
            return FetchVerdict(ErrorCode.INVALID_REQUEST)
        if log_end.epoch != self.epoch or log_end.end_offset < self.start_offset:
            return FetchVerdict(snapshot=self._snapshots[-1].end)
        if log_end.end_offset > self.end_offset:
            return FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        return FetchVerdict()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one with `offset` on; the first is returned regardless of its size."""
        first = last = max(bisect_right(self._offsets, offset) - 1, 0)
        size = 0
        for batch in self._batches[first:]:
            size += len(batch)
            if size > max_bytes and last > first:
                break
            last += 1
        return b"".join(self._batches[first:last])

    def read_snapshot(self, end: OffsetAndEpoch, done: SnapshotDone) -> None:
        """Call `done` with the bytes of a snapshot, perhaps before this returns; None if it does not exist."""
        for snapshot in self._snapshots:
            if snapshot.end == end:
                snapshot.read(self._clock, self._scheduler, done)
                return
        done(None)

    def close(self) -> None:
        """The term is over: snapshots are no longer returned."""
        for snapshot in self._snapshots:
            snapshot.give_up()
