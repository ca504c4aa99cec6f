"""Translation of offset commits, fetches and deletions between wire format and shard.

Shards identify topics by name. Clients do so up to version 9; from 10 on (TxnOffsetCommit: 6) they send topic ids only,
and the partitions of an unknown id get UNKNOWN_TOPIC_ID. A commit in a transaction is planned like any other commit. A
plan contains the part for the shard and the part that is answered here, and merges both in the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.offsets.offsets import CommitResult
from ottla.coordinator.group.responses import commit_error_code, error_code
from ottla.coordinator.runtime import Transaction
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import unknown_topic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
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
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_TOPIC_IDS = 10
FIRST_TRANSACTIONAL_VERSION_WITH_TOPIC_IDS = 6
FIRST_VERSION_THAT_ADDS_TO_THE_TRANSACTION = 5
FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_TRANSACTIONAL_VERSION_WITH_LOAD_IN_PROGRESS = 2
FIRST_FETCH_OF_GROUPS = 8
FIRST_FETCH_WITH_GROUP_ERROR = 2
NO_OFFSET = -1

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- OffsetCommit, TxnOffsetCommit -------------------------------------------------------------------------------------


class CommitResponseTypes(NamedTuple):
    """The messages of a response, which have equal fields in both APIs."""

    response: Callable[..., Any]
    topic: Callable[..., Any]
    partition: Callable[..., Any]


_PLAIN = CommitResponseTypes(OffsetCommitResponse, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
_TRANSACTIONAL = CommitResponseTypes(
    TxnOffsetCommitResponse, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
)


class CommitPlan(NamedTuple):
    """A commit, split into accepted and rejected topics."""

    topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]
    """All topics of the request."""
    accepted: OffsetCommitRequest
    """Topics that exist, with name and id."""
    refused: dict[int, ErrorCode]
    """Error codes of rejected topics, by position in the request."""
    missing: dict[int, list[int]]
    """Partition numbers that do not exist in an existing topic, by the topic's position in the request."""
    types: CommitResponseTypes
    code: Callable[[KafkaError | None], ErrorCode]
    """The error code of the API and its version."""

    def response(self, committed: CommitResult | None, error: KafkaError | None) -> Any:
        """Merge the shard's result, or its error for every partition, with the rejected topics."""
        types = self.types
        results = iter(committed or ())
        code = self.code(error)
        topics = []
        for index, topic in enumerate(self.topics):
            refusal = self.refused.get(index)
            missing = self.missing.get(index, ())
            if refusal is None and committed is not None:
                codes = [*next(results), *[(number, _UNKNOWN) for number in missing]]
            else:
                absent, other = frozenset(missing), code if refusal is None else refusal
                codes = [
                    (each.partition_index, _UNKNOWN if each.partition_index in absent else other)
                    for each in topic.partitions
                ]
            partitions = [types.partition(partition_index=number, error_code=each) for number, each in codes]
            topics.append(types.topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return types.response(topics=topics)


def plan_commit(context: RequestContext, request: OffsetCommitRequest, image: MetadataImage) -> CommitPlan:
    """Resolve topics and partitions of a commit; unknown ones get UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    plan = _plan(request, request.topics, image, by_id=by_id, types=_PLAIN, code=commit_error_code)
    plan.accepted.retention_time_ms = request.retention_time_ms
    return plan


def plan_transactional_commit(
    context: RequestContext, request: TxnOffsetCommitRequest, image: MetadataImage
) -> tuple[CommitPlan, Transaction]:
    """`plan_commit` for TxnOffsetCommit, with its transaction.

    From version 5 on the commit itself adds the group's partition to the transaction. In older versions the client has
    done that before (AddOffsetsToTxn), which is verified (KIP-890).
    """
    version = context.api_version
    topics = [topic for topic in request.topics if topic.partitions]
    by_id = version >= FIRST_TRANSACTIONAL_VERSION_WITH_TOPIC_IDS
    plan = _plan(request, topics, image, by_id=by_id, types=_TRANSACTIONAL, code=partial(_transactional_code, version))
    add = version >= FIRST_VERSION_THAT_ADDS_TO_THE_TRANSACTION
    return plan, Transaction(request.transactional_id, request.producer_id, request.producer_epoch, add=add)


def _plan(
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
    image: MetadataImage,
    *,
    by_id: bool,
    types: CommitResponseTypes,
    code: Callable[[KafkaError | None], ErrorCode],
) -> CommitPlan:
    accepted = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    plan = CommitPlan(topics, accepted, {}, {}, types, code)
    for index, topic in enumerate(topics):
        named = topic.topic_id if by_id else topic.name
        found = image.find(named)
        if found is None:
            plan.refused[index] = unknown_topic(named)
            continue
        # The partitions of both requests have the fields of a commit.
        known: list[Any] = [each for each in topic.partitions if each.partition_index in found.partitions]
        if topic.partitions and not known:
            plan.refused[index] = _UNKNOWN
            continue
        if len(known) < len(topic.partitions):
            numbers = [partition.partition_index for partition in topic.partitions]
            plan.missing[index] = [number for number in numbers if number not in found.partitions]
        accepted.topics.append(OffsetCommitRequestTopic(name=found.name, topic_id=found.topic_id, partitions=known))
    return plan


def _transactional_code(api_version: int, error: KafkaError | None) -> ErrorCode:
    code = error_code(error)
    if code == ErrorCode.TRANSACTION_ABORTABLE and api_version < FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if loading and api_version < FIRST_TRANSACTIONAL_VERSION_WITH_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # producers before Kafka 2.0 do not retry the other code
    return code


# -- OffsetFetch -------------------------------------------------------------------------------------------------------


class FetchPlan(NamedTuple):
    """The fetch of one group, with topics resolved."""

    context: RequestContext
    request: OffsetFetchRequestGroup
    accepted: OffsetFetchRequestGroup
    """Topics by name; None for all."""
    image: MetadataImage

    def response(self, response: OffsetFetchResponseGroup | None, error: KafkaError | None) -> OffsetFetchResponseGroup:
        """Return the shard's response, with topic ids if the version has them, or an error if the version has one."""
        if response is None:
            return _fetch_failed(self.context, self.request, error_code(error))
        if self.context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
            return response
        if self.request.topics is None:
            for topic in response.topics:
                known = self.image.topic(topic.name)
                topic.topic_id = ZERO_UUID if known is None else known.topic_id
            # A version without names can't represent offsets of a deleted topic.
            response.topics = [topic for topic in response.topics if topic.topic_id != ZERO_UUID]
            return response
        answered = iter(response.topics)
        response.topics = [
            _fetch_failed_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID)
            if self.image.topic_by_id(topic.topic_id) is None
            else next(answered)
            for topic in self.request.topics
        ]
        return response


