"""Apache Iceberg: data files and offsets in one commit of a catalog.

The next offset of each application id is a property of the table (`ottla.offset.ID`), set by the commit that adds the
snapshot, so it survives the expiry of snapshots and commits of others. The snapshot's summary repeats the ranges in
readable form (`ottla.ranges`, `ottla.topics`, `ottla.pipeline`). Without a catalog URL the table's directory contains
an SQLite catalog `catalog.db` (catalog `ottla`, table `ottla.records`). A REST catalog is named by its URL, and chooses
the location of its tables, in object stores as well.

**Invariants:** each commit creates a snapshot on top of the one whose offsets were checked, which the catalog enforces
(`assert-ref-snapshot-id`), and pyiceberg tries only once: with its own retries it would put the same files on top of
any commit in between (`commit.retry.num-retries` has to be 0, here and in an existing table). So a second loader with
an older plan is refused in any interleaving. Whether a commit happened is never inferred from an error: the snapshots
are searched for the id of the load, and where a catalog can't answer, the files stay.

Data files have no field ids; the table's name mapping gives them (`schema.name-mapping.default`), so other engines read
them by the names of their columns. Not supported: tables with delete files or renamed
columns (not readable by their files), views, change of an existing table's partition columns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import partition_to_py, to_bytes
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, PrimitiveType
from pyiceberg.utils.datetime import date_str_to_days
from sqlalchemy import URL

from ottla.common.errors import OperatorError
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import KnownTopics
from ottla.pipeline.model.rollback import Rollback
from ottla.pipeline.sinks.own_directory import require_own_directory
from ottla.pipeline.sinks.rest_catalog import open_rest_catalog, words
from ottla.pipeline.sinks.rewrite import compact_groups, group_small_files
from ottla.pipeline.sinks.synced_files import SyncedFileIO, local_path
from ottla.pipeline.sinks.table import (
    CLUSTERS_KEY,
    COMMIT_ATTEMPTS,
    DEAD_LETTER_DIRECTORY,
    FILES_KEY,
    LOAD_KEY,
    LOADS_LIMIT,
    PIPELINE_KEY,
    ROWS_KEY,
    TOPICS_KEY,
    CommitResult,
    DataFile,
    FileLayout,
    PastLoad,
    TableCommit,
    UnknownCommitError,
    check_schema,
    json_object,
    require_files,
    same_type,
    stored_count,
    too_many_commits,
)
from ottla.pipeline.stores.local_store import LocalStore
from ottla.pipeline.stores.locations import is_url
from ottla.pipeline.stores.object_store import settings_from_environment
from ottla.pipeline.stores.open_store import open_store
from ottla.pipeline.stores.store import Store

OFFSET_PREFIX = "ottla.offset."
SEQUENCE_KEY = "ottla.sequence"
"""Property with the sequence number of the newest load's snapshot; it survives the expiry of that snapshot."""
RETRIES_KEY = "commit.retry.num-retries"

