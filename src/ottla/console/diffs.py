"""Differences between two texts by lines, as one column or as two; each has a sign besides its colour.

Cost: lines and the length of texts are bounded, since the time of a comparison grows faster than they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

import htpy as h
from htpy import Node

from ottla.console import formats

MAX_LINES = 500
"""Lines of each text that are compared."""
CONTEXT_LINES = 3
UNIFIED, SIDE_BY_SIDE = "unified", "side"
LAYOUTS = (UNIFIED, SIDE_BY_SIDE)

_Group = list[tuple[str, int, int, int, int]]


class Comparison(NamedTuple):
    """Lines of an older and a newer text, and the number of lines that were left out at the end of each."""

    older: Sequence[str]
    newer: Sequence[str]
    left: tuple[int, int]

    @property
    def is_equal(self) -> bool:
        """True if the compared lines are the same."""
        return self.older == self.newer


def compare(older: str, newer: str) -> Comparison:
    """The lines of both texts, cut."""
    both = older.split("\n"), newer.split("\n")
    left = tuple(max(0, len(each) - MAX_LINES) for each in both)
    return Comparison(both[0][:MAX_LINES], both[1][:MAX_LINES], (left[0], left[1]))


def difference(found: Comparison, layout: str) -> Node:
    """The changed lines with some unchanged ones around them."""
    groups = list(SequenceMatcher(None, found.older, found.newer).get_grouped_opcodes(CONTEXT_LINES))
    if layout == UNIFIED:
        titles: list[Node] = ["Older line", "Newer line", "Value"]
    else:
        titles = ["Line", "Older value", "Line", "Newer value"]
    rows = [
        h.tr[h.td(".gap", colspan=str(len(titles)))[f"{formats.counted(part, 'unchanged line')}"]]
        if isinstance(part, int)
        else (_unified(found, part) if layout == UNIFIED else _side_by_side(found, part))
        for part in _with_gaps(groups, found)
    ]
    return h.div(".scroll", role="region", aria_label="Differences", tabindex="0")[
        h.table(".diff")[
            h.caption["Differences between the older and the newer value"],
            h.thead[h.tr[[h.th(scope="col")[each] for each in titles]]],
            h.tbody[rows],
        ]
    ]


def _with_gaps(groups: Sequence[_Group], found: Comparison) -> Iterator[_Group | int]:
    """The groups, and the numbers of unchanged lines between them."""
    end = 0
    for group in groups:
        start = group[0][1]
        if start > end:
            yield start - end
        yield group
        end = group[-1][2]
    if groups and len(found.older) > end:
        yield len(found.older) - end


def _unified(found: Comparison, group: _Group) -> Iterator[Node]:
    for kind, start, end, new_start, new_end in group:
        if kind == "equal":
            for number in range(start, end):
                yield h.tr[_number(number), _number(new_start + number - start), _line(_same(found.older[number]))]
            continue
        for number in range(start, end):
            yield h.tr[_number(number), _number(None), _line(_removed(found.older[number]))]
        for number in range(new_start, new_end):
            yield h.tr[_number(None), _number(number), _line(_added(found.newer[number]))]


def _side_by_side(found: Comparison, group: _Group) -> Iterator[Node]:
    for kind, start, end, new_start, new_end in group:
        for old, new in zip_longest(range(start, end), range(new_start, new_end)):
            older = None if old is None else (_same if kind == "equal" else _removed)(found.older[old])
            newer = None if new is None else (_same if kind == "equal" else _added)(found.newer[new])
            yield h.tr[_number(old), _line(older), _number(new), _line(newer)]


def _number(number: int | None) -> h.Element:
    return h.td(".number")["" if number is None else str(number + 1)]


def _line(content: Node) -> h.Element:
    return h.td(".data", dir="auto")[content]


def _same(text: str) -> Node:
    return [h.span(".sign")[" "], formats.visible(text)]


def _removed(text: str) -> Node:
    return [h.span(".sign", role="img", aria_label="removed")["-"], h.del_[formats.visible(text)]]


def _added(text: str) -> Node:
    return [h.span(".sign", role="img", aria_label="added")["+"], h.ins[formats.visible(text)]]
