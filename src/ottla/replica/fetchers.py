"""Fetchers of this broker, one for each leader, and the assignment of partitions to them.

A partition waits while its leader has no address in the metadata; a leader with a new address gets a new fetcher. The
fetching itself is in `replica.fetcher`, which is imported for the first leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.platform.peer import Address
from ottla.replica.fetcher_context import FetcherContext, Key
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from ottla.replica.fetcher import ReplicaFetcher

AddressOf = Callable[[int], Address | None]
"""Address of a broker's inter-broker listener by id; None while the metadata does not have it."""


class ReplicaFetchers:
    """Fetchers of one broker."""

    __slots__ = ("_address_of", "_context", "_fetchers", "_followed")

    def __init__(self, context: FetcherContext, address_of: AddressOf) -> None:
        self._context = context
        self._address_of = address_of
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed: dict[Key, tuple[Partition, int, int]] = {}
        """Each partition with its leader and the leader epoch in which it follows."""

    def follow(self, partition: Partition) -> None:
        """Apply a partition's state: fetch it from its leader, or not at all."""
        state = partition.state
        key = (partition.topic_id, partition.index)
        known = self._followed.get(key)
        if partition.is_leader or state.leader_id < 0 or partition.offline:
            self.forget(key)
            return
        if known == (partition, state.leader_id, state.leader_epoch):
            return
        self.forget(key)
        self._followed[key] = (partition, state.leader_id, state.leader_epoch)
        fetcher = self._fetcher(state.leader_id)
        if fetcher is not None:
            fetcher.follow(partition)

    def forget(self, key: Key) -> None:
        """Remove a partition."""
        known = self._followed.pop(key, None)
        if known is None:
            return
        fetcher = self._fetchers.get(known[1])
        if fetcher is not None:
            fetcher.forget(key)
            if not len(fetcher):
                del self._fetchers[known[1]]
                fetcher.close()

    def addresses_changed(self) -> None:
        """Reconnect to leaders with new addresses after a change of the cluster."""
        leaders = {leader_id: None for _, leader_id, _ in self._followed.values()}
        for leader_id in leaders:
            fetcher = self._fetchers.get(leader_id)
            address = self._address_of(leader_id)
            if (None if fetcher is None else fetcher.address) == address:
                continue
            if fetcher is not None:
                del self._fetchers[leader_id]
                fetcher.close()
            fetcher = self._fetcher(leader_id)
            if fetcher is not None:
                for partition, leader, _ in self._followed.values():
                    if leader == leader_id:
                        fetcher.follow(partition)

    def max_lag(self) -> int:
        """Maximum lag of a partition behind its leader's high watermark, in records."""
        return max((fetcher.max_lag() for fetcher in self._fetchers.values()), default=0)

    def request_numbers(self) -> dict[int, int]:
        """Number of Fetch requests to each leader, by its id."""
        return {leader_id: fetcher.request_number for leader_id, fetcher in self._fetchers.items()}

    def close(self) -> None:
        """Stop all fetchers."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._followed.clear()

    def _fetcher(self, leader_id: int) -> ReplicaFetcher | None:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            address = self._address_of(leader_id)
            if address is not None:
                from ottla.replica.fetcher import ReplicaFetcher  # imported here: leaders need none

                fetcher = self._fetchers[leader_id] = ReplicaFetcher(leader_id, *address, self._context)
        return fetcher
