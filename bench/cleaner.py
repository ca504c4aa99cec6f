"""A compacted partition cleaned by Ottla's cleaner and by Apache Kafka's, on copies of the same files.

python bench/cleaner.py [--records 10000000] [--keys 1000000] [--rounds 3] [--peers ottla,kafka]

An Ottla broker receives the records from librdkafka (lz4), and everything is read once: the latest offset and the
checksum of the value of each key. Then, in alternation, each peer gets the partition's files under its own topic, idles
for some seconds, and the topic becomes compacted. The window ends when `cleaner-offset-checkpoint` covers everything
but the active segment; then the remaining records are read and compared with the original.

MB/s per core is the size of the cleaned segments by CPU seconds: `of_broker` those of all processes and threads in the
window (the JVM's compilers and collectors, Ottla's worker from its start) minus the idle load, `of_cleaner` those of
Ottla's worker process or Apache Kafka's cleaner thread alone. A last run of each peer has a producer to another topic:
its p99 before the cleaner works, and during it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from harness.conditions import conditions
from harness.output import add_output, write_result
from harness.peers import PEERS, Server
from harness.plots import draw_bars
from harness.processes import TICKS, USER, tree, usage
from harness.records import Sent, half_random, send_all

TOPIC, OTHER = "records", "other"
LIMIT_S = 3600.0
IDLE_S = 8.0
POOL_BYTES = 16 << 20
POLL_S = 0.05
SETTINGS: dict[str, object] = {"log.cleaner.backoff.ms": 500, "log.retention.ms": -1}
CLEANER_THREAD = "kafka-log-clean"
"""The first 15 characters of the thread name, which is all that the kernel stores."""
CLEANER_MODULE = b"ottla.app.cleaner_worker"


class Contents(NamedTuple):
    """The content of the partition for a reader."""

    latest: dict[bytes, tuple[int, int]]
    """Offset and CRC-32 of the latest value, by key."""
    record_count: int


def fill(server: Server, arguments: argparse.Namespace) -> None:
    """Produce records of one size, half of each random, over keys in random order."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    size = {"segment.bytes": str(arguments.segment_mb << 20)}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=size)])[TOPIC].result(60)
    chance, half = random.Random(1), arguments.size // 2
    pool = chance.randbytes(POOL_BYTES)
    settings = {"bootstrap.servers": server.bootstrap_servers, "compression.type": "lz4", "linger.ms": 20}

    def records() -> Iterator[Sent]:
        for number in range(arguments.records):
            value = half_random(number, arguments.size, pool, chance.randrange(POOL_BYTES - half))
            yield Sent(0, value, b"key-%d" % chance.randrange(arguments.keys))

    send_all({**settings, "batch.size": 1 << 18, "queue.buffering.max.messages": 100_000}, TOPIC, records(), LIMIT_S)


