"""A transactional producer that continues through broker failures, by the confluent-kafka client."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

from ottla.client.librdkafka.producer import SILENT

ABORTED = 0.2
"""Share of aborted transactions."""
DELETED = 0.1
"""Share of tombstones."""
MAX_RECORDS = 40
"""Maximum per transaction."""
KEYS = 17
PAUSE_S = 0.15
ANSWER_S = 5.0
WAIT_S = 120.0


class Feeder(threading.Thread):
    """Writes transactions of records with keys and increasing numbers; some are aborted, some records are tombstones.

    An abort of a transaction that the coordinator never received, since it was down, is a fatal error of librdkafka
    (INVALID_TXN_STATE, as with Apache Kafka); the next producer continues.
    """

    def __init__(self, servers: str, topic: str, seed: int, pause_s: float = PAUSE_S, most: float = math.inf) -> None:
        """`most`: number of records until it pauses, and again after each `resume`."""
        super().__init__(daemon=True)
        self._servers = servers
        self._topic = topic
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._number = 0
        self._most = self._limit = most
        self.committed: set[bytes] = set()
        """Values of transactions with a confirmed commit; other commits may have succeeded without a response."""
        self.aborted: set[bytes] = set()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._live()
        except BaseException as error:
            self.error = error

    def _live(self) -> None:
        """One producer after another: each aborts the open transaction of its predecessor."""
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": f"feeder-{self._topic}",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 1,
                "logger": SILENT,
            }
        )
        try:
            _persist(producer.init_transactions)
            while not self._ended.wait(self._pause_s):
                if self._number < self._limit:
                    self._transact(producer)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise

    def _transact(self, producer: Producer) -> None:
        values = []
        producer.begin_transaction()
        try:
            for _ in range(self._random.randint(1, MAX_RECORDS)):
                self._number += 1
                value = None if self._random.random() < DELETED else b"%08d" % self._number
                values += [] if value is None else [value]
                producer.produce(self._topic, value, key=b"k%d" % self._random.randrange(KEYS))
            if self._random.random() < ABORTED:
                producer.flush(ANSWER_S)
                _persist(producer.abort_transaction)
                self.aborted.update(values)
            else:
                _persist(producer.commit_transaction)
                self.committed.update(values)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _persist(producer.abort_transaction)

    def resume(self) -> None:
        """Continue with another `most` records."""
        self._limit = self._number + self._most

    def finish(self) -> None:
        """Wait for the end of the last transaction. Raises the error of the feeder, if any."""
        self._ended.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "the feeder hangs"
        if self.error is not None:
            raise self.error


def _persist(call: Callable[[float], None]) -> None:
    """Retry a call as long as that may help. Raises KafkaException."""
    while True:
        try:
            call(ANSWER_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
