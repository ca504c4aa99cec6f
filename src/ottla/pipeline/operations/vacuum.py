"""Removal of files that a table doesn't need: those of killed loads at once, all others after the retention.

**Invariant:** no file of a running load is removed, and none that a version of the last `retention` names. Files of an
expired lease are removed only after the lease was revoked (see `ottla.pipeline.load.leases`) and the table was checked
afterwards for their names. A load that started after the leases were read has written no file before that time, and
younger files are never removed. Files without a load id may belong to a commit or compaction of another program that is
running, regardless of the retention: they are kept for the duration of a lease, and longer while any lease is held.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from ottla.common.errors import OperatorError
from ottla.pipeline.load.leases import EXPIRY_S, forget, read_leases, revoke
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.sinks.table import DEAD_LETTER_DIRECTORY, Table
from ottla.pipeline.sinks.writer import file_name, load_of
from ottla.pipeline.snapshot.staging import staged_files
from ottla.pipeline.stores.store import Store, StoredFile

DEFAULT_RETENTION = timedelta(days=7)


@dataclass(slots=True)
class VacuumSummary:
    """Files that a vacuum removed, or would remove; sizes in bytes."""

    table: str
    dry_run: bool
    abandoned_files: int = 0
    """Files of killed loads."""
    old_files: int = 0
    """Files of versions before the retention, or without a load id."""
    freed_bytes: int = 0
    running_loads: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


TICK_MS = 10
"""File times have the resolution of the system's tick: a new file may seem older by this."""


@dataclass(frozen=True, slots=True)
class _Before:
    """Unneeded files that were written before these times are removed, in milliseconds from the epoch."""

    of_loads_ms: int
    unowned_ms: int


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def vacuum(table: Table, retention: timedelta = DEFAULT_RETENTION, *, dry_run: bool = False) -> VacuumSummary:
    """Remove unneeded files of a table and of its dead letters: those of killed loads, and old ones.

    `dry_run` only counts them. Raises OperatorError.
    """
    if not table.exists():
        raise OperatorError(f"no table found in {table.location}; `ottla pipeline load` creates one")
    store = table.layout().store
    summary = VacuumSummary(table.location, dry_run)
    letters = table.dead_letters()
    try:
        now_s = time.time()
        staged = staged_files(store)
        leases = read_leases(store)
        spared_s = DEFAULT_RETENTION.total_seconds() if leases.running else EXPIRY_S
        before = _Before(_ms(now_s - retention.total_seconds()), _ms(now_s - max(retention.total_seconds(), spared_s)))
        summary.running_loads = sorted(leases.running)
        gone = leases.revoked | frozenset(one for one in leases.expired if dry_run or revoke(store, one))
        running = leases.running | (leases.expired - gone)
        for load_id in staged.keys() - running:
            _remove(store, staged[load_id], summary, abandoned=True)
        for part in [table, letters] if letters.exists() else [table]:
            _vacuum_one(part, gone, running, before, summary)
        if not letters.exists():  # files of a load that was killed before it created the table
            lost = store.child(DEAD_LETTER_DIRECTORY)
            _remove(lost, {file for file in lost.files() if load_of(file.path) in gone}, summary, abandoned=True)
        if not dry_run:
            store.sweep(_ms(now_s - EXPIRY_S))
            for one in gone:
                forget(store, one)
    except OSError as error:
        raise OperatorError(f"the table {table.location} could not be vacuumed: {os_reason(error)}") from error
    return summary


def _vacuum_one(
    table: Table, gone: frozenset[str], running: frozenset[str], before: _Before, summary: VacuumSummary
) -> None:
    store = table.layout().store
    found = {file.path: file for file in store.files() if not file.path.startswith(f"{DEAD_LETTER_DIRECTORY}/")}
    named = set(map(file_name, table.named_files()))
    abandoned = {file for file in found.values() if load_of(file.path) in gone and file.name not in named}
    _remove(store, abandoned, summary, abandoned=True)
    unneeded = table.expire(before.of_loads_ms, dry_run=summary.dry_run)
    old = {
        file
        for file in map(found.get, unneeded)
        if file is not None
        and (load := load_of(file.path)) not in running
        and file.modified_ms < (before.unowned_ms if load is None else before.of_loads_ms) - TICK_MS
    }
    _remove(store, old - abandoned, summary, abandoned=False)


def _remove(store: Store, files: set[StoredFile], summary: VacuumSummary, *, abandoned: bool) -> None:
    for file in sorted(files, key=lambda file: file.path):
        if not summary.dry_run:
            store.remove(file.path)
        summary.freed_bytes += file.size_bytes
        if abandoned:
            summary.abandoned_files += 1
        else:
            summary.old_files += 1