def read(bootstrap_servers: str) -> Contents:
    """Read everything from the beginning. Raises RuntimeError if offsets do not ascend."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    latest: dict[bytes, tuple[int, int]] = {}
    before, count = -1, 0
    try:
        while True:
            messages = consumer.consume(10_000, timeout=1.0)
            for message in messages:
                if message.error():
                    return Contents(latest, count)
                if message.offset() <= before:
                    raise RuntimeError(f"offset {message.offset()} follows {before}")
                before = message.offset()
                latest[message.key()] = (before, zlib.crc32(message.value()))
                count += 1
    finally:
        consumer.close()


def put_in_place(server: Server, files: Path, segment_mb: int) -> None:
    """Start the server with a copy of the partition's files under a new topic."""
    server.prepare()
    server.start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    topics = [NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(segment_mb << 20)}), NewTopic(OTHER, 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result(60)
    server.stop()
    target = server.data / f"{TOPIC}-0"
    for old in target.iterdir():
        if old.name != "partition.metadata":
            old.unlink()
    for file in files.iterdir():
        if file.name != "partition.metadata":
            shutil.copy2(file, target)
    server.start()


def begin_cleaning(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def clean_up_to(data: Path) -> int:
    """Returns the offset up to which the partition is clean, from the checkpoint."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")), default=0)


def wait_until_clean(server: Server) -> None:
    """Wait until the partition is clean; raises RuntimeError on a timeout or when the server exits."""
    deadline = time.monotonic() + LIMIT_S
    while not clean_up_to(server.data):
        server.check_alive()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.name}: not clean within {LIMIT_S:.0f} s: {server.last_words()}")
        time.sleep(POLL_S)


def cleaner_cpu_s(pid: int) -> float:
    """Returns the CPU seconds of the server's cleaner so far: of its process, or of its thread."""
    ticks = 0
    for each in tree(pid):
        process = Path(f"/proc/{each}")
        tasks = [process] if CLEANER_MODULE in (process / "cmdline").read_bytes() else []
        tasks += [task for task in process.glob("task/*") if (task / "comm").read_text().strip() == CLEANER_THREAD]
        for task in tasks:
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[USER]) + int(fields[USER + 1])
    return ticks / TICKS


def measured(peer: str, files: Path, before: Contents, arguments: argparse.Namespace) -> dict[str, float]:
    """One run; raises RuntimeError if the remaining records are wrong."""
    dirty = sorted(files.glob("*.log"))[:-1]
    mb = sum(file.stat().st_size for file in dirty) / 1e6
    server = PEERS[peer](peer, dict(SETTINGS))
    try:
        put_in_place(server, files, arguments.segment_mb)
        idle_from, thread_from = server.usage(), cleaner_cpu_s(server.pid)
        time.sleep(IDLE_S)
        started = server.usage()
        idle = (started - idle_from).cpu_s / (started - idle_from).seconds
        begin_cleaning(server)
        wait_until_clean(server)
        work = usage(server.pid) - started
        cleaner_s = cleaner_cpu_s(server.pid) - thread_from
        peak = server.peak_memory_mb()
        check(peer, before, read(server.bootstrap_servers))
        left = sum(file.stat().st_size for file in (server.data / f"{TOPIC}-0").glob("*.log")) / 1e6
    finally:
        server.stop()
        server.remove()
    cpu_s = work.cpu_s - idle * work.seconds
    return {
        "of_broker": round(mb / cpu_s, 1),
        "of_cleaner": round(mb / cleaner_s, 1),
        "mb_per_s": round(mb / work.seconds, 1),
        "peak_memory_mb": round(peak, 1),
        "cpu_s": round(cpu_s, 2),
        "cleaner_cpu_s": round(cleaner_s, 2),
        "seconds": round(work.seconds, 2),
        "cleaned_mb": round(mb, 1),
        "left_mb": round(left, 1),
    }


def check(peer: str, before: Contents, after: Contents) -> None:
    """Raises RuntimeError unless each key has exactly its latest record, at its offset."""
    if after.latest != before.latest:
        different = sum(after.latest.get(key) != record for key, record in before.latest.items())
        raise RuntimeError(f"{peer}: of {len(before.latest):,} keys {different:,} have another latest record")
    if len(before.latest) < before.record_count <= after.record_count:
        raise RuntimeError(f"{peer}: nothing was cleaned")


class Pacemaker(threading.Thread):
    """A producer at an even rate that records the latency of each record from its due time to its response."""

    def __init__(self, bootstrap_servers: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "acks": "all"})
        self._rate = rate
        self._over = threading.Event()
        self._noted: list[float] = []

    def run(self) -> None:
        due = time.perf_counter()
        while not self._over.is_set():
            due += 1 / self._rate
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)
            self._producer.produce(OTHER, bytes(100), on_delivery=lambda error, _, due=due: self._note(error, due))
        self._producer.flush(60)

    def _note(self, error: object, due: float) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self._noted.append((time.perf_counter() - due) * 1e3)

    def taken(self) -> list[float]:
        """Returns the latencies in milliseconds of the responses since the last call."""
        taken, self._noted = self._noted, []
        return taken

    def stop(self) -> None:
        self._over.set()
        self.join()


