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
