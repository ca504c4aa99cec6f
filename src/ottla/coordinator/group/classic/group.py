"""A classic group: its members, generation and state.

    EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE        DEAD: unloaded
      ^------------|   ^------------------|-------------------|

Members join in PREPARING_REBALANCE, then send and await assignments in COMPLETING_REBALANCE. The group is soft state,
and records only back it up: waiting members are stored here with their pending replies. `rebalance` drives the state
changes; this module maintains the counters, and has no timers and no record layout except the group's own.

Invariants: `awaiting_join` counts the members with a join reply; `static_members` maps each instance id to a member;
the leader is a member or None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.platform.clock import Clock
from ottla.coordinator.group.classic.member import ClassicGroupMember, JoinReply, Protocols
from ottla.coordinator.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_subscription
from ottla.coordinator.group.group import GroupType, OffsetExpiration
from ottla.coordinator.group.member_memory import MEMBER_BYTES
from ottla.coordinator.group.records import GroupRecord
from ottla.protocol.messages.coordinator_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.list_groups import ListedGroup

NO_TIMESTAMP = -1


class ClassicGroupState(Enum):
    """States, with the names that ListGroups and DescribeGroups print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = ClassicGroupState.EMPTY
PREPARING_REBALANCE = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
DEAD = ClassicGroupState.DEAD

VALID_PREVIOUS_STATES: Mapping[ClassicGroupState, tuple[ClassicGroupState, ...]] = {
    EMPTY: (PREPARING_REBALANCE,),
    PREPARING_REBALANCE: (STABLE, COMPLETING_REBALANCE, EMPTY),
    COMPLETING_REBALANCE: (PREPARING_REBALANCE,),
    STABLE: (COMPLETING_REBALANCE,),
    DEAD: (STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY, DEAD),
}


