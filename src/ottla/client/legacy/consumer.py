"""A complete legacy consumer: group session, fetcher and streams.

Three threads beside the caller's: a loop for group membership (`Participation`) and commits; a fetcher; and one for
blocking calls for Kafka offsets. Hooks have a thread of their own. Streams are iterated in threads of the caller.

Left out: TLS and authentication, which Kafka 0.9 consumers did not have: brokers are reached by their first plaintext
listener.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.client.legacy.assignment import ConsumerThread, topics_of
from ottla.client.legacy.fetcher import FAILURES, Brokers, Fetcher
from ottla.client.legacy.group_session import Done, Participation
from ottla.client.legacy.membership import Membership, OwnedStream
from ottla.client.legacy.offsets import OffsetPlaces
from ottla.client.legacy.streams import ChunkQueue, Stream
from ottla.client.librdkafka.consumer import ConsumedRecord, K, V
from ottla.client.librdkafka.worker import Worker
from ottla.client.zookeeper.zookeeper_brokers import BrokerSearch
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import BlockingPool
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.consumers import STATIC, ConsumerRegistration
from ottla.protocol.znodes.session import ZooKeeperSession

logger = logging.getLogger(__name__)

T = TypeVar("T")

Connect = Callable[[Callable[..., object], BlockingPool], ZooKeeperSession]
"""Creates the session, from a function to run callbacks on the loop from any thread, and a pool for blocking calls."""
FIND_TIMEOUT_S = 10.0
CHECK_INTERVAL_S = 1.0
"""Interval for checks of whether the loop is running yet."""


class ReaderSettings(NamedTuple):
    """Validated consumer properties of Kafka 0.9."""

    group: str
    client_id: str
    places: OffsetPlaces
    reset_to: int
    """`auto.offset.reset`, as a timestamp of ListOffsets."""
    auto_commit_ms: int | None
    """`auto.commit.interval.ms`; None: `auto.commit.enable` is false."""
    stream_timeout_ms: int | None
    """`consumer.timeout.ms`; None waits forever."""
    session_timeout_ms: int
    connection_timeout_ms: int
    backoff_ms: int
    """`rebalance.backoff.ms`."""
    fetch_bytes: int
    fetch_wait_ms: int
    max_chunks: int
    """`queued.max.message.chunks`."""


class Hooks(NamedTuple):
    """Kafka 0.9's ConsumerRebalanceListener, called in a thread that may commit; the rebalance waits for its return."""

    before_releasing_partitions: Callable[[dict[str, frozenset[int]]], object] | None = None
    """Receives the partitions that are about to be released, of which no more records are returned. Not called for lost
    partitions, nor at the end."""
    before_starting_fetchers: Callable[[str, dict[str, dict[int, ConsumerThread]]], object] | None = None
    """Receives the consumer's id and the assignment of the group, when this consumer gets more partitions."""


