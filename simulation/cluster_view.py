"""Global view of a simulated cluster: an observer that sees the state of all its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import KafkaError
from ottla.metadata.image import EMPTY_IMAGE, NO_LEADER, MetadataImage, PartitionImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.metadata.topic_names import TopicKey
from ottla.replica.partition import Partition
from ottla.server.broker import Broker
from simulation.checkers import Violation
from simulation.network import Address
from simulation.node import SimNode
from simulation.replicas import compare_epochs

NOT_IN_OFFICE = -1
FIRST_EPOCH = 0


class ClusterView:
    """The newest metadata; checks that no epoch of a partition or of the quorum has two leaders, and that replicas
    agree on epochs."""

    def __init__(self, nodes: Sequence[SimNode], *, may_lose_committed: bool = False) -> None:
        """`may_lose_committed`: records below a high watermark may be lost, so that replicas may differ there."""
        self._nodes = nodes
        self._may_lose_committed = may_lose_committed
        self._newest = EMPTY_IMAGE
        self._looked_at: dict[str, MetadataImage] = {}
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._controllers: dict[int, int] = {}
        self.leader_changes = 0

    def newest(self) -> MetadataImage:
        """The newest image that any node ever had, also if that node died since."""
        for node in self._nodes:
            if node.broker is not None and node.broker.parts.publisher.image.offset > self._newest.offset:
                self._newest = node.broker.parts.publisher.image
        return self._newest

    def look(self) -> None:
        """Check the state of every node.

        Raises Violation if two images name different leaders for one epoch, or in-sync replicas have different leader
        epochs for committed records.
        """
        for node in self._nodes:
            if node.broker is None:
                continue
            node.check()
            self._look_at_controller(node.broker.parts.control.metadata.log.leader, node.host)
            image = node.broker.parts.publisher.image
            if self._looked_at.get(node.host) is not image:
                self._looked_at[node.host] = image
                self._look_at(image, node.host)
        if not self._may_lose_committed:
            self._compare_epochs()

    def _compare_epochs(self) -> None:
        running = {node.config.node_id: node.broker for node in self._nodes}
        for topic in self.newest().topics.values():
            for index, partition in topic.partitions.items():
                found = [(each, _find(running.get(each), topic.topic_id, index)) for each in partition.isr]
                compare_epochs(topic.name, index, [(each, replica) for each, replica in found if replica is not None])

    def _look_at_controller(self, leader: LeaderAndEpoch, name: str) -> None:
        if leader.leader_id == NO_NODE:
            return
        known = self._controllers.setdefault(leader.epoch, leader.leader_id)
        if known != leader.leader_id:
            raise Violation(
                f"{name} has {leader.leader_id} as leader of the quorum in epoch {leader.epoch}, where {known} leads"
            )

    def _look_at(self, image: MetadataImage, name: str) -> None:
        for topic in image.topics.values():
            for index, partition in topic.partitions.items():
                if partition.leader == NO_LEADER:
                    continue
                key = (topic.topic_id, index, partition.leader_epoch)
                known = self._leaders.get(key)
                if known is None:
                    self._leaders[key] = partition.leader
                    self.leader_changes += 1
                elif known != partition.leader:
                    raise Violation(
                        f"{name} has {partition.leader} as leader of {topic.name}-{index} in epoch "
                        f"{partition.leader_epoch}, where {known} leads"
                    )

    def leads(self, address: Address | None, topic: str, partition: int) -> int:
        """The leader epoch in which the broker at the client address `address` leads; NOT_IN_OFFICE if it does not."""
        image = self.newest().partition(topic, partition)
        if image is None or image.leader == NO_LEADER:
            return NOT_IN_OFFICE
        leader = next(node for node in self._nodes if node.config.node_id == image.leader)
        return image.leader_epoch if leader.client_address == address else NOT_IN_OFFICE

    def is_settled(self, topic: str, partition: int) -> bool:
        """Whether the leader has committed a record in its epoch.

        Until then an in-sync or eligible replica may still have records of a deposed leader that did not know it, and
        may restore them when it leads next.
        """
        image = self.newest().partition(topic, partition)
        if image is None or image.leader == NO_LEADER:
            return False
        leader = next(node for node in self._nodes if node.config.node_id == image.leader)
        found = _find(leader.broker, topic, partition)
        if found is None:
            return False
        newest = found.log.epochs.epoch_for_offset(found.high_watermark - 1)
        return image.leader_epoch in (FIRST_EPOCH, newest)

    def stable_offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Last stable offset and log end offset of each partition, from its leader; (-1, 0) without a leader."""
        image = self.newest().topic(topic)
        found = {}
        for index, partition in (image.partitions if image is not None else {}).items():
            leader = next((node for node in self._nodes if node.config.node_id == partition.leader), None)
            replica = None if leader is None else _find(leader.broker, topic, index)
            found[index] = (-1, 0) if replica is None else _stable_offset(replica)
        return found

    def all_agree(self) -> bool:
        """Whether all nodes have the same metadata of topics and configs."""
        images = [node.broker.parts.publisher.image for node in self._nodes if node.broker is not None]
        newest = self.newest()
        return len(images) == len(self._nodes) and all(
            image.topics == newest.topics and image.configs == newest.configs for image in images
        )

    def all_in_sync(self) -> bool:
        """Whether every node serves, and every partition has all its replicas in the ISR and is not being
        reassigned."""
        return all(node.broker is not None for node in self._nodes) and all(
            _whole(partition) for topic in self.newest().topics.values() for partition in topic.partitions.values()
        )


def _find(broker: Broker | None, topic: TopicKey, index: int) -> Partition | None:
    """The replica of a running broker, if it has one."""
    if broker is None:
        return None
    try:
        return broker.parts.replicas.find(topic, index)
    except KafkaError:
        return None


def _stable_offset(replica: Partition) -> tuple[int, int]:
    return replica.log.last_stable_offset(replica.high_watermark), replica.log.log_end_offset


def _whole(partition: PartitionImage) -> bool:
    return (
        partition.leader != NO_LEADER
        and set(partition.isr) == set(partition.replicas)
        and not partition.adding_replicas
        and not partition.removing_replicas
    )
