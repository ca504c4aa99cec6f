"""Delta Lake: data files and offsets in one commit.

Each topic partition is a Delta application transaction (`txn` action): its app id names pipeline, topic id and
partition, its version is the next offset. The commit's own metadata repeats the ranges in readable form
(`ottla.ranges`, `ottla.topics`, `ottla.pipeline`).

**Invariants:** a commit carries files only together with the offsets behind them; it succeeds only if every partition
it moves is still where its plan found it. That is checked against one snapshot, and the commit is allowed for the
version right after that snapshot alone (no retries inside delta-rs), so a second loader with an older plan is refused
however the two interleave. Commits of others in between only lead to another look. Whether a commit happened is never
taken from an error (delta-rs raises also when the checkpoint after it fails): each carries the id of its load, by which
it is looked up in the log.

Every reader of Delta can read the table. The log names files by percent-encoded addresses; only `_data_path` turns one
into a path. Left out: object stores (paths are local), compaction and vacuum (files of interrupted loads are
unreferenced and stay until then; so are those of a load that runs, so a vacuum's retention has to be longer than any
load, as Delta's seven days are), change of an existing table's partition columns.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.decode import DEAD_LETTER_SCHEMA, SCHEMA

RANGES_KEY = "ottla.ranges"
TOPICS_KEY = "ottla.topics"
PIPELINE_KEY = "ottla.pipeline"
ROWS_KEY = "ottla.rows"
LOAD_KEY = "ottla.load"

COMMIT_ATTEMPTS = 20
"""How often other writers may come in between before a commit gives up."""
HISTORY_LIMIT = 100
"""Commits that are searched for the newest topic ids."""
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
PARTITION_COLUMNS = ("topic", "partition")
DEAD_LETTER_DIRECTORY = "_dead_letters"
UNUSABLE_IN_PATHS = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]|[\ud800-\udfff]")
"""delta-rs decodes an escape twice and takes a backslash for a slash, so that it would open another directory; it
refuses control characters and what is no UTF-8."""

_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
_BACKTRACE = re.compile(r"\d+: ")


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


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that happened; `note` says what failed after it, and is empty otherwise."""

    version: int
    note: str = ""


