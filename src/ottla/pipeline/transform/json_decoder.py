"""Values that are JSON objects (RFC 8259), by pyarrow's JSON reader; one value is one object, over however many lines.

The reader takes a stream of objects, so values are joined by line feeds. A value that starts with `{` and ends with `}`
can neither extend into the next one nor hide one: the sequence `}`, line feed, `{` never occurs inside an object, nor
in a string, where a line feed has to be escaped. So as many objects as values mean one object each.

Fields without a column are ignored and counted, absent ones are null. Names match without regard to case, and a field
that is spelled as its column comes first. A duplicate field makes the value bad if it has a column. NaN and Infinity
are taken as floating point numbers, as Python and Java writers have them. A number is never rounded into an integer
column, nor is text read as a number. Times are text in ISO 8601, in UTC where they name no zone; digits of a second
beyond the column's unit are cut. A byte order mark in front of a value is skipped. The reader keeps its own stack, so
nesting costs no recursion; ignored content has no depth limit but the value's size.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.columns import match_key
from ottla.pipeline.transform.decoder import (
    MAX_CELLS,
    DecodedValues,
    add_bounded,
    cell_count,
    decode_by_halves,
    item_cells,
)
from ottla.pipeline.transform.fit import (
    FIRST_ROUNDED,
    decimal_misfit,
    field_at,
    first_misfit,
    has_float_from,
    is_exact_double,
    number_misfit,
    parse_integer,
    parse_number,
    shown,
)
from ottla.pipeline.transform.json_maps import is_readable_map, read_maps
from ottla.pipeline.transform.json_names import (
    Spellings,
    known_names,
    merged,
    name_count,
    name_counts,
    value_count,
    with_own_names,
)
from ottla.pipeline.transform.schema_ids import without_ids
from ottla.pipeline.transform.text_cast import cast_json_time
from ottla.schemas.ids import id_length

_OBJECT = r"(?s)\A[ \t\r\n]*\{.*\}[ \t\r\n]*\z"
_PLACEHOLDER = pa.schema([("\0", pa.null())])
"""Schema for the reader if no field has a column: without one it does not return the number of objects."""
_KINDS = (
    (bool, "true or false"),
    ((int, float, Decimal), "a number"),
    (str, "text"),
    (list, "an array"),
    (dict, "an object"),
)
DECIMAL_END = 10**38
"""Integers from here on fit no decimal, so their columns are inferred as doubles."""
_BOM = "\ufeff"
WIDEST_DECIMAL = 76
"""Digits of the decimals that the reader returns: it does not check all digits of a narrower one, a cast does."""
READ_AS_TEXT = (pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)
"""Types that are read as text in ISO 8601 and cast: the reader takes dates for numbers, and refuses nanoseconds."""


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """`schema`: the fields that have columns, nested ones too. `has_ids`: the values are those of a schema registry.

    `is_inferred`: the types are those of a sample, so an integer that a double would round is bad: it may be an id.
    `exact_names`: the values spell names as `schema` does, so other spellings are not read, nor unknown fields counted.
    """

    schema: pa.Schema
    has_ids: bool = False
    is_inferred: bool = False
    exact_names: bool = False
    _row_cells: int = field(init=False, repr=False, compare=False)
    _item_cells: int = field(init=False, repr=False, compare=False)
    _spelled: pa.DataType | None = field(default=None, init=False, repr=False, compare=False)
    """The type with other spellings that the last values needed: the next ones are read with it at once."""

    def __post_init__(self) -> None:
        """Raises OperatorError for a type that can't be read from JSON."""
        for column in self.schema:
            if not is_readable_map(column.type):
                _require_readable(column.name, column.type)
        type_ = self._type
        object.__setattr__(self, "_row_cells", cell_count(type_))
        object.__setattr__(self, "_item_cells", item_cells(type_))

    @property
    def _type(self) -> pa.StructType:
        """The fields that the reader reads: it has no maps."""
        return pa.struct([column for column in self.schema if not pa.types.is_map(column.type)])

    def most_cells(self, values: pa.Array) -> int:
        """An item that is an object begins with a brace."""
        cells = len(values) * self._row_cells
        if self._item_cells:
            cells += self._item_cells * (pc.sum(pc.count_substring(values, b"{")).as_py() or 0)
        return cells

    def decode(self, values: pa.Array) -> DecodedValues:
        unknown: Counter[str] = Counter()
        decoded = decode_by_halves(values, self.schema, partial(self._parse, unknown), self._defect)
        return replace(decoded, unknown=unknown)

    def _parse(self, unknown: Counter[str], values: pa.Array) -> pa.RecordBatch:
        batch, others = self._read(without_ids(values) if self.has_ids else values)
        limit = FIRST_ROUNDED if self.is_inferred else math.inf
        if any(has_float_from(column, limit) for column in batch.columns):
            reason = next((reason for value in values.to_pylist() if (reason := self._defect(value))), None)
            if reason:
                raise ValueError(reason)
        add_bounded(unknown, others)
        return batch

    def _read(self, values: pa.Array) -> tuple[pa.RecordBatch, dict[str, int]]:
        """The rows, and how often each name occurs that no column has. Raises ValueError."""
        text = values.cast(pa.string())
        if pc.any(pc.starts_with(text, _BOM)).as_py():
            text = pc.replace_substring_regex(text, rf"\A{_BOM}", "")
        if len(values) == 1 and (reason := self._excess(values[0].as_py())):
            raise ValueError(reason)
        if not pc.all(pc.match_substring_regex(text, _OBJECT)).as_py():
            raise ValueError("the value is not a JSON object")
        lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(text)], pa.int32()), text), "\n")
        buffer = lines[0].as_buffer()
        wanted = pa.struct([(column.name, _read_type(column.type)) for column in self._type])
        maps = [column for column in self.schema if pa.types.is_map(column.type)]
        type_ = self._first_type(wanted, len(values))
        rows = _read_objects(buffer, type_, len(values))
        unknown: dict[str, int] = {}
        # fewer values: of fields that are null, or that the reader ignored
        if not self.exact_names and name_count(lines) != value_count(rows):
            names = name_counts(lines)
            known = set(known_names(wanted))
            unknown = {name: count for name, count in names.items() if match_key(name) not in known}
            widened = Spellings(names.keys() - unknown.keys()).widened(wanted)
            if widened != type_:
                if len(values) > 1 and cell_count(widened) * len(values) > MAX_CELLS:
                    raise ValueError("too many values spell names in other ways")  # halves are tried
                rows = _read_objects(buffer, widened, len(values))
                object.__setattr__(self, "_spelled", widened)
        rows = merged(rows, wanted)
        if not self.schema.names:
            return pa.RecordBatch.from_struct_array(rows), unknown
        found = {
            column.name: _cast(column.name, array, column.type)
            for array, column in zip(rows.flatten(), self._type, strict=True)
        }
        if maps:
            found |= read_maps(text, maps, unknown)
        return pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], schema=self.schema), unknown

    def _first_type(self, wanted: pa.DataType, count: int) -> pa.DataType:
        """The type to read so many values with first: `wanted`, or with the spellings of the values before."""
        spelled = self._spelled
        return wanted if spelled is None or cell_count(spelled) * count > MAX_CELLS else spelled

    def _excess(self, value: bytes) -> str | None:
        """Why a value would take too much memory. Its braces are counted first, though some may be in text, or in
        ignored fields."""
        if value.count(b"{") * self._item_cells <= MAX_CELLS:
            return None
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:  # more digits or levels than Python takes are among these
            return f"the value is too large and can't be inspected: {error}"
        type_ = self._type
        if _cell_counter(type_)(with_own_names(found, type_)) <= MAX_CELLS:
            return None
        return f"the lists of objects in the value have more than {MAX_CELLS:,} fields, absent ones too"

    def _defect(self, value: bytes) -> str | None:
        """The defect of a value that the reader is sure to refuse; None if this check can't find one."""
        try:
            start = id_length(value) if self.has_ids else 0
        except ValueError as error:
            return str(error)
        if reason := self._excess(value[start:]):
            return reason
        try:
            found = json.loads(value[start:], parse_float=parse_number, parse_int=parse_integer)
        except UnicodeDecodeError as error:
            return f"the value is not UTF-8: {error.reason} at byte {error.start}"
        except json.JSONDecodeError as error:
            # the reader takes Inf, Python doesn't
            return None if b"Inf" in value else f"the value is not valid JSON: {error}"
        except (ValueError, RecursionError):  # more digits or levels than Python takes
            return None
        check = _inferred_misfit if self.is_inferred else _misfit
        type_ = self._type
        return first_misfit("", with_own_names(found, type_), type_, check)


