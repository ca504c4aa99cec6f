"""`AsyncConsumer`: `Consumer` for a program with an event loop.

    async with AsyncConsumer("localhost:9092", {"group.id": "readers"}, topics="views") as consumer:
        async for record in consumer:
            await handle(record)

Library calls run one after the other in a thread of the consumer. Hooks run in it, too, and receive the `Consumer`,
which they may call. Fetched records stay in the consumer until they are returned, so a cancelled call loses no record.
Everything else is as in `Consumer`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic

from ottla.api.asynchronous import InThread, T
from ottla.api.consumer import POLL_S, Consumer, RebalanceHook
from ottla.api.consuming.hooks import CommitHook
from ottla.api.errors import ClientClosed
from ottla.api.interceptors import ConsumerInterceptor
from ottla.api.messages import Record
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config
from ottla.api.topic_filter import Topics
from ottla.client.wire.time_limit import require_seconds
from ottla.common.kafka.topic_partition import TopicPartition


class AsyncConsumer(Generic[RK, RV]):
    """See the module. Joins its group at `start`, or as a context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        config: Config | None = None,
        *,
        topics: Topics = (),
        key_deserializer: Deserializer[RK] | None = None,
        value_deserializer: Deserializer[RV] | None = None,
        on_assign: RebalanceHook | None = None,
        on_revoke: RebalanceHook | None = None,
        on_lost: RebalanceHook | None = None,
        on_commit: CommitHook | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> None:
        """Raises KafkaError INVALID_CONFIG."""
        self._topics = topics
        self._consumer: Consumer[RK, RV] = Consumer(
            bootstrap_servers,
            config,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_assign=on_assign,
            on_revoke=on_revoke,
            on_lost=on_lost,
            on_commit=on_commit,
            interceptors=interceptors,
        )
        self._thread = InThread("ottla-consumer")
        self._closed = False

    async def start(self) -> None:
        """Subscribe to the topics of the constructor."""
        if self._topics != ():
            await self.subscribe(self._topics)

    async def __aenter__(self) -> AsyncConsumer[RK, RV]:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(partial(self._consumer.__exit__, kind, error, trace))

    async def __aiter__(self) -> AsyncIterator[Record[RK, RV]]:
        """Iterate over records until `stop` or `close`."""
        while not self._consumer.stopped:
            if self._consumer.is_ready or await self._ask(partial(self._consumer.fill, POLL_S)):
                for record in self._consumer.take(1):
                    yield record
            if self._closed:
                return

    async def poll(self, timeout_s: float, *, max_records: int | None = None) -> list[Record[RK, RV]]:
        """The available records; waits for the first one, empty after the timeout.

        Raises ValueError for a `timeout_s` of NaN.
        """
        require_seconds(timeout_s)
        left_s = timeout_s
        while not self._consumer.is_ready and not await self._ask(partial(self._consumer.fill, min(POLL_S, left_s))):
            left_s -= POLL_S
            if left_s <= 0 or self._consumer.stopped:
                return []
        return self._consumer.take(max_records)

    async def batches(self, *, max_records: int | None = None) -> AsyncIterator[list[Record[RK, RV]]]:
        """The results of `poll`, until `stop` or `close`."""
        while not self._consumer.stopped and not self._closed:
            records = await self.poll(POLL_S, max_records=max_records)
            if records:
                yield records

    def stop(self) -> None:
        """End iterations after their current record."""
        self._consumer.stop()

    async def subscribe(self, topics: Topics) -> None:
        await self._ask(partial(self._consumer.subscribe, topics))

    async def assign(self, positions: Mapping[TopicPartition, int | None] | Iterable[TopicPartition]) -> None:
        await self._ask(partial(self._consumer.assign, positions))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment

    @property
    def group_id(self) -> str:
        return self._consumer.group_id

    async def positions(self) -> dict[TopicPartition, int]:
        return await self._ask(self._consumer.positions)

    async def group_metadata(self) -> Any:
        return await self._ask(self._consumer.group_metadata)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        await self._ask(partial(self._consumer.seek, topic, partition, offset))

    async def seek_to_time(self, timestamp_ms: int, partitions: Iterable[TopicPartition] | None = None) -> None:
        await self._ask(partial(self._consumer.seek_to_time, timestamp_ms, partitions))

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        await self._ask(partial(self._consumer.seek_to_beginning, partitions))

    async def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        await self._ask(partial(self._consumer.seek_to_end, partitions))

    async def seek_to_committed(self) -> None:
        await self._ask(self._consumer.seek_to_committed)

    async def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return await self._ask(partial(self._consumer.offsets_for_times, timestamps_ms))

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._ask(partial(self._consumer.committed, partitions))

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        await self._ask(partial(self._consumer.pause, partitions))

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        await self._ask(partial(self._consumer.resume, partitions))

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        await self._ask(partial(self._consumer.commit, offsets))

    async def close(self) -> None:
        """Commit processed records (`enable.auto.commit`) and leave the group; idempotent."""
        await self._leave(self._consumer.close)

    async def _leave(self, leave: Callable[[], object]) -> None:
        if not self._closed:
            self._closed = True
            self._consumer.stop()
            try:
                await self._thread.run_to_end(leave)
            finally:
                self._thread.end()

    async def _ask(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise ClientClosed("consumer")
        return await self._thread.run(call)
