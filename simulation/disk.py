"""The disk of a simulated machine: a file system with power failures, full disks, I/O errors and cold reads.

`SimDisk` persists when processes come and go, with its faults. `Mount` is the disk as seen by one process, and the
place where that process can die: between two operations or in the middle of a write.

Invariant: after its process died, a mount changes nothing; every operation raises ProcessKilled.
"""

from __future__ import annotations

import errno

from simulation.file_system import CAPACITY_BYTES, FileSystem, Inode, MemoryDisk
from simulation.loop import Process, ProcessKilled, SimClock
from simulation.rng import SimRng

NEVER = -1

_LOOKS = frozenset({"look", "listdir", "read", "open"})
"""Operations that change nothing, and so are neither counted nor refused."""


class SimDisk(FileSystem):
    """A file system and its faults."""

    def __init__(self, clock: SimClock, rng: SimRng) -> None:
        super().__init__(clock)
        self.rng = rng
        self.full = False
        """Appends fail with ENOSPC, some with a part written."""
        self.failing_chance = 0.0
        """Probability that a change or a sync ends with EIO."""
        self.failed_directory = ""
        """Everything below this path ends with EIO."""
        self.cold_chance = 0.0
        """Probability that a read misses the page cache."""

    @property
    def refuses(self) -> bool:
        """Whether an operation may fail."""
        return self.full or self.failing_chance > 0.0 or bool(self.failed_directory)

    def power_failed(self) -> None:
        """Lose data that is not durable, by chance."""
        self.lose_power(self.rng)


class Mount(MemoryDisk):
    """A disk as one process sees it."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        super().__init__(disk)
        self.disk = disk
        self._process = process
        self._dies_in = NEVER

    # -- death

    def die_in(self, operations: int) -> None:
        """Kill the process in the `operations`-th disk change from now, counted from 0."""
        self._dies_in = operations

    def _check_alive(self) -> None:
        """Raises ProcessKilled if the process is dead."""
        if not self._process.alive:
            raise ProcessKilled

    def _dies(self) -> bool:
        """Count a disk change; returns whether the process dies in it."""
        self._check_alive()
        if self._dies_in == NEVER:
            return False
        self._dies_in -= 1
        return self._dies_in == NEVER

    def _died(self) -> ProcessKilled:
        """The process ends here."""
        self._process.kill()
        return ProcessKilled()

    def _fails(self) -> bool:
        """Whether a failing disk refuses the next change."""
        chance = self.disk.failing_chance
        return bool(chance) and self.disk.rng.chance(chance)

    def _has_failed(self, path: str) -> bool:
        failed = self.disk.failed_directory
        return bool(failed) and f"{path}/".startswith(f"{failed}/")

    # -- hooks of the memory disk

    def before(self, action: str, path: str) -> None:
        """See `MemoryDisk`. Raises OSError when the disk fails."""
        if self._has_failed(path):
            raise OSError(errno.EIO, "input/output error", path)
        if action in _LOOKS:
            self._check_alive()
            return
        if self._dies():
            raise self._died()
        if self._fails():
            raise OSError(errno.EIO, "input/output error")

    def append(self, inode: Inode, data: bytes, path: str) -> None:
        """See `MemoryDisk`; a failure may leave a part of the data."""
        disk = self.disk
        if self._dies():
            inode.data += data[: disk.rng.randrange(len(data) + 1)]
            raise self._died()
        if disk.full and data:
            inode.data += data[: disk.rng.randrange(len(data))]
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if self._fails() or self._has_failed(path):
            inode.data += data[: disk.rng.randrange(len(data) + 1)]
            raise OSError(errno.EIO, "input/output error", path)
        inode.data += data
        inode.mtime_ms = disk.clock.time_ms()

    def room(self) -> int:
        """See `MemoryDisk`."""
        return 0 if self.disk.full else CAPACITY_BYTES

    def is_cold(self) -> bool:
        """See `MemoryDisk`; by chance."""
        chance = self.disk.cold_chance
        return bool(chance) and self.disk.rng.chance(chance)
