"""Range of a topic or of a table for a replay.

**Invariant:** a range of time has exactly the records with their own times in it, at any offset: a lookup by time alone
would also include the marker of a transaction, which has the time of its writing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.model.plan import OffsetRange
from ottla.pipeline.model.row_bounds import RowBounds

ISOLATION = "read_committed"


class Bound(NamedTuple):
    """Start or end of a range: an offset in each partition, or milliseconds from the epoch; else `value` is 0."""

    kind: Literal["earliest", "latest", "offset", "time"]
    value: int = 0


def require_order(start: Bound, end: Bound) -> None:
    """Raise OperatorError for a range that is always empty."""
    orders = {"earliest": -math.inf, "latest": math.inf}
    first, last = (orders.get(each.kind, each.value) for each in (start, end))
    if (start.kind == end.kind or {start.kind, end.kind} & orders.keys()) and first >= last:
        raise OperatorError("--to must be after --from, else nothing is replayed")


def topic_ranges(cluster: Cluster, positions: Sequence[TopicPartition], start: Bound, end: Bound) -> list[OffsetRange]:
    """The existing offsets from `start` up to `end`, without empty ranges. Raises TopicNotFound, KafkaError.

    For a bound by time they contain all records within it, and others.
    """
    # Before the offsets: a topic that is recreated in between is then read by an outdated id, which fails.
    names = dict.fromkeys(topic for topic, _ in positions)
    ids = {name: uuid_to_string(cluster.topics.get(name).topic_id) for name in names}
    firsts = cluster.records.list_offsets(dict.fromkeys(positions, EARLIEST_TIMESTAMP))
    lasts = cluster.records.list_offsets(dict.fromkeys(positions, LATEST_TIMESTAMP), isolation=ISOLATION)
    young = cluster.records.list_offsets(dict.fromkeys(positions, start.value)) if start.kind == "time" else {}
    found = []
    for key in positions:
        first, last = firsts[key].offset, lasts[key].offset
        if start.kind == "offset":
            first = max(first, start.value)
        elif start.kind == "latest" or (key in young and young[key].offset == NO_OFFSET):
            first = last
        elif key in young:
            first = young[key].offset
        if end.kind == "offset":
            last = min(last, end.value)
        elif end.kind == "earliest":
            last = first
        if first < last:
            found.append(OffsetRange(key[0], ids[key[0]], key[1], first, last, 0, lasts[key].leader_epoch))
    return found


def row_bounds(start: Bound, end: Bound, *, offsets: bool) -> RowBounds | None:
    """Bounds on the rows themselves: on their times, and with `offsets` (rows of a table) also on their offsets.

    Raises OperatorError for rows of a table if both kinds are given.
    """
    kinds = {each.kind for each in (start, end)} & {"time", *(["offset"] if offsets else [])}
    if len(kinds) > 1:
        raise OperatorError("rows of a table are chosen by offset or by time: use the same kind for --from and --to")
    if not kinds:
        return None
    low, high = (each.value if each.kind in kinds else None for each in (start, end))
    return RowBounds("offset" if "offset" in kinds else "timestamp", low, high)
