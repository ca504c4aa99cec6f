"""Text files as batches: JSON lines, and CSV with a header line.

**Invariants:** malformed input ends the read with file, line and remedy, before any row of its batch
is returned; a line, and a CSV row that spans several lines, is bounded by MAX_ROW_CHARS, and a batch by LINES and
BATCH_CHARS. Text is UTF-8.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from ottla.common.errors import OperatorError

LINES = 1_000
BATCH_CHARS = 8 << 20
MAX_ROW_CHARS = 64 << 20

T = TypeVar("T")


class UnreadableRows(OperatorError):
    """A file of rows does not exist, or is not of the format that its name says."""


class TextLines:
    """The lines of a byte stream, including their ends, numbered from 1. Raises UnreadableRows.

    `newline` as in `open`.
    """

    def __init__(self, name: str, stream: Any, newline: str) -> None:
        self._name = name
        self._text = io.TextIOWrapper(io.BufferedReader(stream), "utf-8-sig", "surrogateescape", newline)
        self.number = 0
        """Number of the line that was read last."""
        self.row_chars = 0
        """Length of the current row; the reader of the row resets it to 0."""

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(MAX_ROW_CHARS + 1):
            self.number += 1
            self.row_chars += len(line)
            if self.row_chars > MAX_ROW_CHARS:
                raise self.malformed(self.number, f"is part of a row longer than {MAX_ROW_CHARS:,} characters")
            if not _is_text(line):
                raise self.malformed(
                    self.number,
                    "is not UTF-8: convert the file first, with `iconv -f latin1 -t utf-8` if it is Latin-1",
                )
            yield line

    def malformed(self, number: int, what: str) -> UnreadableRows:
        """The error for a malformed line."""
        return UnreadableRows(f"line {number:,} of {self._name} {what}")


def _is_text(line: str) -> bool:
    """False for invalid UTF-8, which is read as surrogates that can't be encoded, and for surrogates in JSON
    escapes."""
    if line.isascii():
        return True
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_lines(name: str, stream: Any, key_column: str | None) -> Iterator[pa.RecordBatch]:
    """Each line unchanged in the column `value`, without empty ones; the key is taken from its JSON. Raises
    UnreadableRows."""
    lines = TextLines(name, stream, "\n")
    rows = _json_rows(lines, key_column)
    if name.removesuffix(".gz").lower().endswith(".json"):
        rows = _no_document(rows, lines)
    for some in _batches(rows, lines):
        values, keys = zip(*some, strict=True)
        columns = {"value": pa.array(values, pa.large_string())}
        if key_column is not None:
            columns[key_column] = pa.array(keys, pa.string())
        yield pa.record_batch(columns)


def _json_rows(lines: TextLines, key_column: str | None) -> Iterator[tuple[str, str | None]]:
    for line in lines:
        value = line.rstrip("\r\n")
        if value and not value.isspace():
            yield value, _key(lines, value, key_column)
        else:
            lines.row_chars = 0


def _no_document(rows: Iterator[tuple[str, str | None]], lines: TextLines) -> Iterator[tuple[str, str | None]]:
    """The same rows. Raises UnreadableRows for a file that is a single array."""
    first = next(rows, None)
    if first is None:
        return
    second = next(rows, None)
    if second is None and first[0].lstrip().startswith("["):
        raise lines.malformed(
            lines.number, "is an array and the whole file: convert each element to a line with `jq -c '.[]'`"
        )
    yield first
    if second is not None:
        yield second
    yield from rows


def _key(lines: TextLines, line: str, key_column: str | None) -> str | None:
    """The key of a line, None if no column is named; the line must be JSON in any case."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise lines.malformed(
            lines.number, "is not valid JSON: correct or remove it; convert documents of several lines with `jq -c .`"
        ) from error
    if key_column is None:
        return None
    try:
        key = found[key_column]
    except (LookupError, TypeError) as error:
        raise lines.malformed(lines.number, f"has no field {key_column!r} for the key") from error
    text = key if key is None or isinstance(key, str) else json.dumps(key, ensure_ascii=False)
    if text is not None and not _is_text(text):
        raise lines.malformed(lines.number, f"has an unpaired surrogate in its field {key_column!r}: correct it")
    return text


