"""`Producer`: sends records to topics in batches, in the background, and reports each delivery.

    with Producer("localhost:9092", {"linger.ms": 20}) as producer:
        producer.send("views", "/index.html", key="alice")

Invariants: idempotent with acks=all by default, so a retry neither loses nor duplicates a record. Keys and values
cannot change while they are sent: only bytes and text are accepted, and copied; librdkafka holds the copy until the
broker has responded or its connection has ended. No failure is silent: it is passed to `on_delivery`, and without one
raised by `flush` and the end of the `with` block. All methods are thread-safe; callbacks run in a thread of the
producer.

Built on confluent-kafka, with threads that batch by `batch.size` and `linger.ms`, compress, send and retry.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, repeat
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, cast

from ottla.api.errors import ClientClosed, as_kafka_errors, library_error
from ottla.api.forks import ended_in_children
from ottla.api.interceptors import ProducerInterceptor, logged, require
from ottla.api.messages import Deliveries, Delivery
from ottla.api.partitioners import BY_NAME, Partitioner, Sticky
from ottla.api.records import Bytes, Headers, K, ProducerRecord, Serializer, V
from ottla.api.settings import Config, Settings, ZooKeeperServers, read_servers, read_settings
from ottla.api.transaction import Transaction, Transactions
from ottla.client.librdkafka.rdkafka import library_client, library_timestamp, require_headers, require_text
from ottla.client.wire.time_limit import require_seconds
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.files import read_file

if TYPE_CHECKING:
    from ottla.api.broker_watch import BrokerWatch

logger = logging.getLogger(__name__)

POLL_S = 0.1
"""Timeout of library calls, which cannot be interrupted: short, so that Ctrl-C and `close` are handled."""
INTERRUPTED_FLUSH_S = 5.0
"""Longest wait for deliveries when a `with` block ends with an exception."""
DROP_LIMIT_S = 5.0
"""Longest wait for the reports of dropped records; immediate on an idle machine."""
PARTITIONS_AGE_S = 300.0
"""Maximum age of a topic's number of partitions for a partitioner function (`metadata.max.age.ms`)."""
REFRESH_TIMEOUT_S = 10.0
"""Timeout of a metadata refresh after a change in ZooKeeper; close waits for it, too."""
SERVED_TOGETHER = 100
"""Number of records after which the sending thread processes delivery reports itself."""
BURST_S = 0.02
"""Time for which the producer's thread then pauses."""
UNASSIGNED = -1

_DEFAULTS = {"acks": "all", "enable.idempotence": True}
_DELIVERY_TIMEOUT_MS = 120_000


