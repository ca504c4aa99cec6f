"""A thin producer based on confluent-kafka, with the features that the command line needs.

Invariants: idempotent with acks=all by default, so a retry neither loses nor duplicates a record; keys are assigned to
the same partitions as by Apache Kafka's producer (murmur2). confluent-kafka is imported when a producer is created.

Left out: transactions (`ottla.client.librdkafka.transactional_producer`), serializers, the API for programs
(`ottla.api`). Not thread-safe.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from ottla.client.librdkafka.rdkafka import (
    RECONNECT_BACKOFF_MAX_MS,
    LibraryOutage,
    kafka_error,
    library_client,
    library_timestamp,
    require_headers,
)
from ottla.client.wire.connection import library_servers
from ottla.client.wire.outage import Notify
from ottla.common.errors import KafkaError

FLUSH_POLL_S = 0.1
FULL_QUEUE_POLL_S = 0.1
QUEUE_BYTES_KIB = 64 * 1024
UNASSIGNED = -1
"""Let the partitioner choose the partition."""
NOW: Final = None
"""Let the library use the current time."""
SILENT = SimpleNamespace(log="".format)
"""Disables the library's log: its messages are raised as errors; fatal ones would go to standard error as well.

A Python logger is not an option: a Ctrl-C in it would be lost, and the library's call would end with SystemError.
"""


class FailedRecord(NamedTuple):
    """A record that was not delivered; `number` counts sent records from 0, `partition` is -1 if none was chosen."""

    number: int
    topic: str
    partition: int
    timed_out: bool
    """True if the time was up; the library then hides the reason why the broker did not take the record."""


class RecordProducer:
    """Sends records to one cluster and counts deliveries and failures.

    `properties` are those of librdkafka, and override the defaults.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "ottla",
        acks: str = "all",
        compression: str = "none",
        delivery_timeout_s: float = 30.0,
        properties: Mapping[str, str] | None = None,
        notify: Notify | None = None,
    ) -> None:
        """`notify` gets a message when the cluster becomes unreachable and when it is back.

        Raises KafkaError INVALID_CONFIG for a property that librdkafka rejects.
        """
        import confluent_kafka

        settings: dict[str, Any] = {
            "bootstrap.servers": library_servers(bootstrap_servers),
            "client.id": client_id,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "delivery.timeout.ms": max(1, int(delivery_timeout_s * 1000)),
            "delivery.report.only.error": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.kbytes": QUEUE_BYTES_KIB,
            "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
            "logger": SILENT,
            **(properties or {}),
        }
        self._library = confluent_kafka
        self._outage = LibraryOutage(notify)
        self._producer = library_client(confluent_kafka.Producer, {**settings, "error_cb": self._outage.on_error})
        self.sent_count = 0
        self.failed_count = 0
        self.first_failure: KafkaError | None = None
        self.first_failed: FailedRecord | None = None
        """The failed record with the lowest number, of those that `send_all` sent."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Queue one record and process delivery reports; waits while the queue is full.

        Delivery failures are counted, not raised. Raises KafkaError for a record that cannot be sent at all, such as
        MESSAGE_TOO_LARGE.
        """
        self.queue(topic, value, key, headers, UNASSIGNED if partition is None else partition)
        self.poll()

    def send_all(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Like `send` for each record in turn, at a third of the cost.

        `sent_count` grows by the number of records before the first that cannot be sent, for which this raises
        KafkaError. `first_failed` names the first record that is not delivered.
        """
        produce = self._producer.produce
        if headers:
            produce = functools.partial(produce, headers=require_headers(headers))
        where = UNASSIGNED if partition is None else partition
        start = 0
        while start < len(values):
            left = iter(values[start:])
            left_keys = itertools.repeat(None) if keys is None else iter(keys[start:])
            reports = map(functools.partial, itertools.repeat(self._failed_at), itertools.count(self.sent_count))
            sent = map(produce, itertools.repeat(topic), left, left_keys, itertools.repeat(where), reports)
            self._count_records(0)
            try:
                deque(sent, 0)
            except BufferError:
                end = len(values) - operator.length_hint(left) - 1
                self._count_sent(end - start)
                self.poll(FULL_QUEUE_POLL_S)
            except self._library.KafkaException as error:
                end = len(values) - operator.length_hint(left) - 1
                self._count_sent(end - start)
                self._count_records(1)
                raise self.failure(error.args[0]) from error
            else:
                end = len(values)
                self._count_sent(end - start)
            start = end
        self.poll()

    def _count_sent(self, count: int) -> None:
        self.sent_count += count
        self._count_records(count)

    def queue(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int,
        timestamp_ms: int | None = NOW,
    ) -> None:
        """Like `send`, for high rates: delivery reports are not processed, so the caller must call `poll`."""
        listed = require_headers(headers) if headers else None
        timestamp = library_timestamp(timestamp_ms)
        self._count_records(1)
        while True:
            try:
                self._producer.produce(topic, value, key, partition, self._failed, timestamp=timestamp, headers=listed)
            except BufferError:
                self.poll(FULL_QUEUE_POLL_S)
                continue
            except self._library.KafkaException as error:
                raise self.failure(error.args[0]) from error
            break
        self.sent_count += 1

    def _count_records(self, count: int) -> None:
        """Called before a record is queued, and with the number of records that were queued at once; for subclasses."""

    def poll(self, limit_s: float = 0.0) -> None:
        """Process delivery reports and cluster events; must be called periodically by a caller that sends nothing.

        Raises KafkaError if the producer cannot continue.
        """
        try:
            self._producer.poll(limit_s)
        except self._library.KafkaException as error:
            raise self.failure(error.args[0]) from error
        self._outage.look(self._producer)

    def flush(self, limit_s: float = math.inf) -> int:
        """Wait until every queued record is delivered or has failed (at most `delivery_timeout_s`), or for `limit_s`.

        Returns the number of records that are still queued. Waits in short steps, so that Ctrl-C is handled. Raises
        KafkaError if the producer cannot continue.
        """
        deadline = time.monotonic() + limit_s
        while (queued := self._flush_some()) and time.monotonic() < deadline:
            self._outage.look(self._producer)
        return queued

    def _flush_some(self) -> int:
        try:
            return int(self._producer.flush(FLUSH_POLL_S))
        except self._library.KafkaException as error:
            raise self.failure(error.args[0]) from error

    def raise_first_failure(self) -> None:
        """Raise KafkaError if any record failed, with the number of failures so far and the first reason.

        After `flush` the number is final.
        """
        if self.first_failure is not None:
            raise KafkaError(
                self.first_failure.code,
                f"{self.failed_count:,} of {self.sent_count:,} record{'' if self.sent_count == 1 else 's'} "
                f"{'was' if self.failed_count == 1 else 'were'} not delivered: {self.first_failure.message}",
            )

    def failure(self, reason: Any) -> KafkaError:
        """The exception for an error of the library."""
        return kafka_error(reason)

    def _failed_at(self, number: int, error: Any, message: Any) -> None:
        if error is None:
            return
        if self.first_failed is None or number < self.first_failed.number:
            timed_out = error.code() == self._library.KafkaError._MSG_TIMED_OUT
            self.first_failed = FailedRecord(number, message.topic(), message.partition(), timed_out)
            self.first_failure = kafka_error(error)
        self._failed(error, message)

    def _failed(self, error: Any, message: Any) -> None:
        if error is None:
            return
        self.failed_count += 1
        if self.first_failure is None:
            self.first_failure = kafka_error(error)
