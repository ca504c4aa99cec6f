"""Memory and sockets of a process, from /proc."""

from __future__ import annotations

from pathlib import Path


def _status_bytes(pid: int | str, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/{pid}/status has no {name}")


def resident_bytes(pid: int | str = "self") -> int:
    """VmRSS: current resident memory."""
    return _status_bytes(pid, "VmRSS")


def high_water_bytes(pid: int | str = "self") -> int:
    """VmHWM: the most it ever held."""
    return _status_bytes(pid, "VmHWM")


class Growth:
    """Growth of the peak memory of a process since this was created, in bytes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._reset()
        self._before = resident_bytes(pid)

    def _reset(self) -> None:
        """Reset the high-water mark (Linux: 5 into clear_refs); without permission it keeps its value."""
        try:
            with open(f"/proc/{self._pid}/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            return

    @property
    def bytes(self) -> int:
        return high_water_bytes(self._pid) - self._before


def unread_bytes(port: int) -> int:
    """Bytes received on IPv4 connections to `port` of this machine and not read yet."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(int(row[4].partition(":")[2], 16) for row in rows if int(row[1].rpartition(":")[2], 16) == port)
