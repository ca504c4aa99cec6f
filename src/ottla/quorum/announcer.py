"""What people are told of a quorum: each change of role with its epoch, each vote that others ask for, other voters.

One line each, at info, and a warning for a voter that takes no requests at all; nothing while nothing changes. Any peer
can ask for votes, and name newer epochs, as often as it likes: what it can cause is limited (`common.logs`). A single
node elects itself at each start, which is no news.
"""

from __future__ import annotations

import logging

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import ZERO_UUID, uuid_to_string
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.endpoint import format_address
from ottla.metadata.log import NO_NODE
from ottla.quorum.raft import Raft
from ottla.quorum.raft_types import ReplicaKey, Standing, Voter

logger = logging.getLogger(__name__)


_REFUSALS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "its super.users has to name the principals of the cluster's nodes",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "format this node's directories with the id of its cluster",
}
"""By the error, what to look at where a voter refuses as long as nobody changes something."""


class Announcer:
    """Tells what changed since it was asked last."""

    __slots__ = ("_level", "_node_id", "_voters")

    def __init__(self, node_id: int, *, alone: bool) -> None:
        self._node_id = node_id
        self._level = logging.DEBUG if alone else logging.INFO
        self._voters: tuple[Voter, ...] = ()

    def announce(self, raft: Raft) -> None:
        """Tell of changes of role, which are durable now, and of voters."""
        if raft.transitions:
            transitions, raft.transitions = raft.transitions, []
            for before, after in transitions:
                origin = "" if before is None else f" from {_standing(before)}"
                text = "node %d completed transition to %s%s"
                logger.log(self._level, text, self._node_id, _standing(after), origin, extra=RATE_LIMITED)
        voters = raft.voters
        if voters != self._voters:
            self._voters = voters
            names, offset = ", ".join(map(_voter, voters)), raft.voter_sets.latest_offset
            logger.log(self._level, "node %d has voters %s as of offset %d", self._node_id, names, offset)


def announce_vote(candidate: ReplicaKey, epoch: int, error: ErrorCode, *, pre_vote: bool, granted: bool) -> None:
    """Tell of a Vote request that was answered."""
    node_id, kind = candidate.node_id, "pre-vote" if pre_vote else "vote"
    if granted:
        logger.info("%s request of node %d with epoch %d is granted", kind, node_id, epoch, extra=RATE_LIMITED)
    else:
        reason = "" if error is ErrorCode.NONE else f": {error.name}"
        logger.info(
            "%s request of node %d with epoch %d is rejected%s", kind, node_id, epoch, reason, extra=RATE_LIMITED
        )


def announce_refusal(voter_id: int, error: ErrorCode) -> None:
    """Tell of a voter that takes no vote request of this node at all, and what to look at."""
    hint = _REFUSALS.get(error)
    if hint is not None:
        logger.warning(
            "node %d takes no vote requests of this one: %s; %s", voter_id, error.name, hint, extra=RATE_LIMITED
        )


def _standing(standing: Standing) -> str:
    """As Apache Kafka prints it: `follower(epoch=5, leader=1)`."""
    facts = f"epoch={standing.epoch}"
    if standing.leader_id != NO_NODE:
        facts += f", leader={standing.leader_id}"
    if standing.voted_id != NO_NODE:
        facts += f", voted={standing.voted_id}"
    return f"{standing.role}({facts})"


def _voter(voter: Voter) -> str:
    """`ID@HOST:PORT:DIRECTORYID`, as `--initial-controllers` takes it, with what is known."""
    text = str(voter.voter_id)
    if voter.endpoints:
        _, host, port = voter.endpoints[0]
        text += f"@{format_address(host, port)}"
    return text if voter.directory_id == ZERO_UUID else f"{text}:{uuid_to_string(voter.directory_id)}"
