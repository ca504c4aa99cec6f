"""At most once: the offset is committed before the work, so the unfinished batch of a killed process is lost."""

from __future__ import annotations

from confluent_kafka import Producer
from counted import batches, consumer, experiment, process


def work(servers: str, numbers: str, results: str) -> None:
    member = consumer(servers, numbers)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    for batch in batches(member):
        member.commit(asynchronous=False)  # a successor starts after this batch
        for message in batch:
            producer.produce(results, process(message))
            producer.flush()


if __name__ == "__main__":
    experiment(work)
