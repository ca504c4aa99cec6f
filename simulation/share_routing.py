"""Leaders of the partitions of several topics, as a client of a share group knows them."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.registry import ApiKey
from simulation.checkers import Violation
from simulation.client import Client
from simulation.history.shares import SharePlace
from simulation.log_clients import METADATA_VERSION, RETRIABLE, LogWorld
from simulation.network import Address
from simulation.rng import SimRng


class ShareRouting:
    """Metadata on demand, and one connection to each broker."""

    def __init__(self, world: LogWorld, topics: Sequence[str], name: str, rng: SimRng) -> None:
        self._world = world
        self._topics = topics
        self._name = name
        self._rng = rng
        self._clients: dict[Address, Client] = {}
        self._addresses: dict[int, Address] = {}
        self._leaders: dict[SharePlace, int] = {}
        self._epochs: dict[SharePlace, int] = {}

    def client(self, node: int) -> Client:
        """The connection to a broker whose address is known."""
        return self._client_at(self._addresses[node])

    def _client_at(self, address: Address) -> Client:
        found = self._clients.get(address)
        if found is None:
            found = self._clients[address] = Client(self._world.loop, self._world.network, self._name, address)
        return found

    def leader(self, place: SharePlace) -> int | None:
        """The leader of a partition, None if it is not known."""
        node = self._leaders.get(place)
        return node if node in self._addresses else None

    def forget(self) -> None:
        """The next look-up refreshes the leaders."""
        self._leaders.clear()

    async def refresh(self) -> None:
        """Ask any broker for the leaders. Raises RequestLost."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in self._topics], allow_auto_topic_creation=False
        )
        client = self._client_at(self._rng.choice(self._world.bootstrap))
        response = await client.request(ApiKey.METADATA, METADATA_VERSION, request)
        self._world.operations += 1
        self._addresses |= {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            if topic.error_code and topic.error_code not in RETRIABLE:
                raise Violation(f"Metadata returned {ErrorCode(topic.error_code).name} for {topic.name}")
            for partition in topic.partitions:
                place = (topic.topic_id, partition.partition_index)
                if partition.leader_id >= 0 and partition.leader_epoch >= self._epochs.get(place, 0):
                    self._epochs[place] = partition.leader_epoch
                    self._leaders[place] = partition.leader_id

    def end(self, *, died: bool) -> None:
        """The process ends; if it died, requests on their way still arrive."""
        for client in self._clients.values():
            if died:
                client.die()
            else:
                client.close()
