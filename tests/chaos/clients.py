"""Producers and consumers of a round, in threads, with plain confluent-kafka, and their observations."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.client.librdkafka.rdkafka import leave_group

from .book import Book

MAX_IN_FLIGHT = 1_000
PAUSE_S = 0.016
"""Between two records of a producer."""
LOOK_UP_S = 0.5
STAY_S = (8.0, 30.0)
"""Lifetime of a group member."""
FLUSH_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 75.0

PRODUCERS = {
    "p0": {"max_in_flight": 1, "message_timeout_ms": 0},
    "p1": {"max_in_flight": 5, "message_timeout_ms": 0},
    "p2": {"max_in_flight": 5, "message_timeout_ms": 8_000},
}
"""Requests under way to a broker, and the time after which a record is given up (0: never)."""
STRICT = frozenset({"p0"})
"""One record in flight per partition, without timeouts: these producers never send twice and never fail fatally. Others
may.

The client begins a new epoch when it gives a record up, when a request after a failed one was out of order, and when
the leader moves while a request is in flight to the old one: it does not hold back the next request to the new one,
which is out of order there (librdkafka's issue 4953). Records that were in flight and had arrived are duplicated. And a
restarted leader only knows the last batch of a producer, as with Apache Kafka's snapshots: an older one sent again is
out of order, which is fatal for the client.
"""
READERS = {"c0": True, "c1": False}
"""The read_committed consumers; all are without transactions."""
GROUPS = {"classic": 2, "consumer": 2}
"""Protocol to the number of members."""

COMMON = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
}
"""Without `debug`: librdkafka 2.16 then logs, now and then, a text that was freed and that no caller can decode."""
KEPT_LINES = 2_000
POSITION_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)


@dataclass(frozen=True)
class Round:
    """The shared state of the clients of a round."""

    bootstrap_servers: str
    security: Mapping[str, Any]
    """How librdkafka comes in."""
    topic: str
    partitions: int
    book: Book
    lossy: bool
    said: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=KEPT_LINES)))
    """The newest lines of each client's own log."""

    def settings(self, client: str, **more: Any) -> dict[str, Any]:
        """A client's configuration; keyword arguments have underscores for dots."""

        def on_error(error: KafkaError) -> None:
            self.book.error(client, error.name())

        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": client,
            "error_cb": on_error,
            "logger": _Kept(self.said[client]),
            **COMMON,
            **self.security,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


class _Kept(logging.Logger):
    """The log of a client, instead of its standard error."""

    def __init__(self, lines: deque[str]) -> None:
        super().__init__("client")
        self._lines = lines

    def handle(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{time.monotonic():.3f} {record.getMessage()}")


def value_of(name: str, number: int) -> bytes:
    """The text that identifies a record, and a filler that depends on its number."""
    return b"%s:%d %s" % (name.encode(), number, b"." * (number * 37 % 400))


class Client:
    """A thread that works until it is stopped. An exception in it is a violation of the round."""

    def __init__(self, the_round: Round, name: str, rng: random.Random) -> None:
        self.round = the_round
        self.book = the_round.book
        self.name = name
        self.rng = rng
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.book.violated(
                f"client {self.name} failed in {where.name}, line {where.lineno}: {type(error).__name__}: {error}"
            )

    def work(self) -> None:
        """Until `stopping`."""
        raise NotImplementedError

    def join(self) -> None:
        """After `stopping` was set; a client that does not end is a violation."""
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            self.book.violated(f"client {self.name} does not end within {JOIN_TIMEOUT_S:g} s")

    def value_in(self, message: Message) -> str:
        """The text that identifies the record; whole, or it is a violation."""
        value = message.value()
        text = value.partition(b" ")[0].decode()
        name, _, number = text.rpartition(":")
        if not number.isdigit() or value != value_of(name, int(number)):
            self.book.violated(f"altered: {self.name} read {value[:60]!r} at {message.partition()}@{message.offset()}")
        return text


class Producing(Client):
    """A producer; idempotent with acks=all, or with acks=1 where losses are allowed."""

    _numbers = 0
    _busy: set[int]
    """Partitions with a record under way; of strict producers only."""

    def work(self) -> None:
        """Send record after record, to random partitions; a fatal error ends a producer, and another one continues."""
        acks = {"acks": "1"} if self.round.lossy else {"acks": "all", "enable_idempotence": True}
        settings = {"linger_ms": 5, "request_timeout_ms": 5_000, **PRODUCERS[self.name], **acks}
        name, lives = self.name, 1
        while not self.stopping.is_set():
            producer = Producer(self.round.settings(self.name, **settings))
            try:
                self._produce(name, producer)
            except KafkaException as error:
                self._ended(name, error.args[0])
                lives += 1
                name = f"{self.name}-{lives}"

    def _ended(self, name: str, error: KafkaError) -> None:
        self.book.error(self.name, f"fatal {error.name()}")
        if self.name in STRICT:
            self.book.violated(f"producer {name} can't continue:  {error.str()}")

    def _produce(self, name: str, producer: Producer) -> None:
        self._busy = set()
        while not self.stopping.wait(PAUSE_S):
            producer.poll(0)
            partition = self.rng.randrange(self.round.partitions)
            if len(producer) < MAX_IN_FLIGHT and partition not in self._busy:
                self._send(name, producer, partition)
        left = producer.flush(FLUSH_TIMEOUT_S)
        if left:
            self.book.violated(f"{left} records of {name} have no outcome {FLUSH_TIMEOUT_S:g} s after the faults")

    def _send(self, name: str, producer: Producer, partition: int) -> None:
        value = value_of(name, self._numbers)
        text = f"{name}:{self._numbers}"
        self._numbers += 1
        if self.name in STRICT:
            self._busy.add(partition)

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._busy.discard(partition)
            if error is not None:
                self.book.failed(self.name, text, error.name())
            else:
                self.book.acknowledged(self.name, message.partition(), message.offset(), text)

        self.book.sent(partition, text)
        producer.produce(self.round.topic, value, partition=partition, on_delivery=delivered)


class Reading(Client):
    """Reads all partitions from the beginning by its own choice, and asks now and then where they end."""

    def __init__(self, the_round: Round, name: str, rng: random.Random, *, committed: bool) -> None:
        """`committed`: by read_committed."""
        self.committed = committed
        self.positions = dict.fromkeys(range(the_round.partitions), 0)
        self.contents: dict[int, dict[int, str]] = {partition: {} for partition in self.positions}
        """Of each partition the text at each offset."""
        super().__init__(the_round, name, rng)

    def work(self) -> None:
        """Poll after poll."""
        consumer = Consumer(
            self.round.settings(
                self.name,
                group_id="unused",
                enable_auto_commit=False,
                auto_offset_reset="earliest" if self.round.lossy else "error",
                isolation_level="read_committed" if self.committed else "read_uncommitted",
            )
        )
        topic = self.round.topic
        consumer.assign([TopicPartition(topic, index, 0) for index in range(self.round.partitions)])
        look_up = time.monotonic() + LOOK_UP_S
        while not self.stopping.is_set():
            for message in consumer.consume(500, 0.1):
                self._take(message)
            if time.monotonic() > look_up:
                self._look_up(consumer, self.rng.randrange(self.round.partitions))
                look_up = time.monotonic() + LOOK_UP_S
        consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            value = self.value_in(message)
            self.book.polled(self.name, message.partition(), message.offset(), value, committed=self.committed)
            self.contents[message.partition()][message.offset()] = value
            self.positions[message.partition()] = message.offset() + 1
        elif error.code() in POSITION_LOST:
            self.book.position_lost(self.name, f"{error.str()} in partition {message.partition()}")
        else:
            self.book.error(self.name, error.name())

    def _look_up(self, consumer: Consumer, partition: int) -> None:
        # Its own reads: a paused leader may answer another client before it learns that it no longer leads. Not by
        # get_watermark_offsets, which waits forever if librdkafka loses the response (its issue 4878).
        before = self.positions[partition]
        try:
            (latest,) = consumer.offsets_for_times([TopicPartition(self.round.topic, partition, OFFSET_END)], 3)
        except KafkaException as error:
            self.book.error(self.name, error.args[0].name())
        else:
            if latest.error is not None:
                self.book.error(self.name, latest.error.name())
            else:
                self.book.latest_offset_listed(self.name, partition, latest.offset, before)


class Member(Client):
    """A member of a group, which leaves and comes back now and then."""

    def __init__(self, the_round: Round, name: str, rng: random.Random, protocol: str) -> None:
        self.protocol = protocol
        super().__init__(the_round, name, rng)

    @property
    def group(self) -> str:
        return f"{self.round.topic}-{self.protocol}"

    def work(self) -> None:
        """Life after life."""
        more: dict[str, Any] = {"group_protocol": self.protocol}
        if self.protocol == "classic":
            more |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
        settings = self.round.settings(
            self.name,
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            enable_auto_offset_store=False,
            **more,
        )
        while not self.stopping.is_set():
            consumer = Consumer(settings)
            consumer.subscribe([self.round.topic])
            self.book.joined()
            until = time.monotonic() + self.rng.uniform(*STAY_S)
            while not self.stopping.is_set() and time.monotonic() < until:
                for message in consumer.consume(500, 0.1):
                    self._take(message)
                    if message.error() is None:
                        with contextlib.suppress(KafkaException):  # its partition was given up meanwhile
                            consumer.store_offsets(message)
            leave_group(consumer)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            value = self.value_in(message)
            self.book.group_read(self.group, self.name, message.partition(), message.offset(), value)
        else:
            self.book.error(self.name, error.name())
