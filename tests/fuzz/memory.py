"""What a process holds, from /proc."""

from __future__ import annotations

from pathlib import Path


def _status_bytes(pid: int | str, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/{pid}/status has no {name}")


def resident_bytes(pid: int | str = "self") -> int:
    """VmRSS: what it holds now."""
    return _status_bytes(pid, "VmRSS")


def high_water_bytes(pid: int | str = "self") -> int:
    """VmHWM: the most it ever held."""
    return _status_bytes(pid, "VmHWM")


def unread_bytes(port: int) -> int:
    """What came over IPv4 connections to `port` of this machine and was not read yet."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(int(row[4].partition(":")[2], 16) for row in rows if int(row[1].rpartition(":")[2], 16) == port)
