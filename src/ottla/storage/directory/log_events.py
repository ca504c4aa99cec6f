"""Effects of the events of logs (`LogEvents`) on their data directory."""

from __future__ import annotations

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.directory.deleted_files import DeletedFiles
from ottla.storage.directory.directory_checkpoints import DirectoryCheckpoints
from ottla.storage.directory.directory_health import DirectoryHealth
from ottla.storage.directory.due_flushes import DueFlushes
from ottla.storage.directory.held_logs import HeldLogs
from ottla.storage.directory.incarnation_notes import IncarnationNotes
from ottla.storage.files.log_config import LogConfig


class DirectoryEvents:
    """Receives the events of all logs of one directory."""

    __slots__ = ("_checkpoints", "_deleted", "_flushes", "_health", "_held", "_notes")

    def __init__(
        self,
        flushes: DueFlushes,
        checkpoints: DirectoryCheckpoints,
        notes: IncarnationNotes,
        health: DirectoryHealth,
        deleted: DeletedFiles,
        held: HeldLogs,
    ) -> None:
        self._flushes = flushes
        self._checkpoints = checkpoints
        self._notes = notes
        self._health = health
        self._deleted = deleted
        self._held = held

    def log_configured(self, partition: TopicPartition, config: LogConfig) -> None:
        self._flushes.use_config(partition, config)
        self._held.use_config(partition, config)

    def flush_needed(self, partition: TopicPartition) -> None:
        self._flushes.add(partition)

    def log_truncated(self, partition: TopicPartition, offset: int) -> None:
        self._checkpoints.log_truncated(partition, offset)

    def records_lost(self, partition: TopicPartition, *, proved: bool) -> None:
        self._notes.disown()

    def log_failed(self, partition: TopicPartition, error: OSError, action: str, *, lasting: bool) -> None:
        topic, index = partition
        self._health.note_error(error, f"{action} of {topic}-{index}", lasting=lasting)

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        self._deleted.add_files(paths, delay_ms)
