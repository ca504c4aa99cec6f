"""`AsyncAdmin` and `AsyncSimpleConsumer`: the synchronous clients for a program with an event loop.

Each runs its calls one after the other in its own thread, so that the loop never blocks. A call that is cancelled
continues in that thread, and its result is discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from ottla.api.admin import Admin
from ottla.api.errors import ClientClosed
from ottla.api.settings import Config
from ottla.api.simple_consumer import READ_UNCOMMITTED, Fetched, SimpleConsumer
from ottla.client.admin.records import DEFAULT_FETCH_BYTES
from ottla.client.wire.model import ClusterInfo, CommittedOffset, ConfigEntry, GroupDescription, GroupListing, TopicInfo
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

T = TypeVar("T")
C = TypeVar("C", Admin, SimpleConsumer)


class InThread:
    """A thread that runs blocking calls in order."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call and return its result. A queued call is cancelled with its caller; a running one continues."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def run_to_end(self, call: Callable[[], T]) -> T:
        """The same for a call that must be completed, such as close, even if its caller is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._executor, call))

    def begin(self, call: Callable[[], object]) -> None:
        """Run a call without waiting for it."""
        self._executor.submit(call)

    def end(self) -> None:
        """End the thread after its queued calls."""
        self._executor.shutdown(wait=False)


class _Asynchronous(Generic[C]):
    """A client with calls that run in a thread."""

    def __init__(self, client: C) -> None:
        self._client: C = client
        self._thread = InThread("ottla-client")
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; idempotent."""
        if not self._closed:
            self._closed = True
            try:
                await self._thread.run_to_end(self._client.close)
            finally:
                self._thread.end()

    async def _ask(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise ClientClosed(self._client.what)
        return await self._thread.run(call)


class AsyncSimpleConsumer(_Asynchronous[SimpleConsumer]):
    """`SimpleConsumer`, method by method."""

    def __init__(
        self, bootstrap_servers: str, config: Config | None = None, *, isolation: str = READ_UNCOMMITTED
    ) -> None:
        super().__init__(SimpleConsumer(bootstrap_servers, config, isolation=isolation))

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = DEFAULT_FETCH_BYTES, max_wait_ms: int = 500
    ) -> Fetched:
        return await self._ask(
            partial(self._client.fetch, topic, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        )

    async def fetch_many(
        self, offsets: Mapping[TopicPartition, int], *, max_bytes: int = DEFAULT_FETCH_BYTES, max_wait_ms: int = 500
    ) -> dict[TopicPartition, Fetched | KafkaError]:
        return await self._ask(partial(self._client.fetch_many, offsets, max_bytes=max_bytes, max_wait_ms=max_wait_ms))

    async def earliest(self, topic: str, partition: int) -> int:
        return await self._ask(partial(self._client.earliest, topic, partition))

    async def latest(self, topic: str, partition: int) -> int:
        return await self._ask(partial(self._client.latest, topic, partition))

    async def youngest(self, topic: str, partition: int) -> int | None:
        return await self._ask(partial(self._client.youngest, topic, partition))

    async def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return await self._ask(partial(self._client.offsets_for_times, timestamps_ms))

    async def get_offsets_before(self, topic: str, partition: int, time_ms: int, max_count: int) -> list[int]:
        return await self._ask(partial(self._client.get_offsets_before, topic, partition, time_ms, max_count))

    async def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return await self._ask(partial(self._client.bounds, partitions))

    async def partitions(self, topic: str) -> list[TopicPartition]:
        return await self._ask(partial(self._client.partitions, topic))


class AsyncAdmin(_Asynchronous[Admin]):
    """`Admin`, method by method."""

    def __init__(self, bootstrap_servers: str, config: Config | None = None) -> None:
        super().__init__(Admin(bootstrap_servers, config))

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> None:
        await self._ask(
            partial(
                self._client.create_topic,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=validate_only,
            )
        )

    async def delete_topics(self, names: str | Iterable[str]) -> None:
        await self._ask(partial(self._client.delete_topics, names))

    async def topics(self) -> dict[str, TopicInfo]:
        return await self._ask(self._client.topics)

    async def topic(self, name: str) -> TopicInfo:
        return await self._ask(partial(self._client.topic, name))

    async def create_partitions(self, name: str, total_count: int) -> None:
        await self._ask(partial(self._client.create_partitions, name, total_count))

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return await self._ask(partial(self._client.delete_records, offsets))

    async def topic_configs(self, name: str) -> dict[str, ConfigEntry]:
        return await self._ask(partial(self._client.topic_configs, name))

    async def broker_configs(self, node_id: int | None = None) -> dict[str, ConfigEntry]:
        return await self._ask(partial(self._client.broker_configs, node_id))

    async def alter_topic_configs(self, name: str, changes: Mapping[str, object | None]) -> None:
        await self._ask(partial(self._client.alter_topic_configs, name, changes))

    async def alter_broker_configs(self, node_id: int | None, changes: Mapping[str, object | None]) -> None:
        await self._ask(partial(self._client.alter_broker_configs, node_id, changes))

    async def groups(self) -> list[GroupListing]:
        return await self._ask(self._client.groups)

    async def group(self, group_id: str) -> GroupDescription:
        return await self._ask(partial(self._client.group, group_id))

    async def group_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return await self._ask(partial(self._client.group_offsets, group_id))

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        await self._ask(partial(self._client.alter_group_offsets, group_id, offsets))

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        await self._ask(partial(self._client.delete_group_offsets, group_id, partitions))

    async def delete_group(self, group_id: str) -> None:
        await self._ask(partial(self._client.delete_group, group_id))

    async def cluster(self) -> ClusterInfo:
        return await self._ask(self._client.cluster)
