"""End-to-end latency of micro-batches: from a record's append to one topic to its availability in another, by Spark.

python bench/micro_batch.py [--rate 1000] [--triggers 0,1000] [--seconds 60] [--ways ottla,connector]

A stream copies each record: by the source and the sink `ottla`, exactly once, and by Spark's own Kafka connector, at
least once, one after the other over the same Ottla broker. A record's latency starts with the time of the broker's
append (LogAppendTime, in whole milliseconds) and ends when a read_committed consumer on the same machine has it.
Warm-up records don't count; a lost record fails the run, as does a duplicate with exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from harness.conditions import conditions
from harness.output import add_output, write_result
from harness.peers import PEERS, Server
from harness.plots import draw_percentiles
from harness.processes import usage
from harness.spark import CONNECTOR, Program, conf, present, program

from ottla.client.admin.cluster import Cluster

WAYS = ("ottla", CONNECTOR)
ARRIVAL_LIMIT_S = 120.0
"""Maximum delay of a record after the last append, in seconds."""
PACE_S = 0.002


class Arrivals(threading.Thread):
    """The time at which a read_committed consumer read each record of the target, by record number."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.at_ms: dict[int, float] = {}
        self.doubled = 0
        self.failure = ""
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "arrivals",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            now_ms = time.time() * 1000
            if message.error():
                self.failure = str(message.error())
                continue
            number = int(message.value()[:20])
            self.doubled += number in self.at_ms
            self.at_ms.setdefault(number, now_ms)

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._consumer.close()


