"""The nearest record with the same key in a partition, before or after an offset.

Keys are compared as bytes, after masking. The search is bounded, and its result names the offsets that it left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.platform.reused_memory import ReusedMemory
from ottla.search.engine import MAX_UNREADABLE, Budget
from ottla.search.literals import Clause
from ottla.search.plan import OffsetRange
from ottla.search.reading import PartitionReader
from ottla.search.scan import Hit, Matcher, Unreadable
from ottla.search.source import TopicSource
from ottla.search.subject import OpenDecoders, Tally


class Neighbour(NamedTuple):
    """`hit` is None if no record with the key was found in the offsets that were searched.

    `left` are the offsets of the range that were not searched, empty without any. `unreadable` could not be searched,
    and `lost` offsets were removed from the log meanwhile.
    """

    hit: Hit | None
    left: OffsetRange
    unreadable: tuple[Unreadable, ...] = ()
    lost: int = 0


def find_neighbour(
    source: TopicSource,
    partition: int,
    span: OffsetRange,
    key: bytes,
    decoders: OpenDecoders,
    budget: Budget,
    monotonic: Callable[[], float],
    on_progress: Callable[[], None],
    fetch_bytes: int,
    *,
    is_before: bool,
) -> Neighbour:
    """The record with `key` in `span` that is nearest to its end if `is_before`, otherwise to its start.

    Stops at the bytes or seconds of `budget`, which a read may exceed. `on_progress` is called after each read. Raises
    KafkaError.
    """
    is_literal = bool(key) and decoders.mask is None
    clauses = (Clause((key,), or_escaped=False),) if is_literal else ()
    matcher = Matcher(lambda subject: subject.key == key, clauses, decoders, Tally(), ReusedMemory())
    reader = PartitionReader(source, partition, span, matcher, fetch_bytes)
    unreadable: list[Unreadable] = []
    started, read_bytes, hit = monotonic(), 0, None
    while hit is None and not reader.is_done:
        found = reader.read_down() if is_before else reader.read_up()
        on_progress()
        read_bytes += found.size_bytes
        unreadable += found.unreadable[: MAX_UNREADABLE - len(unreadable)]
        if found.hits:
            hit = (max if is_before else min)(found.hits, key=lambda each: each.offset)
        if budget.bytes is not None and read_bytes >= budget.bytes:
            break
        if budget.seconds is not None and monotonic() - started >= budget.seconds:
            break
    return Neighbour(hit, OffsetRange(reader.start, reader.end), tuple(unreadable), reader.lost)
