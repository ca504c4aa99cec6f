"""The result of a query for people and for programs: text, JSON, CSV, or a file of one of the kinds."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    import pyarrow as pa

FILE_KINDS = (".csv", ".json", ".parquet")


def file_kind(path: Path) -> str:
    """Which of FILE_KINDS a file's name says. Raises OperatorError."""
    kind = path.suffix.lower()
    if kind not in FILE_KINDS:
        raise OperatorError(f"{path}: the name has to end with {', '.join(FILE_KINDS)}, which says what is written")
    return kind


def rows_of(result: pa.Table) -> list[list[Any]]:
    """The rows with values as JSON has them."""
    return [
        [printable(value) for value in row]
        for row in zip(*(column.to_pylist() for column in result.columns), strict=True)
    ]


def printable(value: Any) -> Any:
    """A value of a result as JSON has it: bytes as text, times in ISO form, nested values likewise."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(printable(key)): printable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def as_records(result: pa.Table) -> list[dict[str, Any]]:
    """The rows as objects by column."""
    return [dict(zip(result.column_names, row, strict=True)) for row in rows_of(result)]


def write_csv(result: pa.Table, stream: IO[str]) -> None:
    """A line of names and one a row (RFC 4180); nested values as JSON, null as nothing."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in rows_of(result):
        writer.writerow([json.dumps(value) if isinstance(value, (dict, list)) else value for value in row])


def write_file(result: pa.Table, path: Path) -> None:
    """Write all of a result, of the kind that the name says, in place of an older file. Raises OperatorError."""
    kind = file_kind(path)
    staged = None
    try:
        descriptor, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        if kind == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(result, staged, compression="zstd")
        else:
            with open(staged, "w", encoding="utf-8", newline="") as stream:
                if kind == ".csv":
                    write_csv(result, stream)
                else:
                    json.dump(as_records(result), stream, indent=2)
                    stream.write("\n")
        os.replace(staged, path)
    except OSError as error:
        if staged is not None:
            Path(staged).unlink(missing_ok=True)
        raise OperatorError(f"{path} can't be written: {error.strerror or error}") from error
