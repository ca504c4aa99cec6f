"""Scopes of a query: bounds as offsets or times, and lists of partitions.

Times are RFC 3339 (UTC without a zone, a date is its midnight) or a duration before now, such as -2h or -1d12h. A
plain number is an offset.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

from ottla.common.errors import OperatorError
from ottla.search.cursor import Cursor, shown
from ottla.search.syntax import Bound, OffsetBound, QueryError, Scopes, TimeBound

SCOPE = re.compile(r"(from|until|partition|limit|isolation):(\S*)")

BOUND_FORMS = "a time (2026-11-28T10:00:00Z), a duration before now (-2h), or an offset"
PARTITION_FORMS = "partitions such as 0,3,5-7"
ISOLATIONS = ("committed", "uncommitted")
MAX_OFFSET = 2**63 - 1
MAX_LIMIT = 1_000_000_000
MAX_PARTITIONS = 100_000
"""Bound of a list of partitions."""

_WORDS = {"start": "from", "partitions": "partition"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"-(?:(\d{1,6})w)?(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNITS_MS = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)
_PARTITIONS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


class ScopeConflict(OperatorError):
    """A scope is both in the query and beside it; `name` is its name in `Scopes`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the query has the scope {_WORDS.get(name, name)}: already; give it once")
        self.name = name


def merge_scopes(first: Scopes, second: Scopes) -> Scopes:
    """The scopes of both. Raises ScopeConflict for one that is in both."""
    given = {each.name: getattr(second, each.name) for each in fields(Scopes) if getattr(second, each.name) is not None}
    for name in given:
        if getattr(first, name) is not None:
            raise ScopeConflict(name)
    return replace(first, **given)


def parse_bound(text: str, now_ms: int) -> Bound | None:
    """An offset or a time; None for other text, for a time before 1970, and for an offset above 64 bits."""
    if text.isascii() and text.isdecimal():
        offset = int(text) if len(text) < 20 else MAX_OFFSET + 1
        return OffsetBound(offset) if offset <= MAX_OFFSET else None
    duration = _DURATION.fullmatch(text)
    if duration is not None and any(duration.groups()):
        back_ms = sum(int(count) * unit for count, unit in zip(duration.groups(), _UNITS_MS, strict=True) if count)
        return TimeBound(max(0, now_ms - back_ms))
    timestamp_ms = parse_time(text)
    return None if timestamp_ms is None else TimeBound(timestamp_ms)


def parse_time(text: str) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 time; None for other text and for times before 1970."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return milliseconds if milliseconds >= 0 else None


def parse_partitions(text: str) -> tuple[int, ...] | None:
    """Numbers and inclusive ranges, sorted; None for other text or more than MAX_PARTITIONS."""
    found: set[int] = set()
    for piece in text.split(","):
        match = _PARTITIONS.fullmatch(piece)
        if match is None:
            return None
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if not first <= last < first + MAX_PARTITIONS:
            return None
        found.update(range(first, last + 1))
    return tuple(sorted(found)) if len(found) <= MAX_PARTITIONS else None


def read_scopes(cursor: Cursor, now_ms: int) -> Scopes:
    """Pass the scopes at the position of `cursor`. Raises QueryError."""
    scopes = Scopes()
    seen: set[str] = set()
    cursor.skip_space()
    while (match := SCOPE.match(cursor.text, cursor.position)) is not None:
        name, value = match[1], match[2]
        if name in seen:
            raise QueryError(match.start(), f"one scope {name}:", "a second one")
        seen.add(name)
        scopes = _with_scope(scopes, name, value, match.start(2), now_ms)
        cursor.position = match.end()
        cursor.skip_space()
    return scopes


def _with_scope(scopes: Scopes, name: str, value: str, position: int, now_ms: int) -> Scopes:
    if name in ("from", "until"):
        bound = parse_bound(value, now_ms)
        if bound is None:
            raise QueryError(position, BOUND_FORMS, shown(value))
        return replace(scopes, start=bound) if name == "from" else replace(scopes, until=bound)
    if name == "partition":
        partitions = parse_partitions(value)
        if partitions is None:
            raise QueryError(position, PARTITION_FORMS, shown(value))
        return replace(scopes, partitions=partitions)
    if name == "isolation":
        if value not in ISOLATIONS:
            raise QueryError(position, " or ".join(ISOLATIONS), shown(value))
        return replace(scopes, isolation=value)
    limit = int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else 0
    if not 0 < limit <= MAX_LIMIT:
        raise QueryError(position, f"a number from 1 to {MAX_LIMIT}", shown(value))
    return replace(scopes, limit=limit)
