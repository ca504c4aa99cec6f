"""Interface of a lake table of any format for a load: files and offsets in one commit.

The table is the source of truth for the progress of its topics: it stores a next offset for each application id (one a
pipeline and partition, see `ottla.pipeline.model.plan`), and moves it in the commit that adds the rows.

**Guarantees of every format:** a commit adds files only together with their offsets; it succeeds only if every
application id that it moves is still at its planned offset, regardless of commits in between and of when this committer
opened the table; whether a commit happened is never inferred from an error but looked up by the id of its load; offsets
survive compaction, vacuum and the expiry of old versions; commits of others in between only lead to another check.
`tests/pipeline/sinks/test_formats.py` tests each format for this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from ottla.common.errors import OperatorError, OttlaError
from ottla.common.runbooks import LOAD_REFUSED
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import KnownTopics
from ottla.pipeline.model.rollback import LoadRefusedError, Rollback
from ottla.pipeline.stores.open_store import open_store
from ottla.pipeline.stores.store import Store

LOADS_LIMIT = 100
"""Commits that are searched for past loads and the topics that they read."""
COMMIT_ATTEMPTS = 20
"""Maximum number of commits of others that may come first before a commit gives up."""
DEAD_LETTER_DIRECTORY = "_dead_letters"
LOOK_UPS = 16
"""Number of concurrent look-ups of files."""

RANGES_KEY = "ottla.ranges"
TOPICS_KEY = "ottla.topics"
CLUSTERS_KEY = "ottla.clusters"
PIPELINE_KEY = "ottla.pipeline"
ROWS_KEY = "ottla.rows"
FILES_KEY = "ottla.files"
LOAD_KEY = "ottla.load"


class StaleCommitError(OttlaError):
    """Another load moved the same partitions since this one planned; nothing of this one was committed."""

    runbook = LOAD_REFUSED


class UnknownCommitError(OttlaError):
    """The outcome of a commit is unknown: its files have to stay, and the next load checks it."""

    runbook = LOAD_REFUSED


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one column of a file; `lower` and `upper` in Arrow's own numbers (a timestamp: its unit from the
    epoch), both None without any value or where no extremes are stored."""

    nulls: int
    lower: int | None = None
    upper: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One complete Parquet file; `path` is relative to the table, `modified_ms` from the epoch."""

    path: str
    size_bytes: int
    rows: int
    modified_ms: int
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    partition_values: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> DataFile:
        """The inverse of `dataclasses.asdict`."""
        columns = {name: ColumnStatistics(**values) for name, values in found["columns"].items()}
        return cls(**{**found, "columns": columns})


def files_to_json(files: Iterable[DataFile]) -> str:
    """JSON of files in a manifest row from a worker to the driver."""
    return json.dumps([asdict(file) for file in files])


def files_from_json(text: str) -> list[DataFile]:
    """The inverse of `files_to_json`; an empty text means no files."""
    return [DataFile.from_dict(found) for found in json.loads(text or "[]")]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Location and format of a table's data files; sent to the workers."""

    directory: str
    """An absolute path, or a URL; `DataFile.path` is relative to it."""
    subdirectory: str = ""
    """Directory of the data files within it."""
    partition_columns: tuple[str, ...] = ()
    """Columns whose values are in the path of a file."""
    partitions_in_files: bool = False
    """True where the partition columns are in the files as well."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the store, so that workers reach it as the driver does."""

    @property
    def store(self) -> Store:
        """The store of the directory."""
        return open_store(self.directory, self.settings)


