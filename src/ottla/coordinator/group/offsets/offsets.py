"""Committed offsets of the groups of one shard, whatever their type: commit, fetch, delete, expiry.

State is timeline state, changed by `replay_offset_commit` only: group id -> topic -> partition -> packed offset. Maps
that became empty are taken away. A commit for a group that does not exist makes a simple group when it is replayed: a
classic group that nobody can tell from one that lost its members.

Left out: offsets of open transactions (they arrive with the transaction coordinator), so none is ever unstable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.coordinator.group.classic.group import PREPARING_REBALANCE, STABLE, ClassicGroup
from ottla.coordinator.group.classic.rebalance import Rebalance
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.group import Group, PartitionCheck
from ottla.coordinator.group.offsets.committed_offset import MAX_TIMESTAMP, NO_TIMESTAMP, is_expired, packer, unpack
from ottla.coordinator.group.records import GroupRecord, OffsetPlace
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.timeline import TimelineDict, TimelineValue

NO_OFFSET = -1
NO_RETENTION = -1
GROUP_ID_NOT_FOUND_VERSION = 9
"""OffsetCommit from here on says GROUP_ID_NOT_FOUND (KIP-848); ILLEGAL_GENERATION before."""

_Partitions = TimelineDict[int, bytes]
_Topics = TimelineDict[str, _Partitions]


class Offsets:
    """The offsets of one shard."""

    __slots__ = ("_context", "_count", "_groups", "_rebalance")

    def __init__(self, context: ShardContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance
        self._groups: TimelineDict[str, _Topics] = TimelineDict(context.registry)
        self._count = TimelineValue(context.registry, 0)

    def __len__(self) -> int:
        """Offsets of all groups."""
        return self._count.value

    # -- replay --------------------------------------------------------------------------------------------------------

    def replays(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """For each class of record key, the method that applies (key, value or None)."""
        return {OffsetPlace: self.replay_offset_commit}

    def replay_offset_commit(self, key: OffsetPlace, value: bytes | None) -> None:
        """Keep an offset, or forget it."""
        if value is None:
            self._forget(key)
            return
        group, topic, partition = key
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = TimelineDict(self._context.registry)
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = TimelineDict(self._context.registry)
        if partition not in partitions:
            self._count.value += 1
        partitions[partition] = value
        if self._context.groups.find(group) is None:
            self._context.groups.put(ClassicGroup(group, self._context.clock))

    def _forget(self, key: OffsetPlace) -> None:
        topics = self._groups.get(key.group)
        partitions = None if topics is None else topics.get(key.topic)
        if topics is None or partitions is None or key.partition not in partitions:
            return
        del partitions[key.partition]
        self._count.value -= 1
        if not partitions:
            del topics[key.topic]
            if not topics:
                del self._groups[key.group]

    def release(self) -> Iterator[None]:
        """Let go of everything topic by topic, when nobody will read or revert it any more."""
        while self._groups:
            topics = dict.popitem(self._groups)[1]
            while topics:
                dict.popitem(topics)
                yield

    # -- OffsetCommit --------------------------------------------------------------------------------------------------

    def commit(
        self, request_context: RequestContext, request: OffsetCommitRequest
    ) -> CoordinatorResult[GroupRecord, OffsetCommitResponse]:
        """Topics have names here, whatever the version. A commit also counts as a heartbeat of a classic member.

        Raises KafkaError GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        STALE_MEMBER_EPOCH, REBALANCE_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        check = self._validate_commit(request_context, request)
        now_ms = self._context.clock.time_ms()
        retention_ms = request.retention_time_ms
        expire_timestamp = NO_TIMESTAMP if retention_ms == NO_RETENTION else min(now_ms + retention_ms, MAX_TIMESTAMP)
        max_metadata = self._context.config.offset_metadata_max_bytes
        group_id = request.group_id
        records = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            answers = []
            pack = packer(now_ms, expire_timestamp, topic.topic_id)
            for partition in topic.partitions:
                code, index, metadata = ErrorCode.NONE, partition.partition_index, partition.committed_metadata or ""
                if len(metadata) > max_metadata:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None:
                        check(topic.name, topic.topic_id, index)
                    packed = pack(partition.committed_offset, partition.committed_leader_epoch, metadata)
                    records.append(GroupRecord(OffsetPlace(group_id, topic.name, index), packed))
                answers.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
            )
        return CoordinatorResult(records, response)

    def _validate_commit(self, request_context: RequestContext, request: OffsetCommitRequest) -> PartitionCheck | None:
        group = self._context.groups.find(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                # An admin, or a consumer that assigns partitions to itself: its commit makes a simple group.
                return None
            if request_context.api_version >= GROUP_ID_NOT_FOUND_VERSION:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        check = group.validate_offset_commit(
            request.member_id, request.group_instance_id, generation, request_context.api_version
        )
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING_REBALANCE):
            self._rebalance.restart_session(group, group.member(request.member_id))
        return check

    # -- OffsetFetch ---------------------------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetchRequestGroup, as_of: int | None) -> OffsetFetchResponseGroup:
        """Of the named topics, or of all; offset -1 for what was never committed, or for another topic of that name.

        `as_of` is the last committed offset, or None for what the newest operation sees. Raises KafkaError
        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH for a member of a consumer group.
        """
        group = self._context.groups.find(request.group_id, as_of)
        topics: _Topics | None = None
        if group is not None:
            try:
                group.validate_offset_fetch(request.member_id, request.member_epoch, as_of)
            except KafkaError as error:
                if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
            else:
                topics = _read(self._groups, request.group_id, as_of)
        if request.topics is None:
            return OffsetFetchResponseGroup(group_id=request.group_id, topics=_all_offsets(topics, as_of))
        answers = []
        for topic in request.topics:
            partitions = None if topics is None else _read(topics, topic.name, as_of)
            found = [
                _fetched(index, None if partitions is None else _read(partitions, index, as_of), topic.topic_id)
                for index in topic.partition_indexes
            ]
            answers.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=found))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=answers)

    def fetch_stable(
        self, request: OffsetFetchRequestGroup
    ) -> CoordinatorResult[GroupRecord, OffsetFetchResponseGroup]:
        """`fetch` as a write operation: it sees commits of requests that are not answered yet (KIP-447)."""
        return CoordinatorResult((), self.fetch(request, None))

    # -- OffsetDelete and deletion of what offsets belong to -----------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest) -> CoordinatorResult[GroupRecord, OffsetDeleteResponse]:
        """Forget offsets of topics that no member subscribes to. Raises KafkaError GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP."""
        group = self._context.groups.get(request.group_id)
        group.validate_offset_delete()
        records = []
        response = OffsetDeleteResponse()
        for topic in request.topics:
            subscribed = group.is_subscribed_to_topic(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            partitions = self._groups.get(request.group_id, _NOTHING).get(topic.name, _NOTHING)
            answers = []
            for each in topic.partitions:
                if not subscribed and each.partition_index in partitions:
                    records.append(_tombstone(request.group_id, topic.name, each.partition_index))
                answers.append(OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code))
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        return CoordinatorResult(records, response)

    def group_tombstones(self, group_id: str) -> list[GroupRecord]:
        """The records that forget all offsets of a group."""
        return [
            _tombstone(group_id, topic, partition)
            for topic, partitions in self._groups.get(group_id, _NOTHING).items()
            for partition in partitions
        ]

    def topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> CoordinatorResult[GroupRecord, None]:
        """Forget offsets of deleted topics (name, id), but not those of a newer topic of the same name."""
        deleted = list(topics)
        records = [
            _tombstone(group_id, name, partition)
            for group_id, by_topic in self._groups.items()
            for name, topic_id in deleted
            for partition, packed in by_topic.get(name, _NOTHING).items()
            if unpack(packed).topic_id in (ZERO_UUID, topic_id)
        ]
        return CoordinatorResult(records, atomic=False)

    def expired(self, group: Group) -> tuple[list[GroupRecord], bool]:
        """(tombstones of the group's offsets that are due, whether no offset of it is left then)."""
        topics = self._groups.get(group.group_id)
        if topics is None:
            return [], True
        expiration = group.offset_expiration()
        if expiration is None:
            return [], False
        now_ms = self._context.clock.time_ms()
        retention_ms = self._context.config.offsets_retention_ms
        records = []
        all_expired = True
        for topic, partitions in topics.items():
            if group.is_subscribed_to_topic(topic):
                all_expired = False
                continue
            for partition, packed in partitions.items():
                if is_expired(packed, now_ms, retention_ms, expiration.since_ms):
                    records.append(_tombstone(group.group_id, topic, partition))
                else:
                    all_expired = False
        return records, all_expired

    def count(self, group_id: str) -> int:
        """Offsets of one group."""
        return sum(map(len, self._groups.get(group_id, _NOTHING).values()))


_NOTHING: Mapping[Any, Any] = {}


def _read(entries: TimelineDict[Any, Any], key: object, as_of: int | None) -> Any:
    return entries.get(key) if as_of is None else entries.get_at(key, as_of)


def _tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    return GroupRecord(OffsetPlace(group_id, topic, partition), None)


def _fetched(partition: int, packed: bytes | None, topic_id: Uuid) -> OffsetFetchResponsePartitions:
    committed = None if packed is None else unpack(packed)
    if committed is None or (ZERO_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id):
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _all_offsets(topics: _Topics | None, as_of: int | None) -> list[OffsetFetchResponseTopics]:
    if topics is None:
        return []
    by_topic = dict(topics.items() if as_of is None else topics.items_at(as_of))
    return [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                _fetched(index, packed, ZERO_UUID)
                for index, packed in sorted(by_topic[name].items() if as_of is None else by_topic[name].items_at(as_of))
            ],
        )
        for name in sorted(by_topic)
    ]
