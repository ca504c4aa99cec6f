"""An administrator that fetches the committed offsets of a group continuously."""

from __future__ import annotations

import asyncio

from ottla.common.errors import ErrorCode
from ottla.protocol.registry import ApiKey
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.members import RETRIABLE, GroupWorld, fetch_request, fetched_offsets
from simulation.rng import SimRng

PAUSE_S = 1.5
AGAIN_S = 0.2
VERSION = 8


class Observer:
    """Checks that no committed offset is lost or decreases."""

    def __init__(self, world: GroupWorld, client: Client, rng: SimRng) -> None:
        self._world = world
        self._client = client
        self._rng = rng

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(PAUSE_S * self._rng.uniform(0.5, 1.5))
            await self._look("observer")

    async def look_at_last(self) -> None:
        """Repeat until there was one response."""
        while not await self._look("the end"):
            await asyncio.sleep(AGAIN_S)

    async def _look(self, client: str) -> bool:
        """Check the committed offsets; returns whether there was a response."""
        world = self._world
        partitions = list(range(world.partitions))
        before = {partition: world.offsets.certain(partition) for partition in partitions}
        request = fetch_request(world, VERSION, partitions, None, -1)
        try:
            response = await self._client.request(ApiKey.OFFSET_FETCH, VERSION, request)
        except RequestLost:
            return False
        if not self._client.genuine:
            return False
        code, found = fetched_offsets(VERSION, response)
        if code:
            if code not in RETRIABLE | {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
                raise Violation(f"the observer's OffsetFetch returned {ErrorCode(code).name}")
            return False
        for partition, offset in found.items():
            world.offsets.fetched(client, partition, offset, before[partition])
        return True
