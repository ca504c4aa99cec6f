"""A process and its children as /proc shows them: CPU seconds, memory, where they may run.

CPU is user and system time of all threads, those that ended too, and of all children. The kernel counts in ticks of
10 ms, so a window should hold a second of work or more. A child that is reparented to another process is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
USER, SYSTEM, CHILDREN_USER, CHILDREN_SYSTEM = 11, 12, 13, 14  # after the name, which may hold spaces


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
    """The process and its living descendants; a process that ends meanwhile is left out."""
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
    """CPU of the whole tree so far, with the children that already ended."""
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
    """Resident set of the tree now (VmRSS), or the sum of the largest so far (VmHWM), in MiB."""
    total = 0
    for each in tree(pid):
        try:
            status = (PROC / str(each) / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(field + ":"))
    return total / 1024


def proportional_mb(pid: int) -> float:
    """Memory of the tree now in MiB, in which pages that several processes share count once."""
    total = 0
    for each in tree(pid):
        try:
            lines = (PROC / str(each) / "smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def pinned(command: Iterable[str], cpus: Iterable[int]) -> list[str]:
    """The command, kept to these CPUs from its first instruction on; the pid stays the same."""
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(cpus))), *command]
