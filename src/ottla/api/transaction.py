"""Transactions of a producer as `with` blocks: records are committed together or not at all (KIP-98).

    with producer.transaction() as transaction:
        producer.send("out", value)
        transaction.send_offsets(consumer)

A block that ends normally commits; one that raises aborts, and the exception propagates. A transaction that cannot be
committed (an abort by the coordinator's timeout, a rebalance of a group with offsets in it, a failed record) is aborted
and raises TransactionAborted; the producer can begin another one. ProducerFenced is final.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import Enum, auto
from types import TracebackType
from typing import Any, NoReturn, Protocol

from ottla.api.errors import TransactionAborted, library_error
from ottla.client.librdkafka.transaction_calls import ProducerHung, TransactionCalls
from ottla.client.librdkafka.transactional_producer import ProducerFenced
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

ABORT_LIMIT_S = 5.0
"""Longest wait for an abort; otherwise the coordinator aborts the transaction on timeout."""


class GroupPositions(Protocol):
    """A consumer with offsets for a transaction."""

    @property
    def group_id(self) -> str: ...

    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition, after all returned records."""
        ...

    def group_metadata(self) -> Any:
        """Member and generation, for confluent-kafka (KIP-447)."""
        ...


class State(Enum):
    IDLE = auto()
    OPEN = auto()
    LOST = auto()
    """This producer can no longer be used."""


class Transactions(TransactionCalls):
    """The transactional side of a producer. Raises ProducerFenced and KafkaError from every method."""

    def __init__(self, producer: Any, transactional_id: str, limit_s: float) -> None:
        """`producer` is confluent-kafka's; `limit_s` bounds each call (`max.block.ms`)."""
        import confluent_kafka

        self._library = confluent_kafka
        self._producer = producer
        self._transactional_id = transactional_id
        self._limit_s = limit_s
        self._state = State.IDLE
        self._refused: KafkaError | None = None
        """The error of a record that the library rejected in the open transaction; the library would commit without it.
        """

    def initialize(self) -> None:
        """Fence other producers of the id, and abort their open transactions."""
        self._until_done(self._producer.init_transactions, self._limit_s)

    def require_open(self) -> None:
        """Raise KafkaError INVALID_TXN_STATE if no transaction is open."""
        if self._state is not State.OPEN:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                "a producer with transactional.id must send in a `with producer.transaction():` block",
            )

    def begin(self) -> None:
        """Begin a transaction."""
        if self._state is not State.IDLE:
            what = "is open already" if self._state is State.OPEN else "can't begin: this producer is lost"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"a transaction {what}")
        try:
            self._producer.begin_transaction()
        except self._library.KafkaException as error:
            raise self.failure(error.args[0]) from error
        self._state = State.OPEN
        self._refused = None

    def refuse(self, error: KafkaError) -> None:
        """Record the failure of a record: the transaction can no longer be committed."""
        self._refused = self._refused or error

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: Any, group_id: str) -> None:
        """Add offsets of a group to the transaction. Raises ProducerHung, after which the producer is lost."""
        self.require_open()
        if not offsets:
            return
        positions = [self._library.TopicPartition(*key, offset) for key, offset in offsets.items()]
        try:
            self._send_offsets(positions, group_metadata, group_id, self._limit_s)
        except ProducerHung:
            self._state = State.LOST
            raise

    def commit(self) -> None:
        """Wait for deliveries and commit. Raises TransactionAborted."""
        if self._state is State.IDLE:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "commit without an open transaction")
        if self._refused is not None:
            self._give_up(self._refused)
        self._state = State.LOST  # until the outcome is known; an interruption leaves it in this state
        try:
            self._until_done(self._producer.commit_transaction, self._limit_s)
        except _MustAbort as error:
            self._state = State.OPEN
            self._give_up(error.failure)
        self._state = State.IDLE

    def _give_up(self, why: KafkaError) -> NoReturn:
        self.abort()
        message = f"the transaction of {self._transactional_id!r} was aborted: {why.message}"
        raise TransactionAborted(why.code, message) from why

    def abort(self) -> None:
        """Abort the open transaction."""
        if self._state is not State.OPEN:
            return
        self._state = State.LOST
        self._until_done(self._producer.abort_transaction, max(ABORT_LIMIT_S, self._limit_s))
        self._state = State.IDLE

    def failure(self, reason: Any) -> KafkaError:
        """The exception for an error of the library."""
        reason = self._revealed(reason)
        if reason.txn_requires_abort():
            return _MustAbort(library_error(reason))
        found = library_error(reason)
        fenced = found.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        if fenced or reason.fatal():
            self._state = State.LOST
        return ProducerFenced(self._transactional_id) if fenced else found


class _MustAbort(KafkaError):
    """The library requires an abort."""

    def __init__(self, failure: KafkaError) -> None:
        super().__init__(failure.code, failure.message)
        self.failure = failure


class Transaction:
    """One `with` block; see the module."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __enter__(self) -> Transaction:
        """Begin the transaction. Raises KafkaError INVALID_TXN_STATE if one is open, and ProducerFenced."""
        self._transactions.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit the transaction, or abort it after an exception.

        Raises TransactionAborted, ProducerFenced, and KafkaError REQUEST_TIMED_OUT for an unknown outcome.
        """
        if kind is None:
            self._transactions.commit()
            return
        self.abandon()
        if isinstance(error, _MustAbort):
            message = f"the transaction was aborted: {error.message}"
            raise TransactionAborted(error.code, message) from error

    def abandon(self) -> None:
        """Abort without raising, because the original exception matters more; the timeout aborts as well."""
        with contextlib.suppress(KafkaError):
            self._transactions.abort()

    def send_offsets(self, consumer: GroupPositions) -> None:
        """Commit the consumer's returned records with this transaction; the consumer must not commit by itself.

        The group member is fenced (KIP-447): if a rebalance has revoked partitions, the transaction is aborted, and the
        block raises TransactionAborted. Raises ProducerFenced, KafkaError.
        """
        self.send_positions(consumer.positions(), consumer.group_metadata(), consumer.group_id)

    def send_positions(self, positions: Mapping[TopicPartition, int], group_metadata: Any, group_id: str) -> None:
        """The same for a consumer that cannot be called from here."""
        self._transactions.send_offsets(positions, group_metadata, group_id)
