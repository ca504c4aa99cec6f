"""Resource usage of a process and its children from /proc: CPU seconds, memory, CPU affinity.

CPU is user and system time of all threads, including ended ones, and of all children. The kernel counts in ticks of 10
ms, so a window should contain at least a second of work. A child that is reparented to another process is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
USER, SYSTEM, CHILDREN_USER, CHILDREN_SYSTEM = 11, 12, 13, 14  # after the name, which may contain spaces


@dataclass(frozen=True)
class Usage:
    """Cumulative usage at one time; the difference of two is the usage of a window."""

    seconds: float
    user_s: float
    system_s: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage(self.seconds - earlier.seconds, self.user_s - earlier.user_s, self.system_s - earlier.system_s)


def tree(pid: int) -> list[int]:
    """Returns the process and its living descendants, without processes that exit meanwhile."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        found.append(each)
        try:
            for task in (PROC / str(each) / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def usage(pid: int) -> Usage:
    """Returns the CPU time of the whole tree so far, including children that have exited."""
    ticks = [0, 0]
    for each in tree(pid):
        try:
            fields = (PROC / str(each) / "stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks[0] += int(fields[USER]) + int(fields[CHILDREN_USER])
        ticks[1] += int(fields[SYSTEM]) + int(fields[CHILDREN_SYSTEM])
    return Usage(time.perf_counter(), ticks[0] / TICKS, ticks[1] / TICKS)


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Returns the resident memory of the tree (VmRSS), or the sum of the maxima so far (VmHWM), in MiB."""
    total = 0
    for each in tree(pid):
        try:
            status = (PROC / str(each) / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(field + ":"))
    return total / 1024


def proportional_mb(pid: int) -> float:
    """Returns the memory of the tree in MiB, with pages that several processes share counted once."""
    total = 0
    for each in tree(pid):
        try:
            lines = (PROC / str(each) / "smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def pinned(command: Iterable[str], cpus: Iterable[int]) -> list[str]:
    """Returns the command pinned to these CPUs from its first instruction; the pid stays the same."""
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(cpus))), *command]
