"""A thin transactional producer on confluent-kafka: what it sends is committed in runs, each whole or not at all.

Invariants: a transaction begins with its first record or offset, so an empty one never does; a call returns within
about the time that it is given, so that Ctrl-C is heard; `committed_count` counts only what the coordinator has
acknowledged.

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
from ottla.client.wire.model import CommittedOffset, Position
from ottla.client.wire.outage import Tell
from ottla.common.errors import ErrorCode, KafkaError

AT_ONCE = {"enable.sparse.connections": "false"}
"""Connect to the brokers at once: librdkafka otherwise waits 50 ms before the connection to a coordinator, and where
that comes up in the wrong moment 500 ms (seen with 2.16 at one in five producers), as long as a micro-batch takes."""

KNOWN_GROUPS = 64
"""Whose metadata are kept: they cost the threads of a consumer."""


class ProducerFenced(KafkaError):
    """The epoch of this producer is over."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"the producer of transactional id {transactional_id!r} was fenced: another producer uses the id now, or "
            "the transaction was open for longer than transaction.timeout.ms",
        )


class TransactionalProducer(RecordProducer, TransactionCalls):
    """A `RecordProducer` whose records are part of transactions of `transactional_id`.

    The constructor fences every producer that used the id before, and aborts what it had open.
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
        tell: Tell | None = None,
    ) -> None:
        """Raises KafkaError INVALID_CONFIG for a property that librdkafka refuses, and what the coordinator says."""
        super().__init__(
            bootstrap_servers,
            client_id=client_id,
            compression=compression,
            delivery_timeout_s=delivery_timeout_s,
            properties={"transactional.id": transactional_id, **AT_ONCE, **(properties or {})},
            tell=tell,
        )
        self._transactional_id = transactional_id
        self._is_open = False
        self._timeout_s = delivery_timeout_s
        self.transaction_count = 0
        self.committed_count = 0
        self.open_count = 0
        """Records since the latest commit."""
        self.committing = False
        """A commit was asked for, and its outcome is not known."""
        self._until_done(self._producer.init_transactions, delivery_timeout_s)

    def _before_record(self) -> None:
        """Begin a transaction where none is open. Raises ProducerFenced."""
        if not self._is_open:
            self._begin()
        self.open_count += 1

    def _begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except self._library.KafkaException as error:
            raise self.failure(error.args[0]) from error
        self._is_open = True

    def send_offsets(self, group_id: str, offsets: Mapping[Position, CommittedOffset]) -> None:
        """Make offsets of a group without members part of the transaction (KIP-98), which begins where none is open.

        Their epochs are left out. When it returns, the coordinator has seen that nobody took the id meanwhile. Raises
        ProducerFenced, KafkaError, and ProducerHung, after which the producer can't be used, nor ended.
        """
        positions = [
            self._library.TopicPartition(*key, committed.offset, committed.metadata)
            for key, committed in offsets.items()
        ]
        if not self._is_open:
            self._begin()
        self._send_offsets(positions, _group_metadata(group_id), group_id, self._timeout_s)

    def commit(self) -> None:
        """Wait until every record is delivered and the transaction is committed. Raises ProducerFenced, KafkaError."""
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
        """After an interruption or an error: abort what is open, or learn how a commit that was on its way ended.

        Nothing is raised: whoever uses the id next, or the transaction's timeout, aborts it otherwise. `open_count`
        remains what was not committed, and `committing` true while the outcome of a commit is unknown.
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
        """All faces of fencing as one sentence."""
        reason, codes = self._revealed(reason), self._library.KafkaError
        if reason.code() in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH):
            return ProducerFenced(self._transactional_id)
        return kafka_error(reason)


@lru_cache(maxsize=KNOWN_GROUPS)
def _group_metadata(group_id: str) -> bytes:
    """What the library wants to know of a group: it tells that to consumers only, joined or not, connected or not."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"group.id": group_id, "logger": SILENT})
    try:
        return bytes(consumer.consumer_group_metadata())
    finally:
        consumer.close()
