"""Share state of a group's partitions (KIP-932): which are being initialized, are initialized, or are being deleted.

The share coordinator has the state itself. This is the group coordinator's list of it, one record for each group: a
member is assigned a partition only when its share state is initialized. All functions are pure and return new values.

Invariant: a topic is in `deleting`, or its partitions are in `initializing` and `initialized`; a partition is in one of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.records import GroupRecord
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.coordinator_records import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)

PartitionsByTopic = Mapping[Uuid, frozenset[int]]
NO_PARTITIONS: frozenset[int] = frozenset()


class StateTopic(NamedTuple):
    """A topic's partitions with their share state."""

    name: str
    initializing: frozenset[int] = NO_PARTITIONS
    initialized: frozenset[int] = NO_PARTITIONS


class StatePartitions(NamedTuple):
    """Value of one group's record."""

    topics: Mapping[Uuid, StateTopic]
    deleting: Mapping[Uuid, str]
    """Names of topics with state that is being deleted."""

    def initialized(self, topic_id: Uuid) -> frozenset[int]:
        """Return the partitions of a topic that may be assigned."""
        topic = self.topics.get(topic_id)
        return NO_PARTITIONS if topic is None else topic.initialized

    def missing(self, names: Iterable[str], image: MetadataImage) -> dict[Uuid, frozenset[int]]:
        """Return the partitions of existing topics without initialized state, those being initialized included."""
        found = {}
        for name in names:
            topic = image.topic(name)
            if topic is None:
                continue
            missing = frozenset(topic.partitions) - self.initialized(topic.topic_id)
            if missing:
                found[topic.topic_id] = missing
        return found

    def with_initializing(self, partitions: PartitionsByTopic, names: Mapping[Uuid, str]) -> StatePartitions:
        """Return the value while the share coordinator initializes partitions; initialized ones remain so."""
        topics, deleting = dict(self.topics), dict(self.deleting)
        for topic_id, numbers in partitions.items():
            deleting.pop(topic_id, None)
            topic = topics.get(topic_id) or StateTopic(names[topic_id])
            topics[topic_id] = topic._replace(initializing=topic.initializing | (numbers - topic.initialized))
        return StatePartitions(topics, deleting)

    def with_initialized(self, partitions: PartitionsByTopic) -> StatePartitions:
        """Return the value after partitions were initialized; topics that were removed meanwhile are left out."""
        topics = dict(self.topics)
        for topic_id, numbers in partitions.items():
            topic = topics.get(topic_id)
            if topic is not None:
                done = numbers & topic.initializing
                topics[topic_id] = topic._replace(
                    initializing=topic.initializing - done, initialized=topic.initialized | done
                )
        return self._replace(topics=topics)

    def with_deleting(self, topic_ids: Iterable[Uuid]) -> StatePartitions:
        """Return the value while the state of topics is deleted."""
        topics, deleting = dict(self.topics), dict(self.deleting)
        for topic_id in topic_ids:
            topic = topics.pop(topic_id, None)
            if topic is not None:
                deleting[topic_id] = topic.name
        return StatePartitions(topics, deleting)

    def without_deleted(self, topic_ids: Iterable[Uuid]) -> StatePartitions:
        """Return the value after the state of topics was deleted."""
        gone = frozenset(topic_ids)
        return self._replace(deleting={each: name for each, name in self.deleting.items() if each not in gone})

    def partitions_of(self, topic_id: Uuid, image: MetadataImage) -> frozenset[int]:
        """Return the partitions that may have share state.

        The record has no partitions of a topic that is being deleted. They are those of the topic, if it exists.
        """
        topic = self.topics.get(topic_id)
        if topic is not None:
            return topic.initializing | topic.initialized
        known = image.topic_by_id(topic_id)
        return NO_PARTITIONS if known is None or topic_id not in self.deleting else frozenset(known.partitions)

    def record(self, group_id: str) -> GroupRecord:
        """Return the record of a group."""
        topics = sorted(self.topics.items())
        return GroupRecord(
            ShareGroupStatePartitionMetadataKey(group_id=group_id),
            ShareGroupStatePartitionMetadataValue(
                initializing_topics=[
                    TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.initializing))
                    for topic_id, topic in topics
                    if topic.initializing
                ],
                initialized_topics=[
                    TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.initialized))
                    for topic_id, topic in topics
                    if topic.initialized
                ],
                deleting_topics=[
                    TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(self.deleting.items())
                ],
            ),
        )


NO_STATE = StatePartitions({}, {})


def from_record(value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    """Inverse of `StatePartitions.record`."""
    topics: dict[Uuid, StateTopic] = {}
    for each in value.initialized_topics:
        if each.partitions:
            topics[each.topic_id] = StateTopic(each.topic_name, initialized=frozenset(each.partitions))
    for each in value.initializing_topics:
        topic = topics.get(each.topic_id) or StateTopic(each.topic_name)
        initializing = frozenset(each.partitions) - topic.initialized
        if initializing:
            topics[each.topic_id] = topic._replace(initializing=initializing)
    return StatePartitions(topics, {each.topic_id: each.topic_name for each in value.deleting_topics})
