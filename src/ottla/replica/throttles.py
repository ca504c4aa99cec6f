"""Throttled replicas of this broker and their rates, from the metadata (KIP-73, KIP-113).

The throttle itself is in `replica.throttle`.
"""

from __future__ import annotations

from ottla.metadata.image import MetadataImage
from ottla.replica.cluster import ClusterMetadata
from ottla.replica.partition import Partition
from ottla.replica.throttle import UNLIMITED, ReplicationQuota, names_replica

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_THROTTLED = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"


class ReplicationThrottles:
    """Throttles of one broker: as leader, as follower, and of moves between its directories."""

    __slots__ = ("_cluster", "follower", "leader", "moves")

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()
        self.moves = ReplicationQuota()

    def use_rates(self, image: MetadataImage) -> None:
        """Apply the broker configs of an image."""
        own, default = image.broker_configs(self._cluster.node_id), image.default_broker_configs()
        for quota, name in ((self.leader, LEADER_RATE), (self.follower, FOLLOWER_RATE), (self.moves, MOVE_RATE)):
            quota.bytes_per_s = int(own.get(name) or default.get(name) or UNLIMITED)

    def applies_as_leader(self, partition: Partition, replica_id: int) -> bool:
        """Return whether bytes sent to a follower count as throttled replication."""
        return self.leader.limited and self._is_named(partition, LEADER_THROTTLED, replica_id)

    def applies_as_follower(self, partition: Partition) -> bool:
        """Return whether bytes that this broker fetches for the partition count as throttled replication."""
        return self._is_named(partition, FOLLOWER_THROTTLED, self._cluster.node_id)

    def _is_named(self, partition: Partition, setting: str, replica_id: int) -> bool:
        text = self._cluster.image.topic_configs(partition.topic).get(setting)
        return text is not None and names_replica(text, partition.index, replica_id)