class DeltaTarget:
    """A Delta table in a local directory, made on the first load."""

    def __init__(
        self, path: str | os.PathLike[str], partition_by: Sequence[str] = (), schema: pa.Schema = SCHEMA
    ) -> None:
        """`partition_by` takes effect when the table is made: any of PARTITION_COLUMNS. `schema`: what it has to hold.

        Raises OperatorError for other columns, and for a path that delta-rs can't open.
        """
        unknown = [name for name in partition_by if name not in PARTITION_COLUMNS]
        if unknown:
            raise OperatorError(
                f"a table can be partitioned by {' and '.join(PARTITION_COLUMNS)}, not by {unknown[0]!r}"
            )
        self.path = Path(path).absolute()
        unusable = UNUSABLE_IN_PATHS.search(os.path.realpath(self.path))  # links are followed by delta-rs as well
        if unusable:
            raise OperatorError(
                f"no table can be kept in {str(self.path)!r}, since {unusable[0]!r} in a path leads the Delta library "
                "elsewhere; choose a directory without it"
            )
        self._partition_by = list(partition_by)
        self._schema = schema

    def dead_letters(self) -> DeltaTarget:
        """The table of records that this one can't hold. Its directory is one that readers and vacuums leave out."""
        return DeltaTarget(self.path / DEAD_LETTER_DIRECTORY, schema=DEAD_LETTER_SCHEMA)

    def exists(self) -> bool:
        """True when the directory holds a Delta table."""
        return self.path.is_dir() and bool(DeltaTable.is_deltatable(str(self.path)))

    def ensure(self) -> list[str]:
        """Make the table unless it is there; returns its partition columns. Raises OperatorError if it can't serve."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.exists():
                self._create()
        except (OSError, DeltaError) as error:
            raise OperatorError(f"the table directory {self.path} can't be made: {_words(error)}") from error
        table = self._open()
        self._check(table)
        return list(table.metadata().partition_columns)

    def _create(self) -> None:
        try:
            DeltaTable.create(str(self.path), self._schema, mode="ignore", partition_by=self._partition_by or None)
        except DeltaError:
            if not self.exists():  # else another load made it in the same moment, or only what came after failed
                raise

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
        load_id: str,
        pipeline_id: str,
        topic_ids: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
    ) -> Committed:
        """Add `files` and move each application id from `expected` to `following`, all or nothing.

        `load_id` tells this commit from all others. Raises StaleCommitError when an id is not at its expected offset
        any more, OperatorError on other failures; in both cases nothing was committed.
        """
        self._require_files(files)
        metadata = {
            LOAD_KEY: load_id,
            PIPELINE_KEY: pipeline_id,
            ROWS_KEY: str(sum(file.rows for file in files)),
            RANGES_KEY: json.dumps(ranges),
            TOPICS_KEY: json.dumps({**self.known_topic_ids(), **topic_ids}, sort_keys=True),
        }
        properties = CommitProperties(
            custom_metadata=metadata,
            app_transactions=[Transaction(name, offset) for name, offset in following.items()],
            max_commit_retries=0,
        )
        for _ in range(COMMIT_ATTEMPTS):
            table = self._open()
            self._check_expected(table, expected)
            version = int(table.version()) + 1
            error = _write(table, files, properties)
            if error is None:
                return Committed(version, self._sync_log(version))
            if self._is_version_of(version, load_id):
                note = f"version {version} was committed, but what Delta does after that failed: {_words(error)}"
                return Committed(version, self._sync_log(version) or note)
            if not isinstance(error, CommitFailedError):
                raise OperatorError(f"the table {self.path} could not be committed: {_words(error)}") from error
            # someone was faster: look again whether the plan still holds
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
        return [str(self._data_path(address)) for address in _addresses(table)]

    def named_files(self) -> set[Path]:
        """Files that the newest version names, or any older one whose commit is still in the log.

        That covers every file of a load that just ended, whatever was compacted or deleted since. Raises OperatorError
        when the log can't be read.
        """
        found = {self._data_path(address) for address in _addresses(self._open())}
        try:
            for path in self._log.glob("[0-9]*.json"):
                found |= {self._data_path(action["add"]["path"]) for action in _actions(path) if "add" in action}
        except (OSError, ValueError) as error:
            raise OperatorError(f"the log of the table {self.path} can't be read: {error}") from error
        return found

    def partition_columns(self) -> list[str]:
        return list(self._open().metadata().partition_columns)

    def schema_json(self) -> str:
        """The columns as Delta and Spark write them (`StructType` in JSON)."""
        return str(self._open().schema().to_json())

    def version(self) -> int:
        """The newest version of the table."""
        return int(self._open().version())

    @property
    def _log(self) -> Path:
        return self.path / "_delta_log"

    def _commit_file(self, version: int) -> Path:
        return self._log / f"{version:020}.json"

    def _is_version_of(self, version: int, load_id: str) -> bool:
        """True when the commit of that version is there and was made by that load."""
        try:
            return any(
                action.get("commitInfo", {}).get(LOAD_KEY) == load_id for action in _actions(self._commit_file(version))
            )
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise OperatorError(
                f"the table {self.path} can't be read to see whether version {version} was committed: {error}; the "
                "next load finds out"
            ) from error

    def _data_path(self, address: str) -> Path:
        """Where a file lies that the log names: a percent-encoded path below the table, or a URI."""
        if address.startswith("file:"):
            address = urlsplit(address).path
        elif "://" in address:
            raise OperatorError(f"the table {self.path} holds a file that is not on this machine: {address}")
        return self.path / os.fsdecode(unquote_to_bytes(address))

    def _open(self) -> Any:
        try:
            return DeltaTable(str(self.path))
        except TableNotFoundError as error:
            raise OperatorError(f"there is no Delta table in {self.path}; `ottla pipeline load` makes one") from error
        except (OSError, DeltaError) as error:
            raise OperatorError(f"the Delta table in {self.path} can't be read: {_words(error)}") from error

    def _check(self, table: Any) -> None:
        found = pa.schema(table.schema())
        for column in self._schema:
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

    def _require_files(self, files: Sequence[DataFile]) -> None:
        """Raise OperatorError unless all are here as they were written: a table that names others can't be read."""
        missing = [file.path for file in files if _size(self.path / file.path) != file.size_bytes]
        if missing:
            raise OperatorError(
                f"nothing was committed: {len(missing)} files that Spark's workers wrote are not in {self.path} on "
                f"this machine, {missing[0]} for one; the table's directory has to be the same one on all machines, "
                "and a vacuum's retention longer than a load, as Delta's 7 days are"
            )

    def _check_expected(self, table: Any, expected: Mapping[str, int | None]) -> None:
        for name, offset in expected.items():
            current = table.transaction_version(name)
            if current != offset:
                raise StaleCommitError(
                    f"another load moved {name} from {_offset(offset)} to {_offset(current)} in the meantime; nothing "
                    "of this load was committed, run it again"
                )

    def _sync_log(self, version: int) -> str:
        """Make a commit durable, which delta-rs leaves to the operating system; returns why that failed, or nothing."""
        try:
            for path in (self._commit_file(version), self._log):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        except OSError as error:
            return f"version {version} was committed, but may not outlive a loss of power: {error}"
        return ""


def _write(table: Any, files: Sequence[DataFile], properties: CommitProperties) -> Exception | None:
    """Try to commit; returns the error, which does not tell whether the commit happened."""
    actions = [
        AddAction(file.path, file.size_bytes, file.partition_values, file.modified_ms, True, file.stats)
        for file in files
    ]
    partition_by = list(table.metadata().partition_columns) or None
    try:
        table.create_write_transaction(
            actions, "append", table.schema(), partition_by=partition_by, commit_properties=properties
        )
    except Exception as error:  # also those of the checkpoint, of any kind
        return error
    return None


def _size(path: Path) -> int:
    """The file's size in bytes, -1 without one."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _words(error: Exception) -> str:
    """An error of delta-rs in one line: without colours, the marks of its causes, and the frames of a backtrace."""
    lines = [_DECORATION.sub("", line).strip() for line in str(error).splitlines()]
    told = itertools.takewhile(lambda line: not _BACKTRACE.match(line), lines)
    return ": ".join(line.rstrip(".:") for line in told if line) or type(error).__name__


def _addresses(table: Any) -> list[str]:
    """The data files of one version as its log names them."""
    addresses: list[str] = pa.table(table.get_add_actions()).column("path").to_pylist()
    return addresses


def _actions(path: Path) -> Iterator[dict[str, Any]]:
    """The actions of one commit; raises OSError, ValueError."""
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


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
