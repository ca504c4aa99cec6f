"""Arrow arrays from numpy and from Python's values, without pandas.

Where pandas is installed, pyarrow imports it at the first value of any type that it converts (`pa.array`, `pa.scalar`,
`to_numpy`, `from_pylist`). A worker that reads topics has no other use for pandas, which takes 36 MiB of memory and
0.6 s of CPU in each worker. Loads and the data source "ottla" therefore build their arrays here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]

MAX_BYTES = (1 << 31) - 1
_TYPES = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64()}


def whole_table(stream: Any) -> pa.Table:
    """The table that an object of another library exports as an Arrow stream; `pa.table` would import pandas."""
    return pa.RecordBatchReader.from_stream(stream).read_all()


def numbers(values: npt.NDArray[np.int32] | npt.NDArray[np.int64], absent: Bools | None = None) -> pa.Array:
    """int32 or int64 as they are, null where `absent` is true; the memory is shared, so it must not change."""
    whole = np.ascontiguousarray(values)
    validity = None if absent is None or not absent.any() else _bits(~absent)
    return pa.Array.from_buffers(_TYPES[whole.dtype], len(whole), [validity, pa.py_buffer(whole)])


def flags(values: Bools) -> pa.Array:
    """Booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def texts(values: Sequence[str]) -> pa.Array:
    """Strings. Raises UnicodeEncodeError for one with half a character, OverflowError as `binaries`."""
    return _of_bytes([value.encode() for value in values], pa.string())


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    """Bytes, null for None. Raises OverflowError for 2 GiB of them and more."""
    return _of_bytes(values, pa.binary())


def repeated(value: str, count: int) -> pa.Array:
    """One text, repeated `count` times."""
    return pa.repeat(texts([value])[0], count)


def _of_bytes(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    borders = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=borders[1:])
    if borders[-1] > MAX_BYTES:
        raise OverflowError(f"{borders[-1]:,} bytes are more than an array of them can hold")
    absent = np.fromiter((value is None for value in values), np.bool_, len(values))
    validity = _bits(~absent) if absent.any() else None
    data = b"".join(value for value in values if value is not None)
    buffers = [validity, pa.py_buffer(borders.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _bits(values: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
