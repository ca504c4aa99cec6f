"""Directories of this broker's replicas, compared with the metadata: reports to the controller (KIP-858), and the
refusal to recreate a replica whose directory is not available.

Only differences from the metadata are reported; `replica.directory_assignments` sends them.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import LOST_UUID, OFFLINE_UUID, ZERO_UUID, Uuid, uuid_to_string
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.replica.cluster import ClusterMetadata
from ottla.replica.directory_assignments import DirectoryAssignments
from ottla.replica.partition import Partition
from ottla.storage.directory.log_manager import LogManager


class DirectoryReports:
    """Reports of one broker about the directories of its replicas."""

    __slots__ = ("_assignments", "_cluster", "_logs")

    def __init__(self, cluster: ClusterMetadata, logs: LogManager, assignments: DirectoryAssignments) -> None:
        self._cluster = cluster
        self._logs = logs
        self._assignments = assignments

    def report(self, topic: TopicImage, index: int, known: Uuid) -> None:
        """Report the directory of the replica to the controller, unless it is known or the only possible one."""
        is_named = self._cluster.names_directories()
        if known == ZERO_UUID and (len(self._logs.directories) == 1 or not is_named):
            return
        here = self._logs.directory_of((topic.name, index))
        if here is not None and here.directory_id != known:
            self._assignments.report(topic.topic_id, index, here.directory_id if is_named else ZERO_UUID)

    def report_undamaged(self, partition: Partition) -> None:
        """Report the directory of an undamaged replica, if the metadata has another one."""
        topic = self._cluster.image.topic_by_id(partition.topic_id)
        if topic is not None and partition.index in topic.partitions:
            known = topic.partitions[partition.index].directory_of(self._cluster.node_id)
            self.report(topic, partition.index, known)

    def report_lost(self, partition: Partition) -> None:
        """Report a damaged replica, which must neither lead nor count as in sync."""
        self._assignments.report(partition.topic_id, partition.index, LOST_UUID)

    def report_moved(self, partition: Partition, directory_id: Uuid) -> None:
        """Report the directory to which a move copies the replica."""
        self._assignments.report(partition.topic_id, partition.index, directory_id)

    def report_failed(self, topic_id: Uuid, index: int) -> None:
        """Report a replica in a directory that failed while this broker ran."""
        known = self._cluster.image.topics_by_id[topic_id].partitions[index].directory_of(self._cluster.node_id)
        self.report_offline(topic_id, index, known if self._cluster.names_directories() else ZERO_UUID)

    def report_offline(self, topic_id: Uuid, index: int, known: Uuid) -> None:
        """Report a replica in a failed directory that the controller cannot derive from the directory's id.

        A quorum that migrated the replica from ZooKeeper does not know its directory yet.
        """
        is_unreported = known == ZERO_UUID if self._cluster.names_directories() else known != OFFLINE_UUID
        if (self._logs.offline_directories or self._logs.missing) and is_unreported:
            self._assignments.report(topic_id, index, OFFLINE_UUID)

    def refuse_to_forget(self, topic: TopicImage, index: int) -> None:
        """Raise KafkaError if this broker's replica is in a directory that is not available.

        A new log would be empty, while the metadata counts on the records of the replica.
        """
        if self._logs.get_log(topic.name, index) is not None:
            return
        state, node_id = topic.partitions[index], self._cluster.node_id
        directory_id = state.directory_of(node_id)
        if node_id not in (*state.isr, *state.eligible_leader_replicas, *state.last_known_elr):
            return
        copy = self._logs.futures.get((topic.name, index))
        if copy is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"only {copy.directory} is available, a copy that may lack records: restore the data directory of the "
                "moved replica and restart the node, or delete the topic",
            )
        unknown = (ZERO_UUID, OFFLINE_UUID)
        if directory_id not in (*unknown, *self._logs.directory_ids()):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"it is in the data directory with directory.id {uuid_to_string(directory_id)}, which failed or is not "
                "in log.dirs: restore that directory and restart the node, or delete the topic",
            )
        may_be_missing = self._logs.missing and not is_new(state)
        if directory_id in unknown and (may_be_missing or self._is_known_offline(directory_id)):
            ids = f" (directory.id {', '.join(self._logs.missing)})" if self._logs.missing else ""
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"it may be in an earlier data directory of this broker that failed or is not in log.dirs{ids}: "
                "restore that directory and restart the node, or delete the topic",
            )

    def _is_known_offline(self, directory_id: Uuid) -> bool:
        """Return whether a quorum recorded that the replica's directory, which it does not know, is not available."""
        return directory_id == OFFLINE_UUID and self._cluster.names_directories()


def is_new(image: PartitionImage) -> bool:
    """Return whether the partition is new: any earlier broker session that used it would have changed its state.

    In ZooKeeper a partition without a leader has no state znode, and its epoch would be the version of that znode.
    """
    return image.partition_epoch <= 0 and image.leader_epoch == 0
