"""Share state of the groups of one shard: initialization, alteration and deletion of their start offsets (KIP-932).

The share coordinator has the state. These operations change the group's list of it before a request to the share
coordinator, and again after its outcome. A failed request leaves the list as it was before its outcome, so that it can
be repeated: an initialization by the next heartbeat, a deletion by the next request to delete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.modern.share.group import ShareGroup, group_epoch_record
from ottla.coordinator.group.modern.share.handlers import ShareProtocolGroups
from ottla.coordinator.group.modern.share.state_partitions import StatePartitions
from ottla.coordinator.group.modern.share.work import (
    DeletedState,
    InitializedState,
    OffsetAlteration,
    OffsetDeletion,
    StateDeletion,
    StateInitialization,
    by_topic,
)
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

UNKNOWN_TOPIC_TEXT = "This server does not host this topic-partition."
NO_STATE_TEXT = "There is no offset information to delete."


class InitializedTopic(NamedTuple):
    """A topic with share state."""

    topic_id: Uuid
    name: str
    partitions: list[int]


class ShareStates:
    """Operations on the share state of one shard's groups."""

    __slots__ = ("_context", "_groups")

    def __init__(self, context: ShardContext, groups: ShareProtocolGroups) -> None:
        self._context = context
        self._groups = groups

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def initialized(self, outcome: InitializedState) -> CoordinatorResult[GroupRecord, None]:
        """Record initialized partitions. The next heartbeat assigns them, and repeats the failed ones."""
        group = self._context.groups.find(outcome.group_id)
        if not isinstance(group, ShareGroup):
            return CoordinatorResult()
        for key in outcome.keys | outcome.failed:
            group.initializing_since_ms.pop(key, None)
        if outcome.failed:
            group.state_is_complete = False
        return CoordinatorResult(self._changed(group, group.state.with_initialized(by_topic(outcome.keys))))

    def deleted(self, outcome: DeletedState) -> CoordinatorResult[GroupRecord, None]:
        """Record that topics have no share state any more.

        A topic that does not exist leaves the list after a failure, too: its partitions are not known any more.
        """
        group = self._context.groups.find(outcome.group_id)
        if not isinstance(group, ShareGroup):
            return CoordinatorResult()
        group.deleting_topics -= outcome.topic_ids | outcome.failed
        image = self._context.image
        gone = outcome.topic_ids | {topic_id for topic_id in outcome.failed if image.topic_by_id(topic_id) is None}
        return CoordinatorResult(self._changed(group, group.state.without_deleted(gone)))

    def _changed(self, group: ShareGroup, state: StatePartitions) -> list[GroupRecord]:
        return [] if state == group.state else [state.record(group.group_id)]

    # -- requests ------------------------------------------------------------------------------------------------------

    def initialized_topics(self, group_id: str, committed_offset: int) -> list[InitializedTopic]:
        """Return the topics with initialized state. Raises KafkaError GROUP_ID_NOT_FOUND."""
        state = self._groups.existing(group_id, committed_offset).state_at(committed_offset)
        return [
            InitializedTopic(topic_id, topic.name, sorted(topic.initialized))
            for topic_id, topic in sorted(state.topics.items())
            if topic.initialized
        ]

    def alter(self, request: AlterShareGroupOffsetsRequest) -> CoordinatorResult[GroupRecord, OffsetAlteration]:
        """Begin to set start offsets of an empty group. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.

        The group epoch rises: it is the state epoch, and only a newer one replaces existing state.
        """
        group = self._groups.existing(request.group_id)
        group.validate_delete_group()
        image = self._context.image
        response = AlterShareGroupOffsetsResponse()
        offsets: dict[SharePartitionKey, int] = {}
        names: dict[Uuid, str] = {}
        for topic in request.topics:
            known = image.topic(topic.topic_name)
            answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
            if known is not None:
                answer.topic_id = known.topic_id
            for partition in topic.partitions:
                result = AlterShareGroupOffsetsResponsePartition(partition_index=partition.partition_index)
                if known is None or partition.partition_index not in known.partitions:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    result.error_message = UNKNOWN_TOPIC_TEXT
                elif partition.start_offset < 0:
                    result.error_code = ErrorCode.INVALID_REQUEST
                    result.error_message = "StartOffset can't be negative."
                else:
                    names[known.topic_id] = known.name
                    key = SharePartitionKey(group.group_id, known.topic_id, partition.partition_index)
                    offsets[key] = partition.start_offset
                answer.partitions.append(result)
            response.responses.append(answer)
        if not offsets:
            return CoordinatorResult((), OffsetAlteration(response))
        group_epoch = group.group_epoch + 1
        state = group.state.with_initializing(by_topic(frozenset(offsets)), names)
        records = [
            group_epoch_record(group.group_id, group_epoch, group.metadata_hash),
            *self._changed(group, state),
        ]
        initialization = StateInitialization(group.group_id, group_epoch, offsets)
        return CoordinatorResult(records, OffsetAlteration(response, initialization))

    def delete(self, request: DeleteShareGroupOffsetsRequest) -> CoordinatorResult[GroupRecord, OffsetDeletion]:
        """Begin to delete the state of topics in an empty group. Raises KafkaError GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP."""
        group = self._groups.existing(request.group_id)
        group.validate_delete_group()
        response = DeleteShareGroupOffsetsResponse()
        topic_ids: dict[Uuid, None] = {}
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            known = self._context.image.topic(name)
            answer = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
            if known is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.error_message = UNKNOWN_TOPIC_TEXT
            else:
                answer.topic_id = known.topic_id
                if group.state.initialized(known.topic_id) or known.topic_id in group.state.deleting:
                    topic_ids[known.topic_id] = None
                else:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    answer.error_message = NO_STATE_TEXT
            response.responses.append(answer)
        if not topic_ids:
            return CoordinatorResult((), OffsetDeletion(response))
        records, deletion = self._deletion(group, topic_ids)
        return CoordinatorResult(records, OffsetDeletion(response, deletion))

    def delete_all(self, group_id: str) -> CoordinatorResult[GroupRecord, StateDeletion | None]:
        """Begin to delete all state of a share group, before the group itself; None for a group of another type or
        without state. Raises KafkaError NON_EMPTY_GROUP."""
        group = self._context.groups.find(group_id)
        if not isinstance(group, ShareGroup):
            return CoordinatorResult((), None)
        group.validate_delete_group()
        topic_ids = dict.fromkeys([*sorted(group.state.topics), *sorted(group.state.deleting)])
        if not topic_ids:
            return CoordinatorResult((), None)
        records, deletion = self._deletion(group, topic_ids)
        return CoordinatorResult(records, deletion)

    def topics_deleted(self, topic_ids: frozenset[Uuid]) -> CoordinatorResult[GroupRecord, list[StateDeletion]]:
        """Begin to delete the state of deleted topics in all groups."""
        records: list[GroupRecord] = []
        deletions = []
        for group in self._context.groups.groups():
            if not isinstance(group, ShareGroup):
                continue
            affected = dict.fromkeys(sorted(topic_ids & (group.state.topics.keys() | group.state.deleting.keys())))
            if affected:
                of_group, deletion = self._deletion(group, affected)
                records += of_group
                deletions.append(deletion)
        return CoordinatorResult(records, deletions, atomic=False)

    def _deletion(self, group: ShareGroup, topic_ids: Iterable[Uuid]) -> tuple[list[GroupRecord], StateDeletion]:
        ids = list(topic_ids)
        keys = {
            topic_id: tuple(
                SharePartitionKey(group.group_id, topic_id, number)
                for number in sorted(group.state.partitions_of(topic_id, self._context.image))
            )
            for topic_id in ids
        }
        for key in [key for key in group.initializing_since_ms if key.topic_id in keys]:
            del group.initializing_since_ms[key]
        group.deleting_topics.update(ids)
        return self._changed(group, group.state.with_deleting(ids)), StateDeletion(group.group_id, keys)


def refuse_group_with_state(group: object) -> None:
    """Raises KafkaError GROUP_DELETION_FAILED for a share group whose state was not deleted yet."""
    if isinstance(group, ShareGroup) and (group.state.topics or group.state.deleting):
        raise KafkaError(ErrorCode.GROUP_DELETION_FAILED, "The group still has share state.")