class QueueFull(KafkaError):
    """The queue is full, and the caller did not want to wait (any longer)."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, "the queue of the producer stays full")


class _ByTopic(dict[str, Deliveries]):
    """Shared delivery state by topic, created on first use."""

    def __init__(self, untold: Callable[[Delivery], object]) -> None:
        super().__init__()
        self._untold = untold

    def __missing__(self, topic: str) -> Deliveries:
        found = self[topic] = Deliveries(topic, self._untold)
        return found


class _CallbackThreads:
    """Threads in which library callbacks may be running."""

    def __init__(self) -> None:
        self._threads: set[int] = set()

    def run(self, call: Callable[[float], Any], limit_s: float) -> Any:
        """Make a library call that runs callbacks, which may make another such call."""
        thread = threading.get_ident()
        if thread in self._threads:
            return call(limit_s)
        self._threads.add(thread)
        try:
            return call(limit_s)
        finally:
            self._threads.discard(thread)

    def require_none(self, what: str) -> None:
        """Reject a call from a callback, since it waits for all callbacks. Raises KafkaError."""
        if threading.get_ident() in self._threads:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} waits for all callbacks, so a callback can't call it")


class Producer(Generic[K, V]):
    """See the module. A context manager that waits for all deliveries.

    Without serializers, keys and values are bytes, or text that is sent as UTF-8. `partitioner` is "hash" (Kafka's
    murmur2; records without a key stay with one partition for a while), "random", "sticky", or a function of the key
    and the number of partitions.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        config: Config | None = None,
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        partitioner: str | Partitioner = "hash",
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        """Connects later, except with `transactional.id`, for which earlier producers are fenced, and with
        `zk.connect`, through which brokers are discovered and watched in ZooKeeper.

        Raises KafkaError INVALID_CONFIG for an invalid property, errors of the coordinator, and with `zk.connect`
        NETWORK_EXCEPTION and BROKER_NOT_AVAILABLE.
        """
        import confluent_kafka

        by_library = {} if callable(partitioner) else BY_NAME.get(partitioner)
        if by_library is None and partitioner != "sticky":
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"partitioner must be hash, random, sticky or a function, not {partitioner!r}"
            )
        servers, watched, config = read_servers(bootstrap_servers, config)
        settings = read_settings(servers, config, {**_DEFAULTS, **(by_library or {})})
        acks = str(settings.library["acks"])
        if acks not in ("all", "-1") and (config or {}).get("enable.idempotence") is None:
            settings.library["enable.idempotence"] = False  # as in Kafka: explicit weaker acks disable idempotence
        if "transactional.id" not in settings.library:  # with one, the library limits it by the transaction timeout
            settings.library.setdefault("delivery.timeout.ms", _DELIVERY_TIMEOUT_MS)
        self._library = confluent_kafka
        self._settings = settings
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner if callable(partitioner) else None if by_library is not None else Sticky()
        self._partition_counts: dict[str, tuple[int, float]] = {}
        self._deliveries = _ByTopic(self.count_failure)
        self._interceptors = tuple(interceptors)
        self._unheard: KafkaError | None = None
        self._unheard_count = 0
        self._closed = False
        self._sent_count = 0
        self._burst = self._flushing = False
        self._callbacks = _CallbackThreads()
        require_text(settings.library.values())
        self._watch = None if watched is None else _begin_watch(watched, settings)
        try:
            self._producer: Any = library_client(confluent_kafka.Producer, settings.library)
        except BaseException:
            self._end_watch()
            raise
        if self._watch is not None:
            self._watch.on_change(self._ask_again)
        self._stopped = threading.Event()
        self._server = threading.Thread(target=self._serve, name="ottla-producer", daemon=True)
        self._server.start()
        ended_in_children(self)
        self._transactions: Transactions | None = None
        if "transactional.id" in settings.library:
            self._transactions = self._begin_transactions(settings)

    def _begin_transactions(self, settings: Settings) -> Transactions:
        transactional_id = str(settings.library["transactional.id"])
        transactions = Transactions(self._producer, transactional_id, settings.seconds("max.block.ms"))
        try:
            transactions.initialize()
        except BaseException:
            self._stop()
            raise
        return transactions

    def __enter__(self) -> Producer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for deliveries. After an exception, wait at most INTERRUPTED_FLUSH_S, and drop the remaining records."""
        if kind is None:
            self.close()
        else:
            self._close_at_once()

    # Sending

    def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        *,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
        wait: bool = True,
    ) -> Delivery:
        """Queue a record, and return its delivery; waits while the queue is full (`max.block.ms`).

        With `on_delivery`, failures are passed to it and not raised by `flush`. Raises KafkaError for a record that
        cannot be sent at all, such as MESSAGE_TOO_LARGE, and QueueFull (REQUEST_TIMED_OUT) if the queue stays full, or
        is full and `wait` is false.
        """
        listed: Headers = ()
        if headers:
            listed = tuple(headers.items()) if isinstance(headers, Mapping) else headers
        if self._interceptors:
            record = self._intercepted(ProducerRecord(topic, value, key, listed, partition, timestamp_ms))
            return self._send(record, on_delivery, wait=wait)
        return self._queue(topic, value, key, listed, partition, timestamp_ms, on_delivery, wait=wait)

    def send_record(
        self, record: ProducerRecord[K, V], *, on_delivery: Callable[[Delivery], object] | None = None
    ) -> Delivery:
        """The same for a `ProducerRecord`."""
        return self._send(self._intercepted(record), on_delivery, wait=True)

    def send_batch(self, topic: str, values: Iterable[V | None], key: K | None = None) -> list[Delivery]:
        """Queue many values for one topic; returns their deliveries. Like `send` with defaults."""
        if isinstance(values, (bytes, str)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "send_batch needs a list of values, not a single one")
        if self._interceptors:
            return [self.send(topic, value, key) for value in values]
        if self._partitioner is not None:
            return [self._queue(topic, value, key, (), None, None, None, wait=True) for value in values]
        self._require_open()
        if (watch := self._watch) is not None:
            watch.watch(topic)
        key_bytes = _serialized(key, self._key_serializer)
        deliveries: list[Delivery] = []
        left = iter(values)
        while some := list(islice(left, SERVED_TOGETHER)):
            deliveries += self._send_some(topic, some, key, key_bytes)
        return deliveries

    def _send_some(
        self, topic: str, values: list[V | None], key: K | None, key_bytes: bytes | str | None
    ) -> list[Delivery]:
        """Queue without interpreter code per record, except for records that the library rejects."""
        serializer = self._value_serializer
        data = values if serializer is None else [_serialized(value, serializer) for value in values]
        deliveries = self._deliveries[topic].many(len(data))
        reports = iter(deliveries)
        while True:
            begun = len(data) - length_hint(reports)
            sending = map(
                self._producer.produce, repeat(topic), data[begun:], repeat(key_bytes), repeat(UNASSIGNED), reports
            )
            try:
                deque(sending, 0)
            except (BufferError, self._library.KafkaException):  # handled below, with a wait if it is transient
                refused = len(data) - length_hint(reports) - 1
                deliveries[refused] = self._queue(topic, values[refused], key, (), None, None, None, wait=True)
            else:
                break
        self._served_here(len(data))
        return deliveries

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("producer")
        if self._transactions is not None:
            self._transactions.require_open()

    def _served_here(self, count: int) -> None:
        """Process delivery reports in the sending thread at high rates: a second thread would compete for the GIL."""
        self._sent_count += count
        if self._sent_count >= SERVED_TOGETHER:
            self._sent_count = 0
            self._burst = True
            self._hear(0)

    def _send(
        self, record: ProducerRecord[K, V], on_delivery: Callable[[Delivery], object] | None, *, wait: bool
    ) -> Delivery:
        if self._interceptors:
            on_delivery = _chained(self._interceptors, on_delivery or self.count_failure)
        return self._queue(
            record.topic,
            record.value,
            record.key,
            record.headers,
            record.partition,
            record.timestamp_ms,
            on_delivery,
            wait=wait,
        )

    def _queue(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: Callable[[Delivery], object] | None,
        *,
        wait: bool,
    ) -> Delivery:
        self._require_open()
        if (watch := self._watch) is not None:
            watch.watch(topic)
        value_bytes = _serialized(value, self._value_serializer)
        key_bytes = _serialized(key, self._key_serializer)
        if partition is None:
            partition = UNASSIGNED if self._partitioner is None else self._choose(topic, key_bytes)
        delivery = self._deliveries[topic].one(on_delivery)
        listed = require_headers(headers) if headers else None
        timestamp = library_timestamp(timestamp_ms)
        deadline = 0.0
        while True:
            try:
                self._producer.produce(topic, value_bytes, key_bytes, partition, delivery, None, timestamp, listed)
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + self._settings.seconds("max.block.ms")
                if not wait or now >= deadline:
                    raise QueueFull from None
                self._hear(POLL_S)
            except self._library.KafkaException as error:
                reason = error.args[0]
                if library_error(reason).code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise self._refusal(reason, topic) from error
                # The library rejects it immediately, or by a report if metadata is missing: treat both alike.
                refused = delivery.refuse(reason)
                if self._transactions is not None:
                    self._transactions.refuse(refused)
                return delivery
            else:
                if on_delivery is None:
                    self._served_here(1)
                return delivery

    def _refusal(self, reason: Any, topic: str) -> KafkaError:
        if self._transactions is not None:
            return self._transactions.failure(reason)
        return library_error(reason, f"topic {topic!r}")

    def _intercepted(self, record: ProducerRecord[K, V]) -> ProducerRecord[K, V]:
        for each in self._interceptors:
            with logged(each, "on_send"):
                record = require(each.on_send(record), ProducerRecord)
        return record

    def _choose(self, topic: str, key: bytes | str | None) -> int:
        chooser = cast(Partitioner, self._partitioner)
        count = self.partition_count(topic)
        chosen = chooser(key.encode() if isinstance(key, str) else key, count)
        if not 0 <= chosen < count:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the partitioner chose partition {chosen} of topic {topic!r}, which has {count} partitions",
            )
        return chosen

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic, at most PARTITIONS_AGE_S old. Raises KafkaError."""
        now = time.monotonic()
        count, until = self._partition_counts.get(topic, (0, 0.0))
        if now < until:
            return count
        try:
            found = self._producer.list_topics(topic, self._settings.seconds("max.block.ms")).topics[topic]
        except self._library.KafkaException as error:
            raise library_error(error.args[0], f"topic {topic!r}") from error
        if found.error is not None:
            raise library_error(found.error, f"topic {topic!r}")
        self._partition_counts[topic] = (len(found.partitions), now + PARTITIONS_AGE_S)
        return len(found.partitions)

    # Transactions

    def transaction(self) -> Transaction:
        """A `with` block as a transaction: its records are committed together or not at all; see `Transaction`.

        Raises KafkaError INVALID_CONFIG for a producer without `transactional.id`.
        """
        if self._closed:
            raise ClientClosed("producer")
        if self._transactions is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "transactions need the property transactional.id")
        return Transaction(self._transactions)

    # Close

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome of all sent records.

        Raises KafkaError for failures that were not reported yet, REQUEST_TIMED_OUT after `timeout_s`. Raises
        ValueError for a `timeout_s` of NaN.
        """
        require_seconds(timeout_s)
        if self._closed:
            raise ClientClosed("producer")
        self._callbacks.require_none("flush")
        if left := self._flush(math.inf if timeout_s is None else timeout_s):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{left} records are not delivered after {timeout_s:g} s")
        self._raise_unheard()

    def close(self) -> None:
        """`flush`, and close; idempotent. `delivery.timeout.ms` limits its duration."""
        if self._closed:
            return
        self._callbacks.require_none("close")
        self._closed = True
        try:
            self._flush(math.inf)
        except BaseException:
            self._drop()
            raise
        finally:
            self._stop()
        self._raise_unheard()

    def end_in_child(self) -> Any:
        """See `forks`."""
        self._closed = True
        return self._producer

    def _close_at_once(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._flush(INTERRUPTED_FLUSH_S):
                self._drop()
        finally:
            self._stop()

    def _drop(self) -> None:
        """Drop unsent records; their waiters receive an error."""
        self._producer.purge()
        self._flush(DROP_LIMIT_S)

    def _flush(self, limit_s: float) -> int:
        """Flush for at most `limit_s`; returns the number of remaining records."""
        deadline = time.monotonic() + limit_s
        self._flushing = True
        try:
            while (left := int(self._callbacks.run(self._producer.flush, POLL_S))) and time.monotonic() < deadline:
                pass
        except self._library.KafkaException as error:
            raise library_error(error.args[0]) from error
        finally:
            self._flushing = False
        return left

    def _ask_again(self) -> None:
        """Refresh metadata after a change in ZooKeeper; the library processes the response."""
        self._partition_counts = {}
        producer = self._producer
        if producer is not None:
            producer.list_topics(timeout=REFRESH_TIMEOUT_S)

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _stop(self) -> None:
        self._closed = True
        self._end_watch()
        self._stopped.set()
        if self._server is not threading.current_thread():
            self._server.join()
        self._producer = self._transactions = None  # the last reference: the library closes its connections

    def _serve(self) -> None:
        while not self._stopped.is_set():
            if self._burst or self._flushing:
                self._burst = False
                self._stopped.wait(BURST_S)
                continue
            try:
                self._hear(POLL_S)
            except SystemExit:  # it would only end this thread, which serves all other callbacks
                logger.exception("a callback raised SystemExit, which has no effect in the thread of the producer")

    def _hear(self, limit_s: float) -> None:
        """Process delivery reports. Fatal errors are reported here, too, and raised by the next call."""
        with contextlib.suppress(self._library.KafkaException):
            self._callbacks.run(self._producer.poll, limit_s)

    def count_failure(self, delivery: Delivery) -> None:
        """Count a failure without `on_delivery`, which the next `flush` raises."""
        if delivery.error is not None and self._transactions is None:  # for a transaction, commit raises it
            self._unheard_count += 1
            self._unheard = self._unheard or delivery.error

    def _raise_unheard(self) -> None:
        failure, count = self._unheard, self._unheard_count
        self._unheard, self._unheard_count = None, 0
        if failure is not None:
            more = f" (and {count - 1} others)" if count > 1 else ""
            raise KafkaError(failure.code, failure.message + more)


def _begin_watch(servers: ZooKeeperServers, settings: Settings) -> BrokerWatch:
    """Discover the brokers in ZooKeeper. Raises KafkaError."""
    from ottla.api.broker_watch import BrokerWatch  # imported here, like the next: few producers have zk.connect
    from ottla.client.zookeeper.zookeeper_access import access_of_client

    with as_kafka_errors():
        access = access_of_client(servers.properties, os.environ, read_file)
        protocol = str(settings.library.get("security.protocol", "PLAINTEXT")).upper()
        watch = BrokerWatch(servers.connect, protocol, access)
    try:
        settings.library["bootstrap.servers"] = watch.addresses(settings.seconds("max.block.ms"))
    except BaseException:
        watch.close()
        raise
    return watch


def _serialized(data: Any, serializer: Callable[[Any], bytes | None] | None) -> bytes | str | None:
    if data is None or serializer is None:
        return cast("Bytes | None", data)
    return serializer(data)


def _chained(
    interceptors: Sequence[ProducerInterceptor], on_delivery: Callable[[Delivery], object]
) -> Callable[[Delivery], object]:
    """A delivery callback that calls the interceptors first."""

    def chained(delivery: Delivery) -> None:
        for each in interceptors:
            with logged(each, "on_acknowledgement"):
                each.on_acknowledgement(delivery)
        on_delivery(delivery)

    return chained
