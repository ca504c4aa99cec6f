"""Conversations with the group coordinator on virtual time: real runtime, real record batches, a log in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.shares import finish
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.records import GroupRecord, GroupRecordSerde, decode_record
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorRuntime, CoordinatorTimer
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.codec import write_message
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.record.batch import iter_batches
from ottla.record.control import EndMarker
from ottla.timeline import SnapshotRegistry

from ..answers import Answer
from ..runtime.harness import MemoryLog, VirtualTime

SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_S = 3.0
LATEST: Mapping[str, int] = {
    "join": 9,
    "sync": 5,
    "heartbeat": 4,
    "leave": 5,
    "commit": 9,
    "txn": 5,
    "fetch": 9,
    "describe": 6,
}


class CountingRng:
    """Random ids that are distinct and reproducible."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def random_bytes(self, count: int) -> bytes:
        return next(self._numbers).to_bytes(count, "big")

    def randrange(self, stop: int) -> int:
        return next(self._numbers) % stop


def image_of(*names: str, generation: int = 1) -> MetadataImage:
    """Topics with four partitions; ids follow from name and generation."""
    topics = {}
    for name in names:
        partition = PartitionImage((1,), (1,), 1, 0, 0)
        topic_id = name.encode().rjust(15, b"\x01") + bytes([generation])
        topics[name] = TopicImage(name, topic_id, dict.fromkeys(range(4), partition))
    return MetadataImage(topics=topics, topics_by_id={topic.topic_id: topic for topic in topics.values()})


