"""Time from start to the first response, and resources of an idle server.

The data directory is fresh and, if a peer needs it, formatted beforehand: formatting is not part of a start.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.cells import Cell, Figure, Profile
from harness.peers import Server

STARTS = 5
SETTLE_S = 2.0


def run(server: Server, profile: Profile) -> Sequence[Figure]:
    """Measure a first start, idle usage, and the median of five restarts, because a single start is short and noisy."""
    server.prepare()
    first_s = server.start()
    time.sleep(SETTLE_S)
    before = server.usage()
    time.sleep(profile.seconds)
    idle = server.usage() - before
    memory_mb = server.memory_mb()
    again = []
    for _ in range(STARTS):
        server.stop()
        again.append(server.start())
    return [
        Figure("first start to first answer", first_s, "s", yardstick=True),
        Figure("restart to first answer", sorted(again)[STARTS // 2], "s", yardstick=True),
        Figure("idle memory", memory_mb, "MiB", yardstick=True),
        Figure("idle CPU", 100 * idle.cpu_s / idle.seconds, "% of a core", yardstick=True),
    ]


def cells() -> list[Cell]:
    profiles = frozenset({"full", "subset", "quick"})
    return [Cell("start/empty", run, profiles, peers=("ottla", "kafka", "nats"), started=False)]
