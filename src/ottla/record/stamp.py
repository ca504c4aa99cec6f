"""Conversion of a stored batch to one that a producer may send: sets the producer, resets fields set by a broker.

The records stay unchanged, compressed or not. `is_sendable` decides by the header alone.
"""

from __future__ import annotations

import struct

from ottla.record.batch import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BATCH_HEADER,
    COMPRESSION_MASK,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    NO_PARTITION_LEADER_EPOCH,
    PARTITION_LEADER_EPOCH,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchView,
)
from ottla.record.checksum import crc32c

_CRC = struct.Struct(">I")


def is_sendable(batch: BatchView) -> bool:
    """Return whether brokers accept these records from a client: no offset gaps, and timestamps of a client."""
    return (
        batch.records_count == batch.last_offset_delta + 1
        and not batch.is_control
        and not batch.attributes & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK)
    )


def stamped(batch: BatchView, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
    """Return a copy of a data batch as part of a transaction of that producer, with a new CRC.

    Raises CorruptBatch if the buffer ends inside the batch.
    """
    copy = bytearray(batch.to_bytes())
    header = list(batch.header)
    header[BASE_OFFSET] = 0
    header[PARTITION_LEADER_EPOCH] = NO_PARTITION_LEADER_EPOCH
    header[ATTRIBUTES] = batch.attributes & COMPRESSION_MASK | TRANSACTIONAL_MASK
    header[PRODUCER_ID] = producer_id
    header[PRODUCER_EPOCH] = producer_epoch
    header[BASE_SEQUENCE] = base_sequence
    BATCH_HEADER.pack_into(copy, 0, *header)
    with memoryview(copy) as view:
        _CRC.pack_into(copy, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))
    return copy
