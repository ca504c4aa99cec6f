"""Cost of appends and tail reads as a log grows, and as a broker gets partitions. The goal is flat lines.

python bench/size.py [--gigabytes 1,5,10,20,50] [--partitions 1,10,100,1000,5000] [--rounds 3] [--peers ottla,kafka]

Size: one partition is filled at the full speed of librdkafka, and at each size two windows are measured, `--rounds`
times: a producer and a consumer at the end of the log (`--rate` records of 1 KiB a second, acks=all), for CPU per GB;
and 1,000 a second for latency, from the time at which a record was due. Partitions: the same two windows on one
partition of a fresh broker with this many in total, each with records. The others belong to another topic: librdkafka
iterates over all partitions of the topics that it writes for every record, which doubled the median with 5,000 of them,
and isn't the broker's cost. Retention is off. Memory is read at each point.

It needs as much disk as the largest size, for one peer at a time, in `TMPDIR`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from harness.conditions import conditions
from harness.load import create_topic, load
from harness.output import add_output, write_result
from harness.peers import PEERS, Server
from harness.plots import draw
from harness.report import spread

TOPIC = "load"
OTHERS = "others"
SIZE = 1024
LATENCY_RATE = 1000
SETTINGS: dict[str, object] = {"log.retention.ms": -1, "log.retention.bytes": -1}
BULK = {
    "producer.linger.ms": 20,
    "producer.batch.size": 1 << 20,
    "producer.queue.buffering.max.messages": 500_000,
    "producer.queue.buffering.max.kbytes": 1_048_576,
}
EVEN = {"producer.acks": "all"}
UNITS = {"CPU": "s/GB", "acknowledged p50": "us", "acknowledged p99": "us", "end to end p99": "us", "memory": "MiB"}
AXES = {"gigabytes": ("Log size", "GB of one partition"), "partitions": ("Partitions", "partitions of the broker")}


class Point(NamedTuple):
    """One window of one peer."""

    peer: str
    axis: str
    x: float
    """The requested value on the axis; the windows themselves extend the log a little beyond it."""
    round: int
    figures: dict[str, float]


def log_bytes(server: Server) -> int:
    return sum(file.stat().st_size for file in (server.data / f"{TOPIC}-0").glob("*.log"))


def windows(server: Server, arguments: argparse.Namespace) -> dict[str, float]:
    """Returns CPU, latencies and memory at the broker's current size."""
    shape = {"topic": TOPIC, "partition": 0, "partitions": 1, "size": SIZE}
    window = {"warm_up_s": arguments.warm_up, "seconds": arguments.seconds}
    even = load("stream", server, {**EVEN, "producer.linger.ms": 5}, rate=arguments.rate, **shape, **window)
    slow = load("latency", server, {**EVEN, "producer.linger.ms": 0}, rate=LATENCY_RATE, **shape, **window)
    acknowledged, end_to_end = slow.counts["ack"], slow.counts["end_to_end"]
    return {
        "CPU": even.used.cpu_s / (even.counts["produced"] * SIZE / 1e9),
        "acknowledged p50": acknowledged["0.5"] * 1e6,
        "acknowledged p99": acknowledged["0.99"] * 1e6,
        "end to end p99": end_to_end["0.99"] * 1e6,
        "memory": server.memory_mb(),
    }


def measured(peer: str, axis: str, x: float, server: Server, arguments: argparse.Namespace) -> list[Point]:
    points = [Point(peer, axis, x, number, windows(server, arguments)) for number in range(arguments.rounds)]
    for point in points:
        print(json.dumps(point._asdict()), flush=True)
    return points


def growing(peer: str, sizes: Sequence[float], arguments: argparse.Namespace) -> list[Point]:
    """Measure one broker with one partition, from the smallest size to the largest."""
    points = []
    with PEERS[peer](peer, dict(SETTINGS)) as server:
        create_topic(server, TOPIC, 1)
        for gigabytes in sizes:
            wanted = int((gigabytes * 1e9 - log_bytes(server)) / SIZE)
            if wanted > 0:
                load("produce", server, BULK, topic=TOPIC, partition=0, size=SIZE, records=wanted)
            points += measured(peer, "gigabytes", gigabytes, server, arguments)
    return points


def among_many(peer: str, count: int, arguments: argparse.Namespace) -> list[Point]:
    """Measure a fresh broker with `count` partitions, of which one is written and read."""
    with PEERS[peer](peer, dict(SETTINGS)) as server:
        create_topic(server, TOPIC, 1)
        if count > 1:
            create_topic(server, OTHERS, count - 1)
            # The partitioner chooses another partition for each batch: ten records per partition reach nearly all.
            load("produce", server, {"producer.linger.ms": 5}, topic=OTHERS, size=SIZE, records=10 * count)
        return measured(peer, "partitions", count, server, arguments)


def summary(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Returns a row for each axis, position on it and figure, with every peer's median and spread, for the plots."""
    rows: dict[tuple[str, float, str], dict[str, list[float]]] = {}
    for point in points:
        for figure, value in point.figures.items():
            peers = rows.setdefault((point.axis, point.x, figure), {})
            peers.setdefault(point.peer, []).append(value)
    return [
        {
            "figure": figure,
            "unit": UNITS[figure],
            "yardstick": True,
            "axis": {"plot": AXES[axis][0], "line": "append and tail", "x": x, "unit": AXES[axis][1]},
            "peers": {peer: spread(values) for peer, values in peers.items()},
        }
        for (axis, x, figure), peers in rows.items()
    ]


def growth(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Returns the ratio of the last median to the first by plot, figure and peer; 1 is flat."""
    ends: dict[str, dict[str, list[float]]] = {}
    for row in sorted(rows, key=lambda row: float(row["axis"]["x"])):
        for peer, values in row["peers"].items():
            ends.setdefault(f"{row['axis']['plot']}: {row['figure']}", {}).setdefault(peer, []).append(values["median"])
    return {
        name: {peer: round(medians[-1] / medians[0], 2) for peer, medians in peers.items()}
        for name, peers in ends.items()
    }


def numbers(text: str) -> list[float]:
    return sorted(float(each) for each in text.split(",") if each)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=numbers, default="1,5,10,20,50", help="default: %(default)s")
    parser.add_argument("--partitions", type=numbers, default="1,10,100,1000,5000", help="default: %(default)s")
    parser.add_argument(
        "--rate", type=int, default=20_000, help="records a second of the stream (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="ottla,kafka", help="default: %(default)s")
    add_output(parser, "size")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    points: list[Point] = []
    load_average = [os.getloadavg()[0]]
    for peer in arguments.peers.split(","):
        missing = PEERS[peer].missing()
        if missing:
            print(f"{peer} is left out: {missing}")
            continue
        points += growing(peer, arguments.gigabytes, arguments)
        for count in arguments.partitions:
            points += among_many(peer, int(count), arguments)
        load_average.append(os.getloadavg()[0])
    rows = summary(points)
    result = {
        "conditions": {**conditions(), "load_average": [round(each, 1) for each in load_average]},
        "parameters": {name: getattr(arguments, name) for name in ("rate", "seconds", "warm_up", "rounds")},
        "growth": growth(rows),
        "summary": rows,
        "points": [point._asdict() for point in points],
    }
    write_result(arguments.output, result)
    plots = draw(rows, arguments.output.parent / "plots")
    print(json.dumps(result["growth"], indent=1))
    print(f"written to {arguments.output} and {', '.join(plot.name for plot in plots)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
