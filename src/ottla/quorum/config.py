"""What a replica of the metadata log is told by its node: which cluster this is, and the settings of the quorum."""

from __future__ import annotations

from typing import NamedTuple

from ottla.quorum.fetcher import QuorumTimes
from ottla.quorum.raft_types import Address, Timeouts, Voter


class QuorumConfig(NamedTuple):
    """Which cluster this is, and the settings `controller.quorum.*`."""

    cluster_id: str = ""
    bootstrap: tuple[Address, ...] = ()
    """Where somebody may know the leader."""
    voters: tuple[Voter, ...] = ()
    """`controller.quorum.voters`: who votes where the log does not say it (kraft.version 0), without directory ids."""
    auto_join: bool = False
    """Whether this node asks for a vote by itself."""
    listener_name: str = "CONTROLLER"
    security_protocol: str = "PLAINTEXT"
    timeouts: Timeouts = Timeouts()
    times: QuorumTimes = QuorumTimes()
