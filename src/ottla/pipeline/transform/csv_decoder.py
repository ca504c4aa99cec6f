"""Values that are one row of CSV each (RFC 4180), by pyarrow's CSV reader; a quoted field may hold line breaks.

Values are joined by line feeds, which is safe since each is checked to be one row that ends outside of quotes. A quote
inside a field that does not begin with one is text. An empty field is null; a quoted empty one is empty text in a
text column. There is no header line: the column names are those of the schema.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.decoder import DecodedValues, decode_by_halves
from ottla.pipeline.transform.fit import is_exact_double
from ottla.pipeline.transform.text_cast import all_match, cast_field, null_if, require_castable

_FIELD = r'(?:"(?:[^"]|"")*"|[^",\r\n][^,\r\n]*|)'
_ROW = rf"(?s)\A{_FIELD}(?:,{_FIELD})*\z"
"""A row without an open quote, and with line breaks in quotes only."""
_LINE_END = r"\r?\n\z"
_INTEGER = r"\A(?:0|-?[1-9][0-9]*)\z"
_NUMBER = r"\A(?:0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)\.[0-9]+)\z"
_WRITTEN_DOUBLE = r"\A-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\z"
_BOOLEANS = (r"\A(?:true|false)\z", r"\A(?:True|False)\z", r"\A(?:TRUE|FALSE)\z")
_PLAIN = (
    (pa.types.is_integer, _INTEGER),
    (pa.types.is_floating, _WRITTEN_DOUBLE),
    (pa.types.is_boolean, "|".join(_BOOLEANS)),
)
"""Plain notation of values in an inferred column, by the kind of its type."""
DOUBLE_DIGITS = 17
"""Significant digits that identify any double."""
MAX_INTEGER_DIGITS = 308
"""Digits before the point of a double."""
_PARSE = pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """`schema`: the columns in the order of the fields; a row has exactly as many.

    `is_inferred`: the types are those of a sample, so a number in another notation, such as `007`, is bad: the
    column may contain codes.
    """

    schema: pa.Schema
    is_inferred: bool = False

    def __post_init__(self) -> None:
        """Raises OperatorError without columns, and for a type that can't be read from text."""
        if not self.schema.names:
            raise OperatorError("rows of CSV need a schema of at least one column; name the columns with --schema")
        for column in self.schema:
            require_castable(column)

    def most_cells(self, values: pa.Array) -> int:
        return len(values) * len(self.schema)

    def decode(self, values: pa.Array) -> DecodedValues:
        return decode_by_halves(values, self.schema, self._parse)

    def _parse(self, values: pa.Array) -> pa.RecordBatch:
        if pc.any(pc.ends_with(values, b"\n")).as_py():
            values = pc.replace_substring_regex(values, _LINE_END, b"")
        if not pc.all(pc.match_substring_regex(values, _ROW)).as_py():
            raise ValueError("the value is several rows, or a quote in it is not closed")
        if len(self.schema.names) > 1 and pc.any(pc.equal(values, b"")).as_py():
            raise ValueError(f"the value is empty, and the schema has {len(self.schema.names)} columns")
        if len(values) > 1 and pc.any(pc.starts_with(values, codecs.BOM_UTF8)).as_py():
            raise ValueError("the reader skips a byte order mark only at the start of its input")
        lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")
        buffer = lines[0].as_buffer()
        if not buffer.size:
            buffer = pa.py_buffer(b"\n")  # one empty row
        try:
            table = self._read(buffer)
        except pa.ArrowInvalid as error:
            raise ValueError(str(error).replace("Row #1: ", "")) from error
        if table.num_rows != len(values):
            raise ValueError("the value is not one row")
        batch = table.combine_chunks().to_batches()[0]
        return pa.RecordBatch.from_arrays(list(map(self._column, batch.columns, self.schema)), schema=self.schema)

    def _column(self, text: pa.Array, column: pa.Field) -> pa.Array:
        if self.is_inferred:
            _require_plain(null_if(text, ""), column)
        is_text = pa.types.is_string(column.type)
        return cast_field(text if is_text else pc.ascii_trim(text, " \t"), column)

    def _read(self, buffer: pa.Buffer) -> pa.Table:
        return pyarrow.csv.read_csv(
            pa.BufferReader(buffer),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=buffer.size + 1, column_names=self.schema.names
            ),
            parse_options=_PARSE,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(self.schema.names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def _require_plain(text: pa.Array, column: pa.Field) -> None:
    """Raises ValueError for a text that is not in the plain notation of an inferred column."""
    pattern = next((pattern for is_kind, pattern in _PLAIN if is_kind(column.type)), None)
    if pattern is not None and not all_match(text, pattern):
        raise ValueError(
            f"the field {column.name!r} has the type {column.type} by a sample of the records, and a value in it is "
            "written in another form; name the types with --schema"
        )


def column_count(names: Iterable[str]) -> int:
    """The number of columns `c0`, `c1`, ... without a gap among some names, as inference calls them."""
    found = set(names)
    return next(number for number in range(len(found) + 1) if f"c{number}" not in found)


def infer_csv_schema(values: pa.Array, width: int = 0) -> pa.Schema:
    """Columns `c0`, `c1`, ... of the commonest number of fields in a sample, typed as all of its rows allow.

    A `width` other than 0 is that number, and rows of another one are ignored: an existing table has settled it.

    Types are int64, double, bool and string: text that looks like a time in a sample may be something else in later
    records. A column is a number only if each value of the sample is written as a plain one: digits without leading
    zeros, with a minus and decimals at most. So codes stay text: `02134`, `+4930123`, `0x1A`, `1e5`, `nan`. Numbers
    that a double would round stay text, too.
    """
    if not width:
        widths = Counter(_width(value) for value in values.drop_null().to_pylist())
        del widths[0]
        if not widths:
            return pa.schema([])
        width = max(sorted(widths), key=widths.__getitem__)
    names = [f"c{number}" for number in range(width)]
    text = CsvDecoder(pa.schema([(name, pa.string()) for name in names])).decode(values).columns
    return pa.schema([(name, _narrowest(text.column(name))) for name in names])


def _width(value: bytes) -> int:
    """The number of fields, 0 if the value is not a single row."""
    try:
        rows = list(csv.reader(io.StringIO(value.decode(), newline=""), strict=True))
    except (ValueError, csv.Error):
        return 0
    return len(rows[0]) if len(rows) == 1 else 0


def _narrowest(text: pa.Array) -> pa.DataType:
    known = pc.unique(null_if(text, "").drop_null())
    if not len(known):
        return pa.string()
    if all_match(known, _INTEGER) and _castable(known, pa.int64()):
        return pa.int64()
    if all_match(known, _NUMBER) and _fit_doubles(known):
        return pa.float64()
    return pa.bool_() if any(all_match(known, pattern) for pattern in _BOOLEANS) else pa.string()


def _castable(text: pa.Array, type_: pa.DataType) -> bool:
    try:
        text.cast(type_)
    except ValueError:
        return False
    return True


def _fit_doubles(numbers: pa.Array) -> bool:
    """True if doubles hold all digits of whole numbers, and as many digits of fractions as a double has.

    Zeros at the end of fractions count as digits, as in the versions 1.9 and 1.10, unless all fractions are equally
    long, as those of prices are.
    """
    lengths: set[int] = set()
    is_padded = False
    for number in numbers.to_pylist():
        whole, _, fraction = number.lstrip("-").partition(".")
        if len((whole + fraction).strip("0")) > DOUBLE_DIGITS or len(whole) > MAX_INTEGER_DIGITS:
            return False
        if not is_exact_double(int(whole)):
            return False
        if fraction:
            lengths.add(len(fraction))
            is_padded |= fraction.endswith("0") and fraction != "0"
    return not is_padded or len(lengths) == 1
