"""Delta Lake: data files and offsets in one commit.

Each topic partition is a Delta application transaction (`txn` action): its app id names pipeline, topic id and
partition, its version is the next offset. The commit's own metadata repeats the ranges in readable form
(`ottla.ranges`, `ottla.topics`, `ottla.pipeline`).

**Invariants:** a commit adds files only together with their offsets; it succeeds only if every partition that it moves
is still at the offset of its plan. That is checked against one snapshot, and the commit is allowed only for the
version right after that snapshot (no retries inside delta-rs), so a second loader with an older plan is refused
in any interleaving. Commits of others in between only lead to another check. Whether a commit happened is never
inferred from an error (delta-rs raises also when the checkpoint after it fails): each commit contains the id of its
load, by which it is looked up in the log. A table rolled back below its newest load refuses further loads
(`sinks/delta_history.py`).

Commits in an object store must be conditional puts. If the response is lost, the commit may still succeed, so its files
are kept.

Every reader of Delta can read the table. The log names files by percent-encoded addresses; only `_data_path` turns one
into a path. Not supported: change of an existing table's partition columns.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, NoReturn
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from ottla.common.errors import OperatorError
from ottla.pipeline.model.arrays import whole_table
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import KnownTopics
from ottla.pipeline.model.rollback import Rollback
from ottla.pipeline.sinks.delta_features import MAPPING_MODE, require_compactable, require_writable
from ottla.pipeline.sinks.delta_history import NEWEST_LOAD, find_rollback
from ottla.pipeline.sinks.own_directory import require_own_directory
from ottla.pipeline.sinks.rewrite import compact_groups, group_small_files
from ottla.pipeline.sinks.table import (
    CLUSTERS_KEY,
    COMMIT_ATTEMPTS,
    DEAD_LETTER_DIRECTORY,
    FILES_KEY,
    LOAD_KEY,
    LOADS_LIMIT,
    LOOK_UPS,
    PIPELINE_KEY,
    ROWS_KEY,
    TOPICS_KEY,
    ColumnStatistics,
    CommitResult,
    DataFile,
    FileLayout,
    PastLoad,
    TableCommit,
    UnknownCommitError,
    check_schema,
    grown_columns,
    json_object,
    require_files,
    stored_count,
    too_many_commits,
)
from ottla.pipeline.stores.open_store import open_store
from ottla.pipeline.stores.store import Store

UNUSABLE_IN_PATHS = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]|[\ud800-\udfff]")
"""delta-rs decodes an escape twice and takes a backslash for a slash, so that it would open another directory; it
refuses control characters and invalid UTF-8."""

LOG = "_delta_log"
_COMMIT = re.compile(r"[0-9].*\.json")
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
_BACKTRACE = re.compile(r"\d+: ")


CONDITIONAL_PUT = {"aws_conditional_put": "etag", "aws_s3_allow_unsafe_rename": "false"}
"""The default of delta-rs on S3, unless the environment overrides it."""


class DeltaTarget:
    """A Delta table in a directory or an object store, created by the first load."""

    format = "delta"

    def __init__(self, path: str | os.PathLike[str], partition_by: Sequence[str] = ()) -> None:
        """`partition_by` takes effect when the table is created: columns of the schema.

        Raises OperatorError for other columns, and for a path that delta-rs can't open.
        """
        self._store: Store = open_store(path)
        real = self.location if self._store.is_remote else os.path.realpath(path)  # delta-rs follows links as well
        unusable = UNUSABLE_IN_PATHS.search(real)
        if unusable and "\udc80" <= unusable[0] <= "\udcff":
            raise OperatorError(
                f"the path {os.fsencode(self.location)!r} of the table is not valid UTF-8; choose another directory"
            )
        if unusable:
            raise OperatorError(
                f"the path {self.location!r} of the table contains {unusable[0]!r}, which the Delta library "
                "misinterprets; choose a directory without it"
            )
        self._partition_by = list(partition_by)

    @property
    def location(self) -> str:
        return self._store.location

    @property
    def name(self) -> str:
        return self._store.name

    def dead_letters(self) -> DeltaTarget:
        return DeltaTarget(self._store.child(DEAD_LETTER_DIRECTORY).location)

    def exists(self) -> bool:
        try:
            return self._store.exists() and bool(DeltaTable.is_deltatable(self.location, self._options))
        except (OSError, DeltaError) as error:
            raise OperatorError(f"the table {self.location} can't be looked up: {_words(error)}") from error

    def ensure(self, schema: pa.Schema) -> FileLayout:
        try:
            self._store.make()
            if not self.exists():
                require_own_directory(self._store)
                self._create(schema)
        except (OSError, DeltaError) as error:
            raise OperatorError(f"the table {self.location} can't be created: {_words(error)}") from error
        table = self._open()
        self._check(table, schema)
        return self._layout(tuple(table.metadata().partition_columns))

    def layout(self) -> FileLayout:
        columns = tuple(self._open().metadata().partition_columns) if self.exists() else tuple(self._partition_by)
        return self._layout(columns)

    def _layout(self, columns: tuple[str, ...]) -> FileLayout:
        return FileLayout(self.location, "", columns, settings=self._store.settings)

    def _create(self, schema: pa.Schema) -> None:
        try:
            DeltaTable.create(
                self.location,
                schema,
                mode="ignore",
                partition_by=self._partition_by or None,
                storage_options=self._options,
            )
        except DeltaError:
            if not self.exists():  # else a concurrent load created it, or a later step failed
                raise
        self._store.sync(_commit_file(0))

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]:
        if not self.exists():
            return dict.fromkeys(app_ids)
        table = self._open()
        return {name: table.transaction_version(name) for name in app_ids}

    def rollback(self) -> Rollback | None:
        return self._rollback(self._open()) if self.exists() else None

    def _rollback(self, table: Any) -> Rollback | None:
        """The rollback of the version that `table` is at, if any."""
        since = table.transaction_version(NEWEST_LOAD)
        try:
            return find_rollback(int(table.version()), since, self._read_commit, lambda: _addresses(table))
        except (OSError, ValueError) as error:
            raise OperatorError(f"the log of the table {self.location} can't be read: {os_reason(error)}") from error

    def _read_commit(self, version: int) -> bytes | None:
        try:
            return self._store.read(_commit_file(version))
        except FileNotFoundError:
            return None

    def known_topics(self) -> KnownTopics:
        """From the commit metadata; old commits may have been removed."""
        return _known_topics(self._open()) if self.exists() else KnownTopics()

    def loads(self) -> list[PastLoad]:
        commits = self._open().history(LOADS_LIMIT) if self.exists() else []
        return [
            PastLoad(
                int(commit["timestamp"]),
                commit[PIPELINE_KEY],
                int(commit[ROWS_KEY]),
                stored_count(commit.get(FILES_KEY)),
            )
            for commit in commits
            if commit.get(PIPELINE_KEY)
        ]

    def commit(self, commit: TableCommit) -> CommitResult:
        require_files(self._store, commit.files)
        moved = [Transaction(name, offset) for name, offset in commit.following.items()]
        for _ in range(COMMIT_ATTEMPTS):
            table = self._open()
            commit.check_expected({name: table.transaction_version(name) for name in commit.expected})
            known = _known_topics(table)
            commit.check_clusters(known)
            version = int(table.version()) + 1
            transactions = moved
            if not commit.is_compaction:
                commit.check_rollback(self.location, self._rollback(table))
                transactions = [*moved, Transaction(NEWEST_LOAD, version)]
            properties = CommitProperties(
                custom_metadata=commit.describe(known), app_transactions=transactions, max_commit_retries=0
            )
            error = _write(table, commit, self._removals(table, commit), properties)
            if error is None:
                return CommitResult(version, self._sync_log(version))
            if self._is_version_of(version, commit.load_id):
                note = f"version {version} was committed, but what Delta does after that failed: {_words(error)}"
                return CommitResult(version, self._sync_log(version) or note)
            if not isinstance(error, CommitFailedError):
                self._raise_failed(error)
            # another commit came first: check again whether the plan holds
        raise too_many_commits(self.location)

    def files(self) -> list[str]:
        """Refused for a table with deletion vectors or column mapping, which the plain files would ignore."""
        table = self._open()
        self._require_plain_files(table)
        return [self._store.locate(self._data_path(address)) for address in _addresses(table)]

    def data_files(self) -> list[DataFile]:
        table = self._open()
        self._require_plain_files(table)
        actions = whole_table(table.get_add_actions())
        times = actions.column("modification_time").cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
        return [self._data_file(row, time) for row, time in zip(actions.to_pylist(), times, strict=True)]

    def named_files(self) -> set[str]:
        """Files named by the newest version, or by any older one whose commit is still in the log.

        That includes every file of a load that just ended, even if it was compacted or deleted since.
        """
        found = {self._data_path(address) for address in _addresses(self._open())}
        try:
            commits = [file.path for file in self._store.files(LOG) if _COMMIT.fullmatch(file.name)]
            with ThreadPoolExecutor(LOOK_UPS) as pool:
                for content in pool.map(self._store.read, commits):
                    adds = (action["add"] for action in _actions(content) if "add" in action)
                    found |= {self._data_path(add["path"]) for add in adds}
        except (OSError, ValueError) as error:
            raise OperatorError(f"the log of the table {self.location} can't be read: {os_reason(error)}") from error
        return found

    def schema(self) -> pa.Schema:
        return pa.schema(self._open().schema())

    def widen(self, schema: pa.Schema) -> pa.Schema:
        """Columns and fields of structs can be added; a type stays, since delta-rs doesn't write tables with Delta's
        type widening."""
        for _ in range(COMMIT_ATTEMPTS):
            table = self._open()
            found = pa.schema(table.schema())
            grown = grown_columns(self.location, found, schema)
            if not grown:
                return found
            try:
                table.alter.add_columns(list(Schema.from_arrow(pa.schema(grown)).fields))
                self._store.sync(_commit_file(int(table.version())))
            except CommitFailedError:
                continue  # another commit came first
            except (OSError, DeltaError) as error:
                raise OperatorError(f"the table {self.location} can't take new columns: {_words(error)}") from error
            return self.schema()
        raise too_many_commits(self.location, "take new columns")

    def compact(self, target_bytes: int, load_id: str, before_commit: Callable[[], None]) -> None:
        """Does not use delta-rs, whose files have no load id in their names and are not synced."""
        table = self._open()
        require_compactable(self.location, table)
        compact_groups(self, group_small_files(self.data_files(), target_bytes), load_id, before_commit)

    def expire(self, before_ms: int, *, dry_run: bool = False) -> set[str]:
        """Only lists the files that Delta's own vacuum selects: Delta's log expires versions on its own."""
        hours = max(math.ceil((time.time() * 1000 - before_ms) / 3_600_000 - 0.01), 0)
        try:
            found = self._open().vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        except DeltaError as error:
            raise OperatorError(f"the table {self.location} could not be vacuumed: {_words(error)}") from error
        return {self._data_path(address) for address in found}

    def version(self) -> int:
        return int(self._open().version())

    @property
    def _options(self) -> dict[str, str] | None:
        """Options of the object store for delta-rs."""
        return {**self._store.settings, **CONDITIONAL_PUT} if self._store.is_remote else None

    def _raise_failed(self, error: Exception) -> NoReturn:
        """Report a commit that is not in the log: locally it can't appear later, in an object store it can."""
        if self._store.is_remote:
            raise UnknownCommitError(
                f"{self.location} did not report whether the load was committed: {_words(error)}; the next load "
                "checks it"
            ) from error
        raise OperatorError(f"the table {self.location} could not be committed: {_words(error)}") from error

    def _is_version_of(self, version: int, load_id: str) -> bool:
        """True when the commit of that version exists and is that load's.

        Raises UnknownCommitError where the log can't be read.
        """
        try:
            actions = _actions(self._store.read(_commit_file(version)))
            return any(action.get("commitInfo", {}).get(LOAD_KEY) == load_id for action in actions)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise UnknownCommitError(
                f"the table {self.location} can't be read to see whether version {version} was committed: "
                f"{os_reason(error)}; the next load checks it"
            ) from error

    def _data_path(self, address: str) -> str:
        """The path in the store of a file that the log names: a percent-encoded path below the table, or a URI."""
        if address.startswith("file:"):
            address = urlsplit(address).path
        path = self._store.relative(os.fsdecode(unquote_to_bytes(address)))
        if "://" in path or (self._store.is_remote and path.startswith("/")):
            raise OperatorError(
                f"the table {self.location} names a file outside its directory: {path}; load into another table"
            )
        return path

    def _open(self) -> Any:
        try:
            return DeltaTable(self.location, storage_options=self._options)
        except TableNotFoundError as error:
            raise OperatorError(
                f"no Delta table found in {self.location}; `ottla pipeline load` creates one"
            ) from error
        except (OSError, DeltaError) as error:
            raise OperatorError(f"the Delta table in {self.location} can't be read: {_words(error)}") from error

    def _check(self, table: Any, schema: pa.Schema) -> None:
        check_schema(self.location, pa.schema(table.schema()), schema)
        require_writable(self.location, table)

    def _require_plain_files(self, table: Any) -> None:
        """Raise OperatorError for a table whose rows can't be read from its files alone."""
        self._require_whole_files(table)
        if table.metadata().configuration.get(MAPPING_MODE, "none") != "none":
            raise OperatorError(
                f"the table {self.location} has column mapping ({MAPPING_MODE}), so that its files have other names "
                "for its columns: write its rows into a table without it first"
            )

    def _require_whole_files(self, table: Any) -> None:
        """Raise OperatorError for a table with deletion vectors."""
        features = table.protocol().reader_features or []
        if "deletionVectors" in features and len(whole_table(table.deletion_vectors().read_all())):
            raise OperatorError(
                f"the table {self.location} has deletion vectors, which reading by its files would ignore: purge them "
                "with the engine that wrote the table (REORG TABLE ... APPLY (PURGE))"
            )

    def _data_file(self, row: Mapping[str, Any], modified_ms: int) -> DataFile:
        """A file of a version, from its row there; without its statistics."""
        path = self._data_path(row["path"])
        return DataFile(path, row["size_bytes"], row["num_records"] or 0, modified_ms, {}, _partition_texts(row))

    def _removals(self, table: Any, commit: TableCommit) -> list[RemoveAction]:
        """Raises StaleCommitError when one of them is no longer in that version, OperatorError when rows were
        deleted from them since they were read."""
        if not commit.removed:
            return []
        self._require_whole_files(table)
        rows = whole_table(table.get_add_actions()).to_pylist()
        found = {self._store.locate(self._data_path(row["path"])): row for row in rows}
        commit.check_removed(found)
        return [_removal(found[path], data_change=not commit.is_compaction) for path in commit.removed]

    def _sync_log(self, version: int) -> str:
        """Make a commit durable, which delta-rs leaves to the operating system; returns why that failed, or nothing."""
        try:
            self._store.sync(_commit_file(version))
        except OSError as error:
            return f"version {version} was committed, but may not survive a power failure: {os_reason(error)}"
        return ""


