"""Delta Lake: data files and offsets in one commit.

Each topic partition is a Delta application transaction (`txn` action): its app id names pipeline, topic id and
partition, its version is the next offset. The commit's own metadata repeats the ranges in readable form
(`ottla.ranges`, `ottla.topics`, `ottla.pipeline`).

**Invariants:** a commit carries files only together with the offsets behind them; it succeeds only if every partition
it moves is still where its plan found it. That is checked against one snapshot, and the commit is allowed for the
version right after that snapshot alone (no retries inside delta-rs), so a second loader with an older plan is refused
however the two interleave. Commits of others in between only lead to another look.

Every reader of Delta can read the table. Left out: object stores (paths are local), compaction and vacuum (files of
interrupted loads are unreferenced and stay until then), change of an existing table's partition columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.decode import SCHEMA

RANGES_KEY = "ottla.ranges"
TOPICS_KEY = "ottla.topics"
PIPELINE_KEY = "ottla.pipeline"
ROWS_KEY = "ottla.rows"

COMMIT_ATTEMPTS = 20
"""How often other writers may come in between before a commit gives up."""
HISTORY_LIMIT = 100
"""Commits that are searched for the newest topic ids."""
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
PARTITION_COLUMNS = ("topic", "partition")


class StaleCommitError(OttlaError):
    """Another load moved the same partitions since this one planned; nothing of this one was committed."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file below the table's directory; `stats`: Delta's statistics JSON, `modified_ms` from the epoch."""

    path: str
    size_bytes: int
    rows: int
    stats: str
    modified_ms: int
    partition_values: Mapping[str, str]


