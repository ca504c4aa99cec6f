"""The fields of a batch that no CRC covers: its base offset and its leader epoch, held against what lies around it, and
its length, held against the CRC.

A walk over a log asks about a batch only where it does not go on where the one before ended, or in its leader epoch:
then the next batch and the entries of leader epochs are heard too. What they leave one value for was flipped, and is
put right in its place, since the CRC vouches for the rest of the batch. Where they leave several, the walk ends before
a batch whose offset contradicts them; one whose leader epoch does stays as it is, and is in `unrepaired_damage`.

- An offset is known where the batch behind begins exactly where this one would end. The last batch of a log that was
  never compacted goes on where the one before ended, if it is known to have been there or one bit is wrong. Elsewhere
  offsets may be missing, and a single one that fits has to be a bit away.
- A length is wrong where another one, a bit away, ends the batch where the file ends or another batch begins, and has
  the CRC be right. The last batch of a log with a length that is too large would pass for the torn end of a write.
- Leader epochs never fall. Up to `epochs_known_to` each batch has that of its entry, unless the next batch contradicts
  the entries as well: then those are wrong, and are taken from the batches from there on.

Left out: batches that nothing around them contradicts; messages of formats v0 and v1, which have no leader epoch and
only the offset of their last record; epochs above what the cluster has reached (`replica.manager` knows that).
"""

from __future__ import annotations

import logging

from ottla.common.kafka.topic_partition import TopicPartition
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
from ottla.storage.segment.batch_frames import BatchFrames, framing_defect
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_MAX_UNREPAIRED = 16
_OLD_FORMAT = -1
_UINT32 = (1 << 32) - 1
_UINT64 = (1 << 64) - 1


class UnchecksummedFields:
    """See the module. Of one walk over the segments of a log, in their order."""

    __slots__ = (
        "_changed",
        "_epochs_known_to",
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
    ) -> None:
        """`known_end`: what is below was in the log. `epochs` gets those of the batches while the walk goes on."""
        self._partition = partition
        self._known_end = known_end
        self._is_contiguous = not was_compacted
        self._segment: Segment | None = None
        self._following: Segment | None = None
        self._changed = False
        self.epochs = epochs
        self._epochs_known_to = epochs_known_to
        self.leader_epoch = UNDEFINED_EPOCH
        """Of the last batch."""
        self.unrepaired_damage: list[Damage] = []

    def begin(self, segment: Segment, following: Segment | None) -> None:
        """The next segment; `following` is the one behind it, None without one."""
        self._segment = segment
        self._following = following
        self._changed = False

    def finish(self) -> None:
        """The segment is over: what was put right in it becomes durable. Raises OSError."""
        if self._changed and self._segment is not None:
            self._segment.log_descriptor.file().fsync()

    def with_right_length(self, frames: BatchFrames, header: BatchHeader) -> BatchHeader | None:
        """The header of the batch at hand, which is not whole, with the length that makes it so, in `frames` too; None
        where none does. Raises OSError.
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
        """The header of the batch at hand, which is whole, as the walk is to take it, or why it can't be; offset `due`
        is next. Raises OSError.
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
        """Of a batch further on, maybe the first of the next segment; None where there is none that can be one."""
        if position == frames.end and self._following is not None:
            header = header_of_any(self._following.log_descriptor.file().read(HEADER_SIZE, 0), 0)
        else:
            header = frames.header_at(position)
        return None if header is None or framing_defect(header) else header

    def _next_offset(self, frames: BatchFrames, following: BatchHeader | None) -> int | None:
        """Where the batch behind begins; None where nobody knows of one."""
        if frames.size == frames.left and self._following is not None:
            return self._following.base_offset
        if following is None:
            return None
        return following[BASE_OFFSET] if following[MAGIC] == MAGIC_V2 else _OLD_FORMAT

    def _base_offset(self, header: BatchHeader, due: int, next_offset: int | None) -> tuple[int, str]:
        """What the batch has to have, or why that is not known."""
        base_offset, end = header[BASE_OFFSET], due + header[LAST_OFFSET_DELTA] + 1
        if next_offset == end:
            return due, ""
        if next_offset is None and self._is_contiguous and self._known_end <= end:
            # Of what nobody knows to have been there, more than a bit may be a batch from elsewhere.
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
        """What the batch has to have, and why nobody knows, if so: then it is the epoch before."""
        own, before = header[PARTITION_LEADER_EPOCH], self.leader_epoch
        known = self.epochs.epoch_for_offset(base_offset)
        is_noted = base_offset < self._epochs_known_to and known != UNDEFINED_EPOCH
        behind = None
        if following is not None and following[MAGIC] == MAGIC_V2:
            behind = following[PARTITION_LEADER_EPOCH]
            if behind < own and (behind < max(before, 0) or self._rises_behind(frames, following, own)):
                behind = None  # it is the one that is wrong
        fits = before <= own and (behind is None or own <= behind)
        if (fits and self._agrees(own, base_offset)) or before <= own == known:
            return own, ""
        if following is None or behind is None:
            if is_noted and known == before:
                return known, ""
        elif self._agrees(behind, following[BASE_OFFSET]):
            if is_noted and before <= known <= behind:
                return known, ""
            if behind == max(before, known):
                return behind, ""
        elif behind == before:
            return before, ""
        elif fits:  # two batches against one entry
            self.epochs.replace(base_offset, MAX_LONG, [(own, base_offset)])
            self._epochs_known_to = 0
            return own, ""
        return before, f"leader epoch {own} at offset {base_offset} comes after {before} and before {behind}"

    def _rises_behind(self, frames: BatchFrames, following: BatchHeader, leader_epoch: int) -> bool:
        """Whether the second batch from here on is of `leader_epoch` or a later one."""
        position = frames.position + frames.size
        second = None
        if position < frames.end:
            second = self._header_at(frames, position + following[BATCH_LENGTH] + LOG_OVERHEAD)
        return second is not None and second[PARTITION_LEADER_EPOCH] >= leader_epoch

    def _agrees(self, leader_epoch: int, offset: int) -> bool:
        """Whether the entries of leader epochs have a batch at `offset` be of that epoch, or say nothing of it."""
        known = self.epochs.epoch_for_offset(offset)
        return known in (leader_epoch, UNDEFINED_EPOCH) or (known < leader_epoch and offset >= self._epochs_known_to)

    def _put_right(self, position: int, name: str, found: int, right: int, at: int, size: int) -> None:
        """Overwrite a field of the batch at `position`, if it is wrong."""
        segment = self._segment
        if found == right or segment is None:
            return
        logger.warning(
            "%s: the %s of the batch at position %d was %d and is put right, %d by what lies around it",
            segment.path,
            name,
            position,
            found,
            right,
        )
        segment.overwrite(position + at, right.to_bytes(size, signed=True))
        self._changed = True

    def _doubt(self, first_offset: int, last_offset: int, reason: str) -> None:
        segment = self._segment
        if segment is None:
            return
        damage = Damage(self._partition, segment.base_offset, first_offset, last_offset, reason)
        logger.error("%s is damaged, its %s", segment.path, damage)
        if len(self.unrepaired_damage) == _MAX_UNREPAIRED:  # the last of them goes on
            last = self.unrepaired_damage.pop()
            damage = Damage(self._partition, last.segment, last.first_offset, last_offset, last.reason)
        self.unrepaired_damage.append(damage)
