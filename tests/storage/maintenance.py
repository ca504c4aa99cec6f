"""Periodic steps of a log manager, each run to its end, as the broker runs them off its event loop."""

from __future__ import annotations

from ottla.storage.directory.log_manager import LogManager


def run_retention(manager: LogManager) -> int:
    """Delete expired segments and remove deleted files; returns the number of segments."""
    count = sum(manager.retention_steps())
    remove_deleted(manager)
    return count


def remove_deleted(manager: LogManager) -> None:
    """Remove renamed files and directories after their delay."""
    for directory in manager.directories:
        if directory.health.is_served and (due := directory.deleted.due()) is not None:
            try:
                directory.deleted.remove(due)
            except OSError as error:
                directory.deleted.note_removed(due, error)


def write_checkpoints(manager: LogManager) -> None:
    """Write changed recovery points, log start offsets and high watermarks. Raises KafkaError KAFKA_STORAGE_ERROR."""
    for directory in manager.directories:
        if directory.health.is_served:
            directory.checkpoints.write()
