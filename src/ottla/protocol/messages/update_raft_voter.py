"""UpdateRaftVoter (key 82): a voter reports its endpoints and supported versions to the leader (KIP-853)."""

from __future__ import annotations

from ottla.protocol.messages.control_records import KRaftVersionFeature
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@message("0", flexible="0+")
class UpdateRaftVoterRequest:
    cluster_id: str | None = f(STRING, "0+", nullable="0+")
    current_leader_epoch: int = f(INT32, "0+")
    voter_id: int = f(INT32, "0+")
    voter_directory_id: bytes = f(UUID, "0+")
    listeners: list[RaftEndpoint] = f(array(RaftEndpoint), "0+")
    k_raft_version_feature: KRaftVersionFeature = f(KRaftVersionFeature, "0+")


@struct
class CurrentLeader:
    leader_id: int = f(INT32, "0+", default=-1)
    leader_epoch: int = f(INT32, "0+", default=-1)
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")


@message("0", flexible="0+")
class UpdateRaftVoterResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    current_leader: CurrentLeader = f(CurrentLeader, "0+", tag=0)


SPEC = ApiSpec(ApiKey.UPDATE_RAFT_VOTER, UpdateRaftVoterRequest, UpdateRaftVoterResponse)
