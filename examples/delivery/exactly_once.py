"""Exactly once: results and offset are one transaction, so what a killed process had not finished never was.

Readers of the results need isolation.level=read_committed, which is the default of librdkafka and not of Java's client.
"""

from __future__ import annotations

from confluent_kafka import Producer
from counted import batches, consumer, experiment, process


def work(servers: str, numbers: str, results: str) -> None:
    member = consumer(servers, numbers)
    settings = {"bootstrap.servers": servers, "transactional.id": f"mover-to-{results}", "linger.ms": 0}
    producer = Producer({**settings, "log_level": 3})
    producer.init_transactions()  # shuts out a process that had this id before, and aborts what it left open
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
