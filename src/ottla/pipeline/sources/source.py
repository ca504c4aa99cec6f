"""Interface of all sources: a read of a range of offsets.

**Invariants** of every source: the parts follow one another in offset order and end at the planned end of the
range; records are from the topic with the planned id only; memory is bounded by one part, regardless of the range;
when the last part is returned, the log was not truncated below the range's end since the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.common.platform.disk import Buffer
from ottla.pipeline.model.decode import DecodeResult, decode
from ottla.pipeline.model.plan import ClusterView, DataLossError, OffsetRange, OnDataLoss
from ottla.record.transactions import AbortedEntry


class RecordsDeletedError(DataLossError):
    """Offsets of a range fell below the log start offset during the read; the caller may choose to skip them.

    The message names partition and offsets, but not the remedy, which differs between callers.
    """


@dataclass(frozen=True, slots=True)
class RangePart:
    """A part of a range: its records, and the start of the next part (`decoded.next_offset`)."""

    decoded: DecodeResult
    read_bytes: int = 0
    """Number of stored bytes that were read for it."""
    skipped_offsets: int = 0
    """Offsets at its start that were deleted before they were read."""


def decode_part(data: Buffer, whole: OffsetRange, offset: int, aborted: Sequence[AbortedEntry]) -> RangePart:
    """Decode stored batches of a range from `offset` on. Raises DecodeError."""
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
    """Reads one range; a picklable callable, which is sent to Spark's workers.

    Implementations: in `pipeline.sources.fetch` and `pipeline.sources.segments`.
    """

    def __call__(
        self, cluster: ClusterView, whole: OffsetRange, *, isolation: str, on_data_loss: OnDataLoss
    ) -> Iterator[RangePart]:
        """The range in parts. Raises DataLossError, RecordsDeletedError unless `on_data_loss` is "skip", DecodeError,
        OttlaError when no more records arrive, TopicNotFound, TopicReplaced, KafkaError."""
        ...
