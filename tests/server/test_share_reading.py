"""Batches of aborted transactions, and the bytes that a share fetch sends."""

from __future__ import annotations

from ottla.record.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from ottla.server.handlers.share.share_reading import aborted_batches, sent_range
from ottla.share.acquisition import AcquiredRange
from ottla.storage.log.batch_extents import BatchExtent

DATA, MARKER, PLAIN = TRANSACTIONAL_MASK, TRANSACTIONAL_MASK | CONTROL_MASK, 0


def batches(*rows: tuple[int, int, int, int]) -> list[BatchExtent]:
    """Rows of first offset, last offset, attributes and producer id; each has 10 bytes."""
    return [BatchExtent(10 * number, 10, *row) for number, row in enumerate(rows)]


def test_aborted_transaction_ends_at_the_marker_of_its_producer() -> None:
    found = batches(
        (0, 1, DATA, 7),
        (2, 2, DATA, 8),
        (3, 3, PLAIN, -1),
        (4, 4, MARKER, 7),
        (5, 5, DATA, 7),
        (6, 6, MARKER, 8),
        (7, 7, DATA, 7),
        (8, 8, MARKER, 7),
    )
    assert aborted_batches(found, [(7, 0)]) == {0}
    assert aborted_batches(found, [(7, 0), (7, 5)]) == {0, 4, 6}
    assert aborted_batches(found, [(8, 2)]) == {1}
    assert aborted_batches(found, []) == frozenset()


def test_sent_bytes_are_those_of_batches_with_acquired_records() -> None:
    found = batches((0, 4, PLAIN, -1), (5, 9, PLAIN, -1), (10, 14, PLAIN, -1), (15, 19, PLAIN, -1))
    assert sent_range(found, [AcquiredRange(7, 8, 1), AcquiredRange(12, 12, 2)]) == (10, 30)
    assert sent_range(found, [AcquiredRange(0, 19, 1)]) == (0, 40)