class ClassicGroup:
    """One group; implements `group.Group`."""

    __slots__ = (
        "_clock",
        "_held_bytes",
        "_supporters",
        "awaiting_join",
        "current_state_timestamp",
        "generation_id",
        "group_id",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join_members",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "subscribed_topics",
    )

    def __init__(
        self,
        group_id: str,
        clock: Clock,
        state: ClassicGroupState = EMPTY,
        *,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        current_state_timestamp: int | None = None,
    ) -> None:
        """A new group has no `protocol_type`, which also marks a simple group (offsets only)."""
        self.group_id = group_id
        self._clock = clock
        self.state = state
        self.previous_state = DEAD
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.current_state_timestamp = current_state_timestamp
        """Milliseconds since the epoch; None when the record predates this field."""
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.pending_join_members: dict[str, None] = {}
        """Ids that were handed out with MEMBER_ID_REQUIRED and are not used yet, in order."""
        self.pending_sync_members: dict[str, None] = {}
        """Members of this generation that did not send SyncGroup yet, in order."""
        self.awaiting_join = 0
        self.new_member_added = False
        """In an initial rebalance: a member joined since the delay began, so the delay may be extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """None when the coordinator does not know."""
        self._supporters: dict[str, int] = {}
        """Number of members that support each protocol."""
        self._held_bytes = 0

    # -- Group ---------------------------------------------------------------------------------------------------------

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def group_epoch(self) -> int:
        return self.generation_id

    @property
    def held_bytes(self) -> int:
        return self._held_bytes + MEMBER_BYTES * len(self.pending_join_members)

    def state_name(self, as_of: int | None = None) -> str:
        """Return the current state: the state of a classic group is soft and has no history."""
        return self.state.value

    def is_empty(self) -> bool:
        return self.state is EMPTY

    def as_listed_group(self, as_of: int | None = None) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type=GroupType.CLASSIC.value,
        )

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int, api_version: int
    ) -> None:
        """A negative generation is a simple consumer or an admin, which may commit only while the group has no members.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        REBALANCE_IN_PROGRESS.
        """
        names_no_member = generation_or_member_epoch < 0 and not member_id and group_instance_id is None
        if names_no_member and self.state not in (EMPTY, DEAD):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.validate_transactional_offset_commit(member_id, group_instance_id, generation_or_member_epoch)
        if self.state is COMPLETING_REBALANCE:
            # The member knows the new generation but not its assignment: it has to finish the rebalance first.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int
    ) -> None:
        """A producer without member id may always commit. One with a member id may commit also while the group awaits
        its assignment: the generation alone fences zombies (KIP-447).

        Raises KafkaError COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_or_member_epoch < 0 and (self.state is EMPTY or (not member_id and group_instance_id is None)):
            return
        self.validate_member(member_id, group_instance_id)
        if generation_or_member_epoch != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, as_of: int | None) -> None:
        """Any client may read offsets of a classic group. Raises KafkaError GROUP_ID_NOT_FOUND when dead."""
        self._check_not_dead()

    def validate_offset_delete(self) -> None:
        """Groups with unknown subscriptions may lose offsets only while empty. Raises KafkaError NON_EMPTY_GROUP."""
        self._check_not_dead()
        if self.state is not EMPTY and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete_group(self) -> None:
        """Raises KafkaError NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        self._check_not_dead()
        if self.state is not EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def _check_not_dead(self) -> None:
        if self.state is DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Return whether a consumer subscribes to `topic`; undecodable metadata counts as a subscription to every
        topic."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def offset_expiration(self) -> OffsetExpiration | None:
        """Retention starts when the group became empty. For simple consumers, and for topics that a stable consumer
        group no longer subscribes to, it starts at each commit (KIP-211)."""
        if self.protocol_type is None:
            return OffsetExpiration(None)
        if self.state is EMPTY:
            return OffsetExpiration(self.current_state_timestamp)
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is STABLE:
            return OffsetExpiration(None)
        return None

    def tombstone_records(self) -> Sequence[GroupRecord]:
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)]

    # -- members -------------------------------------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        """Return whether metadata and assignments use the embedded consumer protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def member(self, member_id: str) -> ClassicGroupMember:
        """Return the member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ClassicGroupMember:
        """Return the member. Raises KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member took over
        its instance id (KIP-345)."""
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        return self.member(member_id)

    def add(self, member: ClassicGroupMember, reply: JoinReply | None = None) -> None:
        """Add a member, with the reply it waits for. The first member decides the group's protocol type."""
        instance_id = member.group_instance_id
        if instance_id is not None:
            if instance_id in self.static_members:
                raise InvariantError(f"group {self.group_id} already has an instance {instance_id}")
            self.static_members[instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.protocol_type != member.protocol_type:
            raise InvariantError(f"group {self.group_id} has another protocol type than {member.protocol_type}")
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._held_bytes += member.held_bytes
        self._count_protocols(member, 1)
        self._wait_for_join(member, reply)
        self.pending_join_members.pop(member.member_id, None)

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        reply: JoinReply | None,
    ) -> None:
        """Update a member that sent JoinGroup again."""
        self._count_protocols(member, -1)
        self._held_bytes -= member.held_bytes
        member.protocols = protocols
        self._held_bytes += member.held_bytes
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._wait_for_join(member, reply)

    def assign(self, member: ClassicGroupMember, assignment: bytes) -> None:
        """Set the member's assignment for this generation."""
        self._held_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def _wait_for_join(self, member: ClassicGroupMember, reply: JoinReply | None) -> None:
        previous, member.join_reply = member.join_reply, reply
        self.awaiting_join += (reply is not None) - (previous is not None)
        if previous is not None:
            # The client gave up on that request and sent another one on a new connection.
            previous.answer(
                JoinGroupResponse(
                    error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id, protocol_name=None
                )
            )

    def remove(self, member_id: str) -> None:
        """Remove a member, or an id that was only handed out; does nothing for an unknown id."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._held_bytes -= member.held_bytes
            self._count_protocols(member, -1)
            self.awaiting_join -= member.join_reply is not None
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)

    def replace_static_member(self, instance_id: str, new_member_id: str) -> ClassicGroupMember:
        """Replace the holder of an instance id: the old process is fenced, the new one inherits its state."""
        old_member_id = self.static_members[instance_id]
        old = self.members[old_member_id]
        self.answer_join(
            old, JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old_member_id, protocol_name=None)
        )
        old.answer_sync(ErrorCode.FENCED_INSTANCE_ID)
        replacement = old.with_id(new_member_id)
        # The replacement takes the position of the old member, so that the order of members is unchanged.
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): (
                replacement if member_id == old_member_id else member
            )
            for member_id, member in self.members.items()
        }
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        self.static_members[instance_id] = new_member_id
        if old_member_id in self.pending_sync_members:
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[new_member_id] = None
        return replacement

    def answer_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer the member's pending JoinGroup; return False if it has none."""
        reply = member.join_reply
        if reply is None:
            return False
        member.join_reply = None
        self.awaiting_join -= 1
        reply.answer(response)
        return True

    def elect_joined_leader(self) -> bool:
        """If the leader did not rejoin, elect the first member that did. Returns False if none did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader_id = member.member_id
                return True
        return False

    def all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_join_members

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- protocols -----------------------------------------------------------------------------------------------------

    def _count_protocols(self, member: ClassicGroupMember, step: int) -> None:
        for name in member.protocols:
            self._supporters[name] = self._supporters.get(name, 0) + step
            if not self._supporters[name]:
                del self._supporters[name]

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these can join: same type, and one protocol that all members support."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name in protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; ties go to the earliest voter's choice."""
        candidates = frozenset(name for name, count in self._supporters.items() if count == len(self.members))
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        if not votes:
            raise InvariantError(f"group {self.group_id} without members can't select a protocol")
        return max(votes, key=votes.__getitem__)

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(decode_subscription(member.metadata(self.protocol_name)).topics)
        except ProtocolError:
            # The metadata of a client may be undecodable: the subscription is unknown, so its offsets are retained.
            return None
        return frozenset(topics)

    # -- states --------------------------------------------------------------------------------------------------------

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    def transition_to(self, state: ClassicGroupState) -> None:
        """Raises InvariantError for a transition that the table does not contain."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise InvariantError(f"group {self.group_id}: invalid transition from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp = self._clock.time_ms()

    def start_next_generation(self) -> None:
        """The join phase is over: enter COMPLETING_REBALANCE with a protocol, or EMPTY."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY)
        self.pending_sync_members.clear()

    # -- messages ------------------------------------------------------------------------------------------------------

    def join_response(self, member_id: str, *, members: Sequence[JoinGroupResponseMember] = ()) -> JoinGroupResponse:
        """Return the JoinGroup response for a member of the current generation."""
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member_id,
            members=list(members),
        )

    def members_for_leader(self) -> list[JoinGroupResponseMember]:
        """Return the metadata of all members for the selected protocol."""
        name = self.protocol_name
        if name is None:
            raise InvariantError(f"group {self.group_id} in {self.state.value} has no protocol")
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(name),
            )
            for member in self.members.values()
        ]

    def metadata_record(self, assignments: Mapping[str, bytes], *, settled: bool = True) -> GroupRecord:
        """Return the record of the group with all members, which a load restores. Not settled: no leader assigned these
        to all members, so the record names no leader, and a load resumes the rebalance."""
        name = self.protocol_name
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=b"" if name is None else member.metadata(name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id if settled else None,
            current_state_timestamp=self._state_timestamp(),
            members=members,
        )
        return GroupRecord(GroupMetadataKey(group=self.group_id), value)

    def empty_metadata_record(self) -> GroupRecord:
        """Return a record without members, written when the group is created."""
        value = GroupMetadataValue(
            protocol_type="", generation=self.generation_id, current_state_timestamp=self._state_timestamp()
        )
        return GroupRecord(GroupMetadataKey(group=self.group_id), value)

    def _state_timestamp(self) -> int:
        return NO_TIMESTAMP if self.current_state_timestamp is None else self.current_state_timestamp

    def __iter__(self) -> Iterator[ClassicGroupMember]:
        """Iterate over the members in join order; safe against changes while iterating."""
        return iter(list(self.members.values()))

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue, clock: Clock) -> ClassicGroup:
        """Return the group as of its last completed generation; in a rebalance if none completed since its creation.

        Raises KafkaError CORRUPT_MESSAGE when the record contradicts itself.
        """
        ids = {member.member_id for member in value.members}
        if len(ids) < len(value.members) or (ids and value.leader is not None and value.leader not in ids):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, "the group has a duplicate member, or a leader that is not a member"
            )
        timestamp = value.current_state_timestamp
        settled = STABLE if value.leader is not None else PREPARING_REBALANCE
        group = cls(
            group_id,
            clock,
            settled if value.members else EMPTY,
            generation_id=value.generation,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol,
            leader_id=value.leader,
            current_state_timestamp=None if timestamp == NO_TIMESTAMP else timestamp,
        )
        for member in value.members:
            group.add(ClassicGroupMember.from_record(member, value.protocol_type, value.protocol))
        group.subscribed_topics = group._compute_subscribed_topics()
        return group