def fetch_groups(context: RequestContext, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    """Return the groups of a request; before version 8 it has exactly one."""
    if context.api_version >= FIRST_FETCH_OF_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def plan_fetch(context: RequestContext, group: OffsetFetchRequestGroup, image: MetadataImage) -> FetchPlan:
    """Resolve topic ids of the request to names."""
    accepted = group
    if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS and group.topics is not None:
        topics = []
        for topic in group.topics:
            known = image.topic_by_id(topic.topic_id)
            if known is not None:
                topics.append(
                    OffsetFetchRequestTopics(
                        name=known.name, topic_id=known.topic_id, partition_indexes=topic.partition_indexes
                    )
                )
        accepted = OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=topics
        )
    return FetchPlan(context, group, accepted, image)


def _fetch_failed(context: RequestContext, group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    if context.api_version >= FIRST_FETCH_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    topics = [_fetch_failed_topic(topic, code) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _fetch_failed_topic(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def fetch_response(context: RequestContext, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    """Return the response in the version's layout: groups, or before version 8 one group's topics at the top level."""
    if context.api_version >= FIRST_FETCH_OF_GROUPS:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


class DeletePlan(NamedTuple):
    """A deletion, split into existing and unknown topics."""

    accepted: OffsetDeleteRequest
    """Topics that exist."""
    unknown: list[OffsetDeleteResponseTopic]
    """UNKNOWN_TOPIC_OR_PARTITION for the others."""

    def response(self, response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        """Merge the shard's response with the unknown topics."""
        response.topics += self.unknown
        return response


def plan_delete(request: OffsetDeleteRequest, image: MetadataImage) -> DeletePlan:
    """Separate the topics that don't exist."""
    known = OffsetDeleteRequest(group_id=request.group_id)
    unknown = []
    for topic in request.topics:
        if image.topic(topic.name) is not None:
            known.topics.append(topic)
            continue
        unknown.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    for partition in topic.partitions
                ],
            )
        )
    return DeletePlan(known, unknown)
