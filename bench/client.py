"""Throughput of the Python client compared with plain confluent-kafka: produce and consume, by 100 and one by one.

python bench/client.py [--records 1000000] [--rounds 7] [--value-bytes 100]

All get each record's delivery report. All read the value of each consumed record, and in a second variant its key,
value and offset; plain confluent-kafka also checks its error, as our client does internally. By hundreds both also read
with automatic commits (`enable.auto.commit`), as a member of a group.

Rounds alternate; the reported figure is the median over the rounds of the ratio of records a second (wall clock), of
CPU seconds of this process including librdkafka's threads, and of those of the calling thread alone. Broker and client
share the machine, so CPU is the steadier figure on a busy one. By hundreds plain confluent-kafka produces twice: record
by record, and by its `produce_batch`, which has one callback for all and does not identify its record.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import confluent_kafka
from harness.conditions import conditions
from harness.output import add_output, write_result
from harness.plots import draw_bars

from ottla import Admin, Consumer, Producer, Record
from ottla.testing import Broker

BATCH = 100
TOPIC = "measured"
SOURCE = "source"
QUEUE = 100_000
"""`queue.buffering.max.messages` of librdkafka."""


class Cost(NamedTuple):
    """Costs of one run."""

    wall_s: float
    cpu_s: float
    thread_s: float


class Read(NamedTuple):
    """Fields of the records that a consumer read."""

    records: int
    value_bytes: int


Run = Callable[[int, bytes], None]
"""Sends or reads a number of records with the given value."""
Reported = Callable[[object, object], None]
Send = Callable[[confluent_kafka.Producer, bytes, Reported], None]
"""Sends BATCH records with the given value."""
LookBare = Callable[[Iterable[confluent_kafka.Message | None]], Read]
Look = Callable[[Iterable[Record[bytes, bytes]]], Read]


# Produce


def send_each(producer: confluent_kafka.Producer, value: bytes, reported: Reported, *, polled: bool) -> None:
    """Uses confluent-kafka with a callback for each record, and serves its reports after each record or after all."""
    for _ in range(BATCH):
        while True:
            try:
                producer.produce(TOPIC, value, on_delivery=reported)
                break
            except BufferError:
                producer.poll(0.1)
        if polled:
            producer.poll(0)
    if not polled:
        producer.poll(0)


def send_together(producer: confluent_kafka.Producer, value: bytes, reported: Reported) -> None:
    """Uses confluent-kafka's `produce_batch`."""
    while len(producer) > QUEUE - BATCH:  # records without room in the queue would be skipped
        producer.poll(0.1)
    producer.produce_batch(TOPIC, [{"value": value} for _ in range(BATCH)], on_delivery=reported)
    producer.poll(0)


