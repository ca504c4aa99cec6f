"""Staged records between the tasks that read and those that merge: Arrow files in `_staged/LOAD` in the table's store.

Each file has one record batch a bucket, so a task that merges a bucket reads that alone. The files only exist between
two steps of one run: they are not synced, and are always removed at its end. A vacuum removes those of a killed run.

**Invariants:** rows of a partition stay in offset order within a bucket of a file; a task has SPILL_BYTES and one
decoded batch in memory, regardless of the size of its range.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from ottla.pipeline.load.shape import Shape
from ottla.pipeline.stores.store import Store, StoredFile

STAGED_DIRECTORY = "_staged"
SPILL_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StagedFile:
    """`path` is relative to the table's store; `buckets`: the bucket of each of its record batches, rising."""

    path: str
    buckets: list[int]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """Rows of one bucket in a staged file."""

    path: str
    number: int

    def read(self, store: Store) -> pa.RecordBatch:
        """Return the rows. Raises OSError."""
        filesystem, [path] = store.arrow([self.path])
        with filesystem.open_input_file(path) as source, pa.ipc.open_file(source) as file:
            return file.get_batch(self.number)


def staged_to_json(files: Iterable[StagedFile]) -> str:
    """JSON of staged files in a manifest row from a worker to the driver."""
    return json.dumps([asdict(file) for file in files])


def staged_by_bucket(texts: Iterable[str]) -> dict[int, list[StagedBatch]]:
    """The staged batches of each bucket, from the texts of `staged_to_json`."""
    found: dict[int, list[StagedBatch]] = {}
    for text in texts:
        for file in json.loads(text or "[]"):
            for number, bucket in enumerate(file["buckets"]):
                found.setdefault(bucket, []).append(StagedBatch(file["path"], number))
    return found


class StagedWriter:
    """Writer for the rows of one partition in offset order; its files are removed unless `finish` was reached."""

    def __init__(self, store: Store, load_id: str, position: str, shape: Shape, schema: pa.Schema) -> None:
        """`schema`: of the rows; `position`: prefix of the file names."""
        self._store = store
        self._directory = staging_directory(load_id)
        self._position = position
        self._shape = shape
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._done: list[StagedFile] = []
        self._finished = False
        self.rows = 0
        """Number of rows added."""

    def __enter__(self) -> StagedWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._finished:
            for file in self._done:
                with suppress(OSError):
                    self._store.remove(file.path)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, none of which has a null key."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= SPILL_BYTES:
            self._spill()

    def finish(self) -> list[StagedFile]:
        """Close the last file; returns all."""
        if self._pending:
            self._spill()
        self._finished = True
        return self._done

    def _spill(self) -> None:
        """Write the pending rows; only the last record of a key, unless all of them are history."""
        rows = pa.Table.from_batches(self._pending, schema=self._schema)
        self._pending, self._pending_bytes = [], 0
        keys = rows.column("key").combine_chunks().dictionary_encode()
        codes = keys.indices.to_numpy()
        kept = np.arange(len(codes))
        if not self._shape.history:
            last = np.zeros(len(keys.dictionary), np.int64)
            last[codes] = kept  # of duplicate indexes, the last one counts
            kept = np.sort(last)
        buckets = self._shape.buckets_of(keys.dictionary)[codes[kept]]
        order = np.argsort(buckets, kind="stable")
        rows, buckets = rows.take(pa.array(kept[order])), buckets[order]
        borders = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
        self._done.append(self._write(rows.combine_chunks(), borders, [int(buckets[start]) for start in borders[:-1]]))

    def _write(self, rows: pa.Table, borders: list[int], buckets: list[int]) -> StagedFile:
        path = f"{self._directory}/{self._position}-{len(self._done)}-{uuid.uuid4().hex[:8]}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        try:
            with self._store.open_output(path) as sink:
                with pa.ipc.new_file(sink, self._schema, options=options) as file:
                    for start, end in itertools.pairwise(borders):
                        for batch in rows.slice(start, end - start).to_batches():
                            file.write_batch(batch)
                size_bytes = sink.tell()
        except BaseException:
            with suppress(OSError):
                self._store.remove(path)
            raise
        return StagedFile(path, buckets, size_bytes)


def staging_directory(load_id: str) -> str:
    """Directory in a table's store for the staged files of a run."""
    return f"{STAGED_DIRECTORY}/{load_id}"


def discard_staged(store: Store, load_id: str) -> None:
    """Remove the staged files of a run; files that can't be removed stay for a vacuum."""
    store.discard(staging_directory(load_id))


def staged_files(store: Store) -> dict[str, set[StoredFile]]:
    """The staged files of each run. Must be read before the leases: a run acquires its own before it stages
    anything."""
    found: dict[str, set[StoredFile]] = {}
    for file in store.files(STAGED_DIRECTORY):
        found.setdefault(file.path.split("/")[1], set()).add(file)
    return found
