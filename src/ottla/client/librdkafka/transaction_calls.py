"""librdkafka's transactional calls, which cannot be interrupted and raise errors without the reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ottla.client.librdkafka.rdkafka import kafka_error
from ottla.common.errors import ErrorCode, KafkaError

STEP_S = 0.5
"""Timeout per call. Calls cannot be interrupted, but resume when they are repeated."""
HUNG_S = 5.0
"""Longest overrun of a call beyond its timeout, which is at most STEP_S."""

Call = Callable[[float], Any]
"""A call of the library, with a timeout in seconds."""


class ProducerHung(KafkaError):
    """A library call that does not return: this producer is lost, but another one with the same id can continue."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the offsets of group {group_id!r} were not added to the transaction: the library call exceeded its "
            "timeout",
        )


class TransactionCalls:
    """Base class of producers, for the transactional calls of a confluent-kafka producer.

    Not a separate object: a producer in a reference cycle, with its connections, would outlive its last use.
    """

    _library: Any
    _producer: Any
    _transactional_id: str

    def failure(self, reason: Any) -> KafkaError:
        """The exception for an error of the library; `_revealed` returns its cause."""
        raise NotImplementedError

    def _between_attempts(self) -> None:
        """Called before a call is repeated."""

    def _until_done(self, call: Call, limit_s: float) -> None:
        """Repeat a call as often as the library requests it, in steps that handle Ctrl-C.

        Raises KafkaError, REQUEST_TIMED_OUT after `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        while True:
            try:
                call(min(STEP_S, limit_s))
            except self._library.KafkaException as error:
                reason = error.args[0]
                if reason.txn_requires_abort() or not reason.retriable():
                    raise self.failure(reason) from error
                if time.monotonic() > deadline:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"the coordinator of transactional id {self._transactional_id!r} did not respond within "
                        f"{limit_s:g} s: {kafka_error(reason).message}",
                    ) from error
            else:
                return
            self._between_attempts()

    def _send_offsets(self, positions: list[Any], group_metadata: Any, group_id: str, limit_s: float) -> None:
        """Add offsets of a group to the open transaction (KIP-98). Raises KafkaError.

        After ProducerHung the producer can neither be used nor ended: librdkafka 2.16 may wait forever, beyond its
        timeout, after its broker was unavailable for a moment. The next producer with the id aborts the transaction.
        """
        called = time.monotonic()
        failures: list[BaseException] = []

        def send(step_s: float) -> None:
            nonlocal called
            called = time.monotonic()
            self._producer.send_offsets_to_transaction(positions, group_metadata, step_s)

        def run() -> None:
            try:
                self._until_done(send, limit_s)
            except BaseException as error:
                failures.append(error)

        sender = threading.Thread(target=run, daemon=True)
        sender.start()
        while sender.is_alive():
            sender.join(STEP_S)
            if sender.is_alive() and time.monotonic() - called > STEP_S + HUNG_S:
                raise ProducerHung(group_id)
        if failures:
            raise failures[0]

    def _revealed(self, reason: Any) -> Any:
        """The cause of a library error: in an error state a call does not return it, but a commit does."""
        codes = self._library.KafkaError
        if reason.code() in (codes._FATAL, codes._STATE):
            try:
                self._producer.commit_transaction(STEP_S)
            except self._library.KafkaException as error:
                return error.args[0]
        return reason