def subscription(*topics: str) -> bytes:
    """Member metadata of a consumer."""
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 3)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Encode as a client does: the version, then the message in it."""
    out = bytearray(version.to_bytes(2, "big"))
    write_message(subscription, version, out)
    return bytes(out)


CONSUMER = {"range": subscription("t")}


class Conversation:
    """A coordinator that leads the only partition of its topic; methods send requests and return the `Answer`."""

    def __init__(self, **config: Any) -> None:
        self.time = VirtualTime()
        self.log = MemoryLog(self.time, 1)
        self.config = GroupCoordinatorConfig(**config)
        self.image = image_of("t", "u")
        self.rng = CountingRng()
        self.defects: list[tuple[str, Exception]] = []
        self.leader_epoch = 0
        self.start()

    def start(self) -> None:
        """Start as after a process restart: only the log is left."""

        def new_shard(_: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> GroupCoordinatorShard:
            return GroupCoordinatorShard(
                ShardContext(
                    config=lambda: self.config,
                    image=lambda: self.image,
                    clock=self.time,
                    rng=self.rng,
                    registry=registry,
                    timer=timer,
                )
            )

        self.runtime = CoordinatorRuntime(
            name="__consumer_offsets",
            log=self.log,
            serde=GroupRecordSerde,
            shard_factory=new_shard,
            clock=self.time,
            scheduler=EndOfTickScheduler(self.time),
            failures=lambda where, error: self.defects.append((where, error)),
        )
        self.runtime.start(1)
        self.log.high_watermark_updated = self.runtime.high_watermark_updated
        self.coordinator = GroupCoordinator(self.runtime, lambda: self.config, lambda: self.image)
        self.lead()

    def lead(self) -> None:
        """Become leader in the next epoch and load."""
        self.leader_epoch += 1
        self.log.leader_epoch[0] = self.leader_epoch
        self.runtime.become_leader(0, self.leader_epoch)
        self.time.settle()

    @property
    def shard(self) -> GroupCoordinatorShard:
        return dict(self.runtime.active_shards())[0]

    def records(self) -> list[GroupRecord]:
        """Everything in the log."""
        found = []
        for raw in self.log.batches[0]:
            for batch in iter_batches(raw):
                for record in () if batch.is_control else batch.records():
                    decoded = decode_record(record.key or b"", record.value)
                    assert decoded is not None
                    found.append(decoded)
        return found

    def context(self, api: str, version: int | None, client_id: str = "client") -> RequestContext:
        return RequestContext(client_id, "/10.0.0.1", LATEST[api] if version is None else version)

    def _send(self, send: Callable[..., None], context: RequestContext, request: object) -> Answer[Any]:
        answer: Answer[Any] = Answer()
        send(context, request, answer)
        self.time.settle()
        assert not self.defects
        return answer

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Mapping[str, bytes] = CONSUMER,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int | None = None,
        client_id: str = "client",
    ) -> Answer[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
            reason="test",
        )
        return self._send(self.coordinator.join_group, self.context("join", version, client_id), request)

    def join_at_once(self, *instances: str) -> list[Answer[JoinGroupResponse]]:
        """Static members with requests in one tick of the loop, so that one batch contains both."""
        answers: list[Answer[JoinGroupResponse]] = []
        for instance in instances:
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in CONSUMER.items()],
            )
            answers.append(Answer())
            self.coordinator.join_group(self.context("join", None), request, answers[-1])
        self.time.settle()
        return answers

    def join_new(self, **options: Any) -> tuple[str, Answer[JoinGroupResponse]]:
        """Join a dynamic member in its two steps: (member id, response of the second)."""
        first = self.join(**options).response
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED, first
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int | None = None,
    ) -> Answer[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        return self._send(self.coordinator.sync_group, self.context("sync", version), request)

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return self._send(self.coordinator.heartbeat, self.context("heartbeat", None), request).error

    def leave(
        self, *members: str | tuple[str, str | None], group: str = "g", version: int | None = None
    ) -> LeaveGroupResponse:
        pairs = [member if isinstance(member, tuple) else (member, None) for member in members]
        identities = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in pairs]
        request = LeaveGroupRequest(group_id=group, member_id=pairs[0][0] if pairs else "", members=identities)
        response: LeaveGroupResponse = self._send(
            self.coordinator.leave_group, self.context("leave", version), request
        ).response
        return response

    def leave_without_answer(self, member_id: str, group: str = "g") -> None:
        """Leave like a closing client: it does not wait."""
        request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
        self.coordinator.leave_group(self.context("leave", None), request, lambda response: None)
        self.time.settle()

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = None,
        retention_ms: int = -1,
        version: int | None = None,
    ) -> Answer[OffsetCommitResponse]:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            known = self.image.topic(name)
            topic = topics.setdefault(
                name, OffsetCommitRequestTopic(name=name, topic_id=known.topic_id if known else bytes(16))
            )
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        return self._send(self.coordinator.offset_commit, self.context("commit", version), request)

    def txn_commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        producer_id: int = 7,
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = None,
        version: int | None = None,
    ) -> Answer[TxnOffsetCommitResponse]:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            known = self.image.topic(name)
            topic = topics.setdefault(
                name, TxnOffsetCommitRequestTopic(name=name, topic_id=known.topic_id if known else bytes(16))
            )
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=f"t{producer_id}",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=3,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=list(topics.values()),
        )
        return self._send(self.coordinator.txn_offset_commit, self.context("txn", version), request)

    def txn_code(self, offset: int = 1, **options: Any) -> ErrorCode:
        """The error code of a transactional commit of partition 0 of `t`."""
        response = self.txn_commit({("t", 0): offset}, **options).response
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def end_transaction(self, producer_id: int = 7, *, committed: bool = True) -> ErrorCode:
        """The answer to the marker of a producer."""
        answers: list[KafkaError | None] = []
        self.runtime.complete_transaction(0, EndMarker(producer_id, 4, 1, committed, 2), answers.append)
        self.time.settle()
        (error,) = answers
        return ErrorCode.NONE if error is None else error.code

    def commit_code(self, offset: int = 1, **options: Any) -> ErrorCode:
        """The error code of a commit of partition 0 of `t`."""
        response = self.commit({("t", 0): offset}, **options).response
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(
        self,
        *partitions: tuple[str, int],
        group: str = "g",
        require_stable: bool = False,
        version: int | None = None,
        **options: Any,
    ) -> Any:
        """The response for one group, in the layout of version 8 and above; no partitions: all."""
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for name, partition in partitions:
            known = self.image.topic(name)
            topic = topics.setdefault(
                name, OffsetFetchRequestTopics(name=name, topic_id=known.topic_id if known else bytes(16))
            )
            topic.partition_indexes.append(partition)
        asked = OffsetFetchRequestGroup(group_id=group, topics=list(topics.values()) if partitions else None, **options)
        request = OffsetFetchRequest(groups=[asked], require_stable=require_stable)
        return self._send(self.coordinator.offset_fetch, self.context("fetch", version), request)

    def offsets(self, *partitions: tuple[str, int], group: str = "g", **options: Any) -> dict[tuple[str, int], int]:
        """Committed offsets, -1 for none; no partitions: all."""
        (answer,) = self.fetch(*partitions, group=group, **options).response.groups
        assert answer.error_code == 0
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
        }

    def unstable(self, *partitions: tuple[str, int], group: str = "g") -> set[tuple[str, int]]:
        """Return the partitions on which a reader of stable offsets has to wait; no partitions: of all."""
        (answer,) = self.fetch(*partitions, group=group, require_stable=True).response.groups
        return {
            (topic.name, each.partition_index)
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        }

    def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> Any:
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for name, partition in partitions:
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=partition))
        request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))
        return self._send(self.coordinator.offset_delete, self.context("commit", 0), request).response

    def describe(self, group: str = "g", version: int | None = None) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group])
        (described,) = self._send(
            self.coordinator.describe_groups, self.context("describe", version), request
        ).response.groups
        assert isinstance(described, DescribedGroup)
        return described

    def list_groups(self, states: list[str] | None = None, types: list[str] | None = None) -> list[str]:
        """Group ids, sorted."""
        request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
        response = finish(self.coordinator.listing(request))
        assert response.error_code == 0
        return sorted(group.group_id for group in response.groups)

    def delete_groups(self, *groups: str) -> dict[str, ErrorCode]:
        request = DeleteGroupsRequest(groups_names=list(groups))
        response = self._send(self.coordinator.delete_groups, self.context("fetch", 2), request).response
        return {result.group_id: ErrorCode(result.error_code) for result in response.results}

    # -- usual situations ----------------------------------------------------------------------------------------------

    def stable_group(self, count: int = 2, *, group: str = "g", **options: Any) -> list[str]:
        """Dynamic members in a stable group of generation 1, the leader first."""
        joined = [self.join_new(group=group, **options) for _ in range(count)]
        self.time.advance(INITIAL_DELAY_S)
        while joined[0][1].pending:
            self.time.advance(INITIAL_DELAY_S)
        members = [member_id for member_id, _ in joined]
        self.settle_generation(members, 1, group=group)
        return members

    def static_group(self, *instances: str, group: str = "g", **options: Any) -> list[str]:
        """Static members in a stable group of generation 1, the leader first."""
        answers = [self.join(instance=instance, group=group, **options) for instance in instances]
        while answers[0].pending:
            self.time.advance(INITIAL_DELAY_S)
        members = [answer.response.member_id for answer in answers]
        self.settle_generation(members, 1, group=group)
        return members

    def settle_generation(self, members: list[str], generation: int, *, group: str = "g") -> None:
        """Sync all members, the first as leader; each gets its own id as assignment."""
        assignments = {member: member.encode() for member in members}
        protocol = self.shard.context.groups.get(group).protocol_name  # type: ignore[attr-defined]
        kind = self.shard.context.groups.get(group).protocol_type
        answers = [
            self.sync(
                member,
                generation,
                None if index else assignments,
                group=group,
                protocol_name=protocol,
                protocol_type=kind,
            )
            for index, member in enumerate(members)
        ]
        assert [answer.response.assignment for answer in answers] == [member.encode() for member in members]


def assignment_of(answer: Answer[SyncGroupResponse]) -> bytes:
    """The assignment of a SyncGroup that worked."""
    assert answer.error == ErrorCode.NONE
    return answer.response.assignment
