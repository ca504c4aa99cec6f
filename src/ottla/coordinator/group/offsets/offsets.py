"""Committed offsets of the groups of one shard, for all group types: commit, fetch, delete, expire.

State is timeline state, changed by the two `replay_*` methods only: group id -> topic -> partition -> packed offset,
and the pending offsets of open transactions (`pending`), which readers of stable offsets wait for. Empty maps are
removed. Replaying a commit for a missing group creates a simple group: a classic group that is indistinguishable from
one that lost its members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.coordinator.group.classic.group import PREPARING_REBALANCE, STABLE, ClassicGroup
from ottla.coordinator.group.classic.rebalance import Rebalance
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.group import Group, PartitionCheck
from ottla.coordinator.group.offsets.committed_offset import MAX_TIMESTAMP, NO_TIMESTAMP, is_expired, packer, unpack
from ottla.coordinator.group.offsets.pending import PendingOffset, PendingOffsets
from ottla.coordinator.group.records import GroupRecord, OffsetPlace
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
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
from ottla.record.batch import NO_PRODUCER_ID
from ottla.timeline import TimelineDict, TimelineValue

NO_OFFSET = -1
NO_RETENTION = -1
GROUP_ID_NOT_FOUND_VERSION = 9
"""First OffsetCommit version with GROUP_ID_NOT_FOUND (KIP-848); ILLEGAL_GENERATION before."""
TRANSACTIONAL_GROUP_ID_NOT_FOUND_VERSION = 6
"""First TxnOffsetCommit version with GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""

CommitResult = list[list[tuple[int, ErrorCode]]]
"""Partitions of each topic of a commit, with their error codes."""

_Partitions = TimelineDict[int, bytes]
_Topics = TimelineDict[str, _Partitions]


