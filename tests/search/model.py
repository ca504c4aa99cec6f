"""A naive search: read all records, decode all of them, filter, sort. The engine must return the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ottla.record.batch import Record


@dataclass(frozen=True, slots=True)
class Seen:
    """A visible record."""

    partition: int
    record: Record

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.record.offset

    @property
    def document(self) -> object:
        try:
            found = json.loads((self.record.value or b"").decode())
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def field(self, name: str) -> object:
        document = self.document
        return document.get(name) if isinstance(document, dict) else None

    def contains(self, word: bytes) -> bool:
        headers = [part for name, value in self.record.headers for part in (name.encode(), value or b"")]
        return any(word in part for part in (self.record.key or b"", self.record.value or b"", *headers))


Predicate = Callable[[Seen], bool]

QUERIES: dict[str, Predicate] = {
    "": lambda seen: True,
    "blue": lambda seen: seen.contains(b"blue"),
    "blue k1": lambda seen: seen.contains(b"blue") and seen.contains(b"k1"),
    "blue || red": lambda seen: seen.contains(b"blue") or seen.contains(b"red"),
    "!blue": lambda seen: not seen.contains(b"blue"),
    'value.color == "blue"': lambda seen: seen.field("color") == "blue",
    'value.color in ["blue", "red"]': lambda seen: seen.field("color") in ("blue", "red"),
    'value.color.contains("lu")': lambda seen: "lu" in str(seen.field("color") or ""),
    "value.color ~ /^bl?/": lambda seen: str(seen.field("color") or "").startswith("b"),
    "value.n == 2": lambda seen: seen.field("n") == 2 and not isinstance(seen.field("n"), bool),
    'value.n in [1, "2", true]': lambda seen: seen.field("n") in (1, "2"),
    "value.n >= 1 && value.n < 3": lambda seen: seen.field("n") in (1, 2),
    "!(value.n == 2)": lambda seen: seen.field("n") != 2,
    'headers["h"] == "x"': lambda seen: ("h", b"x") in seen.record.headers,
    'key == "k1" || value.color == "red"': lambda seen: seen.record.key == b"k1" or seen.field("color") == "red",
    'key == "k1"': lambda seen: seen.record.key == b"k1",
    'key in ["k2", "absent"] && value.n == 2': lambda seen: (
        seen.record.key == b"k2" and seen.field("n") == 2 and not isinstance(seen.field("n"), bool)
    ),
    "value == null": lambda seen: seen.record.value is None,
    "has(value.color)": lambda seen: seen.field("color") is not None,
}
"""Queries with the same condition in Python."""


def oldest_first(visible: list[Seen], predicate: Predicate) -> list[tuple[int, int]]:
    """Places of matches, merged by the largest timestamp so far in each partition; `visible` is in offset order."""
    reached: dict[int, int] = {}
    keyed = []
    for seen in visible:
        reached[seen.partition] = max(reached.get(seen.partition, -(2**63)), seen.record.timestamp)
        keyed.append(((reached[seen.partition], *seen.place), seen))
    return [seen.place for _, seen in sorted(keyed, key=lambda each: each[0]) if predicate(seen)]


def newest_first(visible: list[Seen], predicate: Predicate) -> list[tuple[int, int]]:
    """Places of matches by timestamp, partition and offset, descending."""
    ordered = sorted(visible, key=lambda seen: (seen.record.timestamp, *seen.place), reverse=True)
    return [seen.place for seen in ordered if predicate(seen)]
