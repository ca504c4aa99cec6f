"""Copies of failed records out of a stored batch."""

from __future__ import annotations

import pytest

from ottla.common.errors import KafkaError
from ottla.record.builder import RecordData, build_batch, build_batch_with_gaps
from ottla.record.errors import CorruptBatch
from ottla.server.coordination.dead_letter_source import CopiedParts, copy_records
from ottla.share.dead_letters import SourceRecord

EVERYTHING = CopiedParts(True, True)
RECORDS = [RecordData(100 + number, b"k", b"v" * 10, [("h", b"x")]) for number in range(5)]
SIZE = 13
"""Copied bytes of each."""


def test_only_wanted_records_of_the_batch_are_copied() -> None:
    data = bytes(build_batch(RECORDS, base_offset=10, compression="gzip"))
    records, examined, size = copy_records(data, [11, 14, 15, 20], EVERYTHING, 1000)
    wanted = SourceRecord(101, b"k", b"v" * 10, (("h", b"x"),))
    assert records == {11: wanted, 14: wanted._replace(timestamp_ms=104)}
    assert (examined, size) == (2, 2 * SIZE)


def test_copies_stop_at_the_limit() -> None:
    data = bytes(build_batch(RECORDS))
    records, examined, _ = copy_records(data, [0, 1, 2, 3], EVERYTHING, SIZE + 1)
    assert (list(records), examined) == ([0, 1], 2)


def test_missing_records_are_left_out() -> None:
    data = bytes(build_batch_with_gaps([(0, RECORDS[0]), (4, RECORDS[1])], 10))
    records, examined, _ = copy_records(data, [10, 11, 14], EVERYTHING, 1000)
    assert (list(records), examined) == ([10, 14], 3)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        (CopiedParts(True, False), SourceRecord(None, b"k", b"v" * 10, ())),
        (CopiedParts(False, True), SourceRecord(100, None, None, (("h", b"x"),))),
    ],
)
def test_parts_are_copied_as_configured(parts: CopiedParts, wanted: SourceRecord) -> None:
    assert copy_records(bytes(build_batch(RECORDS)), [0], parts, 1000)[0] == {0: wanted}


def test_damaged_and_old_batches_are_refused() -> None:
    damaged = build_batch(RECORDS)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        copy_records(bytes(damaged), [0], EVERYTHING, 1000)
    old = build_batch(RECORDS)
    old[16] = 1
    with pytest.raises(KafkaError):
        copy_records(bytes(old), [0], EVERYTHING, 1000)
