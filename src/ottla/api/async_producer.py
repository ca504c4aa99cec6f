"""`AsyncProducer`: `Producer` for a program with an event loop.

    async with AsyncProducer("localhost:9092") as producer:
        arrived = await producer.send("views", "/index.html", key="alice")
        metadata = await arrived

Nothing blocks the loop: what may wait (a full queue, a partitioner that needs the topic's partitions, the coordinator
of transactions) does so in a thread of the producer's own. Everything else is as in `Producer`.
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
    """See the module. A context manager that waits for what it sent."""

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
        """Raises KafkaError as `Producer`; a second time it does nothing."""
        if self._closed:
            raise ClientClosed("producer")
        self._loop = asyncio.get_running_loop()
        if self._producer is None:
            try:
                await self._thread.run(self._begin)
            except asyncio.CancelledError:  # what is made all the same nobody would close
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
        """Queue a record, and return the future of its fate; waits while the queue is full.

        Whoever passes over a failed future hears of it from `flush` and the end of the block. Raises KafkaError for
        what can't be sent at all.
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
        """In the producer's thread. The loop is woken once for all that come before it gets to them."""
        producer.count_failure(delivery)
        self._arrived.append((delivery, future))
        if not self._woken and self._loop is not None and not self._loop.is_closed():
            self._woken = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._woken = False  # first: what comes from now on wakes the loop again
        while self._arrived:
            delivery, future = self._arrived.popleft()
            if future.done():  # cancelled
                continue
            if delivery.error is None:
                future.set_result(delivery.result())
            else:
                future.set_exception(delivery.error)
                future.exception()  # told by `flush` where nobody asks for it

    def transaction(self) -> AsyncTransaction:
        """An `async with` block whose records count all or not at all."""
        return AsyncTransaction(self._running().transaction(), self._thread)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the fate of all that was sent is known. Raises KafkaError for what failed."""
        await self._thread.run(partial(self._running().flush, timeout_s))

    async def close(self) -> None:
        """`flush`, and end; a second time it does nothing."""
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
            raise KafkaError(ErrorCode.INVALID_REQUEST, "use the producer by `async with`, or call its start first")
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
        except asyncio.CancelledError:  # of a block that is not entered nobody ends what was begun
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
        """Commit with this transaction what the consumer gave out so far."""
        positions, metadata = await consumer.positions(), await consumer.group_metadata()
        await self._thread.run(partial(self._transaction.send_positions, positions, metadata, consumer.group_id))
