"""An unclean restart: kill -9 of a broker that just received some gigabytes, and the time to its first response.

The log is written by the replayer in batches of 1 MB to six partitions, with Kafka's default segments of 1 GiB, and the
broker killed right after the last response. `warm` keeps the page cache, as after a crash of the process; for `cold` it
is dropped, as after a crash of the machine. Then every record must exist, and one more can be written.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from functools import partial

from harness.cells import Axis, Cell, Figure, Profile
from harness.peers import Server
from replayer.frames import Wire, batch

from workloads.catch_up import drop_pages

TOPIC = "restart"
PARTITIONS = 6
BATCH_RECORDS, BATCH_RECORD_BYTES = 1000, 1000


def run(gigabytes: float, cold: bool, server: Server, profile: Profile) -> Sequence[Figure]:
    batches = max(1, int(gigabytes * 1e9 / PARTITIONS / (BATCH_RECORDS * BATCH_RECORD_BYTES)))
    server.prepare()
    server.start()
    with Wire(server) as wire:
        wire.create_topic(TOPIC, PARTITIONS)
        wire.write(TOPIC, PARTITIONS, batch(BATCH_RECORD_BYTES, BATCH_RECORDS), batches)
    server.stop(signal.SIGKILL)
    if cold:
        drop_pages(server.data)
    began = time.perf_counter()
    first_s = server.start()
    with Wire(server) as wire:
        wire.learn_topic(TOPIC, PARTITIONS)
        wire.fill(TOPIC, range(PARTITIONS), batch(BATCH_RECORD_BYTES))
        written_s = time.perf_counter() - began
        ends = wire.end_offsets(TOPIC, PARTITIONS)
    if set(ends) != {batches * BATCH_RECORDS + 1}:
        raise RuntimeError(f"the partitions end at {ends}, not at {batches * BATCH_RECORDS + 1}")
    used = server.usage()
    return [
        Figure("restart to first answer", first_s, "s", yardstick=True),
        Figure("restart to first record", written_s, "s", yardstick=True),
        Figure("broker CPU of the restart", used.cpu_s, "s", yardstick=True),
        Figure("peak memory", server.peak_memory_mb(), "MiB", yardstick=True),
    ]


def cells() -> list[Cell]:
    found = []
    for gigabytes in (0.25, 1.0, 10.0):
        for state in ("warm", "cold"):
            profiles = {"full"}
            if (gigabytes, state) == (1.0, "warm"):
                profiles.add("subset")
            found.append(
                Cell(
                    f"restart/{gigabytes:g}GB/{state}",
                    partial(run, gigabytes, state == "cold"),
                    frozenset(profiles),
                    started=False,
                    axis=Axis("Unclean restart", state, gigabytes, "GB"),
                )
            )
    return found
