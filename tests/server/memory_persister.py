"""A share coordinator in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.common.kafka.share_state import SharePartitionKey, ShareState, ShareStateSummary, StateBatch


class MemoryPersister:
    """A share coordinator in memory; implements `SharePersister`."""

    def __init__(self) -> None:
        self.state: dict[SharePartitionKey, tuple[int, int]] = {}
        """State epoch and start offset."""
        self.error: Exception | None = None
        self.failing: int | None = None
        """Only calls for this partition raise `error`; None: all."""
        self.calls = 0

    async def _called(self, key: SharePartitionKey) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        if self.error is not None and self.failing in (None, key.partition):
            raise self.error

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        await self._called(key)
        if state_epoch > self.state.get(key, (-1, 0))[0]:
            self.state[key] = (state_epoch, start_offset)

    async def delete(self, key: SharePartitionKey) -> None:
        await self._called(key)
        self.state.pop(key, None)

    async def summarize(self, key: SharePartitionKey, leader_epoch: int = -1) -> ShareStateSummary:
        await self._called(key)
        state_epoch, start_offset = self.state[key]
        return ShareStateSummary(state_epoch, 4, start_offset, 2)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        raise NotImplementedError

    async def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        raise NotImplementedError
