"""Remove the files that a table doesn't need: those of killed loads at once, all others after the retention.

**Invariant:** no file of a load that runs is taken, and none that a version of the last `retention` names. Files of an
expired lease are taken only after the lease was (see `ottla.pipeline.leases`) and the table was asked behind that
whether it names them. Whose load began after the leases were read has written nothing before that time, and what is
younger is never taken. Files that tell no load may be of a commit or a compaction that is under way, however short the
retention is: they are spared for as long as a lease lasts, and longer while any is held.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from ottla.common.errors import OperatorError
from ottla.pipeline.leases import EXPIRY_S, forget, read_leases, revoke
from ottla.pipeline.sinks.rewrite import is_before
from ottla.pipeline.sinks.table import DEAD_LETTER_DIRECTORY, Table
from ottla.pipeline.sinks.writer import load_of
from ottla.pipeline.snapshot.staging import staged_files

DEFAULT_RETENTION = timedelta(days=7)


@dataclass(slots=True)
class VacuumSummary:
    """What a vacuum took, or would take; sizes in bytes."""

    table: str
    dry_run: bool
    abandoned_files: int = 0
    """Of loads that were killed."""
    old_files: int = 0
    """Of versions before the retention, or of nobody."""
    freed_bytes: int = 0
    running_loads: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Before:
    """The times before which unneeded files were written that go, in milliseconds from the epoch."""

    of_loads_ms: int
    of_nobody_ms: int


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def vacuum(table: Table, retention: timedelta = DEFAULT_RETENTION, *, dry_run: bool = False) -> VacuumSummary:
    """Raises OperatorError."""
    directory = Path(table.layout().directory)
    if not table.exists():
        raise OperatorError(f"there is no table in {table.location}; `ottla pipeline load` makes one")
    summary = VacuumSummary(table.location, dry_run)
    letters = table.dead_letters()
    try:
        now_s = time.time()
        staged = staged_files(directory)
        leases = read_leases(directory)
        spared_s = DEFAULT_RETENTION.total_seconds() if leases.running else EXPIRY_S
        before = _Before(_ms(now_s - retention.total_seconds()), _ms(now_s - max(retention.total_seconds(), spared_s)))
        summary.running_loads = sorted(leases.running)
        gone = leases.revoked | frozenset(one for one in leases.expired if dry_run or revoke(directory, one))
        running = leases.running | (leases.expired - gone)
        for load_id in staged.keys() - running:
            _remove(staged[load_id], summary, abandoned=True)
        for part in [table, letters] if letters.exists() else [table]:
            _vacuum_one(part, gone, running, before, summary)
        if not letters.exists():  # files of a load that was killed before it made the table
            _remove(_files_of(directory / DEAD_LETTER_DIRECTORY, gone), summary, abandoned=True)
        if not dry_run:
            for one in gone:
                forget(directory, one)
    except OSError as error:
        raise OperatorError(f"the table {table.location} could not be vacuumed: {error}") from error
    return summary


def _vacuum_one(
    table: Table, gone: frozenset[str], running: frozenset[str], before: _Before, summary: VacuumSummary
) -> None:
    directory = Path(table.layout().directory)
    named = {path.name for path in table.named_files()}
    nested = directory / DEAD_LETTER_DIRECTORY
    abandoned = {path for path in _files_of(directory, gone) if path.name not in named and nested not in path.parents}
    _remove(abandoned, summary, abandoned=True)
    unneeded = table.expire(before.of_loads_ms, dry_run=summary.dry_run)
    old = {
        path
        for path in unneeded
        if (load := load_of(path)) not in running
        and is_before(path, before.of_nobody_ms if load is None else before.of_loads_ms)
        and nested not in path.parents
    }
    _remove(old - abandoned, summary, abandoned=False)


def _files_of(directory: Path, load_ids: frozenset[str]) -> set[Path]:
    return {path for path in directory.rglob("part-*.parquet") if load_of(path) in load_ids}


def _remove(paths: set[Path], summary: VacuumSummary, *, abandoned: bool) -> None:
    for path in sorted(paths):
        try:
            size = path.stat().st_size
            if not summary.dry_run:
                path.unlink()
        except FileNotFoundError:
            continue
        summary.freed_bytes += size
        if abandoned:
            summary.abandoned_files += 1
        else:
            summary.old_files += 1
