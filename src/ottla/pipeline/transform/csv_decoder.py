"""Values that are one row of CSV each (RFC 4180), by pyarrow's CSV reader; a quoted field may hold line breaks.

Values are joined by line feeds, which is safe since each is seen to be one row that ends outside of quotes. A quote
inside a field that does not begin with one is text. An empty field is null, a quoted empty one is empty text. There is
no header: the schema names the columns.
"""

from __future__ import annotations

import codecs
import csv
import io
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.decoder import DecodedValues, decode_by_halves
from ottla.pipeline.transform.regex_decoder import null_if, require_castable

_FIELD = r'(?:"(?:[^"]|"")*"|[^",\r\n][^,\r\n]*|)'
_ROW = rf"(?s)\A{_FIELD}(?:,{_FIELD})*\z"
"""It leaves no quote open, and breaks lines in quotes only."""
_LINE_END = r"\r?\n\z"
_PARSE = pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """`schema`: the columns in the order of the fields; a row has exactly as many."""

    schema: pa.Schema

    def __post_init__(self) -> None:
        """Raises OperatorError for no columns, and for a type that is not read from text."""
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
            raise ValueError("the reader leaves out a byte order mark only where it comes first")
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
        return table.combine_chunks().to_batches()[0]

    def _read(self, buffer: pa.Buffer) -> pa.Table:
        return pyarrow.csv.read_csv(
            pa.BufferReader(buffer),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=buffer.size + 1, column_names=self.schema.names
            ),
            parse_options=_PARSE,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=self.schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )


def infer_csv_schema(values: pa.Array) -> pa.Schema:
    """Columns `c0`, `c1`, ... of the commonest number of fields in a sample, typed as all of its rows allow.

    Types are int64, double, bool and string: what looks like a time in a sample may be something else further on.
    """
    widths = [_width(value) for value in values.drop_null().to_pylist()]
    if not any(widths):
        return pa.schema([])
    width = max(sorted(set(widths) - {0}), key=widths.count)
    names = [f"c{number}" for number in range(width)]
    text = CsvDecoder(pa.schema([(name, pa.string()) for name in names])).decode(values).columns
    return pa.schema([(name, _narrowest(text.column(name))) for name in names])


def _width(value: bytes) -> int:
    """The number of fields, 0 for what is no single row."""
    try:
        rows = list(csv.reader(io.StringIO(value.decode(), newline=""), strict=True))
    except (ValueError, csv.Error):
        return 0
    return len(rows[0]) if len(rows) == 1 else 0


def _narrowest(text: pa.Array) -> pa.DataType:
    known = null_if(text, "")
    if known.null_count == len(known):
        return pa.string()
    for type_ in (pa.int64(), pa.float64(), pa.bool_()):
        try:
            known.cast(type_)
        except ValueError:
            continue
        return type_
    return pa.string()