CATALOG_FILE = "catalog.db"
_OF_A_CATALOG = (CATALOG_FILE, f"{CATALOG_FILE}-journal", "metadata")
"""Files that a load leaves if it is killed while it creates a table."""
CATALOG_NAME = "ottla"
TABLE_NAME = "ottla.records"
DATA_DIRECTORY = "data/"
BUSY_TIMEOUT_S = 30
"""Seconds that a commit waits for another that has the SQLite catalog locked."""
PROPERTIES = {
    RETRIES_KEY: "0",
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
UNUSABLE_IN_PATHS = re.compile(r"[\x00-\x1f\x7f]|[\ud800-\udfff]")
"""SQLite and metadata files hold text."""

_VACUUMED = re.compile(r"data/.*\.parquet|metadata/[^/]*\.(avro|metadata\.json)")
"""File names that a vacuum may remove; others (statistics of other engines) stay."""
S3_PROPERTIES = {
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "aws_region": "s3.region",
    "aws_endpoint": "s3.endpoint",
}
"""Iceberg's names for the settings of a store; a catalog can override them for a table."""

_REFUSED = (BadRequestError, ForbiddenError, UnauthorizedError, NoSuchTableError)
"""Errors of a REST catalog that mean that the request had no effect."""


class IcebergTarget:
    """An Iceberg table: in a local directory that also contains its catalog, or in a REST catalog."""

    format = "iceberg"

    def __init__(
        self, location: str | os.PathLike[str], partition_by: Sequence[str] = (), catalog_url: str | None = None
    ) -> None:
        """`location`: a directory, or with `catalog_url` a name such as `lake.clicks`.

        `partition_by` takes effect when the table is created: columns of the schema. Raises OperatorError.
        """
        self._partition_by = tuple(partition_by)
        self._url = catalog_url
        self._catalog: Catalog | None = None
        self._beside: IcebergTarget | None = None
        if catalog_url is None:
            self.path = Path(location).absolute()
            self._identifier = TABLE_NAME
            unusable = UNUSABLE_IN_PATHS.search(str(self.path))
            if unusable:
                raise OperatorError(
                    f"the path {str(self.path)!r} of the table contains {unusable[0]!r}, which an Iceberg catalog "
                    "can't store; choose another directory"
                )
        else:
            self._identifier = os.fspath(location)
            if not re.fullmatch(r"[^./\s]+(\.[^./\s]+)+", self._identifier):
                raise OperatorError(
                    f"--table {self._identifier!r} is not a table name in a catalog; with --catalog use NAMESPACE.TABLE"
                )

    @property
    def location(self) -> str:
        return str(self.path) if self._url is None else self._identifier

    @property
    def name(self) -> str:
        return self.path.name if self._url is None else self._identifier.rpartition(".")[2]

    def dead_letters(self) -> IcebergTarget:
        if self._url is None:
            return IcebergTarget(self.path / DEAD_LETTER_DIRECTORY)
        letters = IcebergTarget(f"{self._identifier}{DEAD_LETTER_DIRECTORY}", catalog_url=self._url)
        letters._beside = self
        return letters

    def exists(self) -> bool:
        if self._url is None and not (self.path / CATALOG_FILE).is_file():
            return False
        with self._errors_wrapped("can't be looked up"):
            return bool(self._open_catalog().table_exists(self._identifier))

    def ensure(self, schema: pa.Schema) -> FileLayout:
        try:
            if self._url is None:
                self.path.mkdir(parents=True, exist_ok=True)
                if not self.exists():
                    self._require_own_directory()
        except OSError as error:
            raise OperatorError(f"the table directory {self.path} can't be created: {os_reason(error)}") from error
        if not self.exists():
            with self._errors_wrapped("can't be created"):
                self._create(schema)
        table = self._open()
        self._check(table, schema)
        return self._layout(table)

    def layout(self) -> FileLayout:
        if self.exists():
            return self._layout(self._open())
        return FileLayout(self._place() or "", DATA_DIRECTORY, self._partition_by, partitions_in_files=True)

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]:
        return self._offsets(self._open(), app_ids) if self.exists() else dict.fromkeys(app_ids)

    def rollback(self) -> Rollback | None:
        return _rollback(self._open()) if self.exists() else None

    def known_topics(self) -> KnownTopics:
        return _known_topics(self._open()) if self.exists() else KnownTopics()

    def loads(self) -> list[PastLoad]:
        snapshots = self._open().metadata.snapshots[-LOADS_LIMIT:] if self.exists() else []
        found = [(snapshot.timestamp_ms, snapshot.summary) for snapshot in reversed(snapshots)]
        return [
            PastLoad(time, pipeline_id, int(summary[ROWS_KEY] or 0), stored_count(summary.get(FILES_KEY)))
            for time, summary in found
            if summary and (pipeline_id := summary.get(PIPELINE_KEY))
        ]

    def commit(self, commit: TableCommit) -> CommitResult:
        for _ in range(COMMIT_ATTEMPTS):
            table = self._open()
            require_files(self._store(table), commit.files)
            self._check_settings(table)
            commit.check_expected(self._offsets(table, commit.expected))
            known = _known_topics(table)
            commit.check_clusters(known)
            if not commit.is_compaction:
                commit.check_rollback(self.location, _rollback(table))
            summary = commit.describe(known)
            properties = {f"{OFFSET_PREFIX}{name}": str(offset) for name, offset in commit.following.items()}
            properties |= {key: summary[key] for key in (TOPICS_KEY, CLUSTERS_KEY)}
            if not commit.is_compaction:
                properties[LOAD_KEY] = commit.load_id
                properties[SEQUENCE_KEY] = str(table.metadata.next_sequence_number())
            error = _write(table, commit.files, self._entries(table, commit), summary, properties)
            if error is None:
                return CommitResult(_version(table))
            snapshot = self._snapshot_of(commit.load_id, error)
            if snapshot is not None:
                version = snapshot.sequence_number or 0
                note = f"version {version} was committed, but a later step failed: {words(error)}"
                return CommitResult(version, note)
            if not isinstance(error, CommitFailedException):
                self._raise_failed(error)
            # another commit came first: check again whether the plan holds
        raise too_many_commits(self.location)

    def files(self) -> list[str]:
        """Refused for a table with delete files or renamed columns, which the plain files would ignore."""
        table = self._open()
        mapping = table.metadata.name_mapping()
        renamed = [field.names for field in mapping.root if field.names != _names_of(table, field)] if mapping else []
        if renamed:
            raise OperatorError(
                f"the table {self.location} has renamed columns ({renamed[0][0]!r}), which reading by its files ignores"
            )
        with self._errors_wrapped("can't be read"):
            tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise OperatorError(f"the table {self.location} has delete files, which reading by its files would ignore")
        store = self._store(table)
        return [store.locate(store.relative(_plain_location(task.file.file_path))) for task in tasks]

    def data_files(self) -> list[DataFile]:
        self.files()  # refuses delete files and renamed columns
        table = self._open()
        with self._errors_wrapped("can't be read"):
            return [_data_file(table, self._store(table), task.file) for task in table.scan().plan_files()]

    def named_files(self) -> set[str]:
        table = self._open()
        store = self._store(table)
        with self._errors_wrapped("can't be read"):
            manifests = {
                manifest.manifest_path: manifest
                for snapshot in table.metadata.snapshots
                for manifest in snapshot.manifests(table.io)
            }
            return {
                store.relative(_plain_location(entry.data_file.file_path))
                for manifest in manifests.values()
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            }

    def schema(self) -> pa.Schema:
        return _plain_schema(self._open().schema().as_arrow())

    def widen(self, schema: pa.Schema) -> pa.Schema:
        for _ in range(COMMIT_ATTEMPTS):
            table = self._open()
            found = _plain_schema(table.schema().as_arrow())
            types = {column.name: column.type for column in found}
            if all(one.name in types and same_type(types[one.name], one.type) for one in schema):
                return found
            change = table.transaction()
            try:
                with change.update_schema() as update:
                    update.union_by_name(pa.schema([column.with_nullable(True) for column in schema]))
            except Exception as error:  # of pyiceberg's own classes, ValueError and ValidationError
                raise OperatorError(
                    f"the table {self.location} can't hold the columns of these records: {words(error)}"
                ) from error
            # another commit came first
            with self._errors_wrapped("can't take new columns"), suppress(CommitFailedException):
                change.commit_transaction()
                return self.schema()
        raise too_many_commits(self.location, "take new columns")

    def compact(self, target_bytes: int, load_id: str, before_commit: Callable[[], None]) -> None:
        """Commits an overwrite, since pyiceberg has no snapshots of the kind `replace`."""
        table = self._open()
        self.files()  # refuses delete files
        with self._errors_wrapped("can't be read"):
            files = [_data_file(table, self._store(table), task.file) for task in table.scan().plan_files()]
        compact_groups(self, group_small_files(files, target_bytes), load_id, before_commit)

    def expire(self, before_ms: int, *, dry_run: bool = False) -> set[str]:
        before = datetime.fromtimestamp(before_ms / 1000, UTC)
        with self._errors_wrapped("could not be vacuumed"):
            if not dry_run:
                self._expire_snapshots(before.replace(tzinfo=None))
            table = self._open()
            store = self._store(table)
            named = self.named_files() | {store.relative(_plain_location(one)) for one in _metadata_files(table)}
            found = [file for file in store.files() if _VACUUMED.fullmatch(file.path)]
        return {file.path for file in found if file.path not in named and file.modified_ms <= before_ms}

    def _expire_snapshots(self, before: datetime) -> None:
        for _ in range(COMMIT_ATTEMPTS):
            with suppress(CommitFailedException):  # another commit came first
                self._open().maintenance.expire_snapshots().older_than(before).commit()
                return
        raise too_many_commits(self.location, "be vacuumed")

    def version(self) -> int:
        return _version(self._open())

    # Catalog

    def _open_catalog(self) -> Catalog:
        if self._catalog is None:
            if self._url is not None:
                known = settings_from_environment()
                properties = {S3_PROPERTIES[name]: value for name, value in known.items()}
                self._catalog = open_rest_catalog(CATALOG_NAME, self._url, properties)
            else:
                database = f"file:{quote(str(self.path / CATALOG_FILE))}"  # as SQLite takes names of any characters
                address = URL.create(
                    "sqlite", database=database, query={"uri": "true", "timeout": str(BUSY_TIMEOUT_S)}
                ).render_as_string()
                implementation = f"{SyncedFileIO.__module__}.{SyncedFileIO.__name__}"
                self._catalog = load_catalog(CATALOG_NAME, type="sql", uri=address, **{"py-io-impl": implementation})
        return self._catalog

    def _require_own_directory(self) -> None:
        if (self.path / "metadata").is_dir() and not (self.path / CATALOG_FILE).exists():
            raise OperatorError(
                f"the directory {self.path} contains an Iceberg table of another catalog; name that with --catalog, or "
                "choose another directory"
            )
        landed = (DATA_DIRECTORY.rstrip("/"),) if self.path.name == DEAD_LETTER_DIRECTORY else ()
        require_own_directory(LocalStore(self.path), (*_OF_A_CATALOG, *landed))

    def _create(self, schema: pa.Schema) -> None:
        catalog = self._open_catalog()
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._identifier.rpartition(".")[0])
        try:
            creation = catalog.create_table_transaction(self._identifier, schema, self._place(), properties=PROPERTIES)
            mapping = creation.table_metadata.schema().name_mapping.model_dump_json()
            creation.set_properties({"schema.name-mapping.default": mapping})
            if self._partition_by:
                with creation.update_spec() as spec:
                    for name in self._partition_by:
                        spec.add_identity(name)
            creation.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException):
            if not self.exists():  # else a concurrent load created it
                raise

    def _place(self) -> str | None:
        """Location for a new table; None leaves the choice to the catalog.

        Dead letters are in the directory of their table, so that their files can be written before their table is
        created.
        """
        if self._url is None:
            return str(self.path)
        if self._beside is None:
            return None
        return self._beside._store(self._beside._open()).child(DEAD_LETTER_DIRECTORY).location

    def _open(self) -> IcebergTable:
        if self._url is None and not (self.path / CATALOG_FILE).is_file():
            raise OperatorError(f"no Iceberg table found in {self.path}; `ottla pipeline load` creates one")
        with self._errors_wrapped("can't be read"):
            table = self._open_catalog().load_table(self._identifier)
        if self._url is None:
            self._require_own_location(Path(self._store(table).location))
        return table

    def _require_own_location(self, location: Path) -> None:
        """Raise OperatorError for a copy of a table, since writes to it would go to the original."""
        try:
            is_here = location.samefile(self.path)
        except FileNotFoundError:
            is_here = False
        if not is_here:
            raise OperatorError(
                f"the Iceberg table in {self.path} was copied from {location}, and its metadata refer to the files "
                "there; use that table, or load into another directory"
            )

    @contextmanager
    def _errors_wrapped(self, what: str) -> Iterator[None]:
        """Convert errors of catalog and metadata to OperatorError."""
        try:
            yield
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise OperatorError(f"no Iceberg table {self.location} found; `ottla pipeline load` creates one") from error
        except OperatorError:
            raise
        except FileNotFoundError as error:
            raise OperatorError(
                f"the Iceberg table {self.location} {what}: {error.filename} does not exist; its metadata contain "
                "absolute paths, so if the directory was moved, move it back"
            ) from error
        except Exception as error:  # of pyiceberg, SQLAlchemy, requests and pydantic
            raise OperatorError(f"the Iceberg table {self.location} {what}: {words(error)}") from error

    # Parts of a commit

    def _offsets(self, table: IcebergTable, app_ids: Iterable[str]) -> dict[str, int | None]:
        found = {name: table.properties.get(f"{OFFSET_PREFIX}{name}") for name in app_ids}
        try:
            return {name: None if text is None else int(text) for name, text in found.items()}
        except ValueError as error:
            raise OperatorError(
                f"the table {self.location} has an offset that is not a number: {error}; load into another table"
            ) from error

    def _check(self, table: IcebergTable, schema: pa.Schema) -> None:
        check_schema(self.location, _plain_schema(table.schema().as_arrow()), schema)
        self._check_settings(table)

    def _check_settings(self, table: IcebergTable) -> None:
        """Raise OperatorError for settings under which a load can't be exactly once."""
        if table.properties.get(RETRIES_KEY) != "0":
            raise OperatorError(
                f"the table {self.location} does not set {RETRIES_KEY} to 0, so that retries could commit a load with "
                "an outdated plan; set it to 0"
            )

    def _entries(self, table: IcebergTable, commit: TableCommit) -> list[IcebergFile]:
        """Manifest entries of the files to remove. Raises StaleCommitError when one is no longer in that version."""
        if not commit.removed:
            return []
        with self._errors_wrapped("can't be read"):
            store = self._store(table)
            tasks = list(table.scan().plan_files())
            found = {store.locate(store.relative(_plain_location(task.file.file_path))): task.file for task in tasks}
        commit.check_removed(found)
        return [found[path] for path in commit.removed]

    def _snapshot_of(self, load_id: str, error: Exception | None) -> Snapshot | None:
        """The snapshot that a load created. Raises UnknownCommitError if the table can't be read."""
        try:
            table = self._open()
        except OperatorError as unreadable:
            raise UnknownCommitError(
                f"the table {self.location} can't be read to see whether the load was committed: {unreadable}; the "
                "next load checks it"
            ) from error
        return next((snapshot for snapshot in table.metadata.snapshots if _load_of(snapshot) == load_id), None)

    def _raise_failed(self, error: Exception) -> None:
        if self._url is None or isinstance(error, _REFUSED):  # an SQLite transaction is over when its call is
            raise OperatorError(f"the table {self.location} could not be committed: {words(error)}") from error
        raise UnknownCommitError(
            f"the catalog did not report whether the load was committed to {self.location}: {words(error)}; the next "
            "load checks it"
        ) from error

    # Files

    def _layout(self, table: IcebergTable) -> FileLayout:
        schema, fields = table.schema(), table.spec().fields
        columns = [schema.find_column_name(field.source_id) or "" for field in fields]
        other = next((name for name, one in zip(columns, fields, strict=True) if not _is_identity(one)), None)
        if other is not None:
            raise OperatorError(
                f"the table {self.location} is partitioned by a transform of {other!r}, and loads write partitions "
                "of whole values only; load into another table"
            )
        store = self._store(table)
        return FileLayout(
            store.location, DATA_DIRECTORY, tuple(columns), partitions_in_files=True, settings=store.settings
        )

    def _store(self, table: IcebergTable) -> Store:
        """The store of its files. Raises OperatorError."""
        try:
            location = _plain_location(table.location())
        except ValueError as error:
            raise OperatorError(f"the table {self.location} {error}") from error
        found = {name: table.io.properties.get(known) for name, known in S3_PROPERTIES.items()}
        return open_store(location, {name: str(value) for name, value in found.items() if value})


