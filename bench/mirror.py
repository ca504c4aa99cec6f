"""A topic copied from one Ottla to another by `ottla mirror` and by Apache Kafka's MirrorMaker 2.

python bench/mirror.py [--records 2000000] [--partitions 24] [--rounds 3]

A broker receives the records from librdkafka (lz4). Then, in alternation, each mirror gets a fresh target. Its window
begins when a tenth of the records is in the target, to exclude the start and the warm-up of a JVM, and ends when all
are. CPU is that of the mirror alone. `ottla mirror` is always exactly once; MirrorMaker 2 runs with its defaults, which
are not. Its producer compresses with lz4 as the source did.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.conditions import conditions
from harness.output import add_output, write_result
from harness.peers import JARS, LOAD_CPUS, Kafka, Ottla, Server
from harness.processes import memory_mb, pinned, usage
from harness.records import Sent, half_random, send_all

TOPIC = "load"
LIMIT_S = 1800.0
POLL_S = 0.1
WARM_UP = 0.1
POOL_BYTES = 16 << 20
SETTINGS: dict[str, object] = {"log.retention.ms": -1}
ONE_REPLICA = (
    *("replication.factor", "offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor"),
    *("heartbeats.topic.replication.factor", "offset.storage.replication.factor"),
    *("status.storage.replication.factor", "config.storage.replication.factor"),
)


def fill(server: Server, arguments: argparse.Namespace) -> None:
    """Produce records of one size, half of each random."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, arguments.partitions, 1)])[TOPIC].result(60)
    chance, half = random.Random(1), arguments.size // 2
    pool = chance.randbytes(POOL_BYTES)
    settings = {"bootstrap.servers": server.bootstrap_servers, "compression.type": "lz4", "linger.ms": 100}

    def records() -> Iterator[Sent]:
        for number in range(arguments.records):
            value = half_random(number, arguments.size, pool, chance.randrange(POOL_BYTES - half))
            yield Sent(number // 100 % arguments.partitions, value, b"key-%d" % number)

    send_all({**settings, "queue.buffering.max.messages": 100_000}, TOPIC, records(), LIMIT_S)


class Ends:
    """The number of offsets of the target's topic, including transaction markers."""

    def __init__(self, server: Server, partitions: int) -> None:
        settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "nobody", "log_level": 0}
        self._consumer = Consumer(settings)
        self._partitions = [TopicPartition(TOPIC, index) for index in range(partitions)]

    def total(self) -> int:
        return sum(self._consumer.get_watermark_offsets(each, timeout=30)[1] for each in self._partitions)

    def close(self) -> None:
        self._consumer.close()


def count(server: Server, partitions: int) -> int:
    """Returns the number of records that a read_committed consumer reads."""
    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(partitions)])
    found, finished = 0, set[int]()
    try:
        while len(finished) < partitions:
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error():
                    finished.add(message.partition())
                else:
                    found += 1
        return found
    finally:
        consumer.close()


def command(way: str, source: Server, target: Server) -> Sequence[str]:
    """Returns the mirror's command line."""
    if way == "ottla":
        ends = ["--from", source.bootstrap_servers, "--to", target.bootstrap_servers]
        return [sys.executable, "-m", "ottla", "mirror", *ends, "--topics", TOPIC, "--interval", "3600"]
    properties: dict[str, object] = {
        "clusters": "source,target",
        "source.bootstrap.servers": source.bootstrap_servers,
        "target.bootstrap.servers": target.bootstrap_servers,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "source->target.topics": TOPIC,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "source.consumer.isolation.level": "read_committed",
        "target.producer.compression.type": "lz4",
        **dict.fromkeys(ONE_REPLICA, 1),
    }
    file = target.home / "mirror.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path = ":".join(f"{folder}/*" for folder in JARS[1:])
    return [*Kafka.JAVA[:-1], path, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]


def measured(way: str, source: Server, arguments: argparse.Namespace) -> dict[str, float]:
    with Ottla(way, dict(SETTINGS)) as target:
        admin = AdminClient({"bootstrap.servers": target.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, arguments.partitions, 1)])[TOPIC].result(60)
        ends = Ends(target, arguments.partitions)
        with (target.home / "mirror.log").open("wb") as log:
            process = subprocess.Popen(
                pinned(command(way, source, target), LOAD_CPUS), stdout=log, stderr=log, env=target.environment()
            )
        try:

            def wait_for(wanted: float) -> int:
                deadline = time.perf_counter() + LIMIT_S
                while (found := ends.total()) < wanted:
                    if process.poll() is not None or time.perf_counter() > deadline:
                        raise RuntimeError(f"{way}: {(target.home / 'mirror.log').read_text()[-2000:]}")
                    time.sleep(POLL_S)
                return found

            first = wait_for(WARM_UP * arguments.records)
            before = usage(process.pid)
            last = wait_for(arguments.records)
            used = usage(process.pid) - before
            peak_mb = memory_mb(process.pid, "VmHWM")
            time.sleep(1.0)  # offsets include markers: some records may follow
            found = count(target, arguments.partitions)
        finally:
            process.terminate()
            process.wait()
            ends.close()
    if found != arguments.records:
        raise RuntimeError(f"{way}: {found:,} of {arguments.records:,} records are in the target")
    size_mb = (last - first) * arguments.size / 1e6
    return {
        "cpu_s_per_gb": round(used.cpu_s / size_mb * 1e3, 3),
        "mb_per_s": round(size_mb / used.seconds, 1),
        "cpu_s": round(used.cpu_s, 2),
        "peak_memory_mb": round(peak_mb, 1),
    }


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Returns the medians of each way."""
    ways = list(dict.fromkeys(run["way"] for run in runs))
    return {
        way: {
            name: statistics.median(run["figures"][name] for run in runs if run["way"] == way)
            for name in runs[0]["figures"]
        }
        for way in ways
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a record's value (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="ottla,mirrormaker", help="default: %(default)s")
    add_output(parser, "mirror")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    ways = arguments.ways.split(",")
    if not shutil.which("java") or not any(JARS[1].glob("connect-mirror-*.jar")):
        print("MirrorMaker 2 is left out: Java or its jars are missing; make bench-mirror fetches the jars")
        ways = ["ottla"]
    runs: list[dict[str, Any]] = []
    load = [os.getloadavg()[0]]
    with Ottla("source", dict(SETTINGS)) as source:
        fill(source, arguments)
        for number in range(arguments.rounds):
            for way in ways:
                runs.append({"way": way, "round": number, "figures": measured(way, source, arguments)})
                load.append(os.getloadavg()[0])
                print(json.dumps(runs[-1]), flush=True)
    result = {
        "conditions": {**conditions(), "load_average": [round(each, 1) for each in load]},
        "parameters": {name: getattr(arguments, name) for name in ("records", "partitions", "size", "rounds")},
        "runs": runs,
        "summary": summary(runs),
    }
    write_result(arguments.output, result)
    print(json.dumps(result["summary"], indent=1))
    print(f"written to {arguments.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
