"""`AsyncLegacyConsumer`: `LegacyConsumer` for a program with an event loop.

    async with AsyncLegacyConsumer({"zookeeper.connect": "localhost:2181", "group.id": "readers"}) as consumer:
        (stream,) = (await consumer.create_message_streams({"views": 1}))["views"]
        async for record in stream:
            ...

Each stream waits in its own thread, and returns records on the loop, so a cancelled call loses no record. Everything
else is as in `LegacyConsumer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic

from ottla.api.asynchronous import Asynchronous, InThread, in_thread
from ottla.api.consumer import POLL_S
from ottla.api.legacy_consumer import LegacyConsumer
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config
from ottla.api.topic_filter import TopicFilter
from ottla.client.legacy.assignment import ConsumerThread
from ottla.client.legacy.streams import Stream
from ottla.client.librdkafka.consumer import ConsumedRecord


class AsyncLegacyStream(Generic[RK, RV]):
    """An asynchronous iterator over records, for one task, like `Stream`."""

    def __init__(self, stream: Stream[RK, RV]) -> None:
        self._stream = stream
        self._thread = InThread("ottla-legacy-stream")

    def __aiter__(self) -> AsyncLegacyStream[RK, RV]:
        return self

    async def __anext__(self) -> ConsumedRecord[RK, RV]:
        stream = self._stream
        until = None if stream.timeout_s is None else time.monotonic() + stream.timeout_s
        while (record := stream.take(0.0)) is None:
            left_s = POLL_S if until is None else until - time.monotonic()
            if stream.ended or left_s <= 0:
                raise StopAsyncIteration
            await self._thread.run(partial(stream.wait, min(POLL_S, left_s)))
        return record

    def end(self) -> None:
        """Release its thread."""
        self._thread.end()


class AsyncLegacyConsumer(Asynchronous[LegacyConsumer[RK, RV]], Generic[RK, RV]):
    """See the module. A context manager that leaves the group."""

    def __init__(
        self,
        config: Config,
        *,
        key_deserializer: Deserializer[RK] | None = None,
        value_deserializer: Deserializer[RV] | None = None,
        before_releasing_partitions: Callable[[dict[str, frozenset[int]]], object] | None = None,
        before_starting_fetchers: Callable[[str, dict[str, dict[int, ConsumerThread]]], object] | None = None,
    ) -> None:
        """Connects later. Raises KafkaError INVALID_CONFIG, also without the extra `zookeeper`."""
        consumer: LegacyConsumer[RK, RV] = LegacyConsumer(
            config,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            before_releasing_partitions=before_releasing_partitions,
            before_starting_fetchers=before_starting_fetchers,
        )
        super().__init__(consumer, "ottla-legacy-consumer")
        self._streams: list[AsyncLegacyStream[RK, RV]] = []

    async def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[AsyncLegacyStream[RK, RV]]]:
        made = await self._ask(partial(self._client.create_message_streams, counts))
        return {topic: [self._asynchronous(stream) for stream in streams] for topic, streams in made.items()}

    async def create_message_streams_by_filter(
        self, topics: TopicFilter, count: int = 1
    ) -> list[AsyncLegacyStream[RK, RV]]:
        made = await self._ask(partial(self._client.create_message_streams_by_filter, topics, count))
        return [self._asynchronous(stream) for stream in made]

    commit_offsets = in_thread(LegacyConsumer.commit_offsets)

    @property
    def problem(self) -> Exception | None:
        return self._client.problem

    async def shutdown(self) -> None:
        """End all streams, commit processed records (`auto.commit.enable`) and leave the group; idempotent."""
        await self._leave(self._client.shutdown)

    def _asynchronous(self, stream: Stream[RK, RV]) -> AsyncLegacyStream[RK, RV]:
        made = AsyncLegacyStream(stream)
        self._streams.append(made)
        return made

    async def _leave(self, leave: Callable[[], object]) -> None:
        if not self._closed:
            try:
                await super()._leave(leave)
            finally:
                for stream in self._streams:
                    stream.end()