def _known_topics(table: Any) -> KnownTopics:
    """From the newest commit that contains them."""
    newest: dict[str, Any] = next((commit for commit in table.history(LOADS_LIMIT) if TOPICS_KEY in commit), {})
    return KnownTopics(json_object(newest.get(TOPICS_KEY)), json_object(newest.get(CLUSTERS_KEY)))


def _write(
    table: Any, commit: TableCommit, removals: Sequence[RemoveAction], properties: CommitProperties
) -> Exception | None:
    """Try to commit; returns the error, which does not show whether the commit happened."""
    schema = pa.schema(table.schema())
    actions = [*(_addition(file, schema, data_change=not commit.is_compaction) for file in commit.files), *removals]
    partition_by = list(table.metadata().partition_columns) or None
    try:
        table.create_write_transaction(
            actions, "append", table.schema(), partition_by=partition_by, commit_properties=properties
        )
    except Exception as error:  # of any class, including those of the checkpoint
        return error
    return None


def _addition(file: DataFile, schema: pa.Schema, *, data_change: bool) -> AddAction:
    values, stats = file.partition_values, _stats(file, schema)
    return AddAction(file.path, file.size_bytes, values, file.modified_ms, data_change, stats)


def _removal(found: Mapping[str, Any], *, data_change: bool) -> RemoveAction:
    """The action that takes a file out, from its row among the table's files."""
    path = unquote(found["path"])  # delta-rs encodes it again
    return RemoveAction(path, data_change, int(time.time() * 1000), found["size_bytes"], _partition_texts(found))


