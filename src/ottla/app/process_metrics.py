"""Process metrics under the names that Prometheus dashboards expect, read from /proc at each scrape.

They are absent on systems without /proc.
"""

from __future__ import annotations

import os
import sys

from ottla import __version__, build_revision
from ottla.metrics.registry import MetricsRegistry
from ottla.record.walk import IMPLEMENTATION

_STAT = "/proc/self/stat"


def register_process_metrics(registry: MetricsRegistry) -> None:
    """Add build information, CPU time, memory and open descriptors to the registry."""
    build = {
        "version": __version__,
        "revision": build_revision() or "unknown",
        "python": python_version(),
        "record_module": IMPLEMENTATION,
    }
    registry.gauge("ottla_build_info", "Version of this process; the value is always 1", build).value = 1
    if not os.path.exists(_STAT):
        return
    registry.read_counter("process_cpu_seconds_total", "CPU time, user and system, in seconds", _cpu_seconds)
    registry.gauge("process_resident_memory_bytes", "Resident memory in bytes", read=_resident_bytes)
    registry.gauge("process_open_fds", "Open descriptors", read=_open_descriptors)


def python_version() -> str:
    """The version of the interpreter: `3.11.7`."""
    return sys.version.split(maxsplit=1)[0]


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read(128).split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_descriptors() -> int:
    # Since Linux 6.2 the size is the number of descriptors; listing 10,000 of them would stall the loop.
    return os.stat("/proc/self/fd").st_size
