"""A connection to a coordinator wherever it is: found anew after every lost answer and every refusal.

Coordinators move with the leadership of their partition. One that was replaced and has not heard of it still answers
what it need not write; the members must not rely on that, so `genuine` says of each answer whether who gave it led the
partition all the while, by the newest metadata that any node has. `lasting` says besides whether that leader had
committed something in its epoch: before, the next leader may come with records of the one before it, which nobody had
heard of, as that a member was thrown out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.registry import ApiKey
from simulation.client import REQUEST_TIMEOUT_S, Client, RequestLost
from simulation.cluster_view import NOT_IN_OFFICE
from simulation.log_clients import LogWorld
from simulation.members import RETRIABLE
from simulation.network import Address
from simulation.rng import SimRng

FIND_VERSION = 6
FIRST_BATCHED_VERSION = 4
OF_A_GROUP, OF_A_TRANSACTION = 0, 1

InOffice = Callable[[Address], int]
"""The leader epoch in which the broker at an address is the coordinator; NOT_IN_OFFICE when it does not."""
IsSettled = Callable[[], bool]
"""Whether the coordinator in office has committed something in its epoch."""


class CoordinatorClient(Client):
    """One connection at a time."""

    def __init__(
        self,
        world: LogWorld,
        name: str,
        rng: SimRng,
        key: str,
        in_office: InOffice,
        is_settled: IsSettled,
        *,
        key_type: int = OF_A_GROUP,
    ) -> None:
        """`key` is a group or a transactional id."""
        super().__init__(world.loop, world.network, name)
        self._world = world
        self._rng = rng
        self._key = key
        self._key_type = key_type
        self._in_office = in_office
        self._is_settled = is_settled
        self._coordinator: Address | None = None
        self.genuine = self.lasting = False

    async def request(self, key: ApiKey, version: int, message: object, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Ask the coordinator, or any broker for it. Raises RequestLost."""
        if key is ApiKey.FIND_COORDINATOR:
            return await self._find(version, message, timeout_s)
        if self._coordinator is None:
            found = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
            await self._find(FIND_VERSION, found, timeout_s)
        coordinator = self._coordinator
        if coordinator is None:
            raise RequestLost(f"nobody coordinates {self._key}")
        epoch = self._in_office(coordinator)
        try:
            response = await super().request(key, version, message, timeout_s)
        except RequestLost:
            self._forget()
            raise
        self._world.operations += 1
        self.genuine = epoch != NOT_IN_OFFICE and self._in_office(coordinator) == epoch
        self.lasting = self.genuine and self._is_settled()
        if not RETRIABLE.isdisjoint(codes_of(response)):
            self._forget()
        return response

    async def _find(self, version: int, message: object, timeout_s: float) -> Any:
        self._forget()
        self.address = self._rng.choice(self._world.bootstrap)
        response = await super().request(ApiKey.FIND_COORDINATOR, version, message, timeout_s)
        self._world.operations += 1
        answer = response.coordinators[0] if version >= FIRST_BATCHED_VERSION else response
        self.close()
        if not answer.error_code:
            self._coordinator = self.address = (answer.host, answer.port)
        return response

    def _forget(self) -> None:
        self._coordinator = None
        self.close()


def codes_of(response: Any) -> Iterator[int]:
    """Every error code of an answer of a coordinator."""
    yield getattr(response, "error_code", 0)
    for group in getattr(response, "groups", ()):
        yield group.error_code
    for topic in getattr(response, "topics", ()):
        for partition in topic.partitions:
            yield partition.error_code
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        for added in topic.results_by_partition:
            yield added.partition_error_code
