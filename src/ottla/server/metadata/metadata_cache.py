"""The cluster as reported to clients, from the newest image: brokers and their endpoints, leaders.

Caches derived data of an image until another one is published. Named after the metadata cache in Apache Kafka's
brokers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.metadata.log import MetadataLog
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.topic_names import TopicKey
from ottla.protocol.primitives import NodeEndpoint


class ReachableNode(NamedTuple):
    """A broker or controller as reported to clients of one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


class MetadataCache:
    """The cluster as clients see it."""

    __slots__ = ("_brokers_on", "_brokers_on_image", "_metadata_log", "_publisher", "cluster_id", "node_id")

    def __init__(self, node_id: int, cluster_id: str, publisher: MetadataPublisher, metadata_log: MetadataLog) -> None:
        """`node_id` is this broker's."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._publisher = publisher
        self._metadata_log = metadata_log
        self._brokers_on: dict[tuple[str, bool], list[ReachableNode]] = {}
        self._brokers_on_image: MetadataImage | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata."""
        return self._publisher.image

    @property
    def kraft_version(self) -> int:
        """See `MetadataLog`."""
        return self._metadata_log.kraft_version

    def brokers_on(self, listener_name: str, *, include_fenced: bool = False) -> list[ReachableNode]:
        """Brokers with an endpoint on a listener, by id; cached while the brokers are unchanged."""
        image = self._publisher.image
        if self._brokers_on_image is None or self._brokers_on_image.brokers is not image.brokers:
            self._brokers_on.clear()
            self._brokers_on_image = image
        found = self._brokers_on.get((listener_name, include_fenced))
        if found is None:
            found = []
            for broker_id in sorted(image.brokers):
                broker = image.brokers[broker_id]
                endpoint = broker.endpoint(listener_name)
                if endpoint is not None and (include_fenced or not broker.fenced):
                    found.append(ReachableNode(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced))
            self._brokers_on[(listener_name, include_fenced)] = found
        return found

    def broker_on(self, listener_name: str, broker_id: int) -> ReachableNode | None:
        """One live broker on a listener."""
        return next((broker for broker in self.brokers_on(listener_name) if broker.node_id == broker_id), None)

    def node_endpoints(self, listener_name: str, broker_ids: Collection[int]) -> list[NodeEndpoint]:
        """Endpoints of the leaders in a response, so that clients need no further request (KIP-951)."""
        if not broker_ids:
            return []
        return [
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in self.brokers_on(listener_name)
            if broker.node_id in broker_ids
        ]

    def controllers_on(self, listener_name: str) -> list[ReachableNode]:
        """Registered controllers with their endpoints."""
        return [
            ReachableNode(controller_id, endpoint.host, endpoint.port)
            for controller_id, controller in sorted(self._publisher.image.controllers.items())
            if (endpoint := controller.endpoint(listener_name)) is not None
        ]

    def active_controller(self) -> int:
        """The node of the active controller; -1 if unknown."""
        return self._metadata_log.leader.leader_id

    def controller_id(self) -> int:
        """The broker reported as controller to admin clients: any live one; the active controller avoids forwarding."""
        leader_id = self._metadata_log.leader.leader_id
        leader = self._publisher.image.brokers.get(leader_id)
        return self.node_id if leader is None or leader.fenced else leader_id

    def current_leader(self, topic: TopicKey, index: int) -> tuple[int, int] | None:
        """(leader id, leader epoch) in the metadata, for responses to a client that contacted the wrong broker."""
        known = self._publisher.image.find(topic)
        partition = None if known is None else known.partitions.get(index)
        if partition is None or partition.leader == NO_LEADER:
            return None
        return partition.leader, partition.leader_epoch