def _write(
    table: IcebergTable,
    files: Sequence[DataFile],
    removed: Sequence[IcebergFile],
    summary: Mapping[str, str],
    properties: Mapping[str, str],
) -> Exception | None:
    """Try to commit; returns the error, which does not show whether the commit happened."""
    try:
        transaction = table.transaction()
        update = transaction.update_snapshot(snapshot_properties=dict(summary))
        with update.overwrite() if removed else update.merge_append() as change:
            for old in removed:
                change.delete_data_file(old)
            for file in files:
                change.append_data_file(_entry(table, file))
        transaction.set_properties(dict(properties))
        transaction.commit_transaction()
    except Exception as error:  # of any class, including those of the catalog
        return error
    return None


def _is_identity(field: PartitionField) -> bool:
    return isinstance(field.transform, IdentityTransform)


def _partition_value(column: NestedField, text: str | None) -> Any:
    if text is not None and isinstance(column.field_type, DateType):
        return date_str_to_days(text)
    return None if text is None else partition_to_py(column.field_type, text)


def _partition_text(column: NestedField, value: Any) -> str | None:
    """The inverse of `_partition_value`."""
    return None if value is None else IdentityTransform().to_human_string(column.field_type, value)


def _entry(table: IcebergTable, file: DataFile) -> IcebergFile:
    """A data file as manifests name it, with its statistics by field id."""
    schema, spec = table.schema(), table.spec()
    kinds = {name: schema.find_field(name) for name in file.columns}
    columns = {kinds[name].field_id: (kinds[name].field_type, one) for name, one in file.columns.items()}
    columns = {number: pair for number, pair in columns.items() if isinstance(pair[0], PrimitiveType)}
    bounded = {number: pair for number, pair in columns.items() if pair[1].lower is not None}
    sources = [schema.find_field(field.source_id) for field in spec.fields]
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*(_partition_value(one, file.partition_values[one.name]) for one in sources)),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        value_counts=dict.fromkeys(columns, file.rows),
        null_value_counts={number: pair[1].nulls for number, pair in columns.items()},
        lower_bounds={number: to_bytes(kind, one.lower) for number, (kind, one) in bounded.items()},
        upper_bounds={number: to_bytes(kind, one.upper) for number, (kind, one) in bounded.items()},
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
    )


