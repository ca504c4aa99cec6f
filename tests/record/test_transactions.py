"""Batches between markers as a read_committed consumer sees them."""

from __future__ import annotations

from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import ControlRecordType, control_record_key
from ottla.record.transactions import AbortedAt, TransactionFilter


def data(base_offset: int, producer_id: int = -1) -> bytes:
    transactional = producer_id >= 0
    return bytes(
        build_batch(
            [RecordData(5, value=b"x")],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            is_transactional=transactional,
        )
    )


def marker(base_offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    return bytes(
        build_batch(
            [RecordData(5, key=control_record_key(kind), value=bytes(6))],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
    )


LOG = b"".join(
    [
        data(0),
        data(1, 7),
        data(2, 8),
        marker(3, 7, ControlRecordType.ABORT),
        marker(4, 8, ControlRecordType.COMMIT),
        data(5, 7),
        marker(6, 7, ControlRecordType.COMMIT),
        data(7, 8),
        marker(8, 8, ControlRecordType.ABORT),
    ]
)


def seen(*aborted: AbortedAt) -> list[int]:
    transactions = TransactionFilter(aborted)
    return [batch.base_offset for batch in iter_batches(LOG) if transactions.passes(batch)]


def test_a_transaction_is_left_out_up_to_its_marker() -> None:
    assert seen(AbortedAt(7, 1), AbortedAt(8, 7)) == [0, 2, 5]
    assert seen(AbortedAt(8, 7), AbortedAt(7, 1)) == [0, 2, 5]


def test_without_a_list_all_data_passes() -> None:
    assert seen() == [0, 1, 2, 5, 7]


def test_batches_after_repeated_marker_are_next_transaction() -> None:
    log = b"".join(
        [
            data(0, 7),
            marker(1, 7, ControlRecordType.ABORT),
            marker(2, 7, ControlRecordType.ABORT),
            data(3, 7),
            marker(4, 7, ControlRecordType.COMMIT),
            data(5, 7),
            marker(6, 7, ControlRecordType.ABORT),
        ]
    )
    transactions = TransactionFilter((AbortedAt(7, 0), AbortedAt(7, 5)))
    assert [batch.base_offset for batch in iter_batches(log) if transactions.passes(batch)] == [3]
