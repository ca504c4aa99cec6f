"""Connection to a coordinator that may move: looked up again after every lost response and every error.

Coordinators move with the leadership of their partition. A replaced coordinator that does not know it still answers
requests that need no write. Members must not rely on that, so `genuine` states for each response whether its sender led
the partition during the whole request, by the newest metadata of any node. `lasting` states whether that leader had
also committed a record in its epoch: before that, the next leader may have records of the previous one that no other
node has seen, such as the removal of a member.
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
"""The leader epoch in which the broker at an address is the coordinator; NOT_IN_OFFICE if it is not."""
IsSettled = Callable[[], bool]
"""Whether the current coordinator has committed a record in its epoch."""


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
        """Send a request to the coordinator, looking it up first if needed. Raises RequestLost."""
        if key is ApiKey.FIND_COORDINATOR:
            return await self._find(version, message, timeout_s)
        if self._coordinator is None:
            found = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
            await self._find(FIND_VERSION, found, timeout_s)
        coordinator = self._coordinator
        if coordinator is None:
            raise RequestLost(f"no coordinator for {self._key}")
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
    """Every error code in a coordinator's response."""
    yield getattr(response, "error_code", 0)
    for group in getattr(response, "groups", ()):
        yield group.error_code
    for topic in getattr(response, "topics", ()):
        for partition in topic.partitions:
            yield partition.error_code
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        for added in topic.results_by_partition:
            yield added.partition_error_code