class Offsets:
    """Committed and pending offsets of one shard."""

    __slots__ = ("_context", "_count", "_groups", "_pending", "_rebalance")

    def __init__(self, context: ShardContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance
        self._groups: TimelineDict[str, _Topics] = TimelineDict(context.registry)
        self._count = TimelineValue(context.registry, 0)
        self._pending = PendingOffsets(context.registry)

    def __len__(self) -> int:
        """Return the number of committed offsets of all groups."""
        return self._count.value

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay_offset_commit(self, offset: int, key: OffsetPlace, value: bytes | None, producer_id: int) -> None:
        """Apply the record at `offset`: store its offset, as pending while its transaction is open, or remove it."""
        if value is None:
            self._forget(key)
            return
        group, topic, partition = key
        if self._context.groups.find(group) is None:
            self._context.groups.put(ClassicGroup(group, self._context.clock))
        if producer_id != NO_PRODUCER_ID:
            self._pending.put(key, producer_id, PendingOffset(offset, value))
            return
        if self._pending.groups:
            self._pending.note_commit(key, offset)
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = TimelineDict(self._context.registry)
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = TimelineDict(self._context.registry)
        if partition not in partitions:
            self._count.value += 1
        partitions[partition] = value

    def replay_end_transaction_marker(self, producer_id: int, *, committed: bool) -> None:
        """Commit the pending offsets of a producer, except those that a newer commit superseded, or discard them."""
        overtaking = self._pending.end(producer_id)
        if committed:
            for place, pending in overtaking:
                self.replay_offset_commit(pending.record_offset, place, pending.packed, NO_PRODUCER_ID)

    def _forget(self, key: OffsetPlace) -> None:
        self._pending.forget(key)
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
        """Remove everything topic by topic, once nothing can read or revert it any more."""
        yield from self._pending.release()
        while self._groups:
            topics = dict.popitem(self._groups)[1]
            while topics:
                dict.popitem(topics)
                yield

    # -- OffsetCommit --------------------------------------------------------------------------------------------------

    def commit(
        self, request_context: RequestContext, request: OffsetCommitRequest
    ) -> CoordinatorResult[GroupRecord, CommitResult]:
        """Commit offsets; topics have names here in all versions. Counts as a heartbeat of a classic member.

        Raises KafkaError GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        STALE_MEMBER_EPOCH, REBALANCE_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        return self._commit(request, self._validate_commit(request_context, request))

    def commit_transactional(
        self, request_context: RequestContext, request: OffsetCommitRequest
    ) -> CoordinatorResult[GroupRecord, CommitResult]:
        """Commit offsets in a transaction; the records take effect at its commit marker. The context's version is that
        of TxnOffsetCommit.

        Raises KafkaError GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (ILLEGAL_GENERATION before version 6),
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, COORDINATOR_NOT_AVAILABLE.
        """
        try:
            return self._commit(request, self._validate_transactional_commit(request))
        except KafkaError as error:
            new_codes = error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH)
            if new_codes and request_context.api_version < TRANSACTIONAL_GROUP_ID_NOT_FOUND_VERSION:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from error
            raise

    def _commit(
        self, request: OffsetCommitRequest, check: PartitionCheck | None
    ) -> CoordinatorResult[GroupRecord, CommitResult]:
        now_ms = self._context.clock.time_ms()
        retention_ms = request.retention_time_ms
        expire_timestamp = NO_TIMESTAMP if retention_ms == NO_RETENTION else min(now_ms + retention_ms, MAX_TIMESTAMP)
        max_metadata = self._context.config.offset_metadata_max_bytes
        group_id = request.group_id
        records = []
        committed: CommitResult = []
        for topic in request.topics:
            results = []
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
                results.append((index, code))
            committed.append(results)
        return CoordinatorResult(records, committed)

    def _validate_commit(self, request_context: RequestContext, request: OffsetCommitRequest) -> PartitionCheck | None:
        group = self._context.groups.find(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                # An admin, or a consumer that assigns its own partitions: the commit creates a simple group.
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

    def _validate_transactional_commit(self, request: OffsetCommitRequest) -> PartitionCheck | None:
        group = self._context.groups.find(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                return None
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return group.validate_transactional_offset_commit(request.member_id, request.group_instance_id, generation)

    # -- OffsetFetch ---------------------------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetchRequestGroup, as_of: int | None) -> OffsetFetchResponseGroup:
        """Fetch offsets of the named topics, or of all. An offset is -1 if it was never committed, or if it belongs to
        another topic of that name.

        `as_of` is the last committed offset of the log; None reads the newest state, in which partitions with pending
        transactional offsets return UNSTABLE_OFFSET_COMMIT (KIP-447). Raises KafkaError UNKNOWN_MEMBER_ID,
        STALE_MEMBER_EPOCH for a member of a consumer group.
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
            return OffsetFetchResponseGroup(
                group_id=request.group_id, topics=self._all_offsets(request.group_id, topics, as_of)
            )
        answers = []
        for topic in request.topics:
            partitions = None if topics is None else _read(topics, topic.name, as_of)
            unstable = self._unstable(request.group_id, topic.name, as_of)
            found = [
                _unstable_offset(index)
                if index in unstable
                else _fetched(index, None if partitions is None else _read(partitions, index, as_of), topic.topic_id)
                for index in topic.partition_indexes
            ]
            answers.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=found))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=answers)

    def _all_offsets(self, group_id: str, topics: _Topics | None, as_of: int | None) -> list[OffsetFetchResponseTopics]:
        """Return all committed offsets; a topic with pending offsets only is left out."""
        if topics is None:
            return []
        answers = []
        for name, partitions in sorted(topics.items() if as_of is None else topics.items_at(as_of)):
            unstable = self._unstable(group_id, name, as_of)
            found = [
                _unstable_offset(index) if index in unstable else _fetched(index, packed, ZERO_UUID)
                for index, packed in sorted(partitions.items() if as_of is None else partitions.items_at(as_of))
            ]
            answers.append(OffsetFetchResponseTopics(name=name, partitions=found))
        return answers

    def _unstable(self, group_id: str, topic: str, as_of: int | None) -> Collection[int]:
        return self._pending.partitions(group_id, topic) if as_of is None else ()

    def fetch_stable(
        self, request: OffsetFetchRequestGroup
    ) -> CoordinatorResult[GroupRecord, OffsetFetchResponseGroup]:
        """`fetch` as a write operation: it sees commits of requests that are not answered yet (KIP-447)."""
        return CoordinatorResult((), self.fetch(request, None))

    # -- OffsetDelete, and deletion of groups and topics ---------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest) -> CoordinatorResult[GroupRecord, OffsetDeleteResponse]:
        """Delete offsets of topics without subscribers. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._context.groups.get(request.group_id)
        group.validate_offset_delete()
        records = []
        response = OffsetDeleteResponse()
        for topic in request.topics:
            subscribed = group.is_subscribed_to_topic(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            partitions = self._groups.get(request.group_id, _NOTHING).get(topic.name, _NOTHING)
            pending = self._pending.partitions(request.group_id, topic.name)
            answers = []
            for each in topic.partitions:
                index = each.partition_index
                if not subscribed and (index in partitions or index in pending):
                    records.append(_tombstone(request.group_id, topic.name, each.partition_index))
                answers.append(OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code))
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        return CoordinatorResult(records, response)

    def group_tombstones(self, group_id: str) -> list[GroupRecord]:
        """Return the tombstones of all offsets of a group, committed and pending."""
        committed = self._groups.get(group_id, _NOTHING)
        records = [
            _tombstone(group_id, topic, partition)
            for topic, partitions in committed.items()
            for partition in partitions
        ]
        for topic in self._pending.topics(group_id):
            known = committed.get(topic, _NOTHING)
            records += [
                _tombstone(group_id, topic, partition)
                for partition in self._pending.partitions(group_id, topic)
                if partition not in known
            ]
        return records

    def topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> CoordinatorResult[GroupRecord, None]:
        """Delete offsets of deleted topics (name, id), but not those of a newer topic of the same name."""
        deleted = list(topics)
        records = [
            _tombstone(group_id, name, partition)
            for group_id, by_topic in self._groups.items()
            for name, topic_id in deleted
            for partition, packed in by_topic.get(name, _NOTHING).items()
            if _is_of(packed, topic_id)
        ]
        for group_id in self._pending.groups:
            for name, topic_id in deleted:
                committed = self._groups.get(group_id, _NOTHING).get(name, _NOTHING)
                for partition in self._pending.partitions(group_id, name):
                    if partition in committed and _is_of(committed[partition], topic_id):
                        continue
                    pending = self._pending.packed(OffsetPlace(group_id, name, partition))
                    if any(_is_of(packed, topic_id) for packed in pending):
                        records.append(_tombstone(group_id, name, partition))
        return CoordinatorResult(records, atomic=False)

    def expired(self, group: Group) -> tuple[list[GroupRecord], bool]:
        """Return (tombstones of the group's expired offsets, whether no offset remains then). Offsets of open
        transactions never expire."""
        topics = self._groups.get(group.group_id)
        if topics is None:
            return [], group.group_id not in self._pending.groups
        expiration = group.offset_expiration()
        if expiration is None:
            return [], False
        now_ms = self._context.clock.time_ms()
        retention_ms = self._context.config.offsets_retention_ms
        records = []
        all_expired = group.group_id not in self._pending.groups
        for topic, partitions in topics.items():
            if group.is_subscribed_to_topic(topic):
                all_expired = False
                continue
            pending = self._pending.partitions(group.group_id, topic)
            for partition, packed in partitions.items():
                if partition not in pending and is_expired(packed, now_ms, retention_ms, expiration.since_ms):
                    records.append(_tombstone(group.group_id, topic, partition))
                else:
                    all_expired = False
        return records, all_expired

    def committed(self, group_id: str) -> Iterator[tuple[str, int, int]]:
        """Iterate over (topic, partition, offset) of one group; offsets may be committed meanwhile."""
        for topic, partitions in list(self._groups.get(group_id, _NOTHING).items()):
            for partition, packed in list(partitions.items()):
                yield topic, partition, unpack(packed).offset

    def count(self, group_id: str) -> int:
        """Return the number of committed offsets of one group."""
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


def _unstable_offset(partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


def _is_of(packed: bytes, topic_id: Uuid) -> bool:
    return unpack(packed).topic_id in (ZERO_UUID, topic_id)
