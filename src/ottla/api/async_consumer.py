"""`AsyncConsumer`: `Consumer` for a program with an event loop.

    async with AsyncConsumer("localhost:9092", {"group.id": "readers"}, topics="views") as consumer:
        async for record in consumer:
            await handle(record)

Library calls run one after the other in a thread of the consumer. Hooks run in it, too, and receive the `Consumer`,
which they may call. Fetched records stay in the consumer until they are returned, so a cancelled call loses no record.
Everything else is as in `Consumer`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Generic, Self

from ottla.api.asynchronous import Asynchronous, in_thread
from ottla.api.consumer import POLL_S, Consumer, RebalanceHook
from ottla.api.consuming.hooks import CommitHook
from ottla.api.interceptors import ConsumerInterceptor
from ottla.api.messages import Record
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config
from ottla.api.topic_filter import Topics
from ottla.client.wire.time_limit import require_seconds
from ottla.common.kafka.topic_partition import TopicPartition


class AsyncConsumer(Asynchronous[Consumer[RK, RV]], Generic[RK, RV]):
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
        consumer: Consumer[RK, RV] = Consumer(
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
        super().__init__(consumer, "ottla-consumer")

    async def start(self) -> None:
        """Subscribe to the topics of the constructor."""
        if self._topics != ():
            await self.subscribe(self._topics)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aiter__(self) -> AsyncIterator[Record[RK, RV]]:
        """Iterate over records until `stop` or `close`."""
        while not self._client.stopped:
            if self._client.is_ready or await self._ask(partial(self._client.fill, POLL_S)):
                for record in self._client.take(1):
                    yield record
            if self._closed:
                return

    async def poll(self, timeout_s: float, *, max_records: int | None = None) -> list[Record[RK, RV]]:
        """The available records; waits for the first one, empty after the timeout.

        Raises ValueError for a `timeout_s` of NaN.
        """
        require_seconds(timeout_s)
        left_s = timeout_s
        while not self._client.is_ready and not await self._ask(partial(self._client.fill, min(POLL_S, left_s))):
            left_s -= POLL_S
            if left_s <= 0 or self._client.stopped:
                return []
        return self._client.take(max_records)

    async def batches(self, *, max_records: int | None = None) -> AsyncIterator[list[Record[RK, RV]]]:
        """The results of `poll`, until `stop` or `close`."""
        while not self._client.stopped and not self._closed:
            records = await self.poll(POLL_S, max_records=max_records)
            if records:
                yield records

    def stop(self) -> None:
        """End iterations after their current record."""
        self._client.stop()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._client.assignment

    @property
    def group_id(self) -> str:
        return self._client.group_id

    subscribe = in_thread(Consumer.subscribe)
    assign = in_thread(Consumer.assign)
    positions = in_thread(Consumer.positions)
    group_metadata = in_thread(Consumer.group_metadata)
    seek = in_thread(Consumer.seek)
    seek_to_time = in_thread(Consumer.seek_to_time)
    seek_to_beginning = in_thread(Consumer.seek_to_beginning)
    seek_to_end = in_thread(Consumer.seek_to_end)
    seek_to_committed = in_thread(Consumer.seek_to_committed)
    offsets_for_times = in_thread(Consumer.offsets_for_times)
    committed = in_thread(Consumer.committed)
    pause = in_thread(Consumer.pause)
    resume = in_thread(Consumer.resume)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        await self._ask(partial(self._client.commit, offsets))

    async def close(self) -> None:
        """Commit processed records (`enable.auto.commit`) and leave the group; idempotent."""
        await self._leave(self._client.close)

    async def _leave(self, leave: Callable[[], object]) -> None:
        self._client.stop()
        await super()._leave(leave)
