"""The client for programs beside confluent-kafka bare: produce and consume, in batches of 100 records and one by one.

python bench/client.py [--records 300000] [--rounds 5] [--value-bytes 100]

Both sides are told of each record's delivery and look at each value. Rounds alternate; what is printed is the median
over the rounds of the ratio of records a second (wall clock) and of CPU seconds of this process, librdkafka's threads
included. Broker and client share the machine, so that CPU is the steadier figure where others are at work.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import confluent_kafka

from ottla import Admin, Consumer, Producer
from ottla.testing import Broker

BATCH = 100
TOPIC = "measured"
SOURCE = "source"
GROUPS = itertools.count()


class Cost(NamedTuple):
    """Of one run."""

    wall_s: float
    cpu_s: float


def bare_producer(servers: str, *, each: bool) -> Callable[[int, bytes], None]:
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


def our_producer(servers: str, *, each: bool) -> Callable[[int, bytes], None]:
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


def bare_consumer(servers: str, *, each: bool) -> Callable[[int, bytes], None]:
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


def our_consumer(servers: str, *, each: bool) -> Callable[[int, bytes], None]:
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


def cost(run: Callable[[int, bytes], None], count: int, value: bytes) -> Cost:
    """Of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(count, value)
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--value-bytes", type=int, default=100)
    options = parser.parse_args()
    count, value = options.records // BATCH * BATCH, bytes(options.value_bytes)
    print(f"load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {count} records of {len(value)} bytes")
    with Broker(configs={"log.retention.bytes": 256 << 20}) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            for topic in (TOPIC, SOURCE):
                admin.create_topic(topic, partitions=1)
        with Producer(servers) as producer:
            for _ in range(count // BATCH):
                producer.send_batch(SOURCE, [value] * BATCH)
        for name, ours, bare in (("produce", our_producer, bare_producer), ("consume", our_consumer, bare_consumer)):
            for each in (False, True):
                sides = ours(servers, each=each), bare(servers, each=each)
                for side in sides:
                    side(min(count, 50 * BATCH) if name == "produce" else count, value)
                pairs = [tuple(cost(side, count, value) for side in sides) for _ in range(options.rounds)]
                rate = statistics.median(bare.wall_s / ours.wall_s for ours, bare in pairs)
                cpu = statistics.median(ours.cpu_s / bare.cpu_s for ours, bare in pairs)
                best = [min(pair[side].wall_s for pair in pairs) for side in (0, 1)]
                print(
                    f"{name} {'one by one' if each else 'by hundreds':11}: {rate:.2f} of bare's rate, {cpu:.2f} of its "
                    f"CPU; best {count / best[0]:,.0f}/s against {count / best[1]:,.0f}/s"
                )


if __name__ == "__main__":
    main()
