"""Roles of a replica of the metadata log, with the state of each, and the count of votes. Pure."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum

from ottla.common.platform.peer import Address
from ottla.quorum.raft_leader import LeaderState
from ottla.quorum.raft_types import ReplicaKey


class Unattached:
    """Knows no leader; a voter waits until `deadline` before it starts an election."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


class Follower:
    """Fetches from the leader; after `deadline` without a response a voter starts a pre-vote."""

    __slots__ = ("address", "deadline", "has_fetched", "leader_resigned")

    def __init__(self, address: Address | None, deadline: float) -> None:
        self.address = address
        self.deadline = deadline
        self.has_fetched = False
        self.leader_resigned = False


class Election:
    """Votes in one epoch; `unreached` are voters that could not be reached so far."""

    __slots__ = ("deadline", "granted", "rejected", "unreached")

    def __init__(self, local: ReplicaKey, deadline: float) -> None:
        self.deadline = deadline
        self.granted = {local}
        self.rejected: set[ReplicaKey] = set()
        self.unreached: set[ReplicaKey] = set()


class Prospective(Election):
    """Sends pre-votes; `lost` is its former follower state in this epoch, if there was one."""

    __slots__ = ("lost",)

    def __init__(self, local: ReplicaKey, deadline: float, lost: Follower | None) -> None:
        super().__init__(local, deadline)
        self.lost = lost


class Candidate(Election):
    """Sends vote requests."""

    __slots__ = ()


class Resigned:
    """Was leader of this epoch and waits until `deadline` for others to elect one."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


Role = Unattached | Follower | Prospective | Candidate | LeaderState | Resigned
ROLE_NAMES: dict[type[Role], str] = {
    Unattached: "unattached",
    Follower: "follower",
    Prospective: "prospective",
    Candidate: "candidate",
    LeaderState: "leader",
    Resigned: "resigned",
}


class Votes(Enum):
    """Result of the votes of an election so far."""

    OPEN = 0
    WON = 1
    LOST = 2
    """No majority is possible, or none will follow: of a candidate also because all others have responded."""


def count_votes(election: Prospective | Candidate, voters: Set[ReplicaKey]) -> Votes:
    """Return the result of an election among these voters."""
    majority = len(voters) // 2 + 1
    if len(election.granted & voters) >= majority:
        return Votes.WON
    if len(voters - election.rejected) < majority:
        return Votes.LOST
    if isinstance(election, Candidate) and voters <= election.granted | election.rejected | election.unreached:
        return Votes.LOST
    return Votes.OPEN
