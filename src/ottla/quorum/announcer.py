"""Quorum log lines for operators: role changes with their epoch, answered vote requests, and voter changes.

Each event is one line at info. A voter that rejects all requests of this node is logged as a warning. Nothing is logged
while nothing changes. A peer can request votes and name newer epochs as often as it wants, so its log lines are
rate-limited (`common.logs`). A single node elects itself at each start, which is not logged.
"""

from __future__ import annotations

import logging

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import ZERO_UUID, uuid_to_string
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.peer import Address
from ottla.metadata.log import NO_NODE
from ottla.quorum.raft import Raft
from ottla.quorum.raft_types import ReplicaKey, Standing, Voter

logger = logging.getLogger(__name__)


_REFUSALS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "add the principal of this node to its super.users",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster than the data directories of this node",
}
"""Hint for the operator, by the error with which a voter keeps rejecting requests until the configuration changes."""


class Announcer:
    """Logs changes of role and voters since the last call."""

    __slots__ = ("_level", "_node_id", "_voters")

    def __init__(self, node_id: int, *, alone: bool) -> None:
        self._node_id = node_id
        self._level = logging.DEBUG if alone else logging.INFO
        self._voters: tuple[Voter, ...] = ()

    def announce(self, raft: Raft) -> None:
        """Log role changes, which are durable by now, and voter changes."""
        if raft.state.transitions:
            transitions, raft.state.transitions = raft.state.transitions, []
            for before, after in transitions:
                origin = "" if before is None else f" from {_standing(before)}"
                text = "node %d completed transition to %s%s"
                logger.log(self._level, text, self._node_id, _standing(after), origin, extra=RATE_LIMITED)
        voters = raft.state.voters
        if voters != self._voters:
            self._voters = voters
            names, offset = ", ".join(map(_voter, voters)), raft.state.voter_sets.latest_offset
            logger.log(self._level, "node %d has voters %s as of offset %d", self._node_id, names, offset)


def announce_vote(candidate: ReplicaKey, epoch: int, error: ErrorCode, *, pre_vote: bool, granted: bool) -> None:
    """Log the result of a Vote request."""
    node_id, kind = candidate.node_id, "pre-vote" if pre_vote else "vote"
    if granted:
        logger.info("%s request of node %d with epoch %d is granted", kind, node_id, epoch, extra=RATE_LIMITED)
    else:
        reason = "" if error is ErrorCode.NONE else f": {error.name}"
        logger.info(
            "%s request of node %d with epoch %d is rejected%s", kind, node_id, epoch, reason, extra=RATE_LIMITED
        )


def announce_refusal(address: Address, error: object) -> None:
    """Log a controller that rejects all Vote and Fetch requests of this node, with a hint."""
    if isinstance(error, ErrorCode) and error in _REFUSALS:
        logger.warning(
            "controller %s rejects the requests of this node with %s: %s",
            format_address(*address),
            error.name,
            _REFUSALS[error],
            extra=RATE_LIMITED,
        )


def _standing(standing: Standing) -> str:
    """The role in Apache Kafka's format: `follower(epoch=5, leader=1)`."""
    facts = f"epoch={standing.epoch}"
    if standing.leader_id != NO_NODE:
        facts += f", leader={standing.leader_id}"
    if standing.voted_id != NO_NODE:
        facts += f", voted={standing.voted_id}"
    return f"{standing.role}({facts})"


def _voter(voter: Voter) -> str:
    """The known fields of a voter as `ID@HOST:PORT:DIRECTORYID`, the format of `--initial-controllers`."""
    text = str(voter.voter_id)
    if voter.endpoints:
        _, host, port = voter.endpoints[0]
        text += f"@{format_address(host, port)}"
    return text if voter.directory_id == ZERO_UUID else f"{text}:{uuid_to_string(voter.directory_id)}"