def _rollback(table: IcebergTable) -> Rollback | None:
    """A rollback, unless the current snapshot is built on that of the newest load; where snapshots between them
    expired, by the sequence numbers of the remaining ones."""
    metadata, load_id = table.metadata, table.properties.get(LOAD_KEY)
    if not load_id:
        return None
    sequence = int(table.properties.get(SEQUENCE_KEY) or 0)
    of_load = next((one.snapshot_id for one in metadata.snapshots if _load_of(one) == load_id), None)
    oldest: Snapshot | None = None
    for oldest in ancestors_of(table.current_snapshot(), metadata):
        picked = oldest.summary.get("source-snapshot-id") if oldest.summary else None
        if _load_of(oldest) == load_id or (of_load is not None and picked == str(of_load)):
            return None
        number = oldest.sequence_number or 0
        if sequence and number == sequence:
            return None
        if number < sequence:
            return _rolled_back(oldest, of_load)
    if oldest is None or of_load is not None:
        return _rolled_back(oldest, of_load)
    return None  # the snapshots in between expired


def _rolled_back(behind: Snapshot | None, of_load: int | None) -> Rollback:
    current = "it has no snapshot" if behind is None else f"it is built on snapshot {behind.snapshot_id}"
    return Rollback(
        "it was rolled back below its newest load, and still has the offsets of that load: no load would read its rows "
        f"again ({current})",
        "load into another table" if of_load is None else f"set its current snapshot to {of_load}",
    )


