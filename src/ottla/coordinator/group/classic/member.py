"""A member of a classic group, and the replies it may wait for."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.errors import ErrorCode, InvariantError
from ottla.coordinator.group.member_memory import MEMBER_BYTES, protocols_bytes
from ottla.coordinator.group.response_collector import Reply
from ottla.protocol.messages.coordinator_records import MemberMetadata
from ottla.protocol.messages.describe_groups import DescribedGroupMember
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

JoinReply = Reply[JoinGroupResponse]
SyncReply = Reply[SyncGroupResponse]
Protocols = Mapping[str, bytes]
"""Metadata by protocol name, in order of preference."""


def request_protocols(request: JoinGroupRequest) -> dict[str, bytes]:
    """Return the protocols of a request; the first one wins when a name repeats."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


class ClassicGroupMember:
    """One process in a classic group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """Its first JoinGroup still waits: it can't heartbeat, so a longer session timeout applies."""
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the member, in bytes (`member_memory`)."""
        return MEMBER_BYTES + protocols_bytes(self.protocols) + len(self.assignment)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str) -> bytes:
        """Raises InvariantError for a protocol that it does not support."""
        metadata = self.protocols.get(protocol_name)
        if metadata is None:
            raise InvariantError(f"member {self.member_id} does not support protocol {protocol_name}")
        return metadata

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the member's preferred protocol among the candidates."""
        for name in self.protocols:
            if name in candidates:
                return name
        raise InvariantError(f"member {self.member_id} supports none of the candidate protocols")

    def matches(self, protocols: Protocols) -> bool:
        """Return whether these are its protocols: names, metadata and order."""
        return list(self.protocols.items()) == list(protocols.items())

    def satisfied_heartbeat(self) -> bool:
        """Return whether it stays although its session timed out: it waits for a response, so it can't heartbeat."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def wait_for_sync(self, reply: SyncReply) -> None:
        """Set the pending SyncGroup. It replaces an earlier one that the client gave up."""
        previous, self.sync_reply = self.sync_reply, reply
        if previous is not None:
            previous.answer(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def answer_sync(
        self, error_code: int, *, protocol_type: str | None = None, protocol_name: str | None = None
    ) -> bool:
        """Answer the pending SyncGroup with the assignment; return False if there is none."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is None:
            return False
        reply.answer(
            SyncGroupResponse(
                error_code=error_code,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignment=b"" if error_code else self.assignment,
            )
        )
        return True

    def with_id(self, member_id: str) -> ClassicGroupMember:
        """Return a copy under another id, without pending replies."""
        return ClassicGroupMember(
            member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocol_type,
            self.protocols,
            self.assignment,
        )

    def describe(self, protocol_name: str | None) -> DescribedGroupMember:
        """Return the DescribeGroups entry; without a selected protocol the metadata is empty."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            member_assignment=self.assignment,
        )

    @classmethod
    def from_record(cls, value: MemberMetadata, protocol_type: str, protocol_name: str | None) -> ClassicGroupMember:
        """Restore from a GroupMetadata record, which contains the metadata of the selected protocol only."""
        return cls(
            value.member_id,
            value.group_instance_id,
            value.client_id,
            value.client_host,
            value.session_timeout if value.rebalance_timeout == -1 else value.rebalance_timeout,
            value.session_timeout,
            protocol_type,
            {protocol_name or "": value.subscription},
            value.assignment,
        )
