"""How librdkafka's transactional calls are made: they can't be interrupted, and their errors don't name the reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ottla.client.librdkafka.rdkafka import kafka_error
from ottla.common.errors import ErrorCode, KafkaError

STEP_S = 0.5
"""The library's calls can't be interrupted, but go on where they were when they are made again."""
HUNG_S = 5.0
"""How long a call may go on after its time, which is STEP_S at most."""

Call = Callable[[float], Any]
"""A call of the library, which is given seconds."""


class ProducerHung(KafkaError):
    """A call of the library does not come back: this producer is lost, another one under the id can go on."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the offsets of group {group_id!r} got into no transaction: the library went on beyond its time",
        )


class TransactionCalls:
    """The calls of one producer of confluent-kafka; whoever has one makes them so, as a base class.

    By no object of its own: a producer that refers to itself lives on, with its connections, after its last use.
    """

    _library: Any
    _producer: Any
    _transactional_id: str

    def failure(self, reason: Any) -> KafkaError:
        """What is raised of a refusal of the library; `_revealed` tells what is behind it."""
        raise NotImplementedError

    def _between_attempts(self) -> None:
        """Called before a call is made again."""

    def _until_done(self, call: Call, limit_s: float) -> None:
        """Make a call as often as the library asks for it, in steps that let Ctrl-C through.

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
                        f"the coordinator of transactional id {self._transactional_id!r} gave no answer within "
                        f"{limit_s:g} s: {kafka_error(reason).message}",
                    ) from error
            else:
                return
            self._between_attempts()

    def _send_offsets(self, positions: list[Any], group_metadata: Any, group_id: str, limit_s: float) -> None:
        """Make offsets of a group part of the open transaction (KIP-98). Raises KafkaError.

        After ProducerHung the producer can't be used, nor ended: librdkafka 2.16 whose broker was away for a moment may
        wait for ever, beyond the time that it was given. The next one with the id ends the transaction.
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
        """The error behind one of the library's: in a state of error a call names none, but a commit does."""
        codes = self._library.KafkaError
        if reason.code() in (codes._FATAL, codes._STATE):
            try:
                self._producer.commit_transaction(STEP_S)
            except self._library.KafkaException as error:
                return error.args[0]
        return reason
