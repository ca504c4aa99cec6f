"""`AsyncShareConsumer`: `ShareConsumer` for a program with an event loop.

    async with AsyncShareConsumer("localhost:9092", {"group.id": "workers"}, topics="jobs") as worker:
        async for job in worker:
            await do(job)

Library calls run one after the other in a thread of the consumer. Everything else is as in `ShareConsumer`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Generic

from ottla.api.asynchronous import Asynchronous, in_thread
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config
from ottla.api.share_consumer import POLL_S, Job, ShareConsumer
from ottla.client.wire.time_limit import require_seconds


class AsyncShareConsumer(Asynchronous[ShareConsumer[RK, RV]], Generic[RK, RV]):
    """See the module."""

    def __init__(
        self,
        bootstrap_servers: str,
        config: Config | None = None,
        *,
        topics: str | Iterable[str] = (),
        key_deserializer: Deserializer[RK] | None = None,
        value_deserializer: Deserializer[RV] | None = None,
    ) -> None:
        """Raises KafkaError INVALID_CONFIG, INVALID_GROUP_ID."""
        consumer: ShareConsumer[RK, RV] = ShareConsumer(
            bootstrap_servers,
            config,
            topics=topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        super().__init__(consumer, "ottla-share-consumer")

    async def __aiter__(self) -> AsyncIterator[Job[RK, RV]]:
        """Iterate over records until `stop` or `close`."""
        while not self._client.stopped and not self._closed:
            if await self._ask(partial(self._client.fill, POLL_S)):
                for job in self._client.take(1):
                    yield job

    async def poll(self, timeout_s: float) -> list[Job[RK, RV]]:
        """The available records; waits for the first one, empty after the timeout.

        Raises ValueError for a `timeout_s` of NaN.
        """
        require_seconds(timeout_s)
        left_s = timeout_s
        while not await self._ask(partial(self._client.fill, min(POLL_S, left_s))):
            left_s -= POLL_S
            if left_s <= 0 or self._client.stopped:
                return []
        return self._client.take(None)

    def stop(self) -> None:
        """End iterations after their current record."""
        self._client.stop()

    @property
    def group_id(self) -> str:
        return self._client.group_id

    subscribe = in_thread(ShareConsumer.subscribe)
    accept = in_thread(ShareConsumer.accept)
    release = in_thread(ShareConsumer.release)
    reject = in_thread(ShareConsumer.reject)
    commit = in_thread(ShareConsumer.commit)

    async def close(self) -> None:
        """Acknowledge all returned records, release the others, and leave the group; idempotent."""
        await self._leave(self._client.close)

    async def _leave(self, leave: Callable[[], object]) -> None:
        self._client.stop()
        await super()._leave(leave)
