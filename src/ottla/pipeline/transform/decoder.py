"""Interface of value decoders, and the search for bad values among many.

Values are decoded many at a time by vectorised parsers, which refuse a whole input for one bad value. So a refused
input is halved until each bad value is alone: k bad values among n cost about k * log n small parses; without bad
values there is no extra cost.

**Invariants:** a value's row depends on that value alone, never on its neighbours; every value has exactly one row,
which is null in all columns for a bad value and a tombstone; the content of a record can make it bad, but never ends a
load, nor takes more memory than `MAX_CELLS` and the value's own size allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.common.control_chars import escape_control_chars

MAX_PARSE_BYTES = 16 << 20
"""Maximum bytes of values parsed at once; also keeps Arrow's 32-bit offsets and block sizes in range."""
MAX_CELLS = 8 << 20
"""Maximum fields of the rows that are decoded at once, including absent ones. An empty object in a list takes two bytes
of a value, but a cell in the column of each field that other objects of the list have."""
MAX_REASON_LENGTH = 300
MAX_COUNTED = 1_000
"""Maximum number of names of fields or reasons that a task counts: data as names would bring ever more."""

Parse = Callable[[pa.Array], pa.RecordBatch]
"""Returns one row for each of some values without nulls; raises ValueError (such as ArrowInvalid) if any is bad."""
Screen = Callable[[bytes], str | None]
"""The defect of a value that `parse` is sure to refuse, None for any other: much quicker where many are bad."""
Places = npt.NDArray[np.int64]
"""Positions of values in the input of `decode`."""


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """`columns`: one row a value. `bad`: positions of the values that can't be decoded, rising, each with its
    reason."""

    columns: pa.RecordBatch
    bad: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Name -> count of fields that have no column, in good values, as far as a decoder counts them."""
    deleted: pa.BooleanArray | None = None
    """True for values that delete the row of their key, as a null value does; None for formats without such values."""


class Decoder(Protocol):
    """Values to columns; picklable, since it is sent to Spark's workers, and its schema is known before they start.

    Implementations: in `pipeline.transform.access_log_decoder`, `pipeline.transform.avro_decoder`,
    `pipeline.transform.csv_decoder`, `pipeline.transform.envelope`, `pipeline.transform.envelope_json`,
    `pipeline.transform.json_decoder`, `pipeline.transform.protobuf_decoder` and `pipeline.transform.regex_decoder`.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns, named and typed as `decode` gives them."""

    def most_cells(self, values: pa.Array) -> int:
        """Upper bound of the fields in the rows of some values, without looking into each."""

    def decode(self, values: pa.Array) -> DecodedValues:
        """Decode binary values; a null one (a tombstone) has a row of nulls. Raises only errors that no value
        causes."""


def add_bounded(counts: Counter[str], others: Mapping[str, int]) -> None:
    """Add counts by name, of at most MAX_COUNTED names."""
    for name, count in others.items():
        if name in counts or len(counts) < MAX_COUNTED:
            counts[name] += count


def cell_count(type_: pa.DataType) -> int:
    """The minimum number of fields in one row of a type: those of structs, and one for a list or map."""
    return sum(cell_count(part.type) for part in type_) if pa.types.is_struct(type_) else 1


def item_cells(type_: pa.DataType) -> int:
    """The maximum number of fields in an item of a list or map within a type: 0 without structs in it."""
    inner = [type_.field(number).type for number in range(type_.num_fields)]
    is_item = pa.types.is_struct(type_)
    own = 0 if is_item else max((cell_count(one) for one in inner if pa.types.is_struct(one)), default=0)
    return max([own, *map(item_cells, inner)])


def decode_by_halves(
    values: pa.Array,
    schema: pa.Schema,
    parse: Parse,
    screen: Screen = lambda _value: None,
    *,
    max_bytes: int | None = None,
) -> DecodedValues:
    """Parse all values that are not null at once, and if that is refused, by halves of those that pass the
    screen. At most `max_bytes` (default MAX_PARSE_BYTES) are parsed at once, unless a single value is larger."""
    max_bytes = MAX_PARSE_BYTES if max_bytes is None else max_bytes
    found = _DecodedRows()
    positions = np.flatnonzero(np.asarray(values.is_valid()))
    waiting = [(positions, values.drop_null() if values.null_count else values)]
    while waiting:
        places, part = waiting.pop()
        if len(part) > 1 and part.nbytes > max_bytes:
            waiting += _halves(places, part)
        elif len(part) and not found.try_parse(places, part, parse):
            reasons = [screen(value) for value in part.to_pylist()]
            found.refuse(places, reasons)
            kept = np.array([reason is None for reason in reasons])
            _parse_by_halves(places[kept], part.filter(pa.array(kept)), parse, found)
    found.bad.sort()
    columns = spread(found.pieces, found.good, len(values), schema)
    return DecodedValues(columns, [place for place, _ in found.bad], [reason for _, reason in found.bad])


def _parse_by_halves(places: Places, part: pa.Array, parse: Parse, found: _DecodedRows) -> None:
    waiting = [(places, part)]
    while waiting:
        places, part = waiting.pop()
        if len(part) and not found.try_parse(places, part, parse):
            if len(part) > 1:
                waiting += _halves(places, part)
            else:
                found.refuse(places, [found.defect])


def _halves(places: Places, part: pa.Array) -> list[tuple[Places, pa.Array]]:
    """The second half first: the last of a stack is the next."""
    middle = len(part) // 2
    return [(places[middle:], part.slice(middle)), (places[:middle], part.slice(0, middle))]


class _DecodedRows:
    """Rows of the good values in order of their places, and the bad ones; `defect` is that of the last refused
    parse."""

    def __init__(self) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.good: list[Places] = []
        self.bad: list[tuple[int, str]] = []
        self.defect = ""

    def try_parse(self, places: Places, part: pa.Array, parse: Parse) -> bool:
        try:
            rows = parse(part)
        except ValueError as error:
            self.defect = str(error)
            return False
        self.pieces.append(rows)
        self.good.append(places)
        return True

    def refuse(self, places: Places, reasons: Sequence[str | None]) -> None:
        self.bad += [
            (place, reason_text(reason))
            for place, reason in zip(places.tolist(), reasons, strict=True)
            if reason is not None
        ]


def spread(pieces: list[pa.RecordBatch], good: list[Places], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of all pieces at the positions of their values; null rows between them."""
    if len(pieces) == 1 and pieces[0].num_rows == count:
        return pieces[0]
    if not schema.names:
        return empty_rows(count, schema)
    rows = pa.Table.from_batches(pieces, schema=schema)
    taken = np.zeros(count, np.int64)
    absent = np.ones(count, np.bool_)
    if good:
        found = np.concatenate(good)
        taken[found] = np.arange(len(found))
        absent[found] = False
    whole = rows.take(pa.array(taken, mask=absent)).combine_chunks()
    return whole.to_batches()[0] if count else empty_rows(0, schema)


def empty_rows(count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of nulls."""
    rows = pa.StructArray.from_arrays(
        [pa.nulls(count, column.type) for column in schema],
        fields=list(schema),
        mask=None if schema.names else pa.array(np.zeros(count, np.bool_)),
    )
    return pa.RecordBatch.from_struct_array(rows)


def reason_text(text: str) -> str:
    """A reason for the table of dead letters: one short line, regardless of the value's content."""
    line = escape_control_chars(" ".join(text.split()))
    return line if len(line) <= MAX_REASON_LENGTH else line[: MAX_REASON_LENGTH - 3] + "..."