@dataclass(frozen=True, slots=True)
class TableCommit:
    """Changes of one commit to a table; a compaction names no pipeline and moves no offset."""

    load_id: str
    """Unique id of this commit."""
    files: Sequence[DataFile] = ()
    removed: Collection[str] = ()
    """Absolute paths of files to remove, as `Table.files()` returns them."""
    expected: Mapping[str, int | None] = field(default_factory=dict)
    """Application id -> the next offset that the plan found, None at its first load."""
    following: Mapping[str, int] = field(default_factory=dict)
    """Application id -> its next offset from now on."""
    pipeline_id: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic name -> id."""
    cluster_id: str = ""
    """Id of the cluster of these topics, empty where it is unknown."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """`topic/partition` -> offsets [start, end), for people."""
    is_compaction: bool = False
    """True where the added files contain the rows of the removed ones, and nothing else."""
    accepted_rollback: Rollback | None = None
    """The rollback that an operator accepts."""

    @property
    def topic_clusters(self) -> dict[str, str]:
        """Topic name -> id of its cluster; empty if it is unknown."""
        return dict.fromkeys(self.topic_ids, self.cluster_id) if self.cluster_id else {}

    @property
    def rows(self) -> int:
        """Number of rows in the added files."""
        return sum(file.rows for file in self.files)

    def check_expected(self, found: Mapping[str, int | None]) -> None:
        """Raise StaleCommitError unless each application id is at the offset that the plan found."""
        for name, offset in self.expected.items():
            if found[name] != offset:
                raise StaleCommitError(
                    f"another load moved {name} from {_offset_text(offset)} to {_offset_text(found[name])} in the "
                    "meantime; nothing of this load was committed, run it again"
                )

    def check_rollback(self, location: str, found: Rollback | None) -> None:
        """Raise RolledBackError where the newest version was rolled back, unless exactly that was accepted."""
        if found is not None and found != self.accepted_rollback:
            raise found.refusal(location)

    def check_clusters(self, known: KnownTopics) -> None:
        """Raise StaleCommitError where the newest version has a topic of the same name of another cluster."""
        for name, cluster_id in self.topic_clusters.items():
            found = known.clusters.get(name, cluster_id)
            if found != cluster_id:
                raise StaleCommitError(
                    f"another load added topic {name!r} of cluster {found} in the meantime, but this one reads cluster "
                    f"{cluster_id}; nothing of it was committed, load it into another table"
                )

    def check_removed(self, found: Collection[str]) -> None:
        """Raise StaleCommitError unless each file to remove is one of `found`, absolute paths of the newest version."""
        gone = next((path for path in self.removed if path not in found), None)
        if gone is not None:
            raise StaleCommitError(
                f"another load or a compaction removed the file {gone} from the table in the meantime; nothing of this "
                "load was committed, run it again"
            )

    def describe(self, known: KnownTopics) -> dict[str, str]:
        """Metadata of the commit, for formats that store such; includes the topics known before."""
        return {
            LOAD_KEY: self.load_id,
            PIPELINE_KEY: self.pipeline_id,
            ROWS_KEY: str(self.rows),
            FILES_KEY: str(len(self.files)),
            RANGES_KEY: json.dumps(self.ranges),
            TOPICS_KEY: json.dumps({**known.ids, **self.topic_ids}, sort_keys=True),
            CLUSTERS_KEY: json.dumps({**known.clusters, **self.topic_clusters}, sort_keys=True),
        }


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit that happened; `note` describes a failure after it, and is empty otherwise."""

    version: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class PastLoad:
    """A load in the history of a table; `time_ms` from the epoch is that of its commit."""

    time_ms: int
    pipeline_id: str
    rows: int
    files: int | None
    """Added files; None for a load of a release that did not store their number."""


def stored_count(text: object) -> int | None:
    """A number in the metadata of a commit; None if it has none."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


class Table(Protocol):
    """A lake table; created by the first load."""

    @property
    def format(self) -> str:
        """One of `TABLE_FORMATS`."""

    @property
    def location(self) -> str:
        """The name of the table for people: its directory, or its name in a catalog."""

    @property
    def name(self) -> str:
        """The last part of the location, also the name of its view."""

    def exists(self) -> bool:
        """True if the table was created. Raises OperatorError if the store can't be read."""

    def ensure(self, schema: pa.Schema) -> FileLayout:
        """Create the table unless it exists; returns how its files are written.

        Raises OperatorError if it can't be created, lacks a column of `schema`, or has settings that would lose
        offsets.
        """

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]:
        """The next offset of each application id, None for one that never loaded (or without a table)."""

    def rollback(self) -> Rollback | None:
        """A mismatch of rows and offsets in the newest version, as after it was reverted to an older one; None without
        one. Raises OperatorError if the table can't be read."""

    def known_topics(self) -> KnownTopics:
        """The topics that were loaded, as far as the table has a history."""

    def loads(self) -> list[PastLoad]:
        """The newest loads, the last one first, as far as the table has a history; without compactions."""

    def commit(self, commit: TableCommit) -> CommitResult:
        """Add files, remove others, and move each application id to its next offset, all or nothing.

        Raises StaleCommitError when an id is no longer at its expected offset or a file to remove is gone,
        OperatorError on other failures; nothing was committed then. UnknownCommitError: it may have been.
        """

    def files(self) -> list[str]:
        """Absolute paths or URLs of the data files of the newest version, for readers without a library of the format.

        Raises OperatorError if there is no table or its rows can't be read from its files alone.
        """

    def data_files(self) -> list[DataFile]:
        """The same files with the values of their partitions, without their statistics."""

    def named_files(self) -> set[str]:
        """Files of every readable version, by their paths in the table's store.

        Raises OperatorError if the table can't be read.
        """

    def layout(self) -> FileLayout:
        """The layout of the table's files, or of those of a new table. Raises OperatorError."""

    def schema(self) -> pa.Schema:
        """The columns of the newest version."""

    def widen(self, schema: pa.Schema) -> pa.Schema:
        """Give the table the columns of `schema` that it lacks, and wider types where the format has them.

        Returns the new schema. Raises OperatorError when a type can't be widened; nothing was changed then.
        """

    def version(self) -> int:
        """The newest version of the table; rises with each commit. Raises OperatorError without a table."""

    def compact(self, target_bytes: int, load_id: str, before_commit: Callable[[], None]) -> None:
        """Merge small files of a partition into files of about `target_bytes`; no offset moves.

        `before_commit` is called after the large files are written, and aborts the compaction by raising. Raises
        StaleCommitError when another writer removed one of the small files, OperatorError; nothing was changed then.
        """

    def expire(self, before_ms: int, *, dry_run: bool = False) -> set[str]:
        """Expire versions that were replaced before that time, which removes no data file.

        Returns the files in the table's store, written before that time, that no version names any more.
        With `dry_run` no version expires, and files that would only become unnamed by that are not returned. Raises
        OperatorError.
        """

    def dead_letters(self) -> Table:
        """The table of records that this one can't store, in a directory that readers and vacuums of this one skip."""


