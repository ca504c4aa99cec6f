"""Fetches of 1, 100, 1,000 and 10,000 partitions, by the raw replayer over one connection, unpipelined.

full        names every partition, without a session; each answers with one record of 100 bytes
idle        the same at the end of every log: nothing comes back but the rows
session     an incremental fetch (KIP-227) over all partitions, none of which has news: the request names none
active      the same with one partition that is followed, a record a fetch, among idle ones

What a request names it must pay for; the last two should cost the same with 10,000 partitions as with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from harness.cells import Axis, Cell, Figure, Profile, cpu_figures, memory_figures
from harness.peers import Server
from replayer import Load, measure
from replayer.frames import Wire, batch

TOPIC = "many"
RECORD_BYTES = 100
PARTITIONS = (1, 100, 1000, 10_000)
ROWS = {"full": None, "idle": None, "session": 0, "active": 1}
"""How many rows a right answer has; None for one a partition."""
FOLLOWED = 200_000
"""Records of the partition that is followed: more than can be fetched one by one in a run, or it begins again."""


def load(wire: Wire, kind: str, partitions: int) -> Load:
    """Topic and requests; also what the profile of this workload runs."""
    wire.create_topic(TOPIC, partitions)
    wire.fill(TOPIC, range(partitions), batch(RECORD_BYTES))
    if kind in ("full", "idle"):
        offset = 0 if kind == "full" else 1
        frame = wire.fetch(TOPIC, [(index, offset) for index in range(partitions)])
        return Load([frame], error_at=wire.fetch_error_at(), same_length=True)
    if kind == "active":
        wire.write(TOPIC, 1, batch(RECORD_BYTES), FOLLOWED)
    return wire.session_load(TOPIC, partitions, active=kind == "active")


def run(kind: str, partitions: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        prepared = load(wire, kind, partitions)
        if kind == "active":
            # Ends with the log, however long that takes: behind its end an offset would be out of range.
            prepared = replace(prepared, requests=FOLLOWED)
        used, replayed = measure(server, prepared, profile.seconds, 0.0 if kind == "active" else profile.warm_up_s)
        response = wire.decode_fetch(replayed.first_response)
    rows = sum(len(topic.partitions) for topic in response.responses)
    expected = ROWS[kind]
    if rows != (partitions if expected is None else expected):
        raise RuntimeError(f"a fetch of {partitions} partitions was answered with {rows} rows")
    return [
        *cpu_figures(used, requests=replayed.requests),
        *replayed.latency_figures(),
        Figure("response size", replayed.bytes_in / max(1, replayed.requests), "bytes", better="neither"),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    found = []
    for kind in ROWS:
        for partitions in PARTITIONS:
            declared = {"full"}
            if kind in ("full", "session") and partitions in (1, 1000, 10_000):
                declared.add("subset")
            if (kind, partitions) in (("full", 100), ("session", 1000)):
                declared.add("quick")
            found.append(
                Cell(
                    f"partitions/{kind}/{partitions}",
                    partial(run, kind, partitions),
                    frozenset(declared),
                    axis=Axis("Broker CPU per fetch", kind, partitions, "partitions"),
                )
            )
    return found
