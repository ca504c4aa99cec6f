"""Writer of one task's rows to data files of a table's partitions, with bounded memory and number of open files.

Each combination of values has a file of its own. All open files together buffer as many rows as a single one would: at
that limit the fullest writes its row group. Beyond MAX_OPEN_FILES the oldest one is finished, and a later row for it
opens another file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.common.errors import OperatorError
from ottla.pipeline.model.arrays import flags
from ottla.pipeline.sinks.table import DataFile, FileLayout
from ottla.pipeline.sinks.writer import NULL_DIRECTORY, ROW_GROUP_BYTES, DataFileWriter, directory_text

MAX_OPEN_FILES = 64
MAX_FILES = 4_000
"""Maximum number of files of one task: a column with more values creates tables too slow to read."""
_SEPARATOR = "\x1f"
_NULL = "\x00"
_DIRECTORY_BYTES = 255
"""Maximum length of a file name; a partition's directory is named COLUMN=TEXT."""


def unplaceable(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """True for rows with a text in a partition column that can't be a directory name: it is too long, or the name of
    null."""
    found = flags(np.zeros(batch.num_rows, np.bool_))
    for name in columns:
        column = batch.column(name)
        if pa.types.is_string(column.type):
            room = _DIRECTORY_BYTES - len(f"{name}=".encode())
            codes = column.dictionary_encode()
            odd = [text == NULL_DIRECTORY or len(directory_text(text).encode()) > room for text in _texts(codes)]
            found = pc.or_(found, pc.fill_null(pa.array(odd, pa.bool_()).take(codes.indices), fill_value=False))
    return found


def _texts(codes: pa.DictionaryArray) -> list[str]:
    texts: list[str] = codes.dictionary.to_pylist()
    return texts


def require_placeable(batch: pa.RecordBatch, columns: Sequence[str]) -> None:
    """Raise OperatorError for rows that can't be in a named directory, where no dead letters can take them."""
    if unplaceable(batch, columns).true_count:
        raise OperatorError(
            f"the columns {', '.join(columns)} contain a text that can't be a directory name; partition the table by "
            "other columns"
        )


class PartitionedWriter:
    """Writer for rows of any partition; its files are removed unless `finish` was reached."""

    def __init__(self, layout: FileLayout, schema: pa.Schema, position: str, load_id: str) -> None:
        """As `DataFileWriter`, except that the values of partition columns are those of the rows."""
        self._layout = layout
        self._schema = schema
        self._position = position
        self._load_id = load_id
        self._open: OrderedDict[str, DataFileWriter] = OrderedDict()
        self._done: list[DataFile] = []
        self._finished = False

    def __enter__(self) -> PartitionedWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._finished:
            return
        for writer in self._open.values():
            writer.discard()
        for file in self._done:
            with suppress(OSError):
                self._layout.store.remove(file.path)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; those of one partition stay in their order. Raises OperatorError for too many partitions."""
        if not batch.num_rows:
            return
        if not self._layout.partition_columns:
            self._writer("").add(batch)
            return
        codes = self._keys(batch).dictionary_encode()
        if len(codes.dictionary) > 1:  # sort_indices is stable
            order = pc.sort_indices(codes.indices)
            batch, indices = batch.take(order), np.asarray(codes.indices.take(order))
            borders = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), batch.num_rows]
        else:
            borders = [0, batch.num_rows]
        for key, start, end in zip(codes.dictionary.to_pylist(), borders, borders[1:], strict=False):
            self._writer(key).add(batch.slice(start, end - start))
        while sum(writer.pending_bytes for writer in self._open.values()) >= ROW_GROUP_BYTES:
            max(self._open.values(), key=lambda writer: writer.pending_bytes).write_group()

    def finish(self) -> list[DataFile]:
        """Close and sync all files."""
        while self._open:
            self._finish_oldest()
        self._finished = True
        return self._done

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        """The values of the partition columns of each row, as one text: escaped, so that separators are unambiguous."""
        keys = []
        for name in self._layout.partition_columns:
            codes = batch.column(name).cast(pa.string()).dictionary_encode()
            texts = pa.array([self._key(text) for text in _texts(codes)], pa.string())
            keys.append(pc.fill_null(texts.take(codes.indices), _NULL))
        return pc.binary_join_element_wise(*keys, _SEPARATOR)

    def _key(self, text: str) -> str:
        """Empty text is null where only directories have the values, as in Hive and Spark."""
        return directory_text(text) if text or self._layout.partitions_in_files else _NULL

    def _writer(self, key: str) -> DataFileWriter:
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key]
        if len(self._open) >= MAX_OPEN_FILES:
            self._finish_oldest()
        if len(self._done) + len(self._open) >= MAX_FILES:
            raise OperatorError(
                f"the columns {', '.join(self._layout.partition_columns)} have so many values that one task would "
                f"write more than {MAX_FILES:,} files; partition the table by a column with fewer values"
            )
        texts = key.split(_SEPARATOR) if self._layout.partition_columns else []
        values = {
            name: None if text == _NULL else unquote(text)
            for name, text in zip(self._layout.partition_columns, texts, strict=True)
        }
        writer = DataFileWriter(self._layout, self._schema, values, self._position, self._load_id)
        self._open[key] = writer
        return writer

    def _finish_oldest(self) -> None:
        _, writer = self._open.popitem(last=False)
        try:
            file = writer.finish()
        except BaseException:
            writer.discard()
            raise
        if file is not None:
            self._done.append(file)
