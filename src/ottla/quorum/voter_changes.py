"""Rules for changes of the voters (KIP-853): conditions of a change, and the voters that a record names. Pure."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.quorum.raft_state import RaftState
from ottla.quorum.raft_types import Voter


def voter_change_error(state: RaftState) -> ErrorCode:
    """The error of a voter change now: one change at a time, not before the epoch's first commit, and never if the
    configuration names the voters.
    """
    leader = state.leading
    if leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if state.voter_sets.are_configured:
        return ErrorCode.UNSUPPORTED_VERSION
    if not leader.committed or state.high_watermark <= state.voter_sets.latest_offset:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE


def named_voters(state: RaftState, own: Voter) -> tuple[Voter, ...]:
    """The configured voters as records of the log would name them (kraft.version 1); `own` is this replica.

    Raises KafkaError: INVALID_UPDATE_VERSION unless each voter announced in this epoch its directory and its
    support for kraft.version 1; NOT_CONTROLLER if this replica does not lead.
    """
    leader = state.leading
    if leader is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")
    known = {**leader.directories, own.voter_id: own}
    missing = [voter.voter_id for voter in state.voters if voter.voter_id not in known]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            "Invalid upgrade of kraft.version to 1 because not all of the voters support it: start "
            f"a supporting version on nodes {', '.join(map(str, missing))}: their directory ids are unknown",
        )
    return tuple(known[voter.voter_id] for voter in state.voters)
