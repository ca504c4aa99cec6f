"""Interface of a cleaner worker: one task at a time, a pass group by group or the key filters of a segment.

A worker reads and writes files and changes no log: it runs in a separate process, or step by step in a simulator. After
each group it waits until the owner of the log has swapped the group in, so at most one group needs twice its space.

Worker processes are in `app.cleaner_process`, scheduling in `log_cleaner`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ottla.common.errors import KafkaError
from ottla.common.platform.disk import Disk
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.segment.health import TRANSIENT_ERRORS
from ottla.storage.segment.index import IndexCorruption

if TYPE_CHECKING:
    from ottla.storage.compaction.cleaning import CleanedGroup, Cleaning, Round
    from ottla.storage.compaction.sources import Source

_MAX_OPEN_FILES = 16
"""Files that a worker has open: a source and a target segment, with their indexes."""


class CleaningTask(NamedTuple):
    """One pass, and its rate limit."""

    directory: str
    """Directory of the partition; an absolute path."""
    round: Round
    max_bytes_per_second: float


class KeyFilterTask(NamedTuple):
    """Key filters of one segment, unless it has valid ones. It ends with `RoundEnd` or `RoundFailure`."""

    directory: str
    """Directory of the partition; an absolute path."""
    source: Source
    io_buffer_bytes: int
    max_body_bytes: int
    max_bytes_per_second: float


class RoundEnd(NamedTuple):
    """The last group was swapped in."""

    end_offset: int
    """The log is clean up to this offset."""
    read_bytes: int
    map_utilization: float
    """Used fraction of the offset map, 0 to 1."""


class RoundFailure(NamedTuple):
    """A pass that ended early. Groups swapped in before stay."""

    reason: str
    lacks_room: bool
    """Whether files or memory ran out, which is not the fault of the log."""
    worker_died: bool = False
    """Whether the worker died, for no reason in the log. Its next pass starts a new one."""


WorkerReport: TypeAlias = "CleanedGroup | RoundEnd | RoundFailure"
WorkerTask: TypeAlias = CleaningTask | KeyFilterTask


class Worker(Protocol):
    """Runs passes, one at a time. All methods run on the loop.

    Implementation: `app.cleaner_process`.
    """

    def begin(self, task: WorkerTask, report: Callable[[WorkerReport], None]) -> None:
        """Begin a pass. `report` gets each group, and `RoundEnd` or `RoundFailure` as the last, on the loop and never
        during this call.
        """
        ...

    def resume(self) -> None:
        """Continue with the next group: the reported one is processed."""
        ...

    def stop(self) -> None:
        """End the pass early: `RoundFailure` is reported once no file is in use. Idempotent."""
        ...


def run_round(task: WorkerTask, disk: Disk, has_read: Callable[[int], object]) -> Generator[WorkerReport, None, None]:
    """Run a task step by step; `has_read` is called with the number of bytes read, and may wait."""
    folder = Folder(Descriptors(disk, _MAX_OPEN_FILES), task.directory)
    try:
        if isinstance(task, KeyFilterTask):
            yield _build_key_filters(task, folder, has_read)
        else:
            yield from _clean(task, folder, has_read)
    except KafkaError as error:
        yield RoundFailure(error.message, lacks_room=False)
    except IndexCorruption as error:
        yield RoundFailure(str(error), lacks_room=False)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        yield RoundFailure(f"{error.strerror or error}{where}", lacks_room=error.errno in TRANSIENT_ERRORS)
    except MemoryError as error:
        yield RoundFailure(f"not enough memory: {error}", lacks_room=True)


def _clean(
    task: CleaningTask, folder: Folder, has_read: Callable[[int], object]
) -> Generator[WorkerReport, None, None]:
    from ottla.storage.compaction.cleaning import Cleaning  # imported here: brokers use only the types of this module

    read_bytes = 0

    def count(size: int) -> None:
        nonlocal read_bytes
        read_bytes += size
        has_read(size)

    cleaning: Cleaning | None = None
    try:
        cleaning = Cleaning(task.round, folder, count)
        yield from cleaning.groups()
        yield RoundEnd(cleaning.end_offset, read_bytes, cleaning.map_utilization)
    finally:
        if cleaning is not None:
            cleaning.close()


def _build_key_filters(task: KeyFilterTask, folder: Folder, has_read: Callable[[int], object]) -> RoundEnd:
    from ottla.storage.compaction.key_filter_builder import ensure_key_filters  # imported here: few logs have an index

    ensure_key_filters(folder, task.source, task.io_buffer_bytes, task.max_body_bytes, has_read)
    return RoundEnd(task.source.next_base_offset, task.source.size_bytes, 0.0)