def beside(peer: str, files: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Returns p50 and p99 of a producer before and during the cleaner's work."""
    server = PEERS[peer](peer, dict(SETTINGS))
    try:
        put_in_place(server, files, arguments.segment_mb)
        producer = Pacemaker(server.bootstrap_servers, arguments.rate)
        producer.start()
        time.sleep(IDLE_S)
        producer.taken()  # the warm-up
        time.sleep(IDLE_S)
        alone = producer.taken()
        begin_cleaning(server)
        wait_until_clean(server)
        cleaning = producer.taken()
        producer.stop()
    finally:
        server.stop()
        server.remove()
    return {
        "alone_p50_ms": percentile(alone, 50),
        "alone_p99_ms": percentile(alone, 99),
        "cleaning_p50_ms": percentile(cleaning, 50),
        "cleaning_p99_ms": percentile(cleaning, 99),
        "records_while_cleaning": len(cleaning),
    }


def percentile(values: Sequence[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 2)


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the medians of each peer, and of Ottla's ratios to Apache Kafka in the same round."""
    by_round = {(run["way"], run["round"]): run["figures"] for run in runs}
    ways = list(dict.fromkeys(run["way"] for run in runs))
    rounds = sorted({run["round"] for run in runs})
    names = list(runs[0]["figures"])
    reported: dict[str, Any] = {
        way: {name: statistics.median(by_round[way, each][name] for each in rounds) for name in names} for way in ways
    }
    if {"ottla", "kafka"} <= set(ways):
        reported["to_kafka"] = {
            name: round(statistics.median(by_round["ottla", n][name] / by_round["kafka", n][name] for n in rounds), 2)
            for name in names
        }
    return reported


PANELS = {
    "of_broker": "MB/s a core, whole broker",
    "of_cleaner": "MB/s a core, cleaner alone",
    "mb_per_s": "MB/s",
    "peak_memory_mb": "peak memory, MiB",
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a record's value (default: %(default)s)")
    parser.add_argument("--segment-mb", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1000, help="records a second beside the cleaner")
    parser.add_argument("--peers", default="ottla,kafka", help="default: %(default)s")
    add_output(parser, "cleaner")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    peers = []
    for peer in arguments.peers.split(","):
        missing = PEERS[peer].missing()
        if missing:
            print(f"{peer} is left out: {missing}")
        else:
            peers.append(peer)
    runs: list[dict[str, Any]] = []
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        files = Path(name)
        with PEERS["ottla"]("ottla", dict(SETTINGS)) as server:
            fill(server, arguments)
            before = read(server.bootstrap_servers)
            server.stop()
            shutil.copytree(server.data / f"{TOPIC}-0", files, dirs_exist_ok=True)
        if before.record_count != arguments.records:
            raise RuntimeError(f"{before.record_count:,} of {arguments.records:,} records were read")
        for number in range(arguments.rounds):
            for peer in peers:
                runs.append({"way": peer, "round": number, "figures": measured(peer, files, before, arguments)})
                load.append(os.getloadavg()[0])
                print(json.dumps(runs[-1]), flush=True)
        latency = {peer: beside(peer, files, arguments) for peer in peers}
    shape = {name: getattr(arguments, name) for name in ("records", "keys", "size", "segment_mb", "rate")}
    result = {
        "conditions": {**conditions(), "load_average": [round(each, 1) for each in load]},
        "parameters": shape,
        "runs": runs,
        "summary": summary(runs),
        "produce_beside": latency,
    }
    write_result(arguments.output, result)
    plot = arguments.output.parent / "plots" / f"{arguments.output.stem}.png"
    draw_bars(f"{arguments.records:,} records of {arguments.keys:,} keys, lz4, cleaned", PANELS, runs, plot)
    print(json.dumps({"summary": result["summary"], "produce_beside": latency}, indent=1))
    print(f"written to {arguments.output} and {plot}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
