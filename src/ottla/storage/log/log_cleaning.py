"""Swap of cleaned segments into a log: the log's side of a cleaner pass, which ends if the log is truncated.

The steps of `swap`, in order: `stage`, `sync`, `take_in`, `sync`, `settle`. All run on the loop except `sync`, which
blocks and belongs in the pool. Between them the log is appended to and read, and may be truncated or closed: that ends
the pass first (`end`), durably, so that no start completes a swap for a log that has changed since.

Invariant: after a swap that a disk error interrupted the log accepts no more appends; a start completes or reverts it.

A repair of damaged segments (`replica.segment_repair`) is a pass too: its segments come from another replica.

The cleaning is in `compaction`, its scheduling in `log_cleaner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.common.errors import InvariantError
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.log_segments import LogSegments
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.log.swap import discard_cleaned, settle, stage, take_in, unstage
from ottla.storage.segment.health import LogHealth
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.compaction.cleaning import CleanedGroup


class LogCleaning:
    """Log's side of one pass. Created by `Log.begin_cleaning`."""

    __slots__ = (
        "_config",
        "_folder",
        "_health",
        "_new",
        "_old",
        "_producers",
        "_segments",
        "_staged",
        "is_over",
    )

    def __init__(
        self,
        segments: LogSegments,
        producers: ProducerState,
        folder: Folder,
        health: LogHealth,
        config: LogConfig,
    ) -> None:
        """Remove the files of an earlier pass. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self._segments = segments
        self._producers = producers
        self._folder = folder
        self._health = health
        self._config = config
        self._old: list[Segment] = []
        self._staged: Sequence[int] = ()
        self._new: list[Segment] = []
        self.is_over = False
        """Whether the log was truncated or closed, or the pass has ended: no further group may be swapped in."""
        try:
            discard_cleaned(folder)
        except OSError as error:
            raise health.storage_error(error, "removing the files of an earlier cleaner pass") from error

    def stage(self, cleaned: CleanedGroup) -> None:
        """Stage the outputs of a group to replace its sources. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self._refuse_when_over()
        bases = {source.base_offset for source in cleaned.sources}
        self._old = [segment for segment in self._segments if segment.base_offset in bases]
        if len(self._old) != len(bases):
            raise InvariantError(f"{self._folder.path}: segments at {sorted(bases)} were cleaned and are gone")
        self._staged = cleaned.outputs
        try:
            stage(self._folder, self._staged)
        except OSError as error:
            self.end()
            raise self._health.storage_error(error, "staging cleaned segments") from error

    def sync(self) -> None:
        """Make the names changed by the last step durable; blocks, in the pool. Raises OSError."""
        self._folder.disk.fsync_dir(self._folder.path)

    def take_in(self) -> None:
        """Swap the staged segments into the log. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self._refuse_when_over()
        try:
            self._new = take_in(
                self._old,
                self._staged,
                segments=self._segments,
                producers=self._producers,
                folder=self._folder,
                events=self._health.events,
                index_interval_bytes=self._config.index_interval_bytes,
                delete_delay_ms=self._config.file_delete_delay_ms,
            )
        except OSError as error:
            self._health.fail()
            raise self._health.storage_error(error, "swapping cleaned segments in") from error
        self._staged = ()
        self._old = []

    def settle(self) -> None:
        """Give the files their final names, which ends the swap. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self._refuse_when_over()
        self._settle()

    def _settle(self) -> None:
        try:
            settle(self._new)
        except OSError as error:
            self._health.fail()
            raise self._health.storage_error(error, "naming cleaned segments") from error
        self._new = []

    def end(self) -> None:
        """End the pass; a swap in progress is reverted or completed, durably, which blocks.

        Raises KafkaError KAFKA_STORAGE_ERROR. Idempotent.
        """
        self.is_over = True
        try:
            if self._staged:
                unstage(self._folder, self._staged)
            if self._new:
                self.sync()
        except OSError as error:
            self._health.fail()
            raise self._health.storage_error(error, "ending a swap of cleaned segments") from error
        self._staged = ()
        self._settle()

    def _refuse_when_over(self) -> None:
        if self.is_over:
            raise InvariantError(f"{self._folder.path}: a cleaner pass continues after its end")
