"""Acknowledged records, and whether a broker still has them: at their offset, once, in order, unaltered.

Each record's value is its own number, so that a reader can distinguish a duplicate, a gap and an alteration.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from ottla.client.admin.cluster import Cluster
from ottla.record.batch import iter_batches

FLUSH_S = 60.0
MAX_IN_FLIGHT = 20_000


class Ledger:
    """An idempotent producer with acks=all that never stops, and its acknowledgements."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, value_bytes: int, **settings: Any) -> None:
        self._topic = topic
        self._partitions = partitions
        self._padding = b"." * value_bytes
        self.acknowledged: dict[tuple[int, int], int] = {}
        """(partition, offset) to the number of the record."""
        self.failures: list[KafkaError] = []
        self.fatal: list[KafkaError] = []
        self.sent = 0
        fatal = self.fatal

        def on_error(error: KafkaError) -> None:  # refers to no ledger: in a cycle, the producer would outlive the test
            if error.fatal():
                fatal.append(error)

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 2 * MAX_IN_FLIGHT,
                "error_cb": on_error,
                **settings,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        place = (message.partition(), message.offset())
        number = int(message.key())
        if place in self.acknowledged:
            raise AssertionError(f"{place} was promised to {self.acknowledged[place]} and to {number}")
        self.acknowledged[place] = number

    @property
    def in_flight(self) -> int:
        return len(self._producer)

    def send(self) -> None:
        """One more record; waits while too many are under way."""
        number = self.sent
        self.sent += 1
        while len(self._producer) >= MAX_IN_FLIGHT:
            self._producer.poll(0.01)
        value = b"%d" % number + self._padding
        self._producer.produce(
            self._topic, value, b"%d" % number, number % self._partitions, on_delivery=self._delivered
        )
        if number % 100 == 0:
            self._producer.poll(0)

    def send_until(self, done: threading.Event) -> None:
        """For a thread of its own."""
        while not done.is_set():
            self.send()

    def acknowledge(self, count: int, timeout_s: float = 60.0) -> None:
        """Send until `count` more records are acknowledged, with others under way."""
        goal = len(self.acknowledged) + count
        deadline = time.monotonic() + timeout_s
        while len(self.acknowledged) < goal or not self.in_flight:
            self.send()
            if time.monotonic() > deadline:
                raise AssertionError(f"{goal - len(self.acknowledged)} records were not acknowledged in {timeout_s} s")

    def finish(self) -> None:
        """Wait for records in flight; all must be acknowledged in the end."""
        left = self._producer.flush(FLUSH_S)
        if left or self.failures or self.fatal or len(self.acknowledged) != self.sent:
            raise AssertionError(
                f"{left} of {self.sent} left, {len(self.acknowledged)} acknowledged, failed: {self.failures[:3]}, "
                f"fatal: {self.fatal[:3]}"
            )

    def verify(self, bootstrap_servers: str, *, exactly: bool = True) -> None:
        """Read everything back. `exactly`: without unacknowledged records."""
        found: dict[tuple[int, int], int] = {}
        with Cluster(bootstrap_servers) as cluster:
            for partition in range(self._partitions):
                self._read(cluster, partition, found)
        missing = {place: number for place, number in self.acknowledged.items() if found.get(place) != number}
        if missing:
            some = dict(itertools.islice(missing.items(), 5))
            raise AssertionError(f"{len(missing)} acknowledged records are lost or elsewhere, among them {some}")
        twice = [number for number, times in Counter(found.values()).items() if times > 1]
        if twice:
            raise AssertionError(f"{len(twice)} records are there more than once, among them {twice[:5]}")
        if exactly and len(found) != len(self.acknowledged):
            raise AssertionError(f"{len(found)} records are there, {len(self.acknowledged)} were acknowledged")

    def _read(self, cluster: Cluster, partition: int, found: dict[tuple[int, int], int]) -> None:
        offset = last = -1
        position = 0
        end = cluster.records.list_offsets({(self._topic, partition): -1})[self._topic, partition].offset
        while position < end:
            records = cluster.records.fetch(self._topic, partition, position).records
            for batch in iter_batches(records):
                if not batch.crc_matches():
                    raise AssertionError(f"the batch at {batch.base_offset} of partition {partition} is damaged")
                for record in batch.records():
                    if record.offset != offset + 1:
                        raise AssertionError(f"offset {record.offset} follows {offset} in partition {partition}")
                    offset = record.offset
                    if record.key is None:
                        raise AssertionError(f"the record at {offset} of partition {partition} lost its key")
                    number = int(record.key)
                    if number <= last:
                        raise AssertionError(f"record {number} comes after {last} in partition {partition}")
                    last = number
                    if record.value != record.key + self._padding:
                        raise AssertionError(f"record {number} was altered")
                    found[partition, offset] = number
                position = batch.next_offset