class LegacyReader(Generic[K, V]):
    """See the module. Create it in a thread of the caller, call `start` once, then `close`."""

    def __init__(
        self,
        settings: ReaderSettings,
        connect: Connect,
        decode: Callable[[ConsumedRecord], ConsumedRecord[K, V]],
        hooks: Hooks,
    ) -> None:
        """Sends nothing yet. `decode` is called by the iterating thread, and may raise.

        Raises OperatorError for an invalid session configuration, KafkaError for the group.
        """
        paths.consumer_ids(settings.group)
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._broke)
        self._decode = decode
        self._hooks = hooks
        self._worker = Worker(self._post, "ottla-legacy-calls")
        self._hook_worker = Worker(self._post, "ottla-legacy-hooks")
        self._shelf = ChunkQueue(lambda: self._part.may_read, settings.max_chunks)
        self._offset_brokers = Brokers(self._find_brokers, settings.client_id)
        self._fetcher = Fetcher(
            self._shelf,
            Brokers(self._find_brokers, settings.client_id),
            settings.reset_to,
            settings.fetch_bytes,
            settings.fetch_wait_ms,
        )
        self._registration = ConsumerRegistration({}, STATIC, 0)
        self._streams: Mapping[str, Sequence[Stream[K, V]]] = {}
        self._connected = threading.Event()
        self._committing = self._leaving = self._closed = False
        self._threads: list[threading.Thread] = []
        try:
            self._session = connect(self._post, self._worker)
        except BaseException:
            self._hook_worker.close()
            self._worker.close()
            self._loop.close()
            raise
        self._part = Participation(
            self._session, self, self._member, self._loop, time.monotonic, settings.session_timeout_ms
        )

    def start_reading(self, subscription: Mapping[str, int], pattern: str) -> dict[str, list[Stream[K, V]]]:
        """Join the group; returns the streams of each key of `subscription`: a topic, or an expression.

        Raises KafkaError INVALID_REGULAR_EXPRESSION, INVALID_REQUEST for an invalid topic or a second call, and
        NETWORK_EXCEPTION if ZooKeeper does not respond within `zookeeper.connection.timeout.ms`.
        """
        if self._threads or self._closed:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the streams of a legacy consumer can be created only once")
        registration = ConsumerRegistration(dict(subscription), pattern, 0)
        for topic in topics_of(registration, ()):
            paths.topic(topic)
        timeout_ms = self._settings.stream_timeout_ms
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        streams = {
            key: [self._shelf.stream(self._decode, timeout_s) for _ in range(count)]
            for key, count in subscription.items()
        }
        self._registration, self._streams = registration, streams
        for name, work in (("loop", self._run), ("fetch", self._fetcher.run)):
            thread = threading.Thread(target=work, name=f"ottla-legacy-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        if not self._connected.wait(self._settings.connection_timeout_ms / 1000):
            self.close()
            trouble = self._session.trouble
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                "zookeeper.connect: no response from ZooKeeper within zookeeper.connection.timeout.ms="
                f"{self._settings.connection_timeout_ms}" + (f" ({trouble})" if trouble else ""),
            )
        return streams

    @property
    def problem(self) -> Exception | None:
        """The error that prevents membership in the group, if any."""
        return self._part.problem

    def finish(self) -> None:
        """Mark all returned records as processed."""
        self._shelf.positions(given=True)

    def commit(self) -> None:
        """Commit all returned records of the owned partitions.

        Raises KafkaError: NETWORK_EXCEPTION if the outcome is unknown, ILLEGAL_GENERATION after the end of the session,
        and errors of ZooKeeper, Kafka and `dual.commit.enabled`.
        """
        committed: Future[None] = Future()
        self._post(self._commit_given, committed)
        while True:
            try:
                committed.result(CHECK_INTERVAL_S)
            except TimeoutError:
                if self._loop.is_closed():
                    raise _left() from None
            else:
                return

    def close(self) -> None:
        """Commit processed records if commits are automatic, and leave the group. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._shelf.end()
        if not self._threads:
            self._loop.close()
        else:
            left = threading.Event()
            self._post(self._leave, left.set)
            left.wait()
            loop, fetcher = self._threads
            fetcher.join()  # which may still request brokers from the loop
            self._post(self._loop.stop)
            loop.join()
        self._hook_worker.close()
        self._worker.close()
        self._offset_brokers.forget()

    # The loop

    def _run(self) -> None:
        try:
            self._part.start()
            self._commit_later()
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _post(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback on the loop; ignored once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _leave(self, done: Callable[[], None]) -> None:
        self._leaving = True
        self._part.leave(done)

    def _broke(self, _loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Handle a callback that failed because of a defect: iterations raise it."""
        self._shelf.fail(context.get("exception") or RuntimeError(context["message"]))

    def _member(self, session: int) -> Membership:
        """A membership for a session, with a name in Kafka 0.9's format; inputs are validated, so it raises nothing."""
        self._connected.set()
        settings = self._settings
        now_ms = time.time_ns() // 1_000_000
        name = f"{settings.group}_{socket.gethostname()}-{now_ms}-{uuid.uuid4().hex[:8]}"
        registration = self._registration._replace(timestamp_ms=now_ms)
        return Membership(settings.group, name, registration, session, settings.places, settings.backoff_ms)

    # Commits, on the loop

    def _commit_later(self) -> None:
        if self._settings.auto_commit_ms is not None:
            self._loop.call_later(self._settings.auto_commit_ms / 1000, self._commit_done)

    def _commit_done(self) -> None:
        offsets = self._shelf.positions(given=False)
        if offsets and not self._committing:
            self._committing = True
            self._part.commit(offsets, self._committed)
        self._commit_later()

    def _committed(self, error: KafkaError | None) -> None:
        self._committing = False
        if error is not None and error.code is not ErrorCode.ILLEGAL_GENERATION:
            logger.warning("offset commit of group %s failed: %s", self._settings.group, error)

    def _commit_given(self, committed: Future[None]) -> None:
        offsets = self._shelf.positions(given=True)

        def done(error: KafkaError | None) -> None:
            if error is None:
                committed.set_result(None)
            elif error.code is ErrorCode.ILLEGAL_GENERATION and self._part.may_read:
                self._commit_given(committed)  # other consumers took some in the meantime
            else:
                committed.set_exception(error)

        if self._leaving:
            committed.set_exception(_left())
        elif offsets:
            self._part.commit(offsets, done)
        else:
            committed.set_result(None)

    # Callbacks of `Participation`, on the loop

    def before_start(
        self, consumer: str, assignment: Mapping[TopicPartition, ConsumerThread], done: Callable[[], None]
    ) -> None:
        """See `Reader`."""
        hook = self._hooks.before_starting_fetchers
        if hook is None:
            done()
            return
        by_topic: dict[str, dict[int, ConsumerThread]] = {}
        for (topic, partition), thread in assignment.items():
            by_topic.setdefault(topic, {})[partition] = thread
        self._call(partial(hook, consumer, by_topic), done)

    def start(self, partitions: Mapping[TopicPartition, OwnedStream]) -> None:
        """See `Reader`."""
        by_topic = self._registration.pattern == STATIC
        (filtered, *_) = self._streams.values()
        self._shelf.start(
            {
                key: ((self._streams[key[0]] if by_topic else filtered)[owned.thread.number], owned.offset)
                for key, owned in partitions.items()
            }
        )

    def before_stop(self, partitions: tuple[TopicPartition, ...], done: Callable[[], None]) -> None:
        """See `Reader`."""
        hook = self._hooks.before_releasing_partitions
        if hook is None or self._leaving:
            done()
            return
        self._shelf.hold(partitions)
        numbers: dict[str, set[int]] = {}
        for topic, partition in partitions:
            numbers.setdefault(topic, set()).add(partition)
        self._call(partial(hook, {topic: frozenset(each) for topic, each in numbers.items()}), done)

    def _call(self, hook: Callable[[], object], done: Callable[[], None]) -> None:
        """Run a hook; a failure does not block the rebalance."""

        def called(_result: object, error: BaseException | None) -> None:
            if error is not None:
                logger.error("rebalance hook of group %s failed", self._settings.group, exc_info=error)
            done()

        self._hook_worker.submit(hook, called)

    def stop(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        """See `Reader`; commits nothing on leaving if the caller manages commits."""
        offsets = self._shelf.stop(partitions)
        return {} if self._settings.auto_commit_ms is None else offsets

    def lost(self) -> None:
        """See `Reader`."""
        self._shelf.lose()

    def fetch_offsets(self, partitions: tuple[TopicPartition, ...], done: Done) -> None:
        """See `Reader`."""

        def fetch() -> dict[TopicPartition, int]:
            found = self._offset_brokers.cluster().groups.offsets(self._settings.group)
            return {key: found[key].offset for key in partitions if key in found}

        self._ask(fetch, done)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], done: Done) -> None:
        """See `Reader`."""
        self._ask(lambda: self._offset_brokers.cluster().groups.commit_offsets(self._settings.group, offsets), done)

    def _ask(self, work: Callable[[], object], done: Done) -> None:
        def ask() -> object:
            try:
                return work()
            except FAILURES as error:
                self._offset_brokers.forget()
                if isinstance(error, KafkaError):
                    raise
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

        def answered(answer: object, error: BaseException | None) -> None:
            if error is None or isinstance(error, KafkaError):
                done(answer, error)
            else:
                done(None, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"offsets in Kafka: {error!r}"))

        self._worker.submit(ask, answered)

    # Broker discovery

    def _find_brokers(self) -> str:
        """Bootstrap servers; for threads other than the loop's. Raises KafkaError."""
        found: Future[list[str]] = Future()
        self._post(BrokerSearch(self._session, found).begin)
        try:
            addresses = found.result(FIND_TIMEOUT_S)
        except TimeoutError:
            addresses = []
        if not addresses:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"no PLAINTEXT listener found below {paths.BROKER_IDS} in ZooKeeper within {FIND_TIMEOUT_S:.0f} s; "
                "check zookeeper.connect (servers and chroot path) and the listeners of the brokers",
            )
        return ",".join(addresses)


def _left() -> KafkaError:
    return KafkaError(ErrorCode.ILLEGAL_GENERATION, "The consumer has left its group; the commit was not made.")