def _known_topics(table: IcebergTable) -> KnownTopics:
    found = table.properties
    return KnownTopics(json_object(found.get(TOPICS_KEY)), json_object(found.get(CLUSTERS_KEY)))


def _version(table: IcebergTable) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else snapshot.sequence_number or 0


def _plain_location(location: str) -> str:
    """A path, or the URL of an object store. Raises ValueError for any other."""
    return location if is_url(location) else str(local_path(location))


def _data_file(table: IcebergTable, store: Store, file: IcebergFile) -> DataFile:
    """A file that the table names, without its statistics."""
    sources = [table.schema().find_field(field.source_id) for field in table.spec().fields]
    values = {one.name: _partition_text(one, file.partition[number]) for number, one in enumerate(sources)}
    path = store.relative(_plain_location(file.file_path))
    return DataFile(path, file.file_size_in_bytes, file.record_count, 0, {}, values)


def _metadata_files(table: IcebergTable) -> set[str]:
    """All files named by the table's metadata: manifests, manifest lists, and earlier metadata."""
    found = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        found |= {snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(table.io))}
    return found


def _load_of(snapshot: Snapshot) -> str | None:
    found: str | None = snapshot.summary.get(LOAD_KEY) if snapshot.summary else None
    return found


def _names_of(table: IcebergTable, field: Any) -> list[str]:
    """The current name of a field of the name mapping, which is its only name in files."""
    name = table.schema().find_column_name(field.field_id) if field.field_id is not None else None
    return field.names if name is None else [name]


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without the large types and field ids that pyiceberg adds."""
    return pa.schema([pa.field(one.name, _plain(one.type), one.nullable) for one in schema])


def _plain(kind: Any) -> Any:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = kind.value_field
        return pa.list_(pa.field(element.name, _plain(element.type), element.nullable))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), pa.field("value", _plain(kind.item_type), kind.item_field.nullable))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _plain(one.type), one.nullable) for one in kind])
    return kind
