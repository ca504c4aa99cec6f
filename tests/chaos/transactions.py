"""Transactional clients of a round, in threads: producers, and consume-transform-produce, by confluent-kafka.

A transaction that its process leaves alone (`ABANDON_CHANCE`) stays open until its timeout; the next process takes the
transactional id over at once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.client.librdkafka.rdkafka import leave_group

from .book import Book
from .clients import FLUSH_TIMEOUT_S, Client, Round, value_of

TIMEOUT_MS = 10_000
"""Timeout of a transaction."""
CALL_TIMEOUT_S = 5.0
HUNG_S = 15.0
"""A call that takes longer than this, despite its timeout, never ends."""
MAX_RECORDS, MAX_COPIED = 20, 300
"""In one transaction of a writer, and of a copier that has to catch up."""
PAUSE_S = 0.15
ABORT_CHANCE = 0.15
ABANDON_CHANCE = 0.02
WRITERS = ("t0", "t1")
COPIERS = ("k0", "k1")
COPY_READER = "r0"
STAY_S = (8.0, 30.0)
"""Lifetime of a copier in its group."""


class OverError(Exception):
    """The producer can't continue; the outcome of its transaction is unknown."""


class Abandoned(Exception):
    """The process leaves its transaction alone."""


class Transacting(Client):
    """A transactional producer; `fill` defines the content of its transactions."""

    _name = ""
    """Of the process: values and transactions bear it."""
    _lives = 0
    _numbers = 0
    _transaction = ""
    _transactions = 0
    _partitions: set[int]

    def __init__(self, the_round: Round, target: Book, topic: str, name: str, rng: random.Random) -> None:
        """Writes to `topic`, which has the book `target`."""
        self.target = target
        self.topic = topic
        super().__init__(the_round, name, rng)

    def work(self) -> None:
        """One process after another, transaction after transaction."""
        while not self.stopping.is_set():
            self._lives += 1
            self._name = f"{self.name}-{self._lives}"
            settings = self.round.settings(
                self.name, transactional_id=f"{self.round.topic}-{self.name}", transaction_timeout_ms=TIMEOUT_MS
            )
            producer = Producer({**settings, "linger.ms": 5, "request.timeout.ms": 5_000})
            try:
                self._persist(producer.init_transactions)
                while not self.stopping.wait(PAUSE_S):
                    if self.prepare():
                        self._one(producer)
            except (OverError, Abandoned) as error:
                self.target.left_open(self._name, f"{self._transaction} {error!r}")
                self.over(committed=None)

    def _one(self, producer: Producer) -> None:
        self._transactions += 1
        self._transaction = f"{self._name}#{self._transactions}"
        self._partitions = set()
        producer.begin_transaction()
        self.target.began(self._transaction)
        try:
            self.fill(producer)
            if self.rng.random() < ABANDON_CHANCE:
                producer.flush(CALL_TIMEOUT_S)
                raise Abandoned
            if self.rng.random() < ABORT_CHANCE:
                self._abort(producer)
                return
            self.target.asked(self._transaction)
            self._persist(producer.commit_transaction)
        except KafkaException as error:
            self.target.error(self.name, error.args[0].name())
            if error.args[0].fatal():
                raise OverError(error.args[0].name()) from error
            self._abort(producer)
            return
        self.target.ended(self.name, self._transaction, self._partitions, committed=True)
        self.over(committed=True)

    def _abort(self, producer: Producer) -> None:
        try:
            self._persist(producer.abort_transaction)
        except KafkaException as error:
            raise OverError(error.args[0].name()) from error
        self.target.ended(self.name, self._transaction, (), committed=False)
        self.over(committed=False)

    def prepare(self) -> bool:
        """Returns whether there are records for a transaction."""
        return True

    def fill(self, producer: Producer) -> None:
        """Write it. Raises KafkaException."""
        raise NotImplementedError

    def over(self, *, committed: bool | None) -> None:
        """The transaction has ended; None: with unknown outcome."""

    def _persist(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call again as long as that may help. Raises KafkaException, and OverError for a call that never returns."""
        until: float | None = None
        while True:
            try:
                self._bounded(call, *arguments, CALL_TIMEOUT_S)
                return
            except KafkaException as error:
                self.target.error(self.name, error.args[0].name())
                if not error.args[0].retriable():
                    raise
                if self.stopping.is_set():
                    until = until or time.monotonic() + FLUSH_TIMEOUT_S
                    if time.monotonic() > until:
                        raise

    def _bounded(self, call: Callable[..., Any], *arguments: Any) -> None:
        """`call`, in a thread that is left behind where it does not end.

        librdkafka 2.16 never comes back from sending offsets to a transaction when the coordinator of the group goes
        away at the wrong moment: it has no request under way, and does not look for the coordinator again.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call(*arguments)
            except KafkaException as error:
                raised.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(HUNG_S)
        if thread.is_alive():
            raise OverError(f"{call.__name__} hangs")
        if raised:
            raise raised[0]

    def next_text(self) -> str:
        """The unique text of the next record."""
        return f"{self._name}:{self._numbers}"

    def send(self, producer: Producer, partition: int) -> None:
        """One record of this transaction."""
        value, text = value_of(self._name, self._numbers), self.next_text()
        self._numbers += 1
        self._partitions.add(partition)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.target.failed(self.name, text, error.name())
            else:
                self.target.acknowledged(self.name, message.partition(), message.offset(), text)

        self.target.sent(partition, text, self._transaction)
        producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)