class DeltaTarget:
    """A Delta table in a local directory, made on the first load."""

    def __init__(self, path: str | os.PathLike[str], partition_by: Sequence[str] = ()) -> None:
        """`partition_by` takes effect when the table is made: any of PARTITION_COLUMNS."""
        unknown = [name for name in partition_by if name not in PARTITION_COLUMNS]
        if unknown:
            raise OperatorError(
                f"a table can be partitioned by {' and '.join(PARTITION_COLUMNS)}, not by {unknown[0]!r}"
            )
        self.path = Path(path).absolute()
        self._partition_by = list(partition_by)

    def exists(self) -> bool:
        """True when the directory holds a Delta table."""
        return self.path.is_dir() and bool(DeltaTable.is_deltatable(str(self.path)))

    def ensure(self) -> list[str]:
        """Make the table unless it is there; returns its partition columns. Raises OperatorError if it can't serve."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.exists():
                with suppress(CommitFailedError):  # another load made it in the same moment
                    DeltaTable.create(str(self.path), SCHEMA, mode="ignore", partition_by=self._partition_by or None)
        except (OSError, DeltaError) as error:
            raise OperatorError(f"the table directory {self.path} can't be made: {error}") from error
        table = self._open()
        self._check(table)
        return list(table.metadata().partition_columns)

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]:
        """The next offset of each application id, None for one that never loaded (or without a table)."""
        if not self.exists():
            return dict.fromkeys(app_ids)
        table = self._open()
        return {name: table.transaction_version(name) for name in app_ids}

    def known_topic_ids(self) -> dict[str, str]:
        """Topic name -> id of its latest load, from the commit metadata; old commits may have been cleaned away."""
        if not self.exists():
            return {}
        for commit in self._open().history(HISTORY_LIMIT):
            if TOPICS_KEY in commit:
                return _json_object(commit[TOPICS_KEY])
        return {}

    def commit(
        self,
        expected: Mapping[str, int | None],
        following: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        pipeline_id: str,
        topic_ids: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
    ) -> int:
        """Add `files` and move each application id from `expected` to `following`, all or nothing; returns the version.

        Raises StaleCommitError when an id is not at its expected offset any more, OperatorError on other failures.
        """
        metadata = {
            PIPELINE_KEY: pipeline_id,
            ROWS_KEY: str(sum(file.rows for file in files)),
            RANGES_KEY: json.dumps(ranges),
            TOPICS_KEY: json.dumps({**self.known_topic_ids(), **topic_ids}, sort_keys=True),
        }
        actions = [
            AddAction(file.path, file.size_bytes, file.partition_values, file.modified_ms, True, file.stats)
            for file in files
        ]
        for _ in range(COMMIT_ATTEMPTS):
            table = self._open()
            self._check_expected(table, expected)
            properties = CommitProperties(
                custom_metadata=metadata,
                app_transactions=[Transaction(name, offset) for name, offset in following.items()],
                max_commit_retries=0,
            )
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    partition_by=list(table.metadata().partition_columns) or None,
                    commit_properties=properties,
                )
            except CommitFailedError:
                continue  # someone was faster: look again whether the plan still holds
            except (OSError, DeltaError) as error:
                raise OperatorError(f"the table {self.path} could not be committed: {error}") from error
            version = int(table.version()) + 1
            self._sync_log()
            return version
        raise OperatorError(
            f"the table {self.path} could not be committed: {COMMIT_ATTEMPTS} other commits came first; try again"
        )

    def files(self) -> list[str]:
        """Absolute paths of the data files of the newest version, for readers without a Delta library.

        Raises OperatorError when there is no table or when deletion vectors make the plain files wrong.
        """
        table = self._open()
        features = table.protocol().reader_features or []
        if "deletionVectors" in features and len(pa.table(table.deletion_vectors().read_all())):
            raise OperatorError(f"the table {self.path} has deletion vectors, which reading by its files would ignore")
        return list(table.file_uris())

    def partition_columns(self) -> list[str]:
        return list(self._open().metadata().partition_columns)

    def version(self) -> int:
        """The newest version of the table."""
        return int(self._open().version())

    def _open(self) -> Any:
        try:
            return DeltaTable(str(self.path))
        except TableNotFoundError as error:
            raise OperatorError(f"there is no Delta table in {self.path}; `ottla pipeline load` makes one") from error
        except (OSError, DeltaError) as error:
            raise OperatorError(f"the Delta table in {self.path} can't be read: {error}") from error

    def _check(self, table: Any) -> None:
        found = pa.schema(table.schema())
        for column in SCHEMA:
            position = found.get_field_index(column.name)
            if position < 0 or not _same_type(found.field(position).type, column.type):
                raise OperatorError(
                    f"the table {self.path} lacks the column {column.name!r} of type {column.type}: it was not made by "
                    "`ottla pipeline load`; choose another directory"
                )
        if TRANSACTION_RETENTION in table.metadata().configuration:
            raise OperatorError(
                f"the table {self.path} sets {TRANSACTION_RETENTION}, which would forget loaded offsets and load "
                "records twice; remove that property"
            )

    def _check_expected(self, table: Any, expected: Mapping[str, int | None]) -> None:
        for name, offset in expected.items():
            current = table.transaction_version(name)
            if current != offset:
                raise StaleCommitError(
                    f"another load moved {name} from {_offset(offset)} to {_offset(current)} in the meantime; nothing "
                    "of this load was committed, run it again"
                )

    def _sync_log(self) -> None:
        """Make the newest commit durable: delta-rs leaves that to the operating system."""
        log = self.path / "_delta_log"
        newest = max(log.glob("*.json"), default=None)
        for path in (newest, log):
            if path is None:
                continue
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _same_type(found: Any, wanted: Any) -> bool:
    """Equal but for the names of list elements and their nullability, on which writers differ."""
    if pa.types.is_list(wanted):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _same_type(
            found.value_type, wanted.value_type
        )
    if pa.types.is_struct(wanted):
        return pa.types.is_struct(found) and all(
            found.get_field_index(part.name) >= 0 and _same_type(found.field(part.name).type, part.type)
            for part in wanted
        )
    return bool(found.equals(wanted))


def _offset(offset: int | None) -> str:
    return "the start" if offset is None else f"offset {offset}"


def _json_object(text: Any) -> dict[str, str]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
