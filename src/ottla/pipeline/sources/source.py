"""What reads a range of offsets: the interface of all sources of the pipeline.

**Invariants** of every source: the parts follow one another in offset order and end where the range was planned to
end; records come from the topic with the planned id only; memory is bounded by one part, whatever the range holds; when
the last part was given, the log had not been cut below the range's end since it was planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.common.platform.disk import Buffer
from ottla.pipeline.model.decode import Decoded, decode
from ottla.pipeline.model.plan import ClusterView, DataLossError, OffsetRange, OnDataLoss
from ottla.record.transactions import Aborted


class RecordsDeletedError(DataLossError):
    """Offsets of a range went below the start of the log while it was read; to pass over them is the caller's choice.

    The message names partition and offsets, not the way on, which differs between callers.
    """


@dataclass(frozen=True, slots=True)
class RangePart:
    """A stretch of a range: its records, and where the next part begins (`decoded.next_offset`)."""

    decoded: Decoded
    read_bytes: int = 0
    """Stored bytes that were read for it."""
    skipped_offsets: int = 0
    """Offsets at its beginning that were deleted before they were read."""


def decode_part(data: Buffer, whole: OffsetRange, offset: int, aborted: Sequence[Aborted]) -> RangePart:
    """What stored batches hold of a range from `offset` on. Raises DecodeError."""
    decoded = decode(
        data,
        topic=whole.topic,
        partition=whole.partition,
        start_offset=offset,
        end_offset=whole.end_offset,
        aborted=aborted,
    )
    return RangePart(decoded, len(data))


class ReadRange(Protocol):
    """Reads one range; a picklable callable, which travels to Spark's workers."""

    def __call__(
        self, cluster: ClusterView, whole: OffsetRange, *, isolation: str, on_data_loss: OnDataLoss
    ) -> Iterator[RangePart]:
        """The range in parts. Raises DataLossError, RecordsDeletedError unless `on_data_loss` is "skip", DecodeError,
        OttlaError when nothing comes any more, TopicNotFound, TopicReplaced, KafkaError."""
        ...
