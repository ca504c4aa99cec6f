"""The cluster around this broker: the newest metadata image and the questions that replicas ask of it.

`replica.manager` replaces `image` with each metadata update; all other parts only read it.
"""

from __future__ import annotations

from ottla.common.config.feature_levels import DIRECTORY_ASSIGNMENT
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.peer import Address
from ottla.metadata.image import MetadataImage, metadata_level
from ottla.replica.membership import Membership
from ottla.replica.partition import Partition
from ottla.replica.read_replica import NO_REPLICA, Candidate, ReplicaSelector


class ClusterMetadata:
    """Metadata of the cluster, for the replicas of one broker."""

    __slots__ = ("_listener_name", "_selector", "image", "names_directories", "node_id")

    def __init__(self, membership: Membership, listener_name: str, selector: ReplicaSelector | None) -> None:
        self.node_id = membership.node_id
        self.names_directories = membership.names_directories
        """Whether the metadata contains log directories of replicas; may change with a migration."""
        self._listener_name = listener_name
        self._selector = selector
        self.image = MetadataImage()

    # --- brokers ---------------------------------------------------------------------------------------------------

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the broker epoch in the metadata."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.broker_epoch

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a broker may join an ISR: not fenced, not shutting down, same incarnation (KIP-841,
        KIP-903).
        """
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker.broker_epoch == broker_epoch

    def is_alive(self, broker_id: int) -> bool:
        """Return whether a broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def address_of(self, broker_id: int) -> Address | None:
        """Address of a broker's inter-broker listener in the metadata."""
        broker = self.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def preferred_read_replica(self, partition: Partition, rack: str, fetch_offset: int) -> int:
        """Return the preferred replica of a consumer in `rack` (KIP-392); -1 for this one."""
        selector, leadership = self._selector, partition.leadership
        if selector is None or leadership is None or not rack:
            return NO_REPLICA
        brokers = self.image.brokers
        candidates = [
            Candidate(follower.replica_id, broker.rack, follower.log_end_offset, follower.last_caught_up_s)
            for follower in leadership.followers.values()
            if (broker := brokers.get(follower.replica_id)) is not None
            and not broker.fenced
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and follower.log_start_offset >= 0
        ]
        own = brokers.get(self.node_id)
        return selector(rack, None if own is None else own.rack, candidates)

    # --- directories -----------------------------------------------------------------------------------------------

    def known_directory(self, partition: Partition) -> Uuid | None:
        """Directory of this broker's replica in the metadata; None if the metadata does not contain directories."""
        topic = self.image.topic_by_id(partition.topic_id)
        named = self.names_directories() and metadata_level(self.image) >= DIRECTORY_ASSIGNMENT
        if topic is None or not named:
            return None
        return topic.partitions[partition.index].directory_of(self.node_id)