def bare_producer(servers: str, send: Send) -> Run:
    """Returns a run of confluent-kafka with a callback for each record."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"}
    )

    def run(count: int, value: bytes) -> None:
        reported = [0]

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                raise SystemExit(str(error))
            reported[0] += 1

        for _ in range(count // BATCH):
            send(producer, value, on_delivery)
        producer.flush()
        if reported[0] != count:
            raise SystemExit(f"{reported[0]} of {count} records were delivered")

    return run


def our_producer(servers: str, *, each: bool) -> Run:
    """Returns a run of `ottla.Producer` with a `Delivery` for each record."""
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


# Consume


def bare_values(messages: Iterable[confluent_kafka.Message | None]) -> Read:
    """Read the value of each message."""
    count = size = 0
    for message in messages:
        if message is not None and message.error() is None:
            size += len(message.value() or b"")
            count += 1
    return Read(count, size)


def bare_fields(messages: Iterable[confluent_kafka.Message | None]) -> Read:
    """Read key, value and offset of each message."""
    count = size = 0
    for message in messages:
        if message is not None and message.error() is None:
            _key, value, _offset = message.key(), message.value(), message.offset()
            size += len(value or b"")
            count += 1
    return Read(count, size)


def our_values(records: Iterable[Record[bytes, bytes]]) -> Read:
    """Read the same fields as `bare_values`."""
    count = size = 0
    for record in records:
        size += len(record.value or b"")
        count += 1
    return Read(count, size)


def our_fields(records: Iterable[Record[bytes, bytes]]) -> Read:
    """Read the same fields as `bare_fields`."""
    count = size = 0
    for record in records:
        _key, value, _offset = record.key, record.value, record.offset
        size += len(value or b"")
        count += 1
    return Read(count, size)


def bare_consumer(servers: str, look: LookBare, *, each: bool, committing: bool = False) -> Run:
    """Returns a run of confluent-kafka by `consume` or `poll`."""
    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": committing}
    settings |= {"check.crcs": True, "fetch.queue.backoff.ms": 10}

    def run(count: int, value: bytes) -> None:
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(SOURCE, 0, 0)])
        read = Read(0, 0)
        while read.records < count:
            some = map(consumer.poll, itertools.repeat(1.0, BATCH)) if each else consumer.consume(BATCH, 1.0)
            read = added(read, look(some))
        consumer.close()
        require_all(read, count, value)

    return run


def our_consumer(servers: str, look: Look, *, each: bool, committing: bool = False) -> Run:
    """Returns a run of `ottla.Consumer` as a loop or by `poll`."""
    settings = {"group.id": "ours"} if committing else {}

    def run(count: int, value: bytes) -> None:
        read = Read(0, 0)
        with Consumer[bytes, bytes](servers, settings) as consumer:
            consumer.assign({(SOURCE, 0): 0})
            records = iter(consumer)
            while read.records < count:
                some = itertools.islice(records, BATCH) if each else consumer.poll(1.0, max_records=BATCH)
                read = added(read, look(some))
        require_all(read, count, value)

    return run


def added(one: Read, other: Read) -> Read:
    """Returns the sum of both."""
    return Read(one.records + other.records, one.value_bytes + other.value_bytes)


def require_all(read: Read, count: int, value: bytes) -> None:
    """Exit with an error unless exactly the sent records were read."""
    if read != (count, count * len(value)):
        raise SystemExit(f"{read} where {count} records with values of {len(value)} bytes were sent")


def cost(run: Run, count: int, value: bytes) -> Cost:
    """Returns the cost of one call."""
    wall, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
    run(count, value)
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - thread)


def sides(servers: str) -> dict[str, dict[str, Run]]:
    """Returns the measurements and their sides: first Ottla's client, then the references."""
    hundreds, ones = partial(send_each, polled=False), partial(send_each, polled=True)
    found: dict[str, dict[str, Run]] = {
        "produce by hundreds": {
            "ours": our_producer(servers, each=False),
            "bare": bare_producer(servers, hundreds),
            "bare, produce_batch": bare_producer(servers, send_together),
        },
        "produce one by one": {"ours": our_producer(servers, each=True), "bare": bare_producer(servers, ones)},
    }
    for way, each in (("by hundreds", False), ("one by one", True)):
        for fields, ours, bare in (("", our_values, bare_values), (", key, value, offset", our_fields, bare_fields)):
            found[f"consume {way}{fields}"] = {
                "ours": our_consumer(servers, ours, each=each),
                "bare": bare_consumer(servers, bare, each=each),
            }
    found["consume by hundreds, committing"] = {
        "ours": our_consumer(servers, our_values, each=False, committing=True),
        "bare": bare_consumer(servers, bare_values, each=False, committing=True),
    }
    return found


def compared(name: str, runs: dict[str, list[Cost]], count: int) -> list[dict[str, object]]:
    """Returns the ratios of Ottla's client to each reference."""
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


def bars(measured: dict[str, dict[str, list[Cost]]], count: int) -> list[dict[str, object]]:
    """Returns the plot's data: CPU nanoseconds per record of both clients in each round."""
    rounds = min(len(runs["ours"]) for runs in measured.values())
    return [
        {"way": side, "figures": {name: runs[side][number].cpu_s / count * 1e9 for name, runs in measured.items()}}
        for side in ("ours", "bare")
        for number in range(rounds)
    ]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--value-bytes", type=int, default=100)
    add_output(parser, "client")
    options = parser.parse_args()
    count, value = options.records // BATCH * BATCH, bytes(options.value_bytes)
    load, rows = [os.getloadavg()[0]], []
    measured: dict[str, dict[str, list[Cost]]] = {}
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
            measured[name] = runs
            for row in compared(name, runs, count):
                rows.append(row)
                print(json.dumps(row), flush=True)
    parameters = {"records": count, "value_bytes": len(value), "rounds": options.rounds}
    reported = {**conditions(), "load_average": [round(each, 1) for each in load]}
    write_result(options.output, {"conditions": reported, "parameters": parameters, "summary": rows})
    plot = options.output.parent / "plots" / f"{options.output.stem}.png"
    title = f"CPU of the client's process, ns a record of {len(value)} bytes"
    draw_bars(title, {name: name for name in measured}, bars(measured, count), plot)
    print(f"written to {options.output} and {plot}")


if __name__ == "__main__":
    main()
