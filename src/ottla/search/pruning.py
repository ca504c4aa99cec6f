"""Offsets that can match, by the tests of partition, offset and timestamp that a filter requires.

Only tests that every match passes count: the filter itself, or the parts of a conjunction. A smallest timestamp is the
first offset with it or a larger one, by the time index: all offsets before it are older. Behind it are older records as
well, so a largest timestamp proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.search.plan import OffsetRange
from ottla.search.source import TopicSource
from ottla.search.syntax import And, Compare, Node, OneOf, Path, Scalar

_LARGEST = (1 << 63) - 1
"""Largest offset and timestamp of the protocol."""

Interval = tuple[int, int]
"""The smallest and the largest value."""
_ALL: Interval = (-_LARGEST, _LARGEST)


class RequiredMetadata(NamedTuple):
    """Intervals that contain the metadata of every match."""

    partition: Interval = _ALL
    offset: Interval = _ALL
    timestamp: Interval = _ALL


def required_metadata(node: Node | None) -> RequiredMetadata:
    """The intervals of a filter."""
    found = RequiredMetadata()
    match node:
        case And(parts):
            for part in parts:
                required = required_metadata(part)
                found = RequiredMetadata(*map(_both, found, required))
        case Compare(Path(root, ()), operator, literal):
            return _with(found, root, [literal], operator)
        case OneOf(Path(root, ()), literals):
            return _with(found, root, literals, "==")
    return found


def pruned(source: TopicSource, ranges: Mapping[int, OffsetRange], node: Node | None) -> dict[int, OffsetRange]:
    """The parts of ranges that can have a match. Raises KafkaError."""
    required = required_metadata(node)
    kept = {
        partition: each
        for partition, each in ranges.items()
        if required.partition[0] <= partition <= required.partition[1]
    }
    ends = {partition: each.end for partition, each in kept.items()}
    since_ms = required.timestamp[0]
    firsts = source.offsets_since(since_ms, ends) if 0 <= since_ms < _LARGEST else {}
    found = {}
    for partition, each in kept.items():
        first = max(each.start, required.offset[0], firsts.get(partition, each.start))
        end = max(each.start, min(each.end, required.offset[1] + 1))
        found[partition] = OffsetRange(min(first, end), end, each.reached)
    return found


def _with(found: RequiredMetadata, root: str, literals: Sequence[Scalar], operator: str) -> RequiredMetadata:
    integers = [each for each in literals if isinstance(each, int) and not isinstance(each, bool)]
    if root not in found._fields or len(integers) < len(literals):
        return found
    low, high = _ALL
    if operator in ("==", ">", ">="):
        low = min(integers) + (operator == ">")
    if operator in ("==", "<", "<="):
        high = max(integers) - (operator == "<")
    return found._replace(**{root: (low, high)})


def _both(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])
