"""Apache Kafka's own ProducerPerformance and ConsumerPerformance (from its jars) against each peer.

A first, shorter run warms the broker and measures the rate, which determines the number of records of the measured run.
The window is the whole run of the tool, including its start and end, which cost the broker next to nothing. The
consumer reads the topic repeatedly to fill the time, each time as a new group.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from harness.cells import Cell, Figure, Profile, cpu_figures, memory_figures
from harness.load import create_topic
from harness.peers import CLASS_PATH, Server
from harness.processes import Usage

from workloads.throughput import ACKS, CODECS, PARTITIONS, SHAPES, SIZES

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
HEAP = "-Xmx512M"
FIRST_BYTES = 100_000_000


def tool(name: str, *arguments: str) -> str:
    """Returns the output of the tool."""
    command = ["java", HEAP, "-cp", CLASS_PATH, name, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{name} failed: {(result.stdout + result.stderr)[-500:]}")
    return result.stdout


def produce_records(server: Server, records: int, size: int, codec: str, acks: str) -> float:
    """Returns the seconds that the tool took by its own clock."""
    output = tool(
        *(PRODUCER, "--bootstrap-server", server.bootstrap_servers, "--topic", "load", "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(size)),
        *("--command-property", f"acks={acks}", f"compression.type={codec}", "linger.ms=5"),
    )
    last = output.strip().splitlines()[-1]
    if not last.startswith(f"{records} records sent, "):
        raise RuntimeError(f"not all records were sent: {output[-500:]}")
    return records / float(last.split(" records sent, ")[1].split(" records/sec")[0])


def consume_records(server: Server, records: int) -> float:
    """Returns the seconds that the tool was fetching, without the time to join its group."""
    output = tool(
        CONSUMER, *("--bootstrap-server", server.bootstrap_servers, "--topic", "load", "--num-records", str(records))
    )
    header, values = (line.split(", ") for line in output.strip().splitlines()[-2:])
    row = dict(zip(header, values, strict=True))
    if int(row["data.consumed.in.nMsg"]) < records:
        raise RuntimeError(f"only {row['data.consumed.in.nMsg']} of {records} records came back")
    return float(row["fetch.time.ms"]) / 1000


def figures(server: Server, used: Usage, seconds: float, records: int, size: int) -> Sequence[Figure]:
    """Returns rates by the tool's clock, and CPU of the whole run."""
    used = replace(used, seconds=seconds)
    return [*cpu_figures(used, payload_bytes=records * size, records=records), *memory_figures(server)]


def produce(size: int, codec: str, acks: str, server: Server, profile: Profile) -> Sequence[Figure]:
    create_topic(server, "load", PARTITIONS)
    first = FIRST_BYTES // size
    records = int(first / produce_records(server, first, size, codec, acks) * profile.seconds)
    before = server.usage()
    seconds = produce_records(server, records, size, codec, acks)
    return figures(server, server.usage() - before, seconds, records, size)


def consume(size: int, codec: str, server: Server, profile: Profile) -> Sequence[Figure]:
    create_topic(server, "load", PARTITIONS)
    records = int(FIRST_BYTES * profile.seconds) // size
    produce_records(server, records, size, codec, "1")
    consume_records(server, records)
    seconds, passes = 0.0, 0
    before = server.usage()
    while seconds < profile.seconds:
        seconds += consume_records(server, records)
        passes += 1
    return figures(server, server.usage() - before, seconds, passes * records, size)


def cells() -> list[Cell]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    found = []
    for size in SIZES:
        for codec in CODECS:
            names = {f"java/produce/{size}/{codec}/acks={acks}": partial(produce, size, codec, acks) for acks in ACKS}
            names[f"java/consume/{size}/{codec}"] = partial(consume, size, codec)
            for name, run in names.items():
                shape = SHAPES.get(size, "")
                found.append(Cell(name, run, settings=settings, shape=shape))
    return found
