"""Checks that the target still has all written records, and none that its progress does not include.

A partition of the target may lose its end (an unclean election, a restored disk), and the progress topic may be
restored to an older state. Progress includes the end of each partition, so both are rejected before anything is
written.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.mirror.progress import Progress
from ottla.mirror.routes import PROGRESS_TOPIC, Route
from ottla.record.legacy.stored import iter_any_batches
from ottla.record.transactions import TransactionFilter

CHECKED_BYTES = 1 << 20
"""Number of bytes to check after the last record in the progress; duplicates would start there."""


def require_kept(target: Cluster, found: Mapping[Route, Progress], producers: Mapping[Route, BatchProducer]) -> None:
    """Raise OperatorError if the target lost written records, or has records that its progress does not include.

    `found`: progress of the routes between existing topics. Raises KafkaError.
    """
    known = {(route.target, index): end for route, one in found.items() for index, end in one.target_ends}
    ends = target.records.list_offsets(dict.fromkeys(known, LATEST_TIMESTAMP)) if known else {}
    for route, progress in found.items():
        for index, end in progress.target_ends:
            there = ends[route.target, index].offset
            if there < end:
                raise OperatorError(
                    f"{route.target}-{index} of the target ends at offset {there}, but was written up to {end}: the "
                    f"target lost records, which a mirror would not copy again; {_remedy(route)}"
                )
            if there > end:
                _require_no_later(target, route, index, end, producers[route].producer_id)


def _require_no_later(target: Cluster, route: Route, index: int, end: int, producer_id: int) -> None:
    """Raise OperatorError for committed records of this route after the last one of its progress."""
    try:
        result = target.records.fetch(
            route.target, index, end, max_bytes=CHECKED_BYTES, max_wait_ms=0, isolation="read_committed"
        )
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return  # deleted from the start
    committed = TransactionFilter(result.aborted)
    for batch in iter_any_batches(result.records):
        if committed.passes(batch) and batch.producer_id == producer_id and batch.base_offset >= end:
            raise OperatorError(
                f"{route.target}-{index} of the target has records of this mirror at offset {batch.base_offset}, but "
                f"topic {PROGRESS_TOPIC!r} only includes those below {end}: it was restored to an older state, and "
                f"records would be duplicated; {_remedy(route)}"
            )


def _remedy(route: Route) -> str:
    return (
        f"delete topic {route.target!r} of the target (ottla topic delete {route.target}) to copy {route.topic!r} again"
    )
