"""Files of a load, a compaction or a batch of a stream, protected by a lease from the first file to the commit.

**Invariant:** a failed writer removes its files before its lease, so that a vacuum still finds the owner if the writer
is killed in between. Only files of a commit that may have happened stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.load.leases import Lease, held_lease
from ottla.pipeline.sinks.table import Table, UnknownCommitError
from ottla.pipeline.sinks.writer import discard_load


@contextmanager
def leased_files(table: Table, load_id: str) -> Iterator[Lease]:
    """Hold the lease of a load into `table`; callers must `require` it right before each commit.

    At an OttlaError the files of the load are discarded. Raises OperatorError when the lease can't be acquired.
    """
    with held_lease(table.layout().store, load_id) as lease:
        try:
            yield lease
        except UnknownCommitError:
            raise  # its files may be in the table
        except OttlaError:
            discard_files(table, load_id)
            raise


def discard_files(table: Table, load_id: str) -> None:
    """Remove a load's files from a table and its dead letters, except files that the tables name."""
    with suppress(OperatorError):  # a table that can't be read names nothing, so all its files stay
        letters = table.dead_letters()
        named = table.named_files() | (letters.named_files() if letters.exists() else set())
        for part in (table, letters):
            discard_load(part.layout().store, load_id, named)