class Writing(Transacting):
    """Writes to the topic of the round."""

    def __init__(self, the_round: Round, name: str, rng: random.Random) -> None:
        super().__init__(the_round, the_round.book, the_round.topic, name, rng)

    def fill(self, producer: Producer) -> None:
        """See `Transacting`."""
        for _ in range(1 + self.rng.randrange(MAX_RECORDS)):
            self.send(producer, self.rng.randrange(self.round.partitions))


class Copying(Transacting):
    """A member of a group that copies the topic of the round, exactly once."""

    def __init__(self, the_round: Round, copies: Book, name: str, rng: random.Random) -> None:
        self._consumer: Consumer | None = None
        self._until = 0.0
        self._messages: list[Message] = []
        """Read, and not yet copied."""
        super().__init__(the_round, copies, copies_of(the_round.topic), name, rng)

    def work(self) -> None:
        """See `Transacting`."""
        super().work()
        self._leave()

    def _member(self) -> Consumer:
        if self._consumer is not None and time.monotonic() > self._until:
            self._leave()
        if self._consumer is None:
            self._until = time.monotonic() + self.rng.uniform(*STAY_S)
            settings = self.round.settings(
                self.name,
                group_id=self.topic,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                session_timeout_ms=6_000,
                heartbeat_interval_ms=1_000,
                max_poll_interval_ms=30_000,
            )
            self._consumer = Consumer(settings)
            self._consumer.subscribe([self.round.topic], on_revoke=self._revoked, on_lost=self._revoked)
            self.book.joined()
        return self._consumer

    def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            leave_group(consumer)
        self._messages = []

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """The next owner continues at the committed offset."""
        gone = {each.partition for each in partitions}
        self._messages = [message for message in self._messages if message.partition() not in gone]

    def prepare(self) -> bool:
        """See `Transacting`. Records of an aborted transaction come first."""
        for message in self._member().consume(MAX_COPIED, 0.3):
            if message.error() is None:
                self._messages.append(message)
            else:
                self.book.error(self.name, message.error().name())
        return bool(self._messages)

    def fill(self, producer: Producer) -> None:
        """See `Transacting`."""
        ends: dict[int, int] = {}
        for message in self._messages:
            source = self.value_in(message)
            self.book.group_read(self.topic, self.name, message.partition(), message.offset(), source)
            self.target.copies[self.next_text()] = source
            self.send(producer, message.partition())
            ends[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(self.round.topic, partition, end) for partition, end in ends.items()]
        # Of the member that read them: another one's would let them be committed after others took the partitions over.
        assert self._consumer is not None
        self._persist(producer.send_offsets_to_transaction, offsets, self._consumer.consumer_group_metadata())

    def over(self, *, committed: bool | None) -> None:
        """See `Transacting`."""
        if committed:
            self._messages = []
        elif committed is None:
            self._leave()


def copies_of(topic: str) -> str:
    """The topic of the copies."""
    return f"{topic}-copies"
