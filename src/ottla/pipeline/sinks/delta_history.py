"""Rollbacks of a Delta table, found in the commits after its newest load.

RESTORE reverts files and schema, and leaves the offsets of application transactions unchanged. So the offsets of a load
can survive its rows, and no later load would read those rows again. The transaction `NEWEST_LOAD` stores the version of
the newest load; the log after it shows whether the newest version is still built on that one. A RESTORE that goes
forward again is followed to the version that it restored. DELETE, UPDATE, MERGE and OPTIMIZE are the operator's own and
not a rollback. A commit that replaces every file of the table is one, since its rows come from elsewhere.

**Invariant:** where the log lacks a commit after the newest load, the state is reported as unknown.

Not supported: tables of earlier releases, without NEWEST_LOAD, whose newest load is older than LOADS_LIMIT commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.model.rollback import Rollback
from ottla.pipeline.sinks.table import LOADS_LIMIT, LOOK_UPS, PIPELINE_KEY, ROWS_KEY
from ottla.pipeline.sinks.writer import file_name, load_of

NEWEST_LOAD = "ottla/newest-load"
"""Application id whose version is the table version of the newest load."""

_COMPACTED = "part-compacted-"
"""File name prefix of our compaction, which may be in a table without loads."""
FileKey = tuple[str, str]
"""Path of a file and its deletion vector."""

_REPLACING = ("CLONE", "REPLACE TABLE", "CREATE OR REPLACE TABLE")
"""Prefixes of the operations that replace all rows of a table."""


@dataclass(frozen=True, slots=True)
class PastCommit:
    """One commit of the log."""

    version: int
    info: Mapping[str, Any]
    added: frozenset[FileKey]
    removed: frozenset[FileKey]

    @classmethod
    def parse(cls, version: int, content: bytes) -> PastCommit:
        """Parse a file of the log: one JSON action in each line. Raises ValueError."""
        actions = [json.loads(line) for line in content.splitlines() if line.strip()]
        info: Mapping[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
        added = frozenset(_key(one["add"]) for one in actions if "add" in one)
        removed = frozenset(_key(one["remove"]) for one in actions if "remove" in one)
        return cls(version, info, added, removed)

    @property
    def operation(self) -> str:
        return str(self.info.get("operation", "")).upper()

    @property
    def is_load(self) -> bool:
        return bool(self.info.get(PIPELINE_KEY))

    @property
    def is_replacing(self) -> bool:
        """True if it may replace all rows."""
        parameters = self.info.get("operationParameters") or {}
        overwrites = self.operation == "WRITE" and str(parameters.get("mode")).strip('"').lower() == "overwrite"
        return not self.is_load and (overwrites or self.operation.startswith(_REPLACING))

    @property
    def restored_version(self) -> int | None:
        """The version in a RESTORE by version; None for a RESTORE by time."""
        found = (self.info.get("operationParameters") or {}).get("version")
        text = str(found).strip('"')
        return int(text) if text.isdecimal() else None


def _key(action: Mapping[str, Any]) -> FileKey:
    vector = action.get("deletionVector") or {}
    return action["path"], f"{vector.get('pathOrInlineDv', '')}{vector.get('offset') or ''}"


def find_rollback(
    newest: int, since: int | None, read: Callable[[int], bytes | None], paths: Callable[[], Collection[str]]
) -> Rollback | None:
    """Loads of a table at version `newest` whose rows are gone while their offsets stay; None without any.

    `since`: the version in NEWEST_LOAD. `read`: returns a commit of the log, None if the log lacks it. `paths`: returns
    the table's files, as the log names them. Raises OSError, ValueError.
    """
    if (
        since is not None and since >= newest
    ):  # a version above the newest is from the table that this one was cloned from
        return None
    low = since if since is not None else max(newest - LOADS_LIMIT, -1)
    commits = _read_commits(read, low, newest)
    gone = max((one for one in range(low + 1, newest + 1) if one not in commits), default=None)
    if gone is not None and since is not None:
        return Rollback(
            f"its log lacks version {gone}, so whether it was rolled back below its newest load (version {since}) "
            "is unknown",
            "compare it with its topics",
        )
    low = low if gone is None else gone
    live, reached = _live_versions(commits, newest, low)
    loads = {one.version for one in commits.values() if one.is_load and one.version > low}
    lost = loads - live
    if since is not None and reached != since:
        lost |= {since}
        commits |= _read_commits(read, since - 1, since)
    if lost:
        return _rolled_back(commits, sorted(lost))
    if since is None and not loads:
        return _without_offsets(paths()) if low < 0 else None
    return _replaced(commits, max(loads & live, default=low), live, paths)


def _read_commits(read: Callable[[int], bytes | None], low: int, newest: int) -> dict[int, PastCommit]:
    versions = range(low + 1, newest + 1)
    with ThreadPoolExecutor(min(LOOK_UPS, len(versions))) as pool:
        contents = zip(versions, pool.map(read, versions), strict=True)
        return {version: PastCommit.parse(version, found) for version, found in contents if found is not None}


def _live_versions(commits: Mapping[int, PastCommit], newest: int, low: int) -> tuple[set[int], int]:
    """The versions on which the newest one is built, and the first of them that is not above `low`."""
    live: set[int] = set()
    at = newest
    while at > low:
        live.add(at)
        at = _restored(commits, at) if commits[at].operation == "RESTORE" else at - 1
    return live, at


def _restored(commits: Mapping[int, PastCommit], version: int) -> int:
    """The version that a RESTORE brought back, -1 where that is unknown: one with the files that it left."""
    restore = commits[version]
    if restore.restored_version is not None:
        return restore.restored_version
    added: set[FileKey] = set()
    removed: set[FileKey] = set()
    for earlier in range(version - 1, -1, -1):  # the RESTORE undoes exactly the changes since the restored version
        if added == restore.added and removed == restore.removed:
            return earlier
        if earlier not in commits:
            break
        undone = commits[earlier]
        added, removed = (
            (added - undone.added) | (undone.removed - removed),
            (removed - undone.removed) | (undone.added - added),
        )
    return -1


def _rolled_back(commits: Mapping[int, PastCommit], lost: Sequence[int]) -> Rollback:
    by = max((one.version for one in commits.values() if one.operation == "RESTORE"), default=0)
    rows = sum(int(commits[one].info.get(ROWS_KEY) or 0) for one in lost if one in commits)
    known = f" with {rows:,} row{'s' if rows != 1 else ''}" if all(one in commits for one in lost) else ""
    loads = f"its load of version {lost[0]}" if len(lost) == 1 else f"its loads of versions {', '.join(map(str, lost))}"
    return Rollback(
        f"version {by} (RESTORE) rolled it back below {loads}{known}, and the table still has their offsets: no load "
        "would read those rows again",
        f"restore version {lost[-1]}",
    )


def _without_offsets(paths: Collection[str]) -> Rollback | None:
    """Rollback of a table with files of loads in a log without any load."""
    loaded = next(
        (path for path in sorted(paths) if load_of(path) and not file_name(path).startswith(_COMPACTED)), None
    )
    if loaded is None:
        return None
    return Rollback(
        f"it contains files of loads ({file_name(loaded)} for one) but not their offsets, as a clone or a converted "
        "directory does: a load would add those rows a second time",
        "load into the table that those files were loaded into",
        is_skippable=False,
    )


def _replaced(
    commits: Mapping[int, PastCommit], load: int, live: Collection[int], paths: Callable[[], Collection[str]]
) -> Rollback | None:
    """Rollback by a commit after the newest load that left no file of the loads."""
    later = [commits[version] for version in sorted(live) if version > load]
    replacing = [one for one in later if one.is_replacing]
    if not replacing:
        return None
    added = {path for one in later for path, _ in one.added}
    if any(path not in added for path in paths()):
        return None
    return Rollback(
        f"version {replacing[-1].version} ({replacing[-1].operation}) replaced all rows of its loads up to version "
        f"{load}, and the table still has their offsets: no load would read those rows again",
        f"restore version {replacing[-1].version - 1}",
    )
