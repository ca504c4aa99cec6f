"""Repair of header fields without a CRC: a batch's base offset and leader epoch, and its length.

The base offset and the epoch are compared with the surrounding batches, the length with the CRC. A scan of a log checks
a batch only if it does not continue where the one before ended, or in its leader epoch. Then the next batch and the
leader epoch entries count as evidence too. If they permit one value only, a bit was flipped, and the field is corrected
in place, since the CRC covers the rest of the batch. If they permit several, the scan ends before a batch with a
contradicting offset; one with a contradicting leader epoch stays, and is added to `unrepaired_damage`.

- An offset is known if the next batch begins exactly where this one would end. The last batch of a log that was never
  compacted continues where the one before ended, if records are known to have been there or one bit is wrong.
  Elsewhere offsets may be missing, and only a single valid value that is one bit away is used.
- A length is wrong if another one, a bit away, ends the batch at the end of the file or at another batch, and gives a
  correct CRC. The last batch of a log with too large a length would otherwise pass for the torn end of a write.
- Leader epochs never decrease. Up to `epochs_known_to` each batch has that of its entry, unless the next batch
  contradicts the entries as well: then the entries are wrong, and are read from the batches from there on. The last
  batch is right too if the file has its epoch with a start at which no batch can begin. A batch with the epoch of the
  next one may be right where its entry is not, so neither is changed.

Not repaired: batches that no neighbour contradicts; messages of formats v0 and v1, which have no leader epoch and only
the offset of their last record; epochs above the cluster's current one (known to `replica.manager`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.runbooks import DAMAGED_DATA
from ottla.record.batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    PARTITION_LEADER_EPOCH,
    BatchHeader,
)
from ottla.record.legacy.stored import header_of_any
from ottla.storage.files.damage import Damage
from ottla.storage.files.epochs import UNDEFINED_EPOCH, LeaderEpochCache
from ottla.storage.files.log_config import MAX_LONG
from ottla.storage.files.names import LEADER_EPOCH_CHECKPOINT
from ottla.storage.segment.batch_frames import BatchFrames, framing_defect
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_MAX_UNREPAIRED = 16
_OLD_FORMAT = -1
_UINT32 = (1 << 32) - 1
_UINT64 = (1 << 64) - 1


class UnchecksummedFields:
    """Header repair during one scan over the segments of a log, in order."""

    __slots__ = (
        "_changed",
        "_epochs_known_to",
        "_file_entries",
        "_following",
        "_is_contiguous",
        "_known_end",
        "_partition",
        "_segment",
        "epochs",
        "leader_epoch",
        "unrepaired_damage",
    )

    def __init__(
        self,
        partition: TopicPartition,
        epochs: LeaderEpochCache,
        *,
        epochs_known_to: int,
        known_end: int,
        was_compacted: bool,
        file_entries: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`known_end`: the log is known to have reached it. `epochs` gets those of the batches during the scan.

        `file_entries` are all (leader epoch, start offset) entries of the file, in `epochs` or not.
        """
        self._file_entries = file_entries
        self._partition = partition
        self._known_end = known_end
        self._is_contiguous = not was_compacted
        self._segment: Segment | None = None
        self._following: Segment | None = None
        self._changed = False
        self.epochs = epochs
        self._epochs_known_to = epochs_known_to
        self.leader_epoch = UNDEFINED_EPOCH
        """Leader epoch of the last batch of the scan."""
        self.unrepaired_damage: list[Damage] = []

    def begin(self, segment: Segment, following: Segment | None) -> None:
        """Start the next segment; `following` is the one behind it, None without one."""
        self._segment = segment
        self._following = following
        self._changed = False

    def finish(self) -> None:
        """Finish a segment: make its corrections durable. Raises OSError."""
        if self._changed and self._segment is not None:
            self._segment.data.descriptor.file().fsync()

    def with_right_length(self, frames: BatchFrames, header: BatchHeader) -> BatchHeader | None:
        """Return the header of the current incomplete batch with a corrected length, in `frames` too; None if no length
        fits. Raises OSError.
        """
        found, size = header[BATCH_LENGTH], frames.size
        if header[MAGIC] == MAGIC_V2:
            for length in sorted((found & _UINT32) ^ 1 << bit for bit in range(32)):
                frames.size = length + LOG_OVERHEAD
                if length < MIN_BATCH_LENGTH or frames.cut:
                    continue
                ends_well = frames.size == frames.left or self._header_at(frames, frames.position + frames.size)
                if ends_well and not frames.crc_defect(header):
                    self._put_right(frames.position, "length", found, length, LENGTH_POSITION, 4)
                    fields = [*header]
                    fields[BATCH_LENGTH] = length
                    return tuple(fields)  # type: ignore[return-value]
        frames.size = size
        return None

    def judged(self, frames: BatchFrames, header: BatchHeader, due: int) -> tuple[BatchHeader, str]:
        """Return the corrected header of the current whole batch, or why it is invalid; `due` is the expected offset.
        Raises OSError.
        """
        if header[MAGIC] != MAGIC_V2:
            return header, ""
        following = self._header_at(frames, frames.position + frames.size)
        base_offset = header[BASE_OFFSET]
        if base_offset != due:
            base_offset, defect = self._base_offset(header, due, self._next_offset(frames, following))
            if defect:
                return header, defect
        leader_epoch, doubt = header[PARTITION_LEADER_EPOCH], ""
        if leader_epoch != self.leader_epoch:
            leader_epoch, doubt = self._leader_epoch(frames, header, base_offset, following)
        self._put_right(frames.position, "base offset", header[BASE_OFFSET], base_offset, 0, 8)
        if doubt:
            self._doubt(base_offset, base_offset + header[LAST_OFFSET_DELTA], doubt)
        else:
            found = header[PARTITION_LEADER_EPOCH]
            self._put_right(frames.position, "leader epoch", found, leader_epoch, LEADER_EPOCH_POSITION, 4)
            self.leader_epoch = leader_epoch
        fields = [*header]
        fields[BASE_OFFSET], fields[PARTITION_LEADER_EPOCH] = base_offset, leader_epoch
        return tuple(fields), ""  # type: ignore[return-value]

    def _header_at(self, frames: BatchFrames, position: int) -> BatchHeader | None:
        """Return the header of a later batch, maybe of the next segment; None without a valid one."""
        if position == frames.end and self._following is not None:
            header = header_of_any(self._following.data.descriptor.file().read(HEADER_SIZE, 0), 0)
        else:
            header = frames.header_at(position)
        return None if header is None or framing_defect(header) else header

    def _next_offset(self, frames: BatchFrames, following: BatchHeader | None) -> int | None:
        """Return the start of the next batch; None if it is unknown."""
        if frames.size == frames.left and self._following is not None:
            return self._following.base_offset
        if following is None:
            return None
        return following[BASE_OFFSET] if following[MAGIC] == MAGIC_V2 else _OLD_FORMAT

    def _base_offset(self, header: BatchHeader, due: int, next_offset: int | None) -> tuple[int, str]:
        """Return the expected offset of the batch, or why it is unknown."""
        base_offset, end = header[BASE_OFFSET], due + header[LAST_OFFSET_DELTA] + 1
        if next_offset == end:
            return due, ""
        if next_offset is None and self._is_contiguous and self._known_end <= end:
            # If no records are known to have been here, more than one wrong bit may mean a batch from elsewhere.
            is_one_bit = ((base_offset ^ due) & _UINT64).bit_count() == 1
            if is_one_bit or due < self._known_end:
                return due, ""
        room = range(due, due + next_offset - end + 1) if next_offset is not None else range(0)
        if room and base_offset not in room:
            possible = [offset for bit in range(63) if (offset := base_offset ^ 1 << bit) in room]
            if len(possible) != 1:
                return base_offset, f"offset {base_offset} comes after {due - 1} and before {next_offset}"
            base_offset = possible[0]
        if base_offset > due:
            self._is_contiguous = False
        return base_offset, ""

    def _leader_epoch(
        self, frames: BatchFrames, header: BatchHeader, base_offset: int, following: BatchHeader | None
    ) -> tuple[int, str]:
        """Return the expected epoch of the batch, and, if it is unknown, why: then it is the epoch before."""
        own, before = header[PARTITION_LEADER_EPOCH], self.leader_epoch
        known = self.epochs.epoch_for_offset(base_offset)
        is_noted = base_offset < self._epochs_known_to and known != UNDEFINED_EPOCH
        behind = None
        if following is not None and following[MAGIC] == MAGIC_V2:
            behind = following[PARTITION_LEADER_EPOCH]
            if behind < own and (behind < max(before, 0) or self._rises_behind(frames, following, own)):
                behind = None  # it is the wrong one
        fits = before <= own and (behind is None or own <= behind)
        if (fits and self._agrees(own, base_offset)) or before <= own == known:
            return own, ""
        if following is None or behind is None:
            if following is None and own > before and self._starts_at_no_batch(own, header, base_offset):
                self.epochs.replace(base_offset, MAX_LONG, [(own, base_offset)])
                return own, ""
            if is_noted and known == before:
                return known, ""
        elif self._agrees(behind, following[BASE_OFFSET]):
            if is_noted and before <= known <= behind and own != behind:
                return known, ""
            if behind == max(before, known):
                return behind, ""
        elif behind == before:
            return before, ""
        elif fits:  # two batches against one entry
            self.epochs.replace(base_offset, MAX_LONG, [(own, base_offset)])
            self._epochs_known_to = 0
            return own, ""
        if own == behind:
            return before, f"leader epoch {own} at offset {base_offset}, {known} by {LEADER_EPOCH_CHECKPOINT}"
        return before, f"leader epoch {own} at offset {base_offset} comes after {before} and before {behind}"

    def _starts_at_no_batch(self, leader_epoch: int, header: BatchHeader, base_offset: int) -> bool:
        """Return whether the file has an entry of this epoch with a wrong start, so that the last batch is right.

        It starts within this batch or above the log end. One at the log end may be of a leader without records.
        """
        end = base_offset + header[LAST_OFFSET_DELTA] + 1
        return any(
            epoch == leader_epoch and start > base_offset and start != end for epoch, start in self._file_entries
        )

    def _rises_behind(self, frames: BatchFrames, following: BatchHeader, leader_epoch: int) -> bool:
        """Return whether the second batch from here on has `leader_epoch` or a later one."""
        position = frames.position + frames.size
        second = None
        if position < frames.end:
            second = self._header_at(frames, position + following[BATCH_LENGTH] + LOG_OVERHEAD)
        return second is not None and second[PARTITION_LEADER_EPOCH] >= leader_epoch

    def _agrees(self, leader_epoch: int, offset: int) -> bool:
        """Return whether the leader epoch entries are consistent with this epoch at `offset`."""
        known = self.epochs.epoch_for_offset(offset)
        return known in (leader_epoch, UNDEFINED_EPOCH) or (known < leader_epoch and offset >= self._epochs_known_to)

    def _put_right(self, position: int, name: str, found: int, right: int, at: int, size: int) -> None:
        """Overwrite a field of the batch at `position` if it is wrong."""
        segment = self._segment
        if found == right or segment is None:
            return
        logger.warning(
            "%s: the %s of the batch at position %d was %d, corrected to %d by the surrounding batches; check the disk",
            segment.data.path,
            name,
            position,
            found,
            right,
        )
        segment.data.overwrite(position + at, right.to_bytes(size, signed=True))
        self._changed = True

    def _doubt(self, first_offset: int, last_offset: int, reason: str) -> None:
        segment = self._segment
        if segment is None:
            return
        damage = Damage(self._partition, segment.base_offset, first_offset, last_offset, reason)
        logger.error("%s is damaged, its %s. See %s.", segment.data.path, damage, DAMAGED_DATA)
        if len(self.unrepaired_damage) == _MAX_UNREPAIRED:  # the last range extends to the end
            last = self.unrepaired_damage.pop()
            damage = Damage(self._partition, last.segment, last.first_offset, last_offset, last.reason)
        self.unrepaired_damage.append(damage)
