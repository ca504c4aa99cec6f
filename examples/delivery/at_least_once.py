"""At least once: the offset is committed after the work, so the unfinished batch of a killed process is done again."""

from __future__ import annotations

from confluent_kafka import Producer
from counted import batches, consumer, experiment, process


def work(servers: str, numbers: str, results: str) -> None:
    member = consumer(servers, numbers)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    for batch in batches(member):
        for message in batch:
            producer.produce(results, process(message))
            producer.flush()
        member.commit(asynchronous=False)  # before this commit, a successor starts with this batch


if __name__ == "__main__":
    experiment(work)