def _cell_counter(type_: pa.DataType) -> Callable[[Any], int]:
    """Counts the cells of a column's struct type for a value, including absent fields."""
    if not item_cells(type_):
        count = cell_count(type_)
        return lambda _value: count
    if pa.types.is_struct(type_):
        counters = [(part.name, _cell_counter(part.type)) for part in type_ if item_cells(part.type)]
        own = sum(cell_count(part.type) for part in type_ if not item_cells(part.type))

        def count_struct(value: Any) -> int:
            fields = value if isinstance(value, dict) else {}
            return own + sum(counter(fields.get(name)) for name, counter in counters)

        return count_struct
    count_item = _cell_counter(type_.value_type)
    return lambda value: 1 + sum(map(count_item, value)) if isinstance(value, list) else 1


def _read_objects(buffer: pa.Buffer, type_: pa.StructType, count: int) -> pa.StructArray:
    """The objects in some lines, as rows of that type. Raises ValueError unless there are `count`."""
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(buffer),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(type_)) or _PLACEHOLDER, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).removesuffix(" in row 0")) from error
    if table.num_rows != count:
        raise ValueError("the value contains several JSON objects")
    return one_batch(table.select(type_.names), count).to_struct_array()


def one_batch(table: pa.Table, count: int) -> pa.RecordBatch:
    """A table of `count` rows as one batch, also if it has no columns, and so no rows."""
    if not table.num_columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return table.combine_chunks().to_batches()[0]


