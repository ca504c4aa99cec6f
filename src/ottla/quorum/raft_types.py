"""Types of the Raft rules: replicas, voters, the durable state, effects and responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import Address
from ottla.metadata.log import NO_NODE, LeaderAndEpoch

MAX_LEADER_EPOCH = 2**31 - 1
FORGOTTEN_EPOCHS = 1_000_000
"""Lower bound of the unused epochs after damage: more elections than a cluster holds between two records of its
metadata log. No replica gave a vote in an epoch so far above the last one of its log.
"""


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node with one data directory. With another directory it is another replica."""

    node_id: int
    directory_id: Uuid = ZERO_UUID


class Voter(NamedTuple):
    """A voter of the quorum; endpoints as (listener name, host, port)."""

    voter_id: int
    directory_id: Uuid
    endpoints: tuple[tuple[str, str, int], ...]

    @classmethod
    def at(cls, key: ReplicaKey, endpoints: Iterable[Endpoint]) -> Voter:
        """The replica as a voter with these endpoints."""
        return cls(*key, tuple((each.listener_name, each.host, each.port) for each in endpoints))

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.voter_id, self.directory_id)


class OffsetAndEpoch(NamedTuple):
    """The log up to an offset, or a snapshot of it; `epoch` is that of the last batch."""

    end_offset: int
    epoch: int


class ElectionState(NamedTuple):
    """The durable election state of a replica: the content of `quorum-state`."""

    leader_epoch: int
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID
    must_catch_up: bool = False
    """The replica lost acknowledged records, or its epoch and vote, and has not caught up with a leader since."""


class RaftLog(Protocol):
    """The operations of the log that the rules use.

    Implementation: `quorum.metadata_log`.
    """

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """Everything before this offset is on disk."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch, or of the newest snapshot if no batch follows it; 0 if there is neither."""
        ...

    def end_offset_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest known epoch that is not above `epoch`, and where it ended."""
        ...

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...


class Timeouts(NamedTuple):
    """The settings `controller.quorum.*`, in seconds."""

    election_s: float = 1.0
    fetch_s: float = 2.0
    backoff_max_s: float = 1.0


class Persist(NamedTuple):
    """Write this state durably before any later effect, and before the response to the request that caused it."""

    election: ElectionState


class SendVote(NamedTuple):
    to: Voter
    epoch: int
    pre_vote: bool


class SendBegin(NamedTuple):
    to: Voter
    epoch: int


class SendEnd(NamedTuple):
    to: Voter
    epoch: int
    preferred: tuple[ReplicaKey, ...]


Effect = Persist | SendVote | SendBegin | SendEnd


class Standing(NamedTuple):
    """Role and epoch of a replica, the leader that it follows, and its vote."""

    role: str
    epoch: int
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


class Transition(NamedTuple):
    """A change of role, for log lines only."""

    before: Standing | None
    """None at start."""
    after: Standing


class Durations:
    """Durations since the last `clear`: their number, sum and maximum in seconds."""

    __slots__ = ("count", "max_s", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self.max_s = 0.0

    def add(self, duration_s: float) -> None:
        """Add one duration."""
        self.count += 1
        self.sum_s += duration_s
        self.max_s = max(self.max_s, duration_s)

    def clear(self) -> None:
        """Forget all durations."""
        self.count, self.sum_s, self.max_s = 0, 0.0, 0.0


class QuorumStatistics:
    """Measurements of one replica since its start; only scrapes read them, and clear the durations."""

    __slots__ = ("commits", "elections", "request_bytes", "requests", "response_bytes", "responses")

    def __init__(self) -> None:
        self.elections = Durations()
        """Elections with a new leader in which this replica sought votes, from its first pre-vote on."""
        self.commits = Durations()
        """From the append of a batch by this leader to its commit."""
        self.requests = 0
        """Requests to other replicas."""
        self.request_bytes = 0
        """Without the headers."""
        self.responses = 0
        self.response_bytes = 0


class FetchVerdict(NamedTuple):
    """A leader's response to a Fetch; at most one field is set. With none, records follow from the requested offset."""

    error: ErrorCode = ErrorCode.NONE
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


class Peer(NamedTuple):
    """Leader, leader epoch and leader address that the sender of a response knows."""

    leader: LeaderAndEpoch
    address: Address | None = None
