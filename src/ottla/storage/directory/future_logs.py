"""Moves of logs between the data directories of a node (KIP-113): copies in progress, and the swap.

A copy is in its data directory under a separate name (`topic-0.<32 hex digits>-future`); that directory contains no
other log of the partition. The swap, all in one tick of the loop:

1. First these become durable: the whole copy, its entries in the checkpoints of its directory, and a note in it
  (`.ottla_moved_from`) with the data directory of the log that it replaces.
2. The directory of the copy is renamed to that of the partition, durably. This is the commit point: the next start uses
  the copy.
3. The old directory is renamed `-delete`, and once that is durable the note is removed.

Apache Kafka refuses to start after a crash between 2 and 3. Here the note identifies the later of the two directories;
without it the start is refused here too.

Invariants:
- A copy is never in the directory of the log itself, and a log has at most one copy.
- A copy never replaces a log with more records: the caller has compared both ends in the same tick.

Filling a copy, and the time of the swap, are in `replica.moves`.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import Rng
from ottla.common.platform.disk import Disk
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.files import names
from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

MAX_REQUESTED_DIRS = 10_000
"""Maximum number of remembered directories for future replicas."""


class FutureLogs:
    """Copies in all directories of a node. Owned by the loop."""

    __slots__ = ("_directories", "_disk", "_requested")

    def __init__(self, directories: Sequence[LogDirectory], disk: Disk) -> None:
        self._directories = directories
        self._disk = disk
        self._requested: dict[TopicPartition, str] = {}

    def directory_of(self, key: TopicPartition) -> LogDirectory | None:
        """Return the directory that the partition's log moves to; None if it does not move."""
        for directory in self._directories:
            if key in directory.futures:
                return directory
        return None

    def get(self, key: TopicPartition) -> Log | None:
        """Return the copy, or None."""
        directory = self.directory_of(key)
        return None if directory is None else directory.futures[key]

    def logs(self) -> Iterator[Log]:
        """Return all copies."""
        return iter([log for directory in self._directories for log in directory.futures.values()])

    # -- future replicas -----------------------------------------------------------------------------------------------

    def set_target_dir(self, key: TopicPartition, path: str) -> None:
        """Remember the directory for a replica that the broker may get. Beyond the limit the oldest is dropped."""
        self._requested.pop(key, None)
        self._requested[key] = path
        if len(self._requested) > MAX_REQUESTED_DIRS:
            del self._requested[next(iter(self._requested))]

    def take_target_dir(self, key: TopicPartition) -> str | None:
        """Return and forget the requested directory of a replica that is about to be created."""
        return self._requested.pop(key, None)

    # -- copies --------------------------------------------------------------------------------------------------------

    def create(self, directory: LogDirectory, key: TopicPartition, topic_id: Uuid | None, config: LogConfig) -> Log:
        """Create an empty copy in `directory`. Raises KafkaError KAFKA_STORAGE_ERROR."""
        if key in directory.logs or self.directory_of(key) is not None:
            raise InvariantError(f"a second copy of {key[0]}-{key[1]}")
        try:
            return directory.create_future(key, config, topic_id)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{key[0]}-{key[1]} can't be moved to {directory.path}: {error.strerror or error}",
            ) from error

    def remove(self, key: TopicPartition) -> None:
        """Cancel the move: the copy is renamed and removed. Raises KafkaError KAFKA_STORAGE_ERROR."""
        directory = self.directory_of(key)
        if directory is not None:
            directory.delete_log(*key, future=True)

    def set_aside(self, key: TopicPartition) -> str | None:
        """See `LogManager.set_aside`. Raises KafkaError."""
        directory = self.directory_of(key)
        return None if directory is None else directory.set_aside(*key, future=True)

    def release(self, key: TopicPartition) -> None:
        """Release the copy, and leave its files to the next start."""
        directory = self.directory_of(key)
        if directory is not None:
            directory.checkpoints.changes.pending = True
            with suppress(OSError):
                directory.futures.pop(key).close(clean=False)

    # -- the swap ------------------------------------------------------------------------------------------------------

    def preparation(self, key: TopicPartition, source: LogDirectory) -> Callable[[], None]:
        """Return step 1 except for the flush of the copy: work for the pool, which raises OSError."""
        directory = self._target(key)
        log, disk = directory.futures[key], self._disk
        path = f"{log.directory}/{names.MOVED_FROM}"
        cleaned = source.checkpoints.cleaner.get(key)
        if cleaned is not None:
            directory.checkpoints.cleaner.put(key, min(cleaned, log.log_end_offset))
        cleaner_due = directory.checkpoints.cleaner.due()
        files, points = directory.checkpoints.offsets_due(), directory.checkpoints.recovery_points_due()
        note = source.directory_id.hex().encode()

        def prepare() -> None:
            if cleaner_due is not None:
                directory.checkpoints.cleaner.write(cleaner_due)
            directory.checkpoints.write_files(files)
            if points is not None:
                directory.checkpoints.write_off_loop(points)
            disk.write_atomic(path, note)

        return prepare

    def take_place(self, key: TopicPartition, source: LogDirectory) -> bool:
        """Do steps 2 and 3 except for the note: the copy becomes the partition's log.

        Returns whether that is durable: if not, both directories are left to the next start, and the log rejects
        appends. Raises KafkaError KAFKA_STORAGE_ERROR with nothing changed.
        """
        directory = self._target(key)
        try:
            durable = directory.adopt_future(key)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{key[0]}-{key[1]} can't be moved to {directory.path}: {error.strerror or error}",
            ) from error
        if durable:
            try:
                source.delete_log(*key)
            except KafkaError as error:
                logger.error(
                    "%s-%d was moved to %s, but its old copy in %s was not removed: %s. Check that disk; the next "
                    "broker start removes the copy.",
                    *key,
                    directory.path,
                    source.path,
                    error,
                )
        else:
            source.checkpoints.changes.pending = True
            with suppress(OSError):
                source.logs.pop(key).close(clean=False)
        return durable

    def conclusion(self, log: Log, source: LogDirectory) -> Callable[[], None]:
        """Return the rest of step 3: work for the pool, which raises OSError."""
        disk, path = self._disk, f"{log.directory}/{names.MOVED_FROM}"
        old = f"{source.path}/{posixpath.basename(log.directory)}"

        def conclude() -> None:
            disk.fsync_dir(source.path)
            if not disk.exists(old):
                disk.unlink(path)
                disk.fsync_dir(posixpath.dirname(path))

        return conclude

    def _target(self, key: TopicPartition) -> LogDirectory:
        directory = self.directory_of(key)
        if directory is None:
            raise InvariantError(f"{key[0]}-{key[1]} is not moving to another directory")
        return directory


