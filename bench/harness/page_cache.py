"""Keeps the free memory of the machine small, by reading a sparse file, so that new pages cost what they cost in use.

A virtual machine may hand its free memory back to its host, and the first touch of a page then costs a fault in the
host: measured here 2.4 CPU seconds a GB written, against 0.24 when the page was in use a moment ago. That tenth part is
what a broker on a machine with a full page cache sees; the other nine would hide every difference between two brokers.
So before each run clean pages fill the memory; the kernel reclaims them as the broker writes. Not done: locking them.
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
"""So much reading, 2 GiB, without a new low of the free memory: the kernel gives back as much as it takes."""
PROBE_BYTES = 128 << 20


def memory_bytes(name: str) -> int:
    """A row of /proc/meminfo, such as MemFree."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/meminfo")


@contextmanager
def page_cache_filler() -> Iterator[Callable[[], None]]:
    """Gives what fills: it reads on in a sparse file, much larger than the memory, until what is free gets no less.

    How much that is, hundreds of MB at times, is the kernel's affair, so no fixed mark is waited for. Called right
    after a run it is quick: the host has not taken back what the run left yet.
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
    """CPU seconds that a plain write of new pages takes here and now: no broker that keeps files can take less."""
    block = bytes(BLOCK)
    with tempfile.TemporaryFile(prefix="ottla-bench-", buffering=0) as file:
        before = time.process_time()
        for _ in range(PROBE_BYTES // BLOCK):
            file.write(block)
        return (time.process_time() - before) / PROBE_BYTES * 1e9
