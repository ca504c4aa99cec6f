"""`AsyncProducer`: `Producer` for a program with an event loop.

    async with AsyncProducer("localhost:9092") as producer:
        arrived = await producer.send("views", "/index.html", key="alice")
        metadata = await arrived

Nothing blocks the loop: calls that may wait (for a full queue, the topic's partitions for a partitioner, or the
transaction coordinator) run in a thread of the producer. Everything else is as in `Producer`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Generic

from ottla.api.async_consumer import AsyncConsumer
from ottla.api.asynchronous import InThread, T
from ottla.api.errors import ClientClosed
from ottla.api.interceptors import ProducerInterceptor
from ottla.api.messages import Delivery
from ottla.api.partitioners import Partitioner
from ottla.api.producer import Producer, QueueFull
from ottla.api.records import RK, RV, Headers, K, RecordMetadata, Serializer, V
from ottla.api.settings import Config
from ottla.api.transaction import Transaction
from ottla.common.errors import ErrorCode, KafkaError


class AsyncProducer(Generic[K, V]):
    """See the module. A context manager that waits for all deliveries."""

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
        """Connects at `start`, or as a context manager."""
        self._make = partial(
            Producer[K, V],
            bootstrap_servers,
            config,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        self._asks = callable(partitioner)
        self._producer: Producer[K, V] | None = None
        self._thread = InThread("ottla-producer-calls")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived: deque[tuple[Delivery, asyncio.Future[RecordMetadata]]] = deque()
        self._woken = False
        self._closed = False

    async def start(self) -> None:
        """Connect. Raises KafkaError like `Producer`; idempotent."""
        if self._closed:
            raise ClientClosed("producer")
        self._loop = asyncio.get_running_loop()
        if self._producer is None:
            try:
                await self._thread.run(self._begin)
            except asyncio.CancelledError:  # the producer is created regardless, and must be closed
                self._thread.begin(self._discard)
                raise

    def _begin(self) -> None:
        self._producer = self._make()

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    async def __aenter__(self) -> AsyncProducer[K, V]:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (producer := self._producer) is not None:
            await self._end(partial(producer.__exit__, kind, error, trace))

    async def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        *,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a record, and return a future of its delivery; waits while the queue is full.

        A failure that is not retrieved from its future is raised by `flush` and the end of the block. Raises KafkaError
        for a record that cannot be sent at all.
        """
        producer = self._running()
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        send = partial(
            producer.send,
            topic,
            value,
            key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            on_delivery=partial(self._delivered, producer, future),
        )
        if self._asks:
            await self._thread.run(send)
            return future
        try:
            send(wait=False)
        except QueueFull:
            await self._thread.run(send)
        return future

    async def send_batch(
        self, topic: str, values: Iterable[V | None], key: K | None = None
    ) -> list[asyncio.Future[RecordMetadata]]:
        """Queue many values for one topic."""
        return [await self.send(topic, value, key) for value in values]

    def _delivered(self, producer: Producer[K, V], future: asyncio.Future[RecordMetadata], delivery: Delivery) -> None:
        """Called in the producer's thread. Wakes the loop once for all deliveries until it runs."""
        producer.count_failure(delivery)
        self._arrived.append((delivery, future))
        if not self._woken and self._loop is not None and not self._loop.is_closed():
            self._woken = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._woken = False  # first: later deliveries wake the loop again
        while self._arrived:
            delivery, future = self._arrived.popleft()
            if future.done():  # cancelled
                continue
            if delivery.error is None:
                future.set_result(delivery.result())
            else:
                future.set_exception(delivery.error)
                future.exception()  # raised by `flush` if it is not retrieved

    def transaction(self) -> AsyncTransaction:
        """An `async with` block as a transaction: its records are committed together or not at all."""
        return AsyncTransaction(self._running().transaction(), self._thread)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome of all sent records. Raises KafkaError for failures."""
        await self._thread.run(partial(self._running().flush, timeout_s))

    async def close(self) -> None:
        """`flush`, and close; idempotent."""
        if (producer := self._producer) is not None:
            await self._end(producer.close)

    async def _end(self, end: Callable[[], T]) -> None:
        self._producer, self._closed = None, True
        try:
            await self._thread.run_to_end(end)
        finally:
            self._thread.end()
            self._settle()

    def _running(self) -> Producer[K, V]:
        if self._closed:
            raise ClientClosed("producer")
        if self._producer is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "use the producer with `async with`, or call start() first")
        return self._producer


class AsyncTransaction:
    """One `async with` block; see `ottla.api.transaction`."""

    def __init__(self, transaction: Transaction, thread: InThread) -> None:
        self._transaction = transaction
        self._thread = thread
        self._begun = False

    async def __aenter__(self) -> AsyncTransaction:
        try:
            await self._thread.run(self._begin)
        except asyncio.CancelledError:  # the block is not entered, so the transaction would stay open
            await self._thread.run_to_end(self._undo)
            raise
        return self

    def _begin(self) -> None:
        self._transaction.__enter__()
        self._begun = True

    def _undo(self) -> None:
        if self._begun:
            self._transaction.abandon()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._thread.run_to_end(partial(self._transaction.__exit__, kind, error, trace))

    async def send_offsets(self, consumer: AsyncConsumer[RK, RV]) -> None:
        """Commit the consumer's returned records with this transaction."""
        positions, metadata = await consumer.positions(), await consumer.group_metadata()
        await self._thread.run(partial(self._transaction.send_positions, positions, metadata, consumer.group_id))