def require_no_rollback(table: Table) -> None:
    """Raise RolledBackError where rows and offsets of a table do not match."""
    found = table.rollback()
    if found is not None:
        raise found.refusal(table.location)


def stored_schema(table_format: str, schema: pa.Schema) -> pa.Schema:
    """The columns as a table of that format has them: Iceberg has no integers of less than 32 bits."""
    if table_format != "iceberg":
        return schema
    return pa.schema([column.with_type(_without_small_integers(column.type)) for column in schema])


def _without_small_integers(kind: Any) -> Any:
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_small_integers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_without_small_integers(kind.key_type), _without_small_integers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_without_small_integers(part.type)) for part in kind])
    return kind


def check_schema(location: str, found: pa.Schema, wanted: pa.Schema) -> None:
    """Raise OperatorError unless the table has all columns that a load writes."""
    for column in wanted:
        position = found.get_field_index(column.name)
        if position < 0 or not same_type(found.field(position).type, column.type):
            raise OperatorError(
                f"the table {location} lacks the column {column.name!r} of type {column.type}: it was not created by "
                "`ottla pipeline load`; choose another directory"
            )


def grown_columns(location: str, found: pa.Schema, wanted: pa.Schema) -> list[pa.Field]:
    """The columns that a table has to be given, new ones or ones with more fields in a struct.

    Raises OperatorError for a column of another type.
    """
    for column in wanted:
        position = found.get_field_index(column.name)
        if position >= 0 and not only_adds(found.field(position).type, column.type):
            raise LoadRefusedError(
                f"the column {column.name!r} of the table {location} has the type {found.field(position).type}, which "
                f"this format can't widen to {column.type}"
            )
    types = {column.name: column.type for column in found}  # pyarrow builds its list of names again at each use
    return [
        column.with_nullable(True)
        for column in wanted
        if column.name not in types or not same_type(types[column.name], column.type)
    ]


def too_many_commits(location: str, wanted: str = "be committed") -> OperatorError:
    """Error of a commit that lost the race against others in each attempt."""
    return LoadRefusedError(
        f"the table {location} could not {wanted}: {COMMIT_ATTEMPTS} other commits came first; try again"
    )


def require_files(store: Store, files: Sequence[DataFile]) -> None:
    """Raise OperatorError unless all files exist with their size: a table that names missing files can't be read."""
    try:
        with ThreadPoolExecutor(LOOK_UPS) as pool:  # an object store takes a while for each
            sizes = list(pool.map(partial(_size, store), [file.path for file in files]))
    except OSError as error:
        raise OperatorError(
            f"nothing was committed: its files in {store.location} can't be checked: {os_reason(error)}; fix the cause "
            "and run the load again"
        ) from error
    missing = [file.path for file, size in zip(files, sizes, strict=True) if size != file.size_bytes]
    if missing:
        raise OperatorError(
            f"nothing was committed: {len(missing)} files that the workers wrote are not in {store.location} on "
            f"this machine, {missing[0]} for one; use a table directory that is shared by all machines, and a vacuum "
            "retention longer than a load, such as Delta's 7 days"
        )


def same_type(found: Any, wanted: Any) -> bool:
    """Types of Arrow: equal except for the names of list elements, and the nullability of these and of the values of
    maps, on which writers differ."""
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(found)
            and same_type(found.key_type, wanted.key_type)
            and same_type(found.item_type, wanted.item_type)
        )
    if pa.types.is_list(wanted):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and same_type(
            found.value_type, wanted.value_type
        )
    if pa.types.is_struct(wanted):
        return pa.types.is_struct(found) and all(
            found.get_field_index(part.name) >= 0 and same_type(found.field(part.name).type, part.type)
            for part in wanted
        )
    return bool(found.equals(wanted))


def only_adds(found: Any, wanted: Any) -> bool:
    """The same type except for new fields of structs."""
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(found)
            and same_type(found.key_type, wanted.key_type)
            and only_adds(found.item_type, wanted.item_type)
        )
    if pa.types.is_list(wanted):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and only_adds(
            found.value_type, wanted.value_type
        )
    if pa.types.is_struct(wanted):
        return pa.types.is_struct(found) and all(
            found.get_field_index(part.name) < 0 or only_adds(found.field(part.name).type, part.type) for part in wanted
        )
    return bool(found.equals(wanted))


def json_object(text: Any) -> dict[str, str]:
    """The value of a key in a table's metadata; empty if it is not an object."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _size(store: Store, path: str) -> int:
    """The file's size in bytes, -1 without one."""
    found = store.find(path)
    return -1 if found is None else found.size_bytes


def _offset_text(offset: int | None) -> str:
    return "the start" if offset is None else f"offset {offset}"
