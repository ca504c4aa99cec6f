"""Fetches of 1, 100, 1,000 and 10,000 partitions, by the raw replayer over one connection, unpipelined.

full        names every partition, without a session; each answers with one record of 100 bytes
idle        the same at the end of every log: nothing comes back but the rows
session     an incremental fetch (KIP-227) over all partitions, none of which has news: the request names none
active      the same with one partition that is followed through a backlog, a record a fetch, among idle ones
tail        the same at the end of that partition's log: the fetch waits for a producer of 1,000 records a second

A request pays for the partitions that it names; the last three should cost the same with 10,000 partitions as with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.cells import Axis, Cell, Figure, Profile, cpu_figures, memory_figures, profiles
from harness.peers import Server
from replayer import ENDLESS_S, Load, Replay, measure
from replayer.frames import Wire, batch

TOPIC = "many"
RECORD_BYTES = 100
PARTITIONS = (1, 100, 1000, 10_000)
SUBSET = {"partitions/full/1000", "partitions/active/10000"}
QUICK = {"partitions/full/100"}
FOLLOWED = 10_000
"""Records of the followed partition; after the last one the fetches restart at the first."""
TAIL_RATE = 1000
TAIL_WAIT_MS = 30_000
ALL_ROWS = -1
ROWS = {"full": ALL_ROWS, "idle": ALL_ROWS, "session": 0, "active": 1, "tail": 1}
"""The number of rows of a correct response."""


def load(wire: Wire, kind: str, partitions: int) -> Load:
    """Creates the topic and builds the requests; also used by the profile of this workload."""
    wire.create_topic(TOPIC, partitions)
    wire.fill(TOPIC, range(partitions), batch(RECORD_BYTES))
    if kind in ("full", "idle"):
        offset = 0 if kind == "full" else 1
        frame = wire.fetch(TOPIC, [(index, offset) for index in range(partitions)])
        return Load([frame], error_at=wire.fetch_error_at(), same_length=True)
    if kind == "active":
        wire.write(TOPIC, 1, batch(RECORD_BYTES), FOLLOWED)
        return wire.followed_load(TOPIC, partitions, FOLLOWED)
    if kind == "tail":
        return wire.followed_load(TOPIC, partitions, (1 << 63) - 1, TAIL_WAIT_MS)
    return wire.session_load(TOPIC, partitions)


def check_first(kind: str, partitions: int, wire: Wire, first_response: bytes) -> None:
    """Check that the first response has the expected rows, without errors."""
    response = wire.decode_fetch(first_response)
    rows = sum(len(topic.partitions) for topic in response.responses)
    if rows != (partitions if ROWS[kind] == ALL_ROWS else ROWS[kind]):
        raise RuntimeError(f"a fetch of {partitions} partitions was answered with {rows} rows")


def run(kind: str, partitions: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        prepared = load(wire, kind, partitions)
        used, replayed = measure(server, prepared, profile.seconds, profile.warm_up_s)
        check_first(kind, partitions, wire, replayed.first_response)
    return [
        *cpu_figures(used, requests=replayed.requests),
        *replayed.latency_figures(),
        Figure("response size", replayed.bytes_in / max(1, replayed.all_requests), "bytes", better="neither"),
        *memory_figures(server),
    ]


def run_tail(partitions: int, server: Server, profile: Profile) -> Sequence[Figure]:
    """Measure a producer at a fixed rate and one waiting fetch; a request of the figures is one of each."""
    with Wire(server) as wire:
        prepared = load(wire, "tail", partitions)
        frames = [wire.produce(TOPIC, 0, batch(RECORD_BYTES))]
        producing = Load(frames, rate=TAIL_RATE, error_at=wire.produce_error_at(TOPIC))
        with (
            Replay(server.port, producing, seconds=ENDLESS_S, warm_up_s=profile.warm_up_s) as producer,
            Replay(server.port, prepared, seconds=profile.seconds, warm_up_s=profile.warm_up_s) as fetches,
        ):
            fetches.wait_for("begin")
            before = server.usage()
            fetches.wait_for("end")
            used = server.usage() - before
            fetched = fetches.result()
            producer.wait_for("begin")
            produced = producer.end()
        check_first("tail", partitions, wire, fetched.first_response)
    return [*cpu_figures(used, requests=fetched.requests), *produced.latency_figures(), *memory_figures(server)]


def cells() -> list[Cell]:
    found = []
    for kind in ROWS:
        for partitions in PARTITIONS:
            name = f"partitions/{kind}/{partitions}"
            found.append(
                Cell(
                    name,
                    partial(run_tail, partitions) if kind == "tail" else partial(run, kind, partitions),
                    profiles(name, SUBSET, QUICK),
                    axis=Axis("Broker CPU per fetch", kind, partitions, "partitions"),
                )
            )
    return found
