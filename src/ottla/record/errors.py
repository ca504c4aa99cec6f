"""Errors of invalid batches and records, with Kafka error codes.

Both twins of the walk raise through `invalid_record`, so that their messages are the same.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError

BAD_VARINT = 1
BAD_LENGTH = 2
BAD_OFFSET_DELTA = 3
BAD_HEADER_COUNT = 4
BAD_HEADER = 5
SURPLUS_IN_RECORD = 6
SURPLUS_IN_BATCH = 7
BAD_RECORD_COUNT = 8

_DEFECTS = {
    BAD_VARINT: "a varint runs past the end or out of its range",
    BAD_LENGTH: "a length does not fit the bytes that are left",
    BAD_OFFSET_DELTA: "the offset delta is out of order",
    BAD_HEADER_COUNT: "the header count does not fit the bytes that are left",
    BAD_HEADER: "a header does not fit the bytes that are left",
    SURPLUS_IN_RECORD: "bytes follow the last header",
    SURPLUS_IN_BATCH: "bytes follow the last record",
    BAD_RECORD_COUNT: "the record count does not fit the bytes of the batch",
}


class CorruptBatch(KafkaError):
    """Bytes that are not a whole, intact batch; `position` is the start of the batch in the given buffer."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{message} (position {position})")
        self.position = position


class InvalidRecord(KafkaError):
    """An intact batch with a header or records that violate the format."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class RecordsRefused(KafkaError):
    """Records of a batch that their topic rejects: INVALID_RECORD or INVALID_TIMESTAMP (KIP-467).

    `records` has (number in the batch, Kafka's message) of each. The message is Kafka's summary.
    """

    def __init__(self, code: ErrorCode, message: str, records: tuple[tuple[int, str], ...]) -> None:
        super().__init__(code, message)
        self.records = records


def timestamp_out_of_range(offset_delta: int) -> InvalidRecord:
    """Return the exception for a record whose timestamp does not fit into 64 bits."""
    return InvalidRecord(f"the timestamp of offset delta {offset_delta} is out of range")


def invalid_record(defect: int, record_index: int) -> InvalidRecord:
    """Return the exception for one of the defects above in the record with that index."""
    return InvalidRecord(f"record {record_index}: {_DEFECTS[defect]}")
