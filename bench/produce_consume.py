"""Produce and consume through librdkafka: msgs/s, MB/s and broker CPU seconds per GB, for 100 B and 1 KiB records.

    make bench                                    about two minutes
    python bench/produce_consume.py --peer kafka  alternates with Apache Kafka in the same run
    python bench/produce_consume.py --sizes 100,1024,10240 --codecs none,lz4 --rounds 3

One topic of six partitions, linger 5 ms, acks=1 unless told, no fsync. A GB is 10^9 payload bytes. The load runs in one
Python process, which is the limit of the throughput; the broker's CPU seconds are not touched by that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from peers import PEERS, ROOT, Server

PARTITIONS = 6
PRODUCE_CHUNK = 2_000


def create_topic(server: Server, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def produce(server: Server, topic: str, count: int, size: int, codec: str, acks: str) -> float:
    """Seconds until the last of `count` records was acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "linger.ms": 5,
            "acks": acks,
            "compression.type": codec,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    payload = os.urandom(size // 2) + b"x" * (size - size // 2)  # about half of it compresses
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, payload, partition=number // PRODUCE_CHUNK % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if left:
        raise SystemExit(f"{left} records were not acknowledged within 120 s")
    return time.perf_counter() - started


def consume(server: Server, topic: str, count: int) -> float:
    """Seconds until `count` records were read from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 262_144,
            "fetch.message.max.bytes": 4_194_304,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    started = time.perf_counter()
    seen = 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=30)
        if not messages:
            raise SystemExit(f"only {seen} of {count} records came back")
        seen += sum(1 for message in messages if message.error() is None)
    elapsed = time.perf_counter() - started
    consumer.close()
    return elapsed


def cell(
    server: Server, round_number: int, size: int, codec: str, total_bytes: int, acks: str
) -> Iterator[dict[str, Any]]:
    """One produce and one consume measurement."""
    count = total_bytes // size
    topic = f"bench-{size}-{codec}-{round_number}"
    create_topic(server, topic)
    for step in ("produce", "consume"):
        before = server.cpu_seconds()
        seconds = (
            produce(server, topic, count, size, codec, acks) if step == "produce" else consume(server, topic, count)
        )
        cpu = server.cpu_seconds() - before
        gigabytes = count * size / 1e9
        yield {
            "server": server.name,
            "step": step,
            "record_bytes": size,
            "codec": codec,
            "acks": acks,
            "round": round_number,
            "records": count,
            "seconds": round(seconds, 3),
            "records_per_s": round(count / seconds),
            "mb_per_s": round(count * size / 1e6 / seconds, 1),
            "broker_cpu_s": round(cpu, 3),
            "broker_cpu_s_per_gb": round(cpu / gigabytes, 3),
            "broker_memory_mb": round(server.memory_mb(), 1),
            "broker_peak_memory_mb": round(server.peak_memory_mb(), 1),
        }


def conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a figure is worth nothing without."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    ottla = subprocess.run(
        [str(ROOT / ".venv/bin/ottla"), "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "ottla": ottla,
        "commit": commit,
        "arguments": vars(arguments),
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Medians over the rounds, a line a cell."""
    lines = [
        f"{'server':<8}{'step':<9}{'bytes':>6}  {'codec':<7}{'records/s':>11}{'MB/s':>8}"
        f"{'CPU s/GB':>10}{'spread':>16}{'RSS MB':>8}"
    ]
    keys = sorted({(row["record_bytes"], row["codec"], row["step"], row["server"]) for row in rows}, key=str)
    for size, codec, step, server in keys:
        same = [
            r for r in rows if (r["record_bytes"], r["codec"], r["step"], r["server"]) == (size, codec, step, server)
        ]
        cpu = [row["broker_cpu_s_per_gb"] for row in same]
        rate = statistics.median(row["records_per_s"] for row in same)
        speed = statistics.median(row["mb_per_s"] for row in same)
        memory = max(row["broker_peak_memory_mb"] for row in same)
        spread = f"{min(cpu):.3f}-{max(cpu):.3f}"
        lines.append(
            f"{server:<8}{step:<9}{size:>6}  {codec:<7}{rate:>11,.0f}{speed:>8.1f}"
            f"{statistics.median(cpu):>10.3f}{spread:>16}{memory:>8.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer", choices=[name for name in PEERS if name != "ottla"], help="alternate with this server"
    )
    parser.add_argument("--sizes", default="100,1024", help="record sizes in bytes (default: %(default)s)")
    parser.add_argument("--codecs", default="none", help="compression types (default: %(default)s)")
    parser.add_argument("--acks", default="1", help="acks of the producer (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds a cell, alternating (default: %(default)s)")
    parser.add_argument("--mb", type=int, default=200, help="payload a cell in MB (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/produce_consume.json", help="JSON result")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for round_number in range(arguments.rounds):
        for name in ("ottla", *([arguments.peer] if arguments.peer else [])):
            with PEERS[name](name) as server:
                for size in map(int, arguments.sizes.split(",")):
                    for codec in arguments.codecs.split(","):
                        for row in cell(server, round_number, size, codec, arguments.mb * 1_000_000, arguments.acks):
                            rows.append(row)
                            print(
                                f"{name} {row['step']} {size} B {codec}: {row['mb_per_s']} MB/s, "
                                f"{row['broker_cpu_s_per_gb']} CPU s/GB",
                                file=sys.stderr,
                            )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(
        json.dumps({"conditions": conditions(arguments), "rows": rows}, indent=1, default=str) + "\n"
    )
    print(summary(rows))
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
