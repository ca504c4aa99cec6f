"""Rewrite of a table's small files as larger ones, in one commit that moves no offset.

Concurrent loads and compactions do not block each other: each checks again after the other's commit and continues. If
another writer removed one of the small files, nothing is changed. The rows stay in their order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ottla.pipeline.load.leased_files import leased_files
from ottla.pipeline.sinks.table import Table
from ottla.pipeline.sinks.writer import new_load_id

DEFAULT_TARGET_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class CompactSummary:
    """Result of a compaction; `version` is the table's after it."""

    table: str
    version: int
    files_before: int
    files_after: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compact(table: Table, target_bytes: int = DEFAULT_TARGET_BYTES) -> CompactSummary:
    """Rewrite the table's small files into files of about `target_bytes`. Raises OperatorError, StaleCommitError."""
    before = len(table.files())
    load_id = new_load_id()
    with leased_files(table, load_id) as lease:
        table.compact(target_bytes, load_id, lease.require)
    return CompactSummary(table.location, table.version(), before, len(table.files()))
