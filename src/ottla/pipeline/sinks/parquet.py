"""Parquet export: a directory of Parquet files, exactly once by a log of commits beside them.

Each `_ottla_log/VERSION.json` is one commit: files that were added and removed, offsets that moved, and facts for
people. A commit is a file that exactly one of several committers can create, whole and durable (a guarantee of
`Store.create` for directories and object stores). `VERSION.checkpoint.json` sums up all commits to a version, so that
few are read.

Each commit names the one before it. A log that lacks a commit, or joins those of two histories, is refused: it was
restored in parts, and its offsets would not match its files.

**Invariant:** the table is the files that the log's newest version names, which `ottla pipeline sql` reads.
**A reader that takes every Parquet file in the directory** sees more than that: files of a load that runs or was killed
(until `ottla pipeline vacuum`), and after a compaction the small files beside the large one. Only Delta and Iceberg
have libraries by which other programs find the files of a version.

Not supported: reading an older version, and schema changes other than new columns.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from ottla.common.errors import DAMAGED_JSON, OperatorError
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import KnownTopics
from ottla.pipeline.model.rollback import LoadRefusedError, Rollback
from ottla.pipeline.sinks.own_directory import require_own_directory
from ottla.pipeline.sinks.rewrite import compact_groups, group_small_files
from ottla.pipeline.sinks.table import (
    COMMIT_ATTEMPTS,
    DEAD_LETTER_DIRECTORY,
    LOADS_LIMIT,
    CommitResult,
    DataFile,
    FileLayout,
    PastLoad,
    TableCommit,
    UnknownCommitError,
    check_schema,
    grown_columns,
    require_files,
    too_many_commits,
)
from ottla.pipeline.sinks.writer import DATA_FILE
from ottla.pipeline.stores.open_store import open_store
from ottla.pipeline.stores.store import Store, UnknownOutcomeError

LOG_DIRECTORY = "_ottla_log"
CHECKPOINT_INTERVAL = 50
_CHECKPOINT = ".checkpoint.json"
_COMMIT = re.compile(r"(\d{20})\.json")


@dataclass(slots=True)
class _State:
    """All commits up to `version`, -1 before the first. `files`: path -> DataFile as a dictionary; `removed`: path ->
    milliseconds from the epoch at which it was removed."""

    version: int = -1
    schema: str = ""
    partition_columns: list[str] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    tip: str = ""
    """The id of the newest commit; empty for commits of earlier releases."""

    def apply(self, commit: Mapping[str, Any]) -> None:
        """Apply the commit of the next version. Raises ValueError where it was not made on top of this state."""
        if self.version >= 0 and commit.get("parent", self.tip) != self.tip:
            raise ValueError(
                f"version {commit['version']} was not made on top of the version before it, as if an older copy of "
                f"the log had replaced a newer one; use one copy of {LOG_DIRECTORY} and the files that it names"
            )
        self.tip = commit.get("id", "")
        self.version = int(commit["version"])
        self.schema = commit.get("schema", self.schema)
        self.partition_columns = commit.get("partition_columns", self.partition_columns)
        for path in commit.get("remove", ()):
            del self.files[path]
            self.removed[path] = int(commit["time_ms"])
        for file in commit.get("add", ()):
            self.files[file["path"]] = file
        for path in commit.get("forget", ()):
            self.removed.pop(path, None)
        self.offsets |= commit.get("offsets", {})
        self.topics |= commit.get("topics", {})
        self.clusters |= commit.get("clusters", {})


class ParquetTarget:
    """A Parquet export in a directory or an object store, created by the first load."""

    format = "parquet"

    def __init__(self, path: str | os.PathLike[str], partition_by: Sequence[str] = ()) -> None:
        """`partition_by` takes effect when the export is created: columns of its schema."""
        self._store: Store = open_store(path)
        self._partition_by = tuple(partition_by)

    @property
    def location(self) -> str:
        return self._store.location

    @property
    def name(self) -> str:
        return self._store.name

    def dead_letters(self) -> ParquetTarget:
        return ParquetTarget(self._store.child(DEAD_LETTER_DIRECTORY).location)

    def exists(self) -> bool:
        try:
            return self._store.find(_commit_file(0)) is not None or any(self._log())
        except OSError as error:
            raise OperatorError(f"the table {self.location} can't be looked up: {os_reason(error)}") from error

    def ensure(self, schema: pa.Schema) -> FileLayout:
        try:
            if not self.exists():
                require_own_directory(self._store)
                made = {
                    **_following(_State()),
                    "schema": _schema_text(schema),
                    "columns": {column.name: str(column.type) for column in schema},
                    "partition_columns": list(self._partition_by),
                }
                with suppress(FileExistsError):  # a concurrent load created it
                    self._write(made)
        except OSError as error:
            raise OperatorError(f"the table {self.location} can't be created: {os_reason(error)}") from error
        check_schema(self.location, self.schema(), schema)
        return self.layout()

    def layout(self) -> FileLayout:
        columns = tuple(self._read().partition_columns) if self.exists() else self._partition_by
        return FileLayout(self.location, "", columns, settings=self._store.settings)

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]:
        offsets = self._read().offsets if self.exists() else {}
        return {name: offsets.get(name) for name in app_ids}

    def rollback(self) -> Rollback | None:
        """None: files and offsets are reverted together. Every read refuses a log with gaps."""
        if self.exists():
            self._read()
        return None

    def known_topics(self) -> KnownTopics:
        if not self.exists():
            return KnownTopics()
        state = self._read()
        return KnownTopics(state.topics, state.clusters)

    def loads(self) -> list[PastLoad]:
        newest = self._read().version if self.exists() else -1
        try:
            texts = [
                self._store.read(_commit_file(version)) for version in range(newest, max(newest - LOADS_LIMIT, -1), -1)
            ]
            commits = [json.loads(text) for text in texts]
            return [
                PastLoad(int(commit["time_ms"]), commit["pipeline"], int(commit["rows"]), len(commit["add"]))
                for commit in commits
                if commit.get("pipeline")
            ]
        except (OSError, *DAMAGED_JSON) as error:
            raise OperatorError(f"the log of the table {self.location} can't be read: {os_reason(error)}") from error

    def commit(self, commit: TableCommit) -> CommitResult:
        require_files(self._store, commit.files)
        for _ in range(COMMIT_ATTEMPTS):
            state = self._read()
            commit.check_expected({name: state.offsets.get(name) for name in commit.expected})
            commit.check_clusters(KnownTopics(state.topics, state.clusters))
            commit.check_removed({self._store.locate(path) for path in state.files})
            entry = {
                **_following(state),
                "load": commit.load_id,
                "pipeline": commit.pipeline_id,
                "rows": commit.rows,
                "ranges": commit.ranges,
                "topics": dict(commit.topic_ids),
                "clusters": commit.topic_clusters,
                "offsets": dict(commit.following),
                "add": [asdict(file) for file in commit.files],
                "remove": [self._store.relative(path) for path in commit.removed],
            }
            try:
                note = self._write(entry)
            except FileExistsError:
                continue  # another commit came first: check again whether the plan holds
            except OSError as error:
                raise OperatorError(f"the table {self.location} could not be committed: {os_reason(error)}") from error
            state.apply(entry)
            self._checkpoint(state)
            return CommitResult(state.version, note)
        raise too_many_commits(self.location)

    def files(self) -> list[str]:
        return [self._store.locate(path) for path in self._read().files]

    def data_files(self) -> list[DataFile]:
        """The files of the newest version."""
        return [DataFile.from_dict(file) for file in self._read().files.values()]

    def named_files(self) -> set[str]:
        """Files of the newest version, and those that were removed since the last vacuum."""
        state = self._read()
        return {*state.files, *state.removed}

    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._read().schema)))

    def widen(self, schema: pa.Schema) -> pa.Schema:
        for _ in range(COMMIT_ATTEMPTS):
            state, found = self._read(), self.schema()
            grown = grown_columns(self.location, found, schema)
            if not grown:
                return found
            wider = pa.unify_schemas([found, pa.schema(grown)], promote_options="permissive")
            try:
                self._write({**_following(state), "schema": _schema_text(wider)})
            except FileExistsError:
                continue
            except OSError as error:
                raise OperatorError(f"the table {self.location} can't take new columns: {os_reason(error)}") from error
            return wider
        raise too_many_commits(self.location, "take new columns")

    def compact(self, target_bytes: int, load_id: str, before_commit: Callable[[], None]) -> None:
        compact_groups(self, group_small_files(self.data_files(), target_bytes), load_id, before_commit)

    def expire(self, before_ms: int, *, dry_run: bool = False) -> set[str]:
        named = self._named_after_expiry(before_ms, dry_run=dry_run)
        try:
            found = [file for file in self._store.files() if DATA_FILE.fullmatch(file.name)]
        except OSError as error:
            raise OperatorError(f"the table {self.location} could not be vacuumed: {os_reason(error)}") from error
        return {file.path for file in found if file.path not in named and file.modified_ms <= before_ms}

    def _named_after_expiry(self, before_ms: int, *, dry_run: bool) -> set[str]:
        """Expire removals before that time; returns the files that are still named."""
        for _ in range(COMMIT_ATTEMPTS):
            state = self._read()
            forgotten = [path for path, time_ms in state.removed.items() if time_ms <= before_ms]
            if forgotten and not dry_run:
                try:
                    self._write({**_following(state), "forget": forgotten})
                except FileExistsError:
                    continue  # another commit came first, and may have removed more files
                except OSError as error:
                    raise OperatorError(
                        f"the table {self.location} could not be vacuumed: {os_reason(error)}"
                    ) from error
            return {*state.files, *state.removed} - set(forgotten)
        raise too_many_commits(self.location, "be vacuumed")

    def version(self) -> int:
        return self._read().version

    # The log

    def _log(self) -> tuple[list[str], list[int]]:
        """The checkpoints, the newest last, and the versions of all commits. Raises OSError."""
        files = list(self._store.files(LOG_DIRECTORY))
        checkpoints = sorted(file.path for file in files if file.name.endswith(_CHECKPOINT))
        return checkpoints, [int(match[1]) for file in files if (match := _COMMIT.fullmatch(file.name))]

    def _read(self) -> _State:
        """The newest state. Raises OperatorError if it does not exist or can't be read."""
        try:
            found, commits = self._log()
            state = _State()
            if found:
                state = _State(**json.loads(self._store.read(found[-1])))
            while True:
                try:
                    text = self._store.read(_commit_file(state.version + 1))
                except FileNotFoundError:
                    break
                state.apply(json.loads(text))
            self._require_no_gap(state.version, commits)
        except (OSError, *DAMAGED_JSON) as error:
            raise OperatorError(f"the log of the table {self.location} can't be read: {os_reason(error)}") from error
        if state.version < 0:
            raise OperatorError(f"no table found in {self.location}; `ottla pipeline load` creates one")
        return state

    def _require_no_gap(self, newest: int, commits: Iterable[int]) -> None:
        """Raise LoadRefusedError for a log with commits after a missing one: the next load would join them."""
        behind = sorted(version for version in commits if version > newest)
        if behind:
            result = f"continues from version {newest}" if newest >= 0 else "creates the table again"
            raise LoadRefusedError(
                f"the log of the table {self.location} lacks version {newest + 1}, but has version {behind[0]}: "
                f"restore {_commit_file(newest + 1)}, or remove {_commit_file(behind[0])} and all later commits: the "
                f"next load then {result}"
            )

    def _write(self, commit: Mapping[str, Any]) -> str:
        """Give the commit its number; returns why it may not survive a power failure, or "".

        Raises FileExistsError when another commit has the number, OSError when it could not be written.
        """
        version = commit["version"]
        try:
            note = self._store.create(_commit_file(version), json.dumps(commit).encode())
        except UnknownOutcomeError as error:
            raise UnknownCommitError(
                f"the table {self.location} can't be read to see whether the load was committed: "
                f"{os_reason(error)}; the next load checks it"
            ) from error
        return f"version {version} was committed, but may not survive a power failure: {note}" if note else ""

    def _checkpoint(self, state: _State) -> None:
        """Write a checkpoint every CHECKPOINT_INTERVAL versions; a failure is harmless, since the commits stay."""
        if state.version % CHECKPOINT_INTERVAL:
            return
        with suppress(OSError):
            checkpoint = f"{LOG_DIRECTORY}/{state.version:020}{_CHECKPOINT}"
            self._store.replace(checkpoint, json.dumps(asdict(state)).encode())


def _commit_file(version: int) -> str:
    return f"{LOG_DIRECTORY}/{version:020}.json"


def _following(state: _State) -> dict[str, Any]:
    """Fields of each commit on top of a state."""
    return {
        "version": state.version + 1,
        "id": uuid.uuid4().hex[:16],
        "parent": state.tip,
        "time_ms": int(time.time() * 1000),
    }


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()
