"""Which part of a topic or of a table is replayed.

**Invariant:** a range of time has the records whose own times lie in it, wherever they stand: a lookup by time alone
would take the marker of a transaction, which has the time of its writing, for one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, Position
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.model.plan import OffsetRange
from ottla.pipeline.model.row_bounds import RowBounds

ISOLATION = "read_committed"


class Bound(NamedTuple):
    """Where a range begins or ends: an offset in each partition, or milliseconds from the epoch, else `value` is 0."""

    kind: Literal["earliest", "latest", "offset", "time"]
    value: int = 0


def require_order(start: Bound, end: Bound) -> None:
    """Raise OperatorError for a range that is empty whatever a topic or a table holds."""
    orders = {"earliest": -math.inf, "latest": math.inf}
    first, last = (orders.get(each.kind, each.value) for each in (start, end))
    if (start.kind == end.kind or {start.kind, end.kind} & orders.keys()) and first >= last:
        raise OperatorError("--to has to lie behind --from: nothing is replayed otherwise")


def topic_ranges(cluster: Cluster, positions: Sequence[Position], start: Bound, end: Bound) -> list[OffsetRange]:
    """The offsets from `start` up to `end` that there are, empty ranges left out. Raises TopicNotFound, KafkaError.

    Where a bound is a time they have all records within it, and others.
    """
    # Before the offsets: a topic that is made again in between is then read by an id that it does not have.
    names = dict.fromkeys(topic for topic, _ in positions)
    ids = {name: uuid_to_string(cluster.topic(name).topic_id) for name in names}
    firsts = cluster.list_offsets(dict.fromkeys(positions, EARLIEST_TIMESTAMP))
    lasts = cluster.list_offsets(dict.fromkeys(positions, LATEST_TIMESTAMP), isolation=ISOLATION)
    young = cluster.list_offsets(dict.fromkeys(positions, start.value)) if start.kind == "time" else {}
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
    """What rows must satisfy by themselves; with `offsets` (rows of a table) also in their offsets.

    Raises OperatorError for rows of a table that would have to satisfy both.
    """
    kinds = {each.kind for each in (start, end)} & {"time", *(["offset"] if offsets else [])}
    if len(kinds) > 1:
        raise OperatorError("rows of a table are chosen by offset or by time: give --from and --to of one kind")
    if not kinds:
        return None
    low, high = (each.value if each.kind in kinds else None for each in (start, end))
    return RowBounds("offset" if "offset" in kinds else "timestamp", low, high)
