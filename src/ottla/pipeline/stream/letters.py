"""Records that can't be decoded: from the tasks of a batch to the table of dead letters.

A query may aggregate its input, so a batch's rows don't show which records were bad. The tasks that decode write
them as files to a directory of the stream instead, and the driver commits them before the results of the batch.

**Invariants:** a file is named by the range of its task, and appears as a whole: a retried attempt,
or a view that a query reads twice, leaves it once. A batch's letters are committed once, by its number. Files of a run
that died belong to a batch that will run again, and are removed before it does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.common.errors import OperatorError
from ottla.pipeline.load.leased_files import leased_files
from ottla.pipeline.model.decode import DEAD_LETTER_SCHEMA, SCHEMA
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.sinks.table import Table, TableCommit
from ottla.pipeline.sinks.writer import new_load_id
from ottla.pipeline.sql.query import plain_path
from ottla.pipeline.stream.rows import write_rows
from ottla.pipeline.stream.state import StreamState, owner_id, pipeline_id
from ottla.pipeline.transform.record_decoder import RecordDecoder

_RENAMED = {"timestamp_type": "timestampType"}


@dataclass(frozen=True, slots=True)
class DecodingTask:
    """Decodes the input of one task of a source; sent to the workers. `view` distinguishes views of one topic."""

    decoder: RecordDecoder
    directory: Path
    view: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the records that can be decoded."""
        with _LetterFile(self.directory, self.view) as letters:
            for batch in batches:
                records = _as_records(batch)
                for piece in self.decoder.pieces(records):
                    rows, bad = self.decoder.decode(piece)
                    letters.add(piece, bad)
                    yield rows
            letters.finish()


class DeadLetters:
    """The driver's part, of the stream `name`."""

    def __init__(self, state: StreamState, table: Table, name: str) -> None:
        self._state = state
        self._directory = state.letters
        self._table = table
        self._name = name
        self._app_id = pipeline_id(name)
        self._owner_id = owner_id(name)
        self.rows = 0
        """Letters committed by this run."""

    @property
    def location(self) -> str:
        return self._table.location

    def clear(self) -> None:
        """Remove all letter files. Raises OperatorError."""
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(self._directory)
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperatorError(
                f"the stream's directory {self._directory} can't be written: {os_reason(error)}"
            ) from error

    def commit(self, spark: Any, batch: int) -> None:
        """Commit the letters of a batch, unless an earlier run did. Raises OperatorError, StaleCommitError."""
        files = sorted(str(path) for path in self._directory.glob("letters-*.parquet"))
        if not files:
            return
        found = self._table.committed_offsets([self._app_id, self._owner_id])
        held, owner = found[self._app_id], found[self._owner_id]
        self._state.require_own(owner, f"table {self.location}", self._name)
        if held is None or held <= batch:
            layout = self._table.ensure(DEAD_LETTER_SCHEMA)
            load_id = new_load_id()
            with leased_files(self._table, load_id) as lease:
                frame = spark.read.parquet(*map(plain_path, files))
                written = write_rows(frame, layout, DEAD_LETTER_SCHEMA, f"batch-{batch:010d}", load_id)
                lease.require()
                self._table.commit(
                    TableCommit(
                        load_id,
                        files=written,
                        expected={self._app_id: held, self._owner_id: owner},
                        following={self._app_id: batch + 1, self._owner_id: self._state.owner},
                        pipeline_id=self._app_id,
                    )
                )
            self.rows += sum(file.rows for file in written)
        self.clear()


class _LetterFile:
    """One task's letters, a file that appears when it is complete; no file without letters."""

    def __init__(self, directory: Path, view: str) -> None:
        self._directory = directory
        self._view = view
        self._name = ""
        self._staged = directory / f".{uuid.uuid4().hex}"
        self._writer: Any = None

    def __enter__(self) -> _LetterFile:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._staged.unlink(missing_ok=True)

    def add(self, records: pa.RecordBatch, bad: pa.RecordBatch | None) -> None:
        """`records`: the decoder's input; the first record of a task names its range."""
        if not self._name and records.num_rows:
            topic, partition, offset = (records.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
            source = hashlib.sha256(f"{self._view} {topic}".encode()).hexdigest()[:32]  # a topic's name may be too long
            self._name = f"letters-{source}-{partition}-{offset:020d}.parquet"
        if bad is None:
            return
        if self._writer is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._staged, DEAD_LETTER_SCHEMA, compression="zstd")
        self._writer.write_batch(bad)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            os.replace(self._staged, self._directory / self._name)


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the format "ottla", with the column names of a table."""
    columns = [batch.column(_RENAMED.get(one.name, one.name)).cast(one.type) for one in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
