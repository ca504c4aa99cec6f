"""AddRaftVoter (key 80): promote an observer of the metadata log to a voter (KIP-853).

1 may get its response before the change is committed (KIP-1186).
"""

from __future__ import annotations

from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, STRING, UUID, array, f, message


@message("0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: str | None = f(STRING, "0+", nullable="0+")
    timeout_ms: int = f(INT32, "0+")
    voter_id: int = f(INT32, "0+")
    voter_directory_id: bytes = f(UUID, "0+")
    listeners: list[RaftEndpoint] = f(array(RaftEndpoint), "0+")
    ack_when_committed: bool = f(BOOL, "1+", default=True)


@message("0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", ignorable=True)


SPEC = ApiSpec(ApiKey.ADD_RAFT_VOTER, AddRaftVoterRequest, AddRaftVoterResponse)