def csv_rows(name: str, stream: Any) -> Iterator[pa.RecordBatch]:
    """Every value is text, so that no later line contradicts a type inferred from earlier ones. Raises UnreadableRows.

    An empty cell is null, and a quoted empty one is empty text, as in loads of CSV.
    """
    lines = TextLines(name, stream, "")
    rows = _csv_rows(lines)
    with _large_cells():
        _, header = next(rows, (0, None))
    if header is None:
        raise UnreadableRows(f"{name} is empty, but its first line must name the columns")
    names = [name or "" for name in header]
    if len(names) == 1 and (other := next((one for one in ";\t|" if one in names[0]), None)) is not None:
        raise lines.malformed(1, f"names one column, {names[0]!r}: separate cells by commas in place of {other!r}")
    lines.row_chars = 0
    batches = _batches(_of_width(rows, lines, len(names)), lines)
    while True:
        with _large_cells():
            some = next(batches, None)
        if some is None:
            return
        columns = [pa.array(cells, pa.string()) for cells in zip(*(row for _, row in some), strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names)


_Row = tuple[int, Sequence[str | None]]
"""Line number of a row's start, and its cells."""
_CELL = re.compile(r'("[^"]*+(?:""[^"]*+)*+"|[^,]*)(?:,|\Z)')


def _csv_rows(lines: TextLines) -> Iterator[_Row]:
    """Empty lines are skipped."""
    texts: list[str] = []
    reader = csv.reader(_noted(lines, texts), strict=True)
    first = 1
    try:
        for row in reader:
            if row:
                yield first, _with_nulls(row, texts)
            else:
                lines.row_chars = 0
            texts.clear()
            first = lines.number + 1
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise lines.malformed(first, "starts a row with an unclosed quote: close it") from error
        raise lines.malformed(lines.number, f"is not valid CSV: {error}; correct it") from error


def _noted(lines: TextLines, texts: list[str]) -> Iterator[str]:
    """The same lines, which are also appended to `texts`."""
    for line in lines:
        texts.append(line)
        yield line


def _with_nulls(row: list[str], texts: Sequence[str]) -> Sequence[str | None]:
    """With None for an unquoted empty cell, which the csv reader does not distinguish; `texts`: the lines of the
    row."""
    if "" not in row:
        return row
    text = "".join(texts).rstrip("\r\n")
    if '""' not in text:
        return [cell or None for cell in row]
    return [cell or ("" if found[1] else None) for cell, found in zip(row, _CELL.finditer(text), strict=False)]


def _of_width(rows: Iterator[_Row], lines: TextLines, width: int) -> Iterator[_Row]:
    for first, row in rows:
        if len(row) != width:
            raise lines.malformed(
                first, f"starts a row of {_cells(len(row))}, but the first line names {width}: correct it"
            )
        yield first, row


def _cells(count: int) -> str:
    return f"{count:,} cell{'' if count == 1 else 's'}"


@contextmanager
def _large_cells() -> Iterator[None]:
    """Allow cells as long as a row: the library's limit is process-wide, so it is restored."""
    before = csv.field_size_limit(MAX_ROW_CHARS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _batches(rows: Iterator[T], lines: TextLines) -> Iterator[list[T]]:
    """Rows in lists of LINES, or fewer if they reach BATCH_CHARS."""
    some: list[T] = []
    chars = 0
    for row in rows:
        some.append(row)
        chars += lines.row_chars
        lines.row_chars = 0
        if len(some) >= LINES or chars >= BATCH_CHARS:
            yield some
            some, chars = [], 0
    if some:
        yield some
