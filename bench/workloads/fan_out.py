"""Fan-out: 50 consumers that all read the same partition, by the raw replayer; the broker's CPU per delivered GB.

start  from offset 0 of a backlog in the page cache, fetches of up to 1 MB
tail   at the end of the log: each fetch waits for the next batch of a producer at a fixed rate, the topic's one
       record of 100 KB
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.cells import Cell, Figure, Profile, cpu_figures, memory_figures
from harness.peers import Server
from replayer import ENDLESS_S, Load, Replay, measure
from replayer.frames import Wire, batch

TOPIC = "fan"
CONSUMERS = 50
BATCH_RECORDS, RECORD_BYTES = 100, 1000
BATCHES = 2000
PER_FETCH = 10
"""Batches of one fetch from the start."""
TAIL_BYTES = 100_000
TAIL_RATE = 100
TAIL_WAIT_MS = 30_000


def start_load(wire: Wire, consumers: int) -> Load:
    """Writes the backlog; returns the load that reads it from the start, over and over."""
    wire.create_topic(TOPIC, 1)
    wire.write(TOPIC, 1, batch(RECORD_BYTES, BATCH_RECORDS), BATCHES)
    offsets = range(0, BATCHES * BATCH_RECORDS, PER_FETCH * BATCH_RECORDS)
    return Load(
        [wire.fetch(TOPIC, [(0, offset)]) for offset in offsets],
        connections=consumers,
        error_at=wire.fetch_error_at(),
    )


def run_start(consumers: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        load = start_load(wire, consumers)
        used, replayed = measure(server, load, profile.seconds, profile.warm_up_s)
        wire.decode_fetch(replayed.first_response)
    payload = replayed.bytes_in * replayed.requests // max(1, replayed.all_requests)
    return [
        *cpu_figures(used, payload_bytes=payload, requests=replayed.requests),
        *replayed.latency_figures(),
        *memory_figures(server),
    ]


def run_tail(consumers: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        wire.create_topic(TOPIC, 1)
        records = batch(TAIL_BYTES)
        wire.fill(TOPIC, [0], records)
        following = wire.followed_load(TOPIC, 1, (1 << 63) - 1, TAIL_WAIT_MS)
        producing = Load([wire.produce(TOPIC, 0, records)], rate=TAIL_RATE, error_at=wire.produce_error_at(TOPIC))
        follow = Load(**{**vars(following), "connections": consumers})
        with (
            Replay(server.port, producing, seconds=ENDLESS_S) as producer,
            Replay(server.port, follow, seconds=profile.seconds, warm_up_s=profile.warm_up_s) as consuming,
        ):
            producer.wait_for("begin")
            consuming.wait_for("begin")
            before = server.usage()
            consuming.wait_for("end")
            used = server.usage() - before
            replayed = consuming.result()
            producer.end()
        wire.decode_fetch(replayed.first_response)
    payload = replayed.bytes_in * replayed.requests // max(1, replayed.all_requests)
    return [
        *cpu_figures(used, payload_bytes=payload, requests=replayed.requests),
        *replayed.latency_figures(),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    runs = {"start": run_start, "tail": run_tail}
    return [Cell(f"fan_out/{CONSUMERS}/{kind}", partial(run, CONSUMERS)) for kind, run in runs.items()]
