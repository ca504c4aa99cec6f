"""Results in a table: the rows of a batch and its number in one commit.

The number of the next batch is the version of the application id `stream/NAME` in the table; batches below it are
stored. The commit also moves the offsets that the batch read up to, one application id a partition as in a load, so
that `ottla pipeline status` shows the progress of the results. `stream/NAME/owner` identifies their state directory.

- `append`: rows are added. A batch without rows commits nothing.
- `complete`: the rows replace the whole table, which must not have rows of others.
- `update`: rows replace those with the same keys. Only the files that contain replaced rows are rewritten.

**Invariants:** a batch is committed once, regardless of crashes, and a second process that runs the stream is refused,
also with a state of its own; a compaction in between only leads to another attempt.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import functions as F

from ottla.common.errors import OperatorError
from ottla.pipeline.datasource.stream import IDS
from ottla.pipeline.load.leased_files import discard_files, leased_files
from ottla.pipeline.load.leases import Lease
from ottla.pipeline.load.shape import require_no_snapshot, require_rows
from ottla.pipeline.model.plan import app_id
from ottla.pipeline.model.rollback import LoadRefusedError
from ottla.pipeline.sinks.partitioning import require_partition_columns, with_date_column
from ottla.pipeline.sinks.table import (
    DataFile,
    FileLayout,
    StaleCommitError,
    Table,
    TableCommit,
    UnknownCommitError,
    require_no_rollback,
    stored_schema,
)
from ottla.pipeline.sinks.writer import new_load_id
from ottla.pipeline.sql.query import read_table
from ottla.pipeline.stream.rows import arrow_schema, write_rows
from ottla.pipeline.stream.state import KeptResults, StreamState, owner_id, pipeline_id

MERGE_ATTEMPTS = 5
"""Maximum number of compactions that may come first before a batch gives up."""
_FILE = "_ottla_file"


class _StoredProgress(NamedTuple):
    """Progress of the stream in a table, None where there is none; earlier releases stored no owner."""

    next_batch: int | None
    owner: int | None

    def has(self, batch: int) -> bool:
        return self.next_batch is not None and self.next_batch > batch


@dataclass(slots=True)
class _StagedBatch:
    """The files of a batch that is not committed yet, under a lease."""

    load_id: str
    lease: Lease
    held: _StoredProgress
    """Before it."""
    files: list[DataFile] = field(default_factory=list)


class TableResults:
    """Results of the stream `name`; `keys` are those of the output mode `update`."""

    def __init__(self, table: Table, name: str, output: str, keys: Sequence[str], state: StreamState) -> None:
        self._table = table
        self._name = name
        self._id = pipeline_id(name)
        self._owner_id = owner_id(name)
        self._output = output
        self._keys = list(keys)
        self._state = state
        self._layout = FileLayout("")
        self._schema = pa.schema([])
        self._prepared: _StagedBatch | None = None
        self._leases = ExitStack()

    @property
    def location(self) -> str:
        return self._table.location

    @property
    def directory(self) -> str:
        return self._layout.directory

    def require_fit(self, planned: int, ended: int) -> None:
        if not self._table.exists():
            if ended >= 0:
                raise LoadRefusedError(
                    f"the table {self.location} does not exist, but {self._state.path} records its results up to "
                    f"batch {ended}: restore the table, or remove that directory too to start from scratch"
                )
            return
        require_no_snapshot(self._table)
        held = self._look()
        if held.next_batch is not None and held.next_batch > planned + 1:
            raise LoadRefusedError(
                f"the table {self.location} has the results of this stream up to batch {held.next_batch - 1}, but "
                f"{self._state.path} has none after {planned}: continuing would duplicate them. Restore the newer "
                "state, name it with --checkpoint, or start a new stream with another name and table"
            )
        self._require_own(held)
        require_no_rollback(self._table)
        require_no_rollback(self._table.dead_letters())
        kept = self._state.kept_results().next_batch
        if (held.next_batch or 0) < kept:
            has = "none of them" if held.next_batch is None else f"them up to batch {held.next_batch - 1}"
            raise LoadRefusedError(
                f"the table {self.location} was rolled back: {self._state.path} records its results up to batch "
                f"{kept - 1}, but it has {has}: continuing would lose the others. Restore the newer table, or "
                "the state of the same time; or start a new stream with another name and table"
            )
        if self._output == "complete":
            self._require_alone(held)

    def open(self, frame: Any) -> None:
        self._schema = arrow_schema(frame)
        missing = next((key for key in self._keys if key not in self._schema.names), None)
        if missing is not None:
            raise OperatorError(
                f"[result] keys: the result has no column {missing!r}; it has {', '.join(self._schema.names)}"
            )
        self._schema = stored_schema(self._table.format, self._with_partitions(self._schema))
        if self._table.exists():
            self._table.ensure(self._schema)

    def _with_partitions(self, schema: pa.Schema) -> pa.Schema:
        """Rows with the table's partition columns. Raises OperatorError if the table can't have them."""
        columns = self._table.layout().partition_columns
        schema = with_date_column(schema, columns)
        try:
            require_partition_columns(schema, columns)
        except OperatorError as error:
            where = f"the table {self.location}" if self._table.exists() else "[result] partition_by"
            raise OperatorError(f"{where}: {error}") from error
        return schema

    def holds(self, batch: int) -> bool:
        return self._held().has(batch)

    def prepare(self, frame: Any, batch: int) -> None:
        self._layout = self._table.ensure(self._schema)
        require_rows(self._table, self._layout, self._schema)
        held = self._held()
        if held.has(batch):
            raise StaleCommitError(
                f"batch {batch} was committed to the table {self.location} in the meantime; run it again"
            )
        load_id = new_load_id()
        lease = self._leases.enter_context(leased_files(self._table, load_id))
        self._prepared = _StagedBatch(load_id, lease, held)
        self._prepared.files = write_rows(frame, self._layout, self._schema, _position(batch), load_id)
        self._require_unique(frame.sparkSession, self._prepared.files)

    def commit(self, spark: Any, batch: int) -> int:
        prepared = self._prepared
        if prepared is None:
            raise OperatorError("a batch was committed without being prepared")
        if prepared.files or self._output == "complete":
            self._commit(spark, batch, prepared)
            self._state.keep_results(KeptResults(batch + 1))
        self._prepared = None
        self._leases.close()
        return sum(file.rows for file in prepared.files)

    def discard(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            discard_files(self._table, prepared.load_id)
        self._leases.close()

    def _commit(self, spark: Any, batch: int, prepared: _StagedBatch) -> None:
        offsets, topic_ids = _reached(self._state.offsets(batch), self._id)
        for attempt in range(MERGE_ATTEMPTS):
            removed, kept = self._replaced(spark, batch, prepared)
            prepared.lease.require()
            try:
                self._table.commit(
                    TableCommit(
                        prepared.load_id,
                        files=[*prepared.files, *kept],
                        removed=removed,
                        expected={self._id: prepared.held.next_batch, self._owner_id: prepared.held.owner},
                        following={self._id: batch + 1, self._owner_id: self._state.owner, **offsets},
                        pipeline_id=self._id,
                        topic_ids=topic_ids,
                        cluster_id=self._state.cluster_id,
                    )
                )
            except UnknownCommitError:
                self._prepared = None  # its files may be in the table
                raise
            except StaleCommitError:
                if self._held() != prepared.held or not removed or attempt + 1 == MERGE_ATTEMPTS:
                    raise
                self._take_away(kept)  # a compaction removed a file that was to be replaced
            else:
                return

    def _replaced(self, spark: Any, batch: int, prepared: _StagedBatch) -> tuple[list[str], list[DataFile]]:
        """The files that the batch replaces, and new files with their remaining rows."""
        if self._output == "append":
            return [], []
        files = self._table.files()
        if self._output == "complete":
            self._require_alone(prepared.held)
        if self._output == "complete" or not files:
            return files, []
        fresh = read_table(spark, self._table, self._paths(prepared.files)).select(*self._keys).alias("new")
        held = read_table(spark, self._table, file_column=_FILE).select(*self._keys, _FILE).alias("held")
        found = held.join(fresh, self._same_keys(), "left_semi").select(_FILE).distinct().collect()
        names = {_file_name(row[_FILE]) for row in found}
        touched = [path for path in files if Path(path).name in names]
        if not touched:
            return [], []
        kept = read_table(spark, self._table, touched).alias("held").join(fresh, self._same_keys(), "left_anti")
        schema = self._table.schema()
        return touched, write_rows(kept, self._layout, schema, f"{_position(batch)}-kept", prepared.load_id)

    def _require_alone(self, held: _StoredProgress) -> None:
        """Raise OperatorError where a batch would remove rows of others."""
        others = sorted({load.pipeline_id for load in self._table.loads()} - {self._id})
        if others or (held.next_batch is None and self._table.files()):
            origin = f"of {others[0]!r}" if others else "that are not of this stream"
            raise OperatorError(
                f'the table {self.location} has rows {origin}, and output = "complete" would remove them: give the '
                "stream a table of its own"
            )

    def _same_keys(self) -> Any:
        """Condition between `held` and `new`; null is a key like any other."""
        pairs = ((F.col(f"held.`{key}`"), F.col(f"new.`{key}`")) for key in self._keys)
        return functools.reduce(operator.and_, (held.eqNullSafe(new) for held, new in pairs))

    def _require_unique(self, spark: Any, files: Sequence[DataFile]) -> None:
        if not self._keys or not files:
            return
        rows = (
            read_table(spark, self._table, self._paths(files)).groupBy(*self._keys).count().where("count > 1").head(1)
        )
        if rows:
            raise OperatorError(
                f"two rows of one batch have the same {', '.join(self._keys)}: name all columns that the query groups "
                "by in [result] keys"
            )

    def _paths(self, files: Sequence[DataFile]) -> list[str]:
        return list(map(self._layout.store.locate, (file.path for file in files)))

    def _take_away(self, files: Sequence[DataFile]) -> None:
        for file in files:
            self._layout.store.remove(file.path)

    def _held(self) -> _StoredProgress:
        """Raises OperatorError for results of another state."""
        held = self._look()
        self._require_own(held)
        return held

    def _look(self) -> _StoredProgress:
        found = self._table.committed_offsets([self._id, self._owner_id])
        return _StoredProgress(found[self._id], found[self._owner_id])

    def _require_own(self, held: _StoredProgress) -> None:
        self._state.require_own(held.owner, f"table {self.location}", self._name)


def _position(batch: int) -> str:
    return f"batch-{batch:010d}"


def _file_name(address: str) -> str:
    """The unique name of a file in a table, from Spark's address of it."""
    return Path(unquote(urlsplit(address).path)).name


def _reached(sources: Sequence[Mapping[str, Any]], stream: str) -> tuple[dict[str, int], dict[str, str]]:
    """(offsets by application id, topic ids) that a batch ended at; where two sources read a topic, the lower one."""
    offsets: dict[str, int] = {}
    topic_ids: dict[str, str] = {}
    for source in sources:
        ids = source.get(IDS, {})
        topic_ids |= ids
        for topic in ids.keys() & source.keys():
            for partition, offset in source[topic].items():
                name = app_id(stream, ids[topic], int(partition))
                offsets[name] = min(offset, offsets.get(name, offset))
    return offsets, topic_ids
