"""The result of a query for people and for programs: text, JSON, CSV, or a file of one of the kinds."""

from __future__ import annotations

import csv
import io
import json
import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ottla.common.errors import OperatorError
from ottla.pipeline.model.failure import os_reason

if TYPE_CHECKING:
    import pyarrow as pa

FILE_KINDS = (".csv", ".json", ".parquet")


def file_kind(path: Path) -> str:
    """The one of FILE_KINDS that a file's name ends with. Raises OperatorError."""
    kind = path.suffix.lower()
    if kind not in FILE_KINDS:
        raise OperatorError(
            f"{path}: the file format is chosen by the name; use a name ending in {', '.join(FILE_KINDS)}"
        )
    return kind


def rows_of(result: pa.Table) -> list[list[Any]]:
    """The rows with values as JSON has them. Raises OperatorError for a time that Python has no value for."""
    columns = [_values(name, column) for name, column in zip(result.column_names, result.columns, strict=True)]
    return [[printable(value) for value in row] for row in zip(*columns, strict=True)]


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
        values = list(column.to_pylist())
        return [_with_objects(value, column.type) for value in values] if _has_maps(column.type) else values
    except OverflowError as error:
        raise OperatorError(
            f"the column {name!r} of the result has a time that is not within the years 1 to 9999: cast it to text in "
            "the statement, or write a file with --output NAME.parquet"
        ) from error


def _has_maps(kind: Any) -> bool:
    """True for a type of Arrow with maps, whose values arrive as lists of pairs."""
    if str(kind).startswith("map<"):
        return True
    return any(_has_maps(kind.field(number).type) for number in range(kind.num_fields))


def _with_objects(value: Any, kind: Any) -> Any:
    """A value with dictionaries in the place of maps."""
    if value is None or not kind.num_fields:
        return value
    name = str(kind)
    if name.startswith("map<"):
        return {str(printable(key)): _with_objects(item, kind.item_type) for key, item in value}
    if name.startswith("struct<"):
        return {part.name: _with_objects(value[part.name], part.type) for part in kind}
    return [_with_objects(item, kind.value_type) for item in value]


def printable(value: Any) -> Any:
    """A value of a result as JSON has it: bytes as text, times in ISO form, nested values likewise.

    JSON has no numbers for NaN and the infinities: they are text, as in Spark's to_json.
    """
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(printable(key)): printable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def as_records(result: pa.Table) -> list[dict[str, Any]]:
    """The rows as objects by column. Raises OperatorError for two columns of one name."""
    twice = next((name for name in result.column_names if result.column_names.count(name) > 1), None)
    if twice is not None:
        raise OperatorError(f"two columns of the result are called {twice!r}: name one of them otherwise, by AS")
    return [dict(zip(result.column_names, row, strict=True)) for row in rows_of(result)]


def write_csv(result: pa.Table, stream: IO[str]) -> None:
    """A line of names and one a row (RFC 4180); nested values as JSON, null as nothing. Raises OperatorError."""
    rows = rows_of(result)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in rows:
        writer.writerow([json.dumps(value) if isinstance(value, (dict, list)) else value for value in row])


class ResultFile:
    """A result file of the kind that its name ends with; it appears whole, and replaces an older one.

    A context manager: it is opened before the query starts, so that an unwritable path is reported before Spark starts.
    """

    def __init__(self, path: Path) -> None:
        """Raises OperatorError for a kind that is not supported."""
        self._path = path
        self._kind = file_kind(path)
        self._staged = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")

    def __enter__(self) -> ResultFile:
        """Create the file under a temporary name. Raises OperatorError."""
        try:
            with self._write_errors():
                self._file = self._staged.open("xb")
        except BaseException:  # a signal arrived: without this, the file would stay
            self._remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # a full disk fails again here
            self._file.close()
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):
            self._staged.unlink(missing_ok=True)

    def write(self, result: pa.Table) -> None:
        """Write all of it. Raises OperatorError."""
        with self._write_errors():
            if self._kind == ".parquet":
                _write_parquet(result, self._file)
            else:
                stream = io.TextIOWrapper(self._file, encoding="utf-8", newline="")
                if self._kind == ".csv":
                    write_csv(result, stream)
                else:
                    json.dump(as_records(result), stream, indent=2)
                    stream.write("\n")
                stream.flush()
            self._file.close()
            self._staged.replace(self._path)

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = os_reason(error)
            raise OperatorError(f"{self._path} can't be written: {reason}; name another file with --output") from error


def _write_parquet(result: pa.Table, file: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.write_table(result, file, compression="zstd")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0]
        raise OperatorError(f"Parquet can't hold the result: {reason}; cast that column, or write .json") from error
