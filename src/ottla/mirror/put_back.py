"""Whether the target still has what was written to it, and nothing of a mirror that its progress does not know of.

A target's partition may lose its end (an unclean election, a disk that was put back), and the progress topic may be put
back to an older state. Progress holds where each partition ended, so that both are refused before anything is written.
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

LOOK_BYTES = 1 << 20
"""So much is looked at behind the last record that progress knows of; what comes twice begins there."""


def require_kept(target: Cluster, found: Mapping[Route, Progress], producers: Mapping[Route, BatchProducer]) -> None:
    """`found`: progress between the topics that are there. Raises OperatorError, KafkaError."""
    known = {(route.target, index): end for route, one in found.items() for index, end in one.target_ends}
    ends = target.list_offsets(dict.fromkeys(known, LATEST_TIMESTAMP)) if known else {}
    for route, progress in found.items():
        for index, end in progress.target_ends:
            there = ends[route.target, index].offset
            if there < end:
                raise OperatorError(
                    f"{route.target}-{index} of the target ends at offset {there}, and was written up to {end}: the "
                    f"target lost records, which would not be copied again; {_remedy(route)}"
                )
            if there > end:
                _require_no_later(target, route, index, end, producers[route].producer_id)


def _require_no_later(target: Cluster, route: Route, index: int, end: int, producer_id: int) -> None:
    """Raise OperatorError for committed records of this route behind the last one of its progress."""
    try:
        result = target.fetch(route.target, index, end, max_bytes=LOOK_BYTES, max_wait_ms=0, isolation="read_committed")
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return  # deleted from the beginning on
    committed = TransactionFilter(result.aborted)
    for batch in iter_any_batches(result.records):
        if committed.passes(batch) and batch.producer_id == producer_id and batch.base_offset >= end:
            raise OperatorError(
                f"{route.target}-{index} of the target has records of this mirror at offset {batch.base_offset}, and "
                f"topic {PROGRESS_TOPIC!r} knows of none from {end} on: it was put back to an older state, and they "
                f"would come twice; {_remedy(route)}"
            )


def _remedy(route: Route) -> str:
    return (
        f"delete topic {route.target!r} of the target (ottla topic delete {route.target}) to copy {route.topic!r} again"
    )
