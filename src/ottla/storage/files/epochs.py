"""Start offsets of leader epochs, by which divergence between replicas is detected (KIP-101, KIP-279).

Invariants:
- Epochs and start offsets rise from entry to entry; start offsets strictly.
- No entry starts above the log end offset; a new leader's entry starts at it, before its first append.
- Memory may be ahead of the file `leader-epoch-checkpoint`: the file is written before the recovery point passes the
  change, on truncation and on close. An unclean start trusts it up to the recovery point, and reads later epochs from
  the batches.
- An entry without records need not be in the file: a start drops it, as the next leader adds its own. So ten thousand
  logs without appends since the last start have nothing to write. Whether the file lacks an entry is computed from the
  entries and the log end, never remembered, so that no event can lose it.

The file is written by `flush.py` and `truncation.py`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochCache:
    """Epoch entries of one log; two parallel lists, since most logs have one entry."""

    __slots__ = ("_epochs", "_starts", "_written_epoch", "dirty", "latest_epoch")

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        """`entries` are (epoch, start offset) in rising order; ones that don't rise are dropped."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest_epoch = UNDEFINED_EPOCH
        for epoch, start in entries:
            self.assign(epoch, start)
        self._written_epoch = self.latest_epoch
        """Newest epoch in the file; later ones are only in memory."""
        self.dirty = False
        """Whether an entry that may be in the file was changed or dropped."""

    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) pairs, rising."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add the first batch of `epoch` at `start_offset`; an epoch that is not newer is ignored."""
        if epoch <= self.latest_epoch:
            return
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest_epoch = epoch

    def insert(self, epoch: int, start_offset: int) -> None:
        """Add a missing entry, or start one earlier: the batches from `start_offset` up to the next have `epoch`."""
        at = bisect_left(self._epochs, epoch)
        if self._epochs[at : at + 1] == [epoch]:
            self._starts[at] = start_offset
        else:
            self._epochs.insert(at, epoch)
            self._starts.insert(at, start_offset)
        self.latest_epoch = self._epochs[-1]
        self.dirty = True

    def start_later(self, epoch: int, start_offset: int | None) -> None:
        """Start an entry later, before the next one; None removes it: batches before `start_offset` are older."""
        at = self._epochs.index(epoch)
        if start_offset is None:
            del self._epochs[at], self._starts[at]
            self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        else:
            self._starts[at] = start_offset
        self.dirty = True

    def must_be_written(self, log_end_offset: int) -> bool:
        """Return whether the file lacks a change, or an entry with records, that a start would need."""
        if self.dirty:
            return True
        if self.latest_epoch == self._written_epoch:
            return False
        first_unwritten = bisect_right(self._epochs, self._written_epoch)
        return first_unwritten < len(self._starts) and self._starts[first_unwritten] < log_end_offset

    def note_written(self) -> None:
        """Record that a write of the file with all entries has started."""
        self._written_epoch = self.latest_epoch
        self.dirty = False

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) for OffsetForLeaderEpoch (KIP-279).

        The largest known epoch that is not above the requested one, and where it ended; (-1, -1) when unknown. A
        request for the latest epoch is answered with the log end offset.
        """
        if epoch < 0 or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        if epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            return epoch, self._starts[0]
        return self._epochs[at - 1], self._starts[at]

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the record at `offset`; -1 before all entries."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED_EPOCH

    def replace(self, start_offset: int, end_offset: int, entries: list[tuple[int, int]]) -> None:
        """Set the epochs of the batches from `start_offset` up to `end_offset`, replacing earlier entries."""
        old = self.entries()
        first_epoch = entries[0][0] if entries else self.latest_epoch
        before = [entry for entry in old if entry[1] < start_offset and entry[0] <= first_epoch]
        behind = [entry for entry in old if entry[1] >= end_offset]
        self.clear()
        for epoch, start in (*before, *entries, *behind):
            self.assign(epoch, start)
        self.dirty = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop entries that start at `end_offset` or later."""
        at = bisect_left(self._starts, end_offset)
        if at < len(self._starts):
            del self._starts[at:], self._epochs[at:]
            self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Apply a new log start offset: the entry that covers it starts there, older ones are dropped."""
        at = bisect_right(self._starts, start_offset)
        if at == 0:
            return
        if at > 1 or self._starts[0] < start_offset:
            del self._starts[: at - 1], self._epochs[: at - 1]
            self._starts[0] = start_offset
            self.dirty = True

    def clear(self) -> None:
        """Remove all entries: the log restarts."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.latest_epoch = UNDEFINED_EPOCH
            self.dirty = True
