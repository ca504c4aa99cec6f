"""RemoveRaftVoter (key 81): remove a voter from the quorum (KIP-853)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, f, message


@message("0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = f(STRING, "0+", nullable="0+")
    voter_id: int = f(INT32, "0+")
    voter_directory_id: bytes = f(UUID, "0+")


@message("0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", ignorable=True)


SPEC = ApiSpec(ApiKey.REMOVE_RAFT_VOTER, RemoveRaftVoterRequest, RemoveRaftVoterResponse)
