"""Changes of the `transaction.version` level while transactions run, as by upgrades and downgrades."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.registry import ApiKey
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.log_clients import RETRIABLE
from simulation.loop import SimLoop
from simulation.network import Address, Network
from simulation.rng import SimRng
from simulation.trace import Trace

FEATURE = "transaction.version"
VERSION = 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
LEVELS = (0, 1, 2)
NEWEST = 2
BETWEEN_S = (5.0, 60.0)
AGAIN_S = 0.5


class FeatureChanges:
    """An administrator that changes the level."""

    def __init__(self, loop: SimLoop, network: Network, brokers: Sequence[Address], rng: SimRng, trace: Trace) -> None:
        self._loop = loop
        self._network = network
        self._brokers = brokers
        self._rng = rng
        self._trace = trace

    def plan(self) -> int | None:
        """The level of a run; None for a run in which it changes."""
        draw = self._rng.uniform(0, 1)
        return NEWEST if draw < 0.6 else None if draw < 0.85 else self._rng.choice(LEVELS[:-1])

    async def run(self, stopping: Callable[[], bool]) -> None:
        """One change after another until the stop; the last one sets the newest level."""
        while not stopping():
            await asyncio.sleep(self._rng.uniform(*BETWEEN_S))
            await self.set(self._rng.choice(LEVELS))
        await self.set(NEWEST)

    async def set(self, level: int, feature: str = FEATURE) -> None:
        """Retry until the controller has set it."""
        for upgrade_type in (UPGRADE, SAFE_DOWNGRADE):
            while (code := await self._ask(feature, level, upgrade_type)) in RETRIABLE:
                await asyncio.sleep(AGAIN_S)
            self._trace.note("features", f"{feature} {level}: {ErrorCode(code).name}")
            if code == ErrorCode.NONE:
                return
        raise Violation(f"UpdateFeatures of {feature} to {level} returned {ErrorCode(code).name}")

    async def _ask(self, feature: str, level: int, upgrade_type: int) -> int:
        client = Client(self._loop, self._network, "features", self._rng.choice(self._brokers))
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
        try:
            response = await client.request(
                ApiKey.UPDATE_FEATURES, VERSION, UpdateFeaturesRequest(timeout_ms=4_000, feature_updates=[update])
            )
        except RequestLost:
            return ErrorCode.REQUEST_TIMED_OUT
        finally:
            client.close()
        codes = [response.error_code, *(each.error_code for each in response.results)]
        return next(filter(None, codes), ErrorCode.NONE)