def _read_type(type_: pa.DataType) -> pa.DataType:
    """The type that the reader is given in place of a column's type."""
    if any(test(type_) for test in READ_AS_TEXT):
        return pa.string()
    if pa.types.is_decimal(type_):
        return pa.decimal256(WIDEST_DECIMAL, type_.scale)
    if pa.types.is_struct(type_):
        return pa.struct([(part.name, _read_type(part.type)) for part in type_])
    if pa.types.is_list(type_):
        return pa.list_(_read_type(type_.value_type))
    return type_


def _cast(path: str, found: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast a column from the reader's type to the requested one. Raises ValueError."""
    if found.type == type_:
        return found
    if pa.types.is_struct(type_):
        parts = [_cast(f"{path}.{part.name}", found.field(number), part.type) for number, part in enumerate(type_)]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=found.is_null())
    if pa.types.is_list(type_):
        inner = _cast(f"{path}[]", found.values, type_.value_type)
        return pa.Array.from_buffers(type_, len(found), found.buffers()[:2], found.null_count, found.offset, [inner])
    return _cast_times(path, found, type_) if pa.types.is_string(found.type) else found.cast(type_)


def _cast_times(path: str, found: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return cast_json_time(found, type_)
    except ValueError as error:
        texts = found.drop_null().to_pylist()
        what = repr(texts[0]) if len(texts) == 1 else "text"
        raise ValueError(f"{field_at(path)} is {what}, which its column of type {type_} can't hold") from error


def _require_readable(name: str, type_: pa.DataType) -> None:
    if pa.types.is_struct(type_):
        for part in type_:
            _require_readable(f"{name}.{part.name}", part.type)
    elif pa.types.is_list(type_):
        _require_readable(f"{name}[]", type_.value_type)
    elif pa.types.is_map(type_) or pa.types.is_nested(type_):
        raise OperatorError(
            f"the schema has the column {name!r} of type {type_}, which can't be read from JSON; leave it out, or "
            "declare the keys of the object as fields of a struct (maps of plain values are read as columns only)"
        )


def _misfit(path: str, value: Any, type_: pa.DataType) -> str | None:
    """Why a value can't be in a column of that type, judged by its kind and size."""
    where = field_at(path) if path else "the value"
    kind = next(text for kinds, text in _KINDS if isinstance(value, kinds))
    if kind not in _kinds_of(type_):
        return f"{where} is {kind}, and its column of type {type_}" if path else f"the value is {kind}, not an object"
    if pa.types.is_integer(type_) and not (isinstance(value, int) and _fits(value, type_)):
        return f"{where} is {shown(value)}, which its column of type {type_} can't hold"
    if pa.types.is_decimal(type_) and isinstance(value, str):
        reason = _text_misfit(value, type_)
    else:
        reason = number_misfit(value, type_)
    return f"{where} is {shown(value)}, {reason}" if reason else None


def _inferred_misfit(path: str, value: Any, type_: pa.DataType) -> str | None:
    if pa.types.is_float64(type_) and type(value) is int and abs(value) < DECIMAL_END and not is_exact_double(value):
        return (
            f"{field_at(path)} is {value}, which its column of type {type_}, inferred from a sample of the records, "
            "would round; name the type with --schema"
        )
    return _misfit(path, value, type_)


def _text_misfit(text: str, type_: pa.DataType) -> str | None:
    """As `number_misfit`, for a number in quotes. The reader checks text that is not a number."""
    try:
        return decimal_misfit(Decimal(text), type_)
    except InvalidOperation:
        return None


def _fits(number: int, type_: pa.DataType) -> bool:
    try:
        pa.scalar(number, type_)
    except (ValueError, OverflowError):
        return False
    return True


def _kinds_of(type_: pa.DataType) -> tuple[str, ...]:
    """Kinds of JSON that a column of that type may take."""
    if pa.types.is_boolean(type_):
        return ("true or false",)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return ("a number",)
    if pa.types.is_decimal(type_):
        return ("a number", "text")
    if pa.types.is_struct(type_):
        return ("an object",)
    if pa.types.is_list(type_):
        return ("an array",)
    return ("text",)
