"""A thin transactional producer based on confluent-kafka.

Invariants: a transaction starts with its first record or offset, so it is never empty. A call returns within about its
timeout, so that Ctrl-C is handled. `committed_count` includes only commits that the coordinator has acknowledged.

Not thread-safe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ottla.client.librdkafka.producer import SILENT, RecordProducer
from ottla.client.librdkafka.rdkafka import kafka_error
from ottla.client.librdkafka.transaction_calls import TransactionCalls
from ottla.client.wire.model import CommittedOffset
from ottla.client.wire.outage import Notify
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

AT_ONCE = {"enable.sparse.connections": "false"}
"""Connect to the brokers immediately. Otherwise librdkafka waits 50 ms before it connects to a coordinator, or 500 ms
with unlucky timing (with 2.16 in one of five producers), which is as long as a micro-batch."""

KNOWN_GROUPS = 64
"""Cached group metadata objects, which cost the threads of a consumer."""


class ProducerFenced(KafkaError):
    """The epoch of this producer is no longer valid."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"the producer of transactional id {transactional_id!r} was fenced: another producer uses the id now, or "
            "the transaction was open for longer than transaction.timeout.ms",
        )


class TransactionalProducer(RecordProducer, TransactionCalls):
    """A `RecordProducer` with transactions of `transactional_id`.

    The constructor fences earlier producers of the id, and aborts their open transaction.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        transactional_id: str,
        *,
        client_id: str = "ottla",
        compression: str = "none",
        delivery_timeout_s: float = 30.0,
        properties: Mapping[str, str] | None = None,
        notify: Notify | None = None,
    ) -> None:
        """Raises KafkaError INVALID_CONFIG for a property that librdkafka rejects, and errors of the coordinator."""
        super().__init__(
            bootstrap_servers,
            client_id=client_id,
            compression=compression,
            delivery_timeout_s=delivery_timeout_s,
            properties={"transactional.id": transactional_id, **AT_ONCE, **(properties or {})},
            notify=notify,
        )
        self._transactional_id = transactional_id
        self._is_open = False
        self._timeout_s = delivery_timeout_s
        self.transaction_count = 0
        self.committed_count = 0
        self.open_count = 0
        """Records since the latest commit."""
        self.committing = False
        """A commit was requested, and its outcome is unknown."""
        self._until_done(self._producer.init_transactions, delivery_timeout_s)

    def _count_records(self, count: int) -> None:
        """Begin a transaction if none is open, and count its records. Raises ProducerFenced."""
        if not self._is_open:
            self._begin()
        self.open_count += count

    def _begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except self._library.KafkaException as error:
            raise self.failure(error.args[0]) from error
        self._is_open = True

    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add offsets of a group without members to the transaction (KIP-98), which is started if none is open.

        Offsets are sent without leader epochs. After the return, the coordinator has confirmed that this producer still
        owns the id. Raises ProducerFenced, KafkaError, and ProducerHung, after which the producer can neither be used
        nor ended.
        """
        positions = [
            self._library.TopicPartition(*key, committed.offset, committed.metadata)
            for key, committed in offsets.items()
        ]
        if not self._is_open:
            self._begin()
        self._send_offsets(positions, _group_metadata(group_id), group_id, self._timeout_s)

    def commit(self) -> None:
        """Wait until all records are delivered and the transaction is committed. Raises ProducerFenced, KafkaError."""
        if not self._is_open:
            return
        self.committing = True
        self._until_done(self._producer.commit_transaction, self._timeout_s)
        self._committed()

    def _committed(self) -> None:
        self.committing = False
        self.transaction_count += 1
        self.committed_count += self.open_count
        self.open_count = 0
        self._is_open = False

    def end(self, limit_s: float) -> None:
        """After an interruption or an error: abort the open transaction, or wait for the outcome of a pending commit.

        Raises nothing: otherwise the next producer of the id or the transaction timeout aborts it. `open_count` stays
        the number of uncommitted records, and `committing` stays true while the outcome of a commit is unknown.
        """
        if not self._is_open:
            return
        try:
            if self.committing:
                self._until_done(self._producer.commit_transaction, limit_s)
                self._committed()
                return
        except KafkaError as error:
            if error.code == ErrorCode.REQUEST_TIMED_OUT:
                return
            self.committing = False
        with contextlib.suppress(KafkaError):
            self._until_done(self._producer.abort_transaction, limit_s)

    def _between_attempts(self) -> None:
        self.poll()

    def failure(self, reason: Any) -> KafkaError:
        """All forms of fencing as one exception."""
        reason, codes = self._revealed(reason), self._library.KafkaError
        if reason.code() in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH):
            return ProducerFenced(self._transactional_id)
        return kafka_error(reason)


@lru_cache(maxsize=KNOWN_GROUPS)
def _group_metadata(group_id: str) -> bytes:
    """The library's metadata of a group, which it returns for consumers only, joined or not, connected or not."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"group.id": group_id, "logger": SILENT})
    try:
        return bytes(consumer.consumer_group_metadata())
    finally:
        consumer.close()
