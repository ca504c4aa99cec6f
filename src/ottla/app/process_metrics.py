"""Process metrics under the names that Prometheus dashboards expect, read from /proc at each scrape.

They are absent on systems without /proc.
"""

from __future__ import annotations

import os

from ottla.metrics.registry import MetricsRegistry

_STAT = "/proc/self/stat"


def register_process_metrics(registry: MetricsRegistry) -> None:
    """Add CPU time, memory and open descriptors to the registry."""
    if not os.path.exists(_STAT):
        return
    registry.gauge("process_cpu_seconds_total", "CPU time, user and system, in seconds", read=_cpu_seconds)
    registry.gauge("process_resident_memory_bytes", "Resident memory in bytes", read=_resident_bytes)
    registry.gauge("process_open_fds", "Open descriptors", read=_open_descriptors)


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read(128).split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_descriptors() -> int:
    # Since Linux 6.2 the size is the number of descriptors; listing 10,000 of them would stall the loop.
    return os.stat("/proc/self/fd").st_size
