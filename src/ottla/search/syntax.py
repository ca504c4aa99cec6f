"""Syntax tree of a query: scopes and a filter, as immutable values.

A path has a root and segments. A segment is a name, an index, or None for every element (`[*]`).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from ottla.common.errors import OperatorError

Scalar = str | int | Decimal | bool | None
"""A literal; numbers are exact."""
Segment = str | int | None

KEY, VALUE, HEADERS = "key", "value", "headers"
KEY_TEXT, VALUE_TEXT = "keyAsText", "valueAsText"
"""Undecoded text of key and value, written `record.keyAsText` as in kafka-ui."""
NUMBERS = ("partition", "offset", "timestamp", "size", "schemaId", "producerId")
"""Roots that are numbers and have no segments."""
ROOTS = (KEY, VALUE, HEADERS, *NUMBERS)

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
TextOperation = Literal["contains", "startsWith", "endsWith"]


class QueryError(OperatorError):
    """A query that does not parse: `position` counts characters from 0, `expected` names the missing part."""

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(f"the query is invalid at character {position + 1}: expected {expected}, found {found}")
        self.position = position
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Path:
    """`root.name[0]["name"][*]`; a root that is not in `ROOTS` is a variable of `exists` or `all`."""

    root: str
    segments: tuple[Segment, ...] = ()

    def __str__(self) -> str:
        return self.root + "".join(_segment_text(each) for each in self.segments)


def _segment_text(segment: Segment) -> str:
    if segment is None:
        return "[*]"
    if isinstance(segment, int):
        return f"[{segment}]"
    return f".{segment}" if segment.isidentifier() else f'["{segment}"]'


@dataclass(frozen=True, slots=True)
class Word:
    """A substring of the key, the value, or the name or value of any header."""

    text: str


@dataclass(frozen=True, slots=True)
class Compare:
    """`path op literal`."""

    path: Path
    operator: Operator
    literal: Scalar


@dataclass(frozen=True, slots=True)
class OneOf:
    """`path in [literals]`."""

    path: Path
    literals: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Has:
    """`has(path)`."""

    path: Path


@dataclass(frozen=True, slots=True)
class TextTest:
    """`path.contains("text")` and its siblings."""

    path: Path
    operation: TextOperation
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """`path ~ /pattern/`: RE2 finds the pattern anywhere in the text."""

    path: Path
    pattern: str


@dataclass(frozen=True, slots=True)
class Quantifier:
    """`path.exists(name, body)`, or `path.all(name, body)` if `is_all`."""

    path: Path
    name: str
    body: Node
    is_all: bool


@dataclass(frozen=True, slots=True)
class Not:
    """`!body`."""

    body: Node


@dataclass(frozen=True, slots=True)
class And:
    """All parts match."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part matches."""

    parts: tuple[Node, ...]


Node = Word | Compare | OneOf | Has | TextTest | Match | Quantifier | Not | And | Or


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """An offset, the same in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class TimeBound:
    """The first record at or after a time in milliseconds since 1970."""

    timestamp_ms: int


Bound = OffsetBound | TimeBound


@dataclass(frozen=True, slots=True)
class Scopes:
    """The searched part of a topic; None where the query has no such scope. `until` is exclusive."""

    start: Bound | None = None
    until: Bound | None = None
    partitions: tuple[int, ...] | None = None
    limit: int | None = None
    isolation: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query; without a filter every record matches."""

    scopes: Scopes
    filter: Node | None