def _partition_texts(found: Mapping[str, Any]) -> dict[str, str | None]:
    """The values of a file's partition, from its row among the table's files."""
    return {name: pa.scalar(value).cast(pa.string()).as_py() for name, value in (found.get("partition") or {}).items()}


def _stats(file: DataFile, schema: pa.Schema) -> str:
    """Delta's statistics of a file, in JSON."""
    bounds = {name: column for name, column in file.columns.items() if _is_bounded(schema.field(name).type, column)}
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {name: _bound(schema.field(name).type, column.lower) for name, column in bounds.items()},
            "maxValues": {
                name: _bound(schema.field(name).type, column.upper, up=True) for name, column in bounds.items()
            },
            "nullCount": {
                name: column.nulls
                for name, column in file.columns.items()
                if not pa.types.is_struct(schema.field(name).type)  # Delta counts in their fields
            },
        }
    )


def _is_bounded(kind: Any, column: ColumnStatistics) -> bool:
    """True if the extremes can be written as JSON: years outside 1 to 9999, which Spark results may contain, have no
    text."""
    try:
        return _bound(kind, column.lower) is not None and _bound(kind, column.upper, up=True) is not None
    except OverflowError:
        return False


def _bound(kind: Any, value: int | None, *, up: bool = False) -> int | str | None:
    """A number as JSON has it; dates and times as text, times in whole milliseconds, the greatest rounded up."""
    if value is None:
        return None
    if pa.types.is_date(kind):
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if not pa.types.is_timestamp(kind):
        return value
    milliseconds = -(-value // 1000) if up else value // 1000
    instant = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    text = instant.isoformat(timespec="milliseconds").removesuffix("+00:00")
    return f"{text}Z" if kind.tz else text


def _words(error: Exception) -> str:
    """An error of delta-rs in one line: without colours, the marks of its causes, and the frames of a backtrace."""
    lines = [_DECORATION.sub("", line).strip() for line in str(error).splitlines()]
    shown = itertools.takewhile(lambda line: not _BACKTRACE.match(line), lines)
    return ": ".join(line.rstrip(".:") for line in shown if line) or type(error).__name__


def _addresses(table: Any) -> list[str]:
    """The data files of one version as its log names them."""
    addresses: list[str] = whole_table(table.get_add_actions()).column("path").to_pylist()
    return addresses


def _commit_file(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def _actions(commit: bytes) -> Iterator[dict[str, Any]]:
    """The actions of one commit; raises ValueError."""
    return (json.loads(line) for line in commit.splitlines() if line.strip())
