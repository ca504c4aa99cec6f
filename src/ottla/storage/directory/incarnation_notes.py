"""Notes of a data directory on the incarnation that uses it: `.ottla_running` and `.kafka_cleanshutdown`.

The clean marker confirms that every log was closed durably: it is removed before the first of them is opened and
written after the last one was closed. `.ottla_running` shows whether an incarnation without the marker may have lost
records.
"""

from __future__ import annotations

import logging

from ottla.common.errors import DataDirectoryError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.disk import Disk
from ottla.storage.directory.directory_health import FULL
from ottla.storage.files import names
from ottla.storage.files.checkpoints import (
    LastIncarnation,
    format_clean_shutdown,
    format_running,
    parse_clean_shutdown,
    parse_running,
)

logger = logging.getLogger(__name__)


class IncarnationNotes:
    """Notes of one directory."""

    __slots__ = ("_directory", "_disk", "_marker_path", "_running_path", "had_clean_shutdown", "running")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._marker_path = f"{directory}/{names.CLEAN_SHUTDOWN_FILE}"
        self._running_path = f"{directory}/{names.RUNNING_FILE}"
        self.had_clean_shutdown = False
        self.running = LastIncarnation()
        """The last incarnation, ended or not, if it lost nothing; without an epoch if unknown (KIP-966).

        A clean stop loses nothing, and neither does the end of the process alone, since the page cache survives it.
        So the same boot of the machine is sufficient here, where Apache Kafka requires the marker of a clean stop.
        """

    def take(self) -> None:
        """Read the notes of the last incarnation, and remove the clean marker. Raises OSError."""
        self.had_clean_shutdown = self._disk.exists(self._marker_path)
        self.running = self._surviving()
        if self.had_clean_shutdown:
            epoch = parse_clean_shutdown(self._disk.read_bytes(self._marker_path))
            self.running = self.running._replace(broker_epoch=epoch)
            self._disk.unlink(self._marker_path)

    def _surviving(self) -> LastIncarnation:
        if not self._disk.exists(self._running_path):
            return LastIncarnation()
        return parse_running(self._disk.read_bytes(self._running_path), self._disk.boot_id())

    def disown(self) -> None:
        """Remove the proof that the last incarnation lost nothing, before this start registers or fails.

        Raises OSError.
        """
        self.running = LastIncarnation()
        if self._disk.exists(self._running_path):
            self._disk.unlink(self._running_path)
            self._disk.fsync_dir(self._directory)

    def note_waiting(self, incarnation_id: Uuid) -> None:
        """Record an incarnation before its registration, so that it is known if the process ends before it serves."""
        self.running = self.running._replace(incarnation_id=incarnation_id)
        self._write(self.running)

    def note_running(self, broker_epoch: int) -> None:
        """Record the running incarnation before its first append. Raises OperatorError.

        If the disk even rejects overwriting the note, the next start cannot prove that nothing was lost.
        """
        if not self._write(LastIncarnation(broker_epoch)):
            path = self._running_path
            try:
                self._disk.unlink(path)  # it must no longer confirm that this incarnation has appended nothing
            except OSError as error:
                raise DataDirectoryError(f"{path} can't be removed: {error.strerror}; repair its disk") from error
        self.running = LastIncarnation(broker_epoch)

    def note_clean_shutdown(self, broker_epoch: int) -> None:
        """Write the clean marker, after all logs were closed durably. Raises OSError."""
        self._disk.write_atomic(self._marker_path, format_clean_shutdown(broker_epoch))

    def _write(self, running: LastIncarnation) -> bool:
        path, data = self._running_path, format_running(running, self._disk.boot_id())
        try:
            self._disk.write_atomic(path, data)
        except OSError as error:
            if error.errno in FULL and self._overwritten(path, data):
                return True
            logger.warning("%s can't be written: %s", path, error.strerror)
            return False
        return True

    def _overwritten(self, path: str, data: bytes) -> bool:
        """Overwrite without space for a new file: a process end tears nothing, a machine restart invalidates the
        note.
        """
        try:
            self._disk.overwrite(path, data)
        except OSError:
            return False
        return True
