"""Size, loads and dead letters of a table, from its log and the reasons of its dead letters; rows are not read.

Needs neither Spark nor a cluster. The lag is in `ottla.pipeline.operations.status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.common.errors import OperatorError
from ottla.pipeline.load.leases import read_leases
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import KnownTopics
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.table import PastLoad, Table

MAX_LETTER_FILES = 100
"""Files that are searched for the latest dead letters, the newest ones."""
MAX_LETTER_ROWS = 100_000
_LETTER_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "reason")


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One table, as of its newest version."""

    format: str
    version: int
    topics: KnownTopics
    rows: int
    files: int
    size_bytes: int
    loads: list[PastLoad]
    """The newest loads, the last one first."""
    dead_letters: int
    running_loads: int
    failed_loads: int
    """Loads that ended without releasing their lease, as killed ones do, until a vacuum removes their files."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a table could not store; the reason may quote parts of its value."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    reason: str


def summarize(table: Table, now_ms: int) -> TableSummary:
    """The summary of a table; leases are compared with `now_ms`. Raises OperatorError if it can't be read."""
    files, letters = table.data_files(), table.dead_letters()
    try:
        leases = read_leases(table.layout().store, now_ms)
    except OSError as error:
        raise OperatorError(f"the leases of the table {table.location} can't be read: {os_reason(error)}") from error
    return TableSummary(
        table.format,
        table.version(),
        table.known_topics(),
        sum(file.rows for file in files),
        len(files),
        sum(file.size_bytes for file in files),
        table.loads(),
        sum(file.rows for file in letters.data_files()) if letters.exists() else 0,
        len(leases.running),
        len(leases.expired | leases.revoked),
    )


def latest_dead_letters(table: Table, count: int) -> list[DeadLetter]:
    """At most `count` dead letters, the latest records first, out of `MAX_LETTER_ROWS` in the newest files.

    Reads neither keys nor values. Raises OperatorError.
    """
    letters = table.dead_letters()
    if not letters.exists():
        return []
    files = sorted(letters.data_files(), key=lambda file: -file.modified_ms)[:MAX_LETTER_FILES]
    layout, schema, columns = letters.layout(), letters.schema(), list(_LETTER_COLUMNS)
    latest: Any = None
    rows = 0
    try:
        dataset = open_dataset(layout, schema, [layout.store.locate(file.path) for file in files])
        for batch in dataset.to_batches(columns=columns):
            found = pa.Table.from_batches([batch])
            latest = _latest(found if latest is None else pa.concat_tables([latest, found]), count)
            rows += batch.num_rows
            if rows >= MAX_LETTER_ROWS:
                break
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise OperatorError(f"a file of the table {letters.location} can't be read: {reason}") from error
    return [] if latest is None else [DeadLetter(**row) for row in latest.to_pylist()]


def _latest(rows: Any, count: int) -> Any:
    order = pc.sort_indices(rows, sort_keys=[("timestamp_ms", "descending"), ("offset", "descending")])
    return rows.take(order[:count])
