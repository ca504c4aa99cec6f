"""Acknowledgements of acquired records: their types on the wire, and the check of a partition's batches (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple, Protocol

from ottla.common.errors import ErrorCode, KafkaError


class AcknowledgeType(IntEnum):
    """RecordDecision of a client about a record."""

    GAP = 0
    """No record has the offset: compaction, a control batch or an aborted transaction."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Restarts the lock (KIP-1222)."""


class AcknowledgedBatch(Protocol):
    """An acknowledgement batch of a request. One type is meant for all offsets, else there is one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class RecordDecision(NamedTuple):
    """Consecutive offsets, both inclusive, with the same decision."""

    first_offset: int
    last_offset: int
    type: AcknowledgeType


def decisions_of(batches: Sequence[AcknowledgedBatch], *, renews: bool) -> list[RecordDecision]:
    """Return the decisions of a partition, in order. Without `renews`, RENEW is not permitted.

    Raises KafkaError INVALID_REQUEST unless the batches rise and have one type, or one for each offset.
    """
    decisions: list[RecordDecision] = []
    end = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first < end or last < first:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Acknowledgement batches must have rising offsets.")
        end = last + 1
        if not types or (len(types) > 1 and len(types) != end - first):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "An acknowledgement batch needs one type, or one per offset.")
        if min(types) < 0 or max(types) > (AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "An acknowledgement batch has an unknown type.")
        if len(types) == 1:
            decisions.append(RecordDecision(first, last, AcknowledgeType(types[0])))
            continue
        begin = first
        for kind, same in groupby(types):
            count = len(list(same))
            decisions.append(RecordDecision(begin, begin + count - 1, AcknowledgeType(kind)))
            begin += count
    return decisions
