"""A thin transactional producer on confluent-kafka: what it sends is committed in runs, each whole or not at all.

Invariants: a transaction begins with its first record, so an empty one never does; a call returns within about the time
that it is given, so that Ctrl-C is heard; `committed_count` counts only what the coordinator has acknowledged.

Not thread-safe.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.model import CommittedOffset, Position
from ottla.client.outage import Tell
from ottla.client.producer import SILENT, RecordProducer
from ottla.client.rdkafka import kafka_error
from ottla.common.errors import ErrorCode, KafkaError

STEP_S = 0.5
"""The library's calls can't be interrupted, but go on where they were when they are made again."""
HUNG_S = 5.0
"""How long a call may go on after its time, which is STEP_S at most."""
AT_ONCE = {"enable.sparse.connections": "false"}
"""Connect to the brokers at once: librdkafka otherwise waits 50 ms before the connection to a coordinator, and where
that comes up in the wrong moment 500 ms (seen with 2.16 at one in five producers), as long as a micro-batch takes."""


class ProducerFenced(KafkaError):
    """The epoch of this producer is over."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"the producer of transactional id {transactional_id!r} was fenced: another producer uses the id now, or "
            "the transaction was open for longer than transaction.timeout.ms",
        )


class ProducerHung(KafkaError):
    """A call of the library does not come back: this producer is lost, another one under the id can go on."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the offsets of group {group_id!r} got into no transaction: the library went on beyond its time",
        )


class TransactionalProducer(RecordProducer):
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
        self._bootstrap_servers = bootstrap_servers
        self._transactional_id = transactional_id
        self._groups: dict[str, Any] = {}
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
        if self.open_count == 0:
            try:
                self._producer.begin_transaction()
            except self._library.KafkaException as error:
                raise self._error(error.args[0]) from error
        self.open_count += 1

    def send_offsets(self, group_id: str, offsets: Mapping[Position, CommittedOffset]) -> None:
        """Make offsets of a group without members part of the open transaction (KIP-98). Their epochs are left out.

        Raises ProducerFenced, KafkaError. After ProducerHung the producer can't be used, nor ended: librdkafka 2.16
        whose broker was away for a moment may wait for ever, beyond the time that it was given. The next one with the
        id ends the transaction.
        """
        positions = [
            self._library.TopicPartition(*key, committed.offset, committed.metadata)
            for key, committed in offsets.items()
        ]
        metadata = self._group_metadata(group_id)

        called = [time.monotonic()]

        def send(limit_s: float) -> None:
            called[0] = time.monotonic()
            self._producer.send_offsets_to_transaction(positions, metadata, limit_s)

        failures: list[BaseException] = []

        def run() -> None:
            try:
                self._until_done(send, self._timeout_s)
            except BaseException as error:
                failures.append(error)

        sender = threading.Thread(target=run, daemon=True)
        sender.start()
        while sender.is_alive():
            sender.join(STEP_S)
            if sender.is_alive() and time.monotonic() - called[0] > STEP_S + HUNG_S:
                raise ProducerHung(group_id)
        if failures:
            raise failures[0]

    def _group_metadata(self, group_id: str) -> Any:
        """What the library wants to know of a group; it tells that to consumers only, joined or not."""
        if group_id not in self._groups:
            consumer = self._library.Consumer(
                {"bootstrap.servers": self._bootstrap_servers, "group.id": group_id, "logger": SILENT}
            )
            self._groups[group_id] = consumer.consumer_group_metadata()
            consumer.close()
        return self._groups[group_id]

    def commit(self) -> None:
        """Wait until every record is delivered and the transaction is committed. Raises ProducerFenced, KafkaError."""
        if self.open_count == 0:
            return
        self.committing = True
        self._until_done(self._producer.commit_transaction, self._timeout_s)
        self._committed()

    def _committed(self) -> None:
        self.committing = False
        self.transaction_count += 1
        self.committed_count += self.open_count
        self.open_count = 0

    def end(self, limit_s: float) -> None:
        """After an interruption or an error: abort what is open, or learn how a commit that was on its way ended.

        Nothing is raised: whoever uses the id next, or the transaction's timeout, aborts it otherwise. `open_count`
        remains what was not committed, and `committing` true while the outcome of a commit is unknown.
        """
        if self.open_count == 0:
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

    def _until_done(self, call: Callable[[float], Any], limit_s: float) -> None:
        """Call it again as long as the library asks for it. Raises KafkaError REQUEST_TIMED_OUT after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                call(min(STEP_S, limit_s))
            except self._library.KafkaException as error:
                reason = error.args[0]
                if not reason.retriable():
                    raise self._error(reason) from error
                if time.monotonic() > deadline:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"the coordinator of transactional id {self._transactional_id!r} gave no answer within "
                        f"{limit_s:g} s: {kafka_error(reason).message}",
                    ) from error
            else:
                return
            self.poll()

    def _error(self, reason: Any) -> KafkaError:
        """All faces of fencing as one sentence. In a state of error the library's call names none: a commit does."""
        codes = self._library.KafkaError
        if reason.code() in (codes._FATAL, codes._STATE):
            try:
                self._producer.commit_transaction(STEP_S)
            except self._library.KafkaException as error:
                reason = error.args[0]
        if reason.code() in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH):
            return ProducerFenced(self._transactional_id)
        return kafka_error(reason)
