"""Exactly once: results and offset are one transaction, so an unfinished batch of a killed process is aborted.

Readers of the results need isolation.level=read_committed, which is the default of librdkafka and not of Java's client.
"""

from __future__ import annotations

from confluent_kafka import Producer
from counted import batches, consumer, experiment, process


def work(servers: str, numbers: str, results: str) -> None:
    member = consumer(servers, numbers)
    settings = {"bootstrap.servers": servers, "transactional.id": f"mover-to-{results}", "linger.ms": 0}
    producer = Producer({**settings, "log_level": 3})
    producer.init_transactions()  # fences an earlier process with this id, and aborts its open transaction
    for batch in batches(member):
        producer.begin_transaction()
        for message in batch:
            producer.produce(results, process(message))
            producer.flush()
        offsets = member.position(member.assignment())
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata())
        producer.commit_transaction()  # both, or after a kill neither


if __name__ == "__main__":
    experiment(work)
