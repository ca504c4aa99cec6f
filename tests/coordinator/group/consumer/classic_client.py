"""A simulated consumer of the classic protocol, as a shard sees it: eager or cooperative.

As leader of a classic group it assigns partitions round-robin; in a consumer group it never leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.response_collector import Reply
from ottla.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

from ..conversation import encode_subscription
from .world import GROUP, World

CONTEXT = RequestContext("classic", "/127.0.0.1", 9)


class ClassicClient:
    """`owns` are the (topic, partition) pairs that it reads; `waiting` while a JoinGroup or SyncGroup is pending."""

    def __init__(
        self, world: World, topics: Sequence[str], cooperative: bool = False, instance_id: str | None = None
    ) -> None:
        self.world = world
        self.topics = list(topics)
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.owns: set[tuple[str, int]] = set()
        self.must_join = True
        self.waiting = False
        self.error: int = 0

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    def subscription(self) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owns):
            owned.setdefault(topic, []).append(partition)
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=self.topics,
                owned_partitions=[SubscriptionTopicPartition(topic=topic, partitions=owned[topic]) for topic in owned],
            ),
            3,
        )

    def step(self) -> None:
        """Rejoin if required, else send a heartbeat; process the responses at once."""
        if self.waiting:
            return
        if self.must_join:
            self.join()
        else:
            self.heartbeat()
        self.world.time.settle()

    # -- JoinGroup -----------------------------------------------------------------------------------------------------

    def join(self) -> None:
        if not self.cooperative:
            self.owns = set()
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=self.subscription())],
        )
        self.waiting = True
        reply = Reply(self.joined)
        try:
            self.world.run(lambda: self.world.shard.classic_join(CONTEXT, request, reply))
        except KafkaError as error:
            reply.answer(JoinGroupResponse(error_code=error.code, protocol_name=None))

    def joined(self, response: JoinGroupResponse) -> None:
        self.waiting = False
        self.error = response.error_code
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.next(self.join)
            return
        if response.error_code:
            self.failed(response.error_code)
            return
        self.must_join = False
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        assignments = []
        if response.leader == self.member_id:
            subscribed = {each.member_id: decode_subscription(each.metadata).topics for each in response.members}
            assignments = self.assign(subscribed)
        self.next(partial(self.sync, assignments))

    def next(self, request: Callable[[], None]) -> None:
        """Send the next request, but not within the last response's callback, which others may wait for."""
        self.waiting = True
        self.world.time.call_soon(request)

    def assign(self, subscribed: dict[str, list[str]]) -> list[SyncGroupRequestAssignment]:
        dealt: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscribed}
        for topic, count in self.world.topics.items():
            readers = sorted(member_id for member_id, topics in subscribed.items() if topic in topics)
            for partition in range(count if readers else 0):
                dealt[readers[partition % len(readers)]].setdefault(topic, []).append(partition)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            AssignmentTopicPartition(topic=topic, partitions=partitions)
                            for topic, partitions in topics.items()
                        ]
                    ),
                    3,
                ),
            )
            for member_id, topics in dealt.items()
        ]

    # -- SyncGroup, Heartbeat, LeaveGroup ------------------------------------------------------------------------------

    def sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=assignments,
        )
        self.waiting = True
        reply = Reply(self.synced)
        try:
            self.world.run(lambda: self.world.shard.classic_sync(CONTEXT, request, reply))
        except KafkaError as error:
            reply.answer(SyncGroupResponse(error_code=error.code))

    def synced(self, response: SyncGroupResponse) -> None:
        self.waiting = False
        self.error = response.error_code
        if response.error_code:
            self.failed(response.error_code)
            return
        target = {
            (each.topic, partition)
            for each in (decode_assignment(response.assignment).assigned_partitions if response.assignment else [])
            for partition in each.partitions
        }
        if self.owns - target:
            self.must_join = True
        self.owns = target

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.error = 0
        try:
            self.world.run(lambda: self.world.shard.classic_heartbeat(CONTEXT, request))
        except KafkaError as error:
            self.failed(error.code)

    def failed(self, code: int) -> None:
        """Rejoin; as a new member if the coordinator does not know the member."""
        self.error = code
        self.must_join = True
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self.owns = set()
            self.generation_id = -1
            if code != ErrorCode.ILLEGAL_GENERATION:
                self.member_id = ""

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=GROUP, members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)]
        )
        self.owns = set()
        try:
            self.world.run(lambda: self.world.shard.classic_leave(CONTEXT, request))
        except KafkaError as error:
            self.error = error.code