class Appends:
    """Produces at a steady rate and stores the broker's append time of each record by its number."""

    def __init__(self, servers: str, topic: str, arguments: argparse.Namespace) -> None:
        self.at_ms: dict[int, int] = {}
        self.sent = 0
        self._topic = topic
        self._arguments = arguments
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def run(self, seconds: float) -> None:
        """Send due records for that many seconds."""
        first, started = self.sent, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            while self.sent < first + passed * self._arguments.rate:
                value = (b"%020d " % self.sent).ljust(self._arguments.size, b"x")
                partition = self.sent % self._arguments.partitions
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._appended)
                self.sent += 1
            self._producer.poll(PACE_S)

    def finish(self) -> None:
        if self._producer.flush(ARRIVAL_LIMIT_S):
            raise RuntimeError("the broker did not take all records")

    def _appended(self, error: Any, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        value = message.value() or b""
        self.at_ms[int(value[:20])] = message.timestamp()[1]


def measured(way: str, trigger_ms: int, number: int, server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run once; raises RuntimeError when it fails, when records are lost, or duplicated under exactly once."""
    source, target, servers = f"source-{number}", f"target-{number}", server.bootstrap_servers
    with Cluster(servers) as cluster:
        cluster.topics.create(source, arguments.partitions, configs={"message.timestamp.type": "LogAppendTime"})
        cluster.topics.create(target, arguments.partitions)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        job = {
            "way": way,
            "bootstrap": servers,
            "source": source,
            "target": target,
            "trigger_ms": trigger_ms,
            "checkpoint": str(Path(name, "checkpoint")),
            "master": f"local[{arguments.cores}]",
            "conf": conf(way, arguments.heap, Path(name)),
        }
        with program("into_topic", job, Path(name)) as stream:
            stream.said("ready")
            appends, arrivals = Appends(servers, source, arguments), Arrivals(servers, target, arguments.partitions)
            arrivals.start()
            try:
                appends.run(arguments.warm_up)
                first, before, broker_before = appends.sent, usage(stream.pid), server.usage()
                appends.run(arguments.seconds)
                used, broker_used = usage(stream.pid) - before, server.usage() - broker_before
                appends.finish()
                await_arrivals(appends, arrivals, stream)
            finally:
                arrivals.stop()
            batches_ms = json.loads(stream.end())
    if way != CONNECTOR and arrivals.doubled:
        raise RuntimeError(f"{way}: {arrivals.doubled} records came twice")
    latencies = [arrivals.at_ms[each] - appends.at_ms[each] for each in range(first, appends.sent)]
    return {
        **shares(latencies),
        "doubled": arrivals.doubled,
        "batch_p50_ms": round(statistics.median(batches_ms)),
        "cpu_s": round(used.cpu_s, 2),
        "broker_cpu_s": round(broker_used.cpu_s, 2),
    }


def await_arrivals(appends: Appends, arrivals: Arrivals, stream: Program) -> None:
    """Wait until all appended records have arrived. Raises RuntimeError."""
    deadline = time.perf_counter() + ARRIVAL_LIMIT_S
    while len(arrivals.at_ms) < appends.sent:
        stream.check_alive()
        if time.perf_counter() > deadline:
            lost = appends.sent - len(arrivals.at_ms)
            raise RuntimeError(f"{lost:,} of {appends.sent:,} records did not arrive {arrivals.failure}")
        time.sleep(0.05)


def shares(latencies: Sequence[float]) -> dict[str, Any]:
    """Returns percentiles in milliseconds; all integer percentiles for the plot."""
    percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
    return {
        "records": len(latencies),
        "p50_ms": round(percentiles[49]),
        "p95_ms": round(percentiles[94]),
        "p99_ms": round(percentiles[98]),
        "max_ms": round(max(latencies)),
        "percentiles_ms": [round(each, 1) for each in percentiles],
    }


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns medians over the rounds, by way and trigger."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        lines.setdefault(f"{run['way']}, trigger {run['trigger_ms']} ms", []).append(run["figures"])
    names = ("p50_ms", "p95_ms", "p99_ms", "max_ms", "batch_p50_ms", "cpu_s", "broker_cpu_s")
    return {
        line: {name: statistics.median(one[name] for one in found) for name in names} for line, found in lines.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1000, help="records a second (default: %(default)s)")
    parser.add_argument("--size", type=int, default=200, help="bytes of a record's value (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument(
        "--triggers", default="0,1000", help="intervals in milliseconds; 0: at once (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=30, help="seconds that don't count (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2, help="tasks at once (default: %(default)s)")
    parser.add_argument("--heap", default="1g", help="of the JVM (default: %(default)s)")
    parser.add_argument("--ways", default=",".join(WAYS), help="default: %(default)s")
    add_output(parser, "micro_batch")
    arguments = parser.parse_args()
    ways = arguments.ways.split(",")
    if set(ways) - set(WAYS):
        parser.error(f"--ways takes {', '.join(WAYS)}")
    triggers = [int(each) for each in arguments.triggers.split(",")]
    cells = [(trigger, way) for _ in range(arguments.rounds) for trigger in triggers for way in present(ways)]
    if not cells:
        return 2
    runs: list[dict[str, Any]] = []
    with PEERS["ottla"]("ottla") as server:
        for number, (trigger, way) in enumerate(cells):
            load = os.getloadavg()[0]
            figures = measured(way, trigger, number, server, arguments)
            runs.append({"way": way, "trigger_ms": trigger, "load_average": round(load, 1), "figures": figures})
            print(json.dumps({**runs[-1], "figures": {**figures, "percentiles_ms": "..."}}), flush=True)
    names = ("rate", "size", "partitions", "seconds", "warm_up", "cores", "heap")
    shape = {name: getattr(arguments, name) for name in names}
    result = {"conditions": conditions(), "parameters": shape, "runs": runs, "summary": summary(runs)}
    write_result(arguments.output, result)
    plot = arguments.output.parent / "plots" / f"{arguments.output.stem}.png"
    lines = {f"{run['way']}, trigger {run['trigger_ms']} ms": run["figures"]["percentiles_ms"] for run in runs}
    draw_percentiles(f"{arguments.rate:,} records a second from topic to topic by Spark", "ms", lines, plot)
    print(json.dumps(result["summary"], indent=1))
    print(f"written to {arguments.output} and {plot}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
