"""Keeps the free memory of the machine small, by reading a sparse file, so that new pages have their usual cost.

A virtual machine may return its free memory to its host, and the first touch of a page then causes a fault in the host:
measured here 2.4 CPU seconds per GB written, against 0.24 for a recently used page. The lower cost is that of a broker
on a machine with a full page cache; the host's faults would hide every difference between two brokers. So before each
run clean pages fill the memory; the kernel reclaims them as the broker writes. They are not locked.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = 8 << 20
SPARSE_BYTES = 8 << 40
NO_LOWER_BLOCKS = 256
"""Stop after this many blocks, 2 GiB, without a new minimum of free memory: the kernel reclaims as much as it adds."""
PROBE_BYTES = 128 << 20


def memory_bytes(name: str) -> int:
    """Returns a row of /proc/meminfo, such as MemFree, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/meminfo")


@contextmanager
def page_cache_filler() -> Iterator[Callable[[], None]]:
    """Returns a function that reads a sparse file, much larger than the memory, until free memory stops shrinking.

    The remaining amount, sometimes hundreds of MB, depends on the kernel, so the target is not fixed. Right after a
    run it is quick: the host has not reclaimed that memory yet.
    """
    with tempfile.TemporaryFile(prefix="ottla-bench-", buffering=0) as file:
        os.ftruncate(file.fileno(), SPARSE_BYTES)
        blocks = iter(range(0, SPARSE_BYTES, BLOCK))
        buffer = bytearray(BLOCK)

        def fill() -> None:
            lowest, since = memory_bytes("MemFree"), 0
            while since < NO_LOWER_BLOCKS:
                os.preadv(file.fileno(), [buffer], next(blocks))
                free = memory_bytes("MemFree")
                lowest, since = (free, 0) if free < lowest else (lowest, since + 1)

        yield fill


def write_cost_s_per_gb() -> float:
    """Returns CPU seconds per GB of a plain write of new pages: a lower bound for every broker that stores files."""
    block = bytes(BLOCK)
    with tempfile.TemporaryFile(prefix="ottla-bench-", buffering=0) as file:
        before = time.process_time()
        for _ in range(PROBE_BYTES // BLOCK):
            file.write(block)
        return (time.process_time() - before) / PROBE_BYTES * 1e9
