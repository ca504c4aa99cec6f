"""Catch-up: four consumers read a cold backlog from its beginning, next to live producers with measured latency.

The backlog consists of batches of 1 MB on four partitions. The harness flushes it and drops its pages, so the reads go
to the disk; the share is a figure. Each consumer has a connection and fetches batch after batch, one fetch in flight.
The producers send 2,000 single-record requests a second of 1 KiB, acks=1, over eight connections to another topic:
first alone, then during the catch-up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.cells import Cell, Figure, Profile, memory_figures
from harness.page_cache import page_cache_filler
from harness.peers import Server
from harness.processes import tree
from replayer import ENDLESS_S, Load, Replay, measure
from replayer.frames import Wire, batch

BACKLOG, LIVE = "backlog", "live"
READERS = 4
BATCH_RECORDS, BATCH_RECORD_BYTES = 1000, 1000
ONE_BATCH = 1
"""A limit that every batch exceeds, so that each fetch returns exactly one."""
LIVE_RECORD_BYTES = 1024
LIVE_PARTITIONS = 6
LIVE_RATE = 2000
LIVE_CONNECTIONS = 8
GIGABYTE = 1e9


def drop_pages(folder: Path) -> None:
    """Flush everything in the folder to disk and drop it from the page cache (fdatasync, posix_fadvise DONTNEED).

    Other clean pages then fill the memory, for the same reason as before each run.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    with page_cache_filler() as fill:
        fill()


def disk_bytes(server: Server) -> int:
    """Returns the bytes that the kernel has read from disks for the server."""
    total = 0
    for pid in tree(server.pid):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("read_bytes:"):
                total += int(line.split()[1])
    return total


def live_load(wire: Wire) -> Load:
    wire.create_topic(LIVE, LIVE_PARTITIONS)
    records = batch(LIVE_RECORD_BYTES)
    return Load(
        [wire.produce(LIVE, index, records) for index in range(LIVE_PARTITIONS)],
        connections=LIVE_CONNECTIONS,
        window=64,
        rate=LIVE_RATE,
        stagger=1,
        error_at=wire.produce_error_at(LIVE),
    )


def backlog_load(wire: Wire, batches: int) -> Load:
    """Write the backlog; returns the load that reads it, one connection per partition."""
    wire.create_topic(BACKLOG, READERS)
    wire.write(BACKLOG, READERS, batch(BATCH_RECORD_BYTES, BATCH_RECORDS), batches)
    offsets = [(index, number * BATCH_RECORDS) for index in range(READERS) for number in range(batches)]
    return Load(
        [wire.fetch(BACKLOG, [place], ONE_BATCH) for place in offsets],
        connections=READERS,
        stagger=batches,
        requests=batches,
        error_at=wire.fetch_error_at(),
        same_length=True,
    )


def run(gigabytes: float, server: Server, profile: Profile) -> Sequence[Figure]:
    batches = int(gigabytes * GIGABYTE / READERS / (BATCH_RECORDS * BATCH_RECORD_BYTES))
    with Wire(server) as wire:
        reading = backlog_load(wire, batches)
        live = live_load(wire)
        _, alone = measure(server, live, profile.seconds, profile.warm_up_s)
        drop_pages(server.data)
        read_before = disk_bytes(server)
        with Replay(server.port, live, seconds=ENDLESS_S) as producers:
            producers.wait_for("begin")
            before = server.usage()
            with Replay(server.port, reading) as readers:
                readers.wait_for("begin")
                readers.wait_for("end")
                used = server.usage() - before
                read = readers.result()
            beside = producers.end()
        wire.decode_fetch(read.first_response)
    from_disk = disk_bytes(server) - read_before
    return [
        *alone.latency_figures("producers alone"),
        *beside.latency_figures("producers beside"),
        Figure("catch-up", read.bytes_in / 1e6 / read.seconds, "MB/s", better="more", yardstick=True),
        Figure("broker CPU per GB, with the producers'", used.cpu_s / read.bytes_in * GIGABYTE, "s/GB", yardstick=True),
        Figure("read from disk", 100 * from_disk / read.bytes_in, "% of the backlog", better="neither"),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    return [
        Cell("catch_up/0.4GB", partial(run, 0.4), frozenset({"quick"})),
        Cell("catch_up/4GB", partial(run, 4.0), frozenset({"full", "subset"})),
    ]
