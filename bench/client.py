"""The client for programs beside confluent-kafka bare: produce and consume, in batches of 100 records and one by one.

python bench/client.py [--records 300000] [--rounds 5] [--value-bytes 100]

All are told of each record's delivery and look at each value. Rounds alternate; what is told is the median over the
rounds of the ratio of records a second (wall clock), of CPU seconds of this process, librdkafka's threads included, and
of those of the calling thread alone. Broker and client share the machine, so that CPU is the steadier figure where
others are at work. By hundreds bare produces twice: record after record, and by its `produce_batch`, which has one
callback for all and can't tell which record it is called for.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import confluent_kafka
from harness.conditions import conditions
from harness.output import add_output, write_result

from ottla import Admin, Consumer, Producer
from ottla.testing import Broker

BATCH = 100
TOPIC = "measured"
SOURCE = "source"
QUEUE = 100_000
"""`queue.buffering.max.messages` of librdkafka."""


class Cost(NamedTuple):
    """Of one run."""

    wall_s: float
    cpu_s: float
    thread_s: float


Run = Callable[[int, bytes], None]
"""Sends or reads so many records with such a value."""


def bare_producer(servers: str, *, each: bool) -> Run:
    """confluent-kafka with a callback for each record."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"}
    )

    def run(count: int, value: bytes) -> None:
        told = [0]

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                raise SystemExit(str(error))
            told[0] += 1

        for _ in range(count // BATCH):
            for _ in range(BATCH):
                while True:
                    try:
                        producer.produce(TOPIC, value, on_delivery=on_delivery)
                        break
                    except BufferError:
                        producer.poll(0.1)
                if each:
                    producer.poll(0)
            if not each:
                producer.poll(0)
        producer.flush()
        if told[0] != count:
            raise SystemExit(f"{told[0]} of {count} records were delivered")

    return run


def bare_batches(servers: str) -> Run:
    """confluent-kafka by `produce_batch`."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"}
    )

    def run(count: int, value: bytes) -> None:
        told = [0]

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                raise SystemExit(str(error))
            told[0] += 1

        for _ in range(count // BATCH):
            while len(producer) > QUEUE - BATCH:  # what it has no room for it would leave out and go on
                producer.poll(0.1)
            producer.produce_batch(TOPIC, [{"value": value} for _ in range(BATCH)], on_delivery=on_delivery)
            producer.poll(0)
        producer.flush()
        if told[0] != count:
            raise SystemExit(f"{told[0]} of {count} records were delivered")

    return run


def our_producer(servers: str, *, each: bool) -> Run:
    """`ottla.Producer`, with a `Delivery` for each record."""
    producer = Producer(servers)

    def run(count: int, value: bytes) -> None:
        values = [value] * BATCH
        for _ in range(count // BATCH):
            if each:
                for _ in range(BATCH):
                    producer.send(TOPIC, value)
            else:
                producer.send_batch(TOPIC, values)
        producer.flush()

    return run


def bare_consumer(servers: str, *, each: bool) -> Run:
    """confluent-kafka, by `consume` or `poll`."""

    def run(count: int, value: bytes) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": False, "check.crcs": True}
            | {"fetch.queue.backoff.ms": 10}
        )
        consumer.assign([confluent_kafka.TopicPartition(SOURCE, 0, 0)])
        seen = size = 0
        while seen < count:
            messages = [consumer.poll(1.0)] if each else consumer.consume(BATCH, 1.0)
            for message in messages:
                if message is not None and message.error() is None:
                    size += len(message.value())
                    seen += 1
        consumer.close()
        if size != count * len(value):
            raise SystemExit("other bytes came than were sent")

    return run


def our_consumer(servers: str, *, each: bool) -> Run:
    """`ottla.Consumer`, by `poll` or as a loop."""

    def run(count: int, value: bytes) -> None:
        size = seen = 0
        with Consumer[bytes, bytes](servers) as consumer:
            consumer.assign({(SOURCE, 0): 0})
            if each:
                for record in itertools.islice(consumer, count):
                    size += len(record.value or b"")
            while not each and seen < count:
                for record in consumer.poll(1.0, max_records=BATCH):
                    size += len(record.value or b"")
                    seen += 1
        if size != count * len(value):
            raise SystemExit("other bytes came than were sent")

    return run


def cost(run: Run, count: int, value: bytes) -> Cost:
    """Of one call."""
    wall, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
    run(count, value)
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - thread)


def sides(servers: str) -> dict[str, dict[str, Run]]:
    """What is measured, and for each who does it; ours comes first, and the others are what it is held against."""
    found: dict[str, dict[str, Run]] = {}
    for way, each in (("by hundreds", False), ("one by one", True)):
        ours, bare = our_producer(servers, each=each), bare_producer(servers, each=each)
        found[f"produce {way}"] = {"ours": ours, "bare": bare}
    found["produce by hundreds"]["bare, produce_batch"] = bare_batches(servers)
    for way, each in (("by hundreds", False), ("one by one", True)):
        found[f"consume {way}"] = {"ours": our_consumer(servers, each=each), "bare": bare_consumer(servers, each=each)}
    return found


def compared(name: str, runs: dict[str, list[Cost]], count: int) -> list[dict[str, object]]:
    """Ours against each of the others."""
    rows: list[dict[str, object]] = []
    for other in list(runs)[1:]:
        pairs = list(zip(runs["ours"], runs[other], strict=True))
        rows.append(
            {
                "measured": name,
                "against": other,
                "rate": round(statistics.median(bare.wall_s / ours.wall_s for ours, bare in pairs), 2),
                "cpu": round(statistics.median(ours.cpu_s / bare.cpu_s for ours, bare in pairs), 2),
                "thread_cpu": round(statistics.median(ours.thread_s / bare.thread_s for ours, bare in pairs), 2),
                "cpu_us_per_record": [
                    round(statistics.median(each.cpu_s for each in runs[side]) / count * 1e6, 3)
                    for side in ("ours", other)
                ],
                "best_per_s": [round(count / min(each.wall_s for each in runs[side])) for side in ("ours", other)],
            }
        )
    return rows


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--value-bytes", type=int, default=100)
    add_output(parser, "client")
    options = parser.parse_args()
    count, value = options.records // BATCH * BATCH, bytes(options.value_bytes)
    load, rows = [os.getloadavg()[0]], []
    with Broker(configs={"log.retention.bytes": 256 << 20}) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            for topic in (TOPIC, SOURCE):
                admin.create_topic(topic, partitions=1)
        with Producer(servers) as producer:
            for _ in range(count // BATCH):
                producer.send_batch(SOURCE, [value] * BATCH)
        for name, each in sides(servers).items():
            for run in each.values():
                run(min(count, 50 * BATCH) if name.startswith("produce") else count, value)
            runs: dict[str, list[Cost]] = {side: [] for side in each}
            for _ in range(options.rounds):
                for side, run in each.items():
                    runs[side].append(cost(run, count, value))
            load.append(os.getloadavg()[0])
            for row in compared(name, runs, count):
                rows.append(row)
                print(json.dumps(row), flush=True)
    parameters = {"records": count, "value_bytes": len(value), "rounds": options.rounds}
    told = {**conditions(), "load_average": [round(each, 1) for each in load]}
    write_result(options.output, {"conditions": told, "parameters": parameters, "summary": rows})
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
