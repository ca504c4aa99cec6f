"""Names in JSON text that the reader would ignore: other spellings of a column's name, and fields without a column.

Names match as `columns.match_key` compares them: without regard to case, and with `_` for characters that a table can't
have. pyarrow's reader compares them exactly, so each other spelling
in some values is read as a field of its own, and the fields of one name become one column: a field that is spelled
as its column comes first, then the others in the order of their spelling.

The names are found with a vectorised scan for texts in quotes before a colon. It knows no levels, and no escaped
quotation marks, so it may find a name that is none, which costs a scan but changes no value. A name with an escaped
quotation mark is not found.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.transform.columns import match_key

MAX_SPELLED_FIELDS = 3
"""Maximum number of fields to read for other spellings, as a multiple of the fields with columns."""
MIN_SPELLED_FIELDS = 64
_SPACED_COLONS = (" :", "\t:", "\n:", "\r:")


def name_count(text: pa.Array) -> int | None:
    """Upper bound of the names in some JSON text; None if it is unknown, because blanks precede a colon."""
    if any(pc.any(pc.match_substring(text, colon)).as_py() for colon in _SPACED_COLONS):
        return None
    return int(pc.sum(pc.count_substring(text, '":')).as_py() or 0)


def value_count(array: pa.Array) -> int:
    """The number of fields with a value in the rows of a struct array, at all levels."""
    if pa.types.is_struct(array.type):
        return sum(len(part) - part.null_count + value_count(part) for part in array.flatten())
    return value_count(array.flatten()) if pa.types.is_list(array.type) else 0


def name_counts(text: pa.Array) -> dict[str, int]:
    """How often each name occurs in some JSON text."""
    parts = pc.split_pattern(text.cast(pa.binary()), b'"').values
    if len(parts) < 2:
        return {}
    names, following = parts.slice(0, len(parts) - 1), parts.slice(1)
    spaced = name_count(text) is None
    ends = pc.match_substring_regex(following, rb"\A[ \t\r\n]*:") if spaced else pc.starts_with(following, b":")
    counts = pc.value_counts(names.filter(ends))
    found: dict[str, int] = {}
    for text_, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        name = _unescaped(text_) if b"\\" in text_ else text_.decode()
        if name is not None:
            found[name] = found.get(name, 0) + count
    return found


def _unescaped(text: bytes) -> str | None:
    """A name with escapes, None for one that is cut at an escaped quotation mark, or is not Unicode."""
    try:
        name = json.loads(b'"%b"' % text)
        name.encode()
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def known_names(type_: pa.DataType) -> Iterable[str]:
    """The names of all fields of a type, at all levels, as `match_key` returns them."""
    if pa.types.is_struct(type_):
        for part in type_:
            yield match_key(part.name)
            yield from known_names(part.type)
    elif pa.types.is_list(type_):
        yield from known_names(type_.value_type)


class Spellings:
    """Other spellings of the names of columns, as some values have them."""

    def __init__(self, names: Collection[str]) -> None:
        self._by_key: dict[str, list[str]] = {}
        for name in sorted(names):
            self._by_key.setdefault(match_key(name), []).append(name)

    def widened(self, type_: pa.DataType) -> pa.DataType:
        """The struct type with a field for each spelling. Raises ValueError for too many: spellings in each other
        multiply."""
        room = MAX_SPELLED_FIELDS * sum(1 for _ in known_names(type_)) + MIN_SPELLED_FIELDS
        return self._widened(type_, _Room(room))

    def _widened(self, type_: pa.DataType, room: _Room) -> pa.DataType:
        if pa.types.is_list(type_):
            return pa.list_(self._widened(type_.value_type, room))
        if not pa.types.is_struct(type_):
            return type_
        own = set(type_.names)
        fields = []
        for part in type_:
            spellings = [part.name, *(name for name in self._by_key.get(match_key(part.name), ()) if name not in own)]
            for name in spellings:
                room.take()
                fields.append((name, self._widened(part.type, room)))
        return pa.struct(fields)


class _Room:
    def __init__(self, fields: int) -> None:
        self._fields = fields

    def take(self) -> None:
        self._fields -= 1
        if self._fields < 0:
            raise ValueError("the value spells the names of its fields in too many ways")


def merged(found: pa.Array, type_: pa.DataType) -> pa.Array:
    """An array of a widened type as one of `type_`."""
    if found.type == type_:
        return found
    if pa.types.is_list(type_):
        inner = merged(found.values, type_.value_type)
        return pa.Array.from_buffers(type_, len(found), found.buffers()[:2], found.null_count, found.offset, [inner])
    places: dict[str, list[int]] = {}
    for number, part in enumerate(found.type):
        places.setdefault(match_key(part.name), []).append(number)
    own = {part.name: found.type.get_field_index(part.name) for part in type_}
    columns = []
    for part in type_:
        others = [number for number in places[match_key(part.name)] if found.type.field(number).name not in own]
        spelled = [merged(found.field(number), part.type) for number in (own[part.name], *others)]
        columns.append(pc.coalesce(*spelled) if len(spelled) > 1 else spelled[0])
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=found.is_null())


def with_own_names(value: object, type_: pa.DataType) -> object:
    """The dictionaries in a value with their names as the type spells them, as `merged` selects them."""
    if pa.types.is_list(type_) and isinstance(value, list):
        return [with_own_names(item, type_.value_type) for item in value]
    if not (pa.types.is_struct(type_) and isinstance(value, Mapping)):
        return value
    spelled: dict[str, list[str]] = {}
    for name in sorted(value):
        spelled.setdefault(match_key(name), []).append(name)
    own = {part.name for part in type_}
    found = {}
    for part in type_:
        names = [name for name in spelled.get(match_key(part.name), ()) if name == part.name or name not in own]
        names.sort(key=lambda name: (name != part.name, name))
        name = next((name for name in names if value[name] is not None), None)
        if name is not None:
            found[part.name] = with_own_names(value[name], part.type)
    return found
