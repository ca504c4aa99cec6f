"""A thin producer on confluent-kafka, as far as the command line needs one.

Invariants: idempotent and acks=all unless told otherwise, so a retry neither loses nor doubles a record; keys go to the
partitions that Apache Kafka's own producer picks (murmur2). confluent-kafka is imported when a producer is made.

Left out: transactions (`ottla.client.librdkafka.transactional_producer` has them), serializers, the face for programs
(`ottla.api`). Not thread-safe.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from ottla.client.librdkafka.rdkafka import (
    RECONNECT_BACKOFF_MAX_MS,
    LibraryOutage,
    kafka_error,
    library_timestamp,
    require_headers,
    require_text,
)
from ottla.client.wire.connection import library_servers
from ottla.client.wire.outage import Tell
from ottla.common.errors import ErrorCode, KafkaError

FLUSH_POLL_S = 0.1
FULL_QUEUE_POLL_S = 0.1
QUEUE_BYTES_KIB = 64 * 1024
UNASSIGNED = -1
"""The partition that the partitioner picks."""
NOW: Final = None
"""The timestamp that the library takes from the clock."""
SILENT = SimpleNamespace(log="".format)
"""What the library has to say comes as errors; left alone it writes fatal ones to standard error as well.

No logger of Python's: a Ctrl-C that came while it runs would be lost, and the library's call end by SystemError.
"""


class RecordProducer:
    """Sends records to one cluster and counts what became of them.

    `properties` are librdkafka's, and win over the defaults.
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
        tell: Tell | None = None,
    ) -> None:
        """`tell` gets a sentence when the cluster is gone and when it is back.

        Raises KafkaError INVALID_CONFIG for a property that librdkafka refuses.
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
        require_text(settings.values())
        self._library = confluent_kafka
        self._outage = LibraryOutage(tell)
        try:
            self._producer = confluent_kafka.Producer({**settings, "error_cb": self._outage.on_error})
        except confluent_kafka.KafkaException as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, kafka_error(error.args[0]).message) from error
        self.sent_count = 0
        self.failed_count = 0
        self.first_failure: KafkaError | None = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Queue one record and hear what became of others; waits while the queue is full.

        Failures of delivery are counted, not raised. Raises KafkaError for a record that can't be sent at all, such as
        MESSAGE_TOO_LARGE.
        """
        self.queue(topic, value, key, headers, UNASSIGNED if partition is None else partition)
        self.poll()

    def queue(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int,
        timestamp_ms: int | None = NOW,
    ) -> None:
        """As `send`, for many records a second: nothing is heard between them, so `poll` is for the caller."""
        listed = require_headers(headers) if headers else None
        timestamp = library_timestamp(timestamp_ms)
        self._before_record()
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

    def _before_record(self) -> None:
        """Called before each record is queued; a subclass may have something to begin."""

    def poll(self, limit_s: float = 0.0) -> None:
        """Hear what became of records and of the cluster; whoever sends nothing for a while calls it now and then.

        Raises KafkaError when the producer can't go on.
        """
        try:
            self._producer.poll(limit_s)
        except self._library.KafkaException as error:
            raise self.failure(error.args[0]) from error
        self._outage.look(self._producer)

    def flush(self, limit_s: float = math.inf) -> int:
        """Wait until every queued record is delivered or has failed (`delivery_timeout_s` bounds it), or for `limit_s`.

        Returns how many are still queued. Waits in short pieces, so that Ctrl-C is heard. Raises KafkaError when the
        producer can't go on.
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
        """Raise KafkaError when any record failed, with the number up to now and the first reason.

        After `flush` the number is final.
        """
        if self.first_failure is not None:
            raise KafkaError(
                self.first_failure.code,
                f"{self.failed_count:,} of {self.sent_count:,} record{'' if self.sent_count == 1 else 's'} "
                f"{'was' if self.failed_count == 1 else 'were'} not delivered: {self.first_failure.message}",
            )

    def failure(self, reason: Any) -> KafkaError:
        """What is raised of a refusal of the library."""
        return kafka_error(reason)

    def _failed(self, error: Any, message: Any) -> None:
        if error is None:
            return
        self.failed_count += 1
        if self.first_failure is None:
            self.first_failure = kafka_error(error)