def end_swaps(disk: Disk, rng: Rng, directories: Sequence[LogDirectory]) -> None:
    """Complete interrupted swaps before logs are opened: the later of two directories of a partition stays, if known.

    Their notes are removed; a note that names an unavailable data directory stays until it is available. Raises
    OSError.
    """
    names_in = {directory: directory.partition_names() for directory in directories}
    for at, one in enumerate(directories):
        for other in directories[at + 1 :]:
            for name in sorted(set(names_in[one]) & set(names_in[other])):
                later = _later_of(disk, name, one, other)
                if later is not None:
                    _retire(disk, rng, name, one if later is other else other, later)
    there = {directory.directory_id for directory in directories}
    notes = [
        path
        for directory in directories
        for name in directory.partition_names()
        if _replaced_by(disk, path := f"{directory.path}/{name}") in there
    ]
    if notes:
        for directory in directories:
            disk.fsync_dir(directory.path)
    for path in notes:
        disk.unlink(f"{path}/{names.MOVED_FROM}")
        disk.fsync_dir(path)


def _later_of(disk: Disk, name: str, one: LogDirectory, other: LogDirectory) -> LogDirectory | None:
    for directory, replaced in ((one, other), (other, one)):
        if _replaced_by(disk, f"{directory.path}/{name}") == replaced.directory_id:
            return directory
    return None


def _retire(disk: Disk, rng: Rng, name: str, directory: LogDirectory, later: LogDirectory) -> None:
    key = names.parse_partition_dir(name)
    if key is None:
        raise InvariantError(f"{name} is not a partition directory")
    logger.warning("%s was moved from %s to %s; the old copy is removed", name, directory.path, later.path)
    retired = names.retired_partition_dir(*key, rng.random_bytes(16), names.DELETE_DIR_SUFFIX)
    disk.rename(f"{directory.path}/{name}", f"{directory.path}/{retired}")


def _replaced_by(disk: Disk, path: str) -> Uuid | None:
    """Return the id of the data directory with the log that the one at `path` replaces."""
    note = f"{path}/{names.MOVED_FROM}"
    if not disk.exists(note):
        return None
    try:
        return bytes.fromhex(disk.read_bytes(note).decode("ascii", "replace"))
    except ValueError:
        return None
