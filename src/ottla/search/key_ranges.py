"""Keys of which every match has one, and the ranges of offsets without them, by key filters of the broker.

Only comparisons of the whole key with text or an integer count: few sequences of bytes decode to such a literal, where
JSON can write a value in many ways. The ranges are those of the partition's leader. Without key filters, and from
another broker than Ottla, there are none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from ottla.client.wire.model import KeyFreeRange
from ottla.search.decoders import AutoDecoder, PlainDecoder
from ottla.search.plan import OffsetRange
from ottla.search.source import TopicSource
from ottla.search.subject import OpenDecoders
from ottla.search.syntax import KEY, KEY_TEXT, And, Compare, Node, OneOf, Or, Path, Scalar

MAX_KEYS = 64
"""More are not asked for."""
_REPLACEMENT = "\ufffd"
_INTEGER_SIZES = {"integer": (1, 2, 4, 8), "int16": (2,), "int32": (4,), "int64": (8,)}


class KeySkips:
    """Ranges of one partition that are passed over; sorted, without overlaps."""

    def __init__(self, ranges: Sequence[KeyFreeRange] = ()) -> None:
        self._ranges = ranges
        self._starts = [each.start for each in ranges]

    def at(self, offset: int) -> KeyFreeRange | None:
        """The range that contains an offset."""
        number = bisect_right(self._starts, offset) - 1
        return self._ranges[number] if number >= 0 and offset < self._ranges[number].end else None

    def next_start(self, offset: int, end: int) -> int:
        """The start of the first range behind an offset that is in none, at most `end`."""
        number = bisect_right(self._starts, offset)
        return min(end, self._starts[number]) if number < len(self._starts) else end

    def last_end(self, offset: int, start: int) -> int:
        """The end of the last range before an offset that is in none, at least `start`."""
        number = bisect_right(self._starts, offset) - 1
        return max(start, self._ranges[number].end) if number >= 0 else start

    def within(self, start: int, end: int) -> Sequence[KeyFreeRange]:
        """The ranges that overlap with these offsets."""
        first = bisect_right(self._starts, start) - 1
        return [each for each in self._ranges[max(first, 0) : bisect_right(self._starts, end - 1)] if each.end > start]


NO_SKIPS = KeySkips()


def skips_of(
    source: TopicSource, ranges: Mapping[int, OffsetRange], node: Node | None, decoders: OpenDecoders
) -> dict[int, KeySkips]:
    """The ranges that a search passes over, by partition; only partitions with any. Raises KafkaError."""
    keys = required_keys(node, decoders)
    if not keys:
        return {}
    found = source.ranges_without_keys({each: (span.start, span.end) for each, span in ranges.items()}, keys)
    return {partition: KeySkips(skips) for partition, skips in found.items() if skips}


def required_keys(node: Node | None, decoders: OpenDecoders) -> tuple[bytes, ...]:
    """Raw keys of which every match has one; empty if they are unknown.

    None for masked records: the ranges would reveal which keys exist.
    """
    if decoders.mask is not None:
        return ()
    keys = _keys(node, decoders)
    return tuple(sorted(keys)) if len(keys) <= MAX_KEYS else ()


def _keys(node: Node | None, decoders: OpenDecoders) -> frozenset[bytes]:
    match node:
        case And(parts):
            known = [keys for part in parts if (keys := _keys(part, decoders))]
            return min(known, key=len, default=frozenset())
        case Or(parts):
            branches = [_keys(part, decoders) for part in parts]
            return frozenset().union(*branches) if all(branches) else frozenset()
        case Compare(Path(root, ()), "==", literal):
            return _raw_keys(root, (literal,), decoders)
        case OneOf(Path(root, ()), literals):
            return _raw_keys(root, literals, decoders)
    return frozenset()


def _raw_keys(root: str, literals: Sequence[Scalar], decoders: OpenDecoders) -> frozenset[bytes]:
    """The keys that decode to one of the literals; empty if any of these has none or unknown ones."""
    found = [_raw_forms(root, literal, decoders) for literal in literals]
    return frozenset().union(*found) if all(found) else frozenset()


def _raw_forms(root: str, literal: Scalar, decoders: OpenDecoders) -> Sequence[bytes]:
    if root == KEY_TEXT:
        return [literal.encode()] if isinstance(literal, str) and _REPLACEMENT not in literal else []
    decoder = decoders.key
    name = decoder.name if isinstance(decoder, PlainDecoder) else ""
    if root != KEY:
        return []
    if isinstance(literal, str):
        is_text = name == "text" or (isinstance(decoder, AutoDecoder) and decoder.by_registry is None)
        return [literal.encode()] if is_text else []
    if isinstance(literal, int) and not isinstance(literal, bool):
        sizes = _INTEGER_SIZES.get(name, ())
        return [literal.to_bytes(size, "big", signed=True) for size in sizes if _fits(literal, size)]
    return []


def _fits(literal: int, size: int) -> bool:
    return -(1 << 8 * size - 1) <= literal < 1 << 8 * size - 1
