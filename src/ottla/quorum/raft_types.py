"""What the rules of Raft are stated in: replicas, voters, the state that must survive, effects and answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.common.endpoint import Endpoint
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, Uuid, uuid_from_string, uuid_to_string
from ottla.common.peer import Address
from ottla.metadata.log import NO_NODE, LeaderAndEpoch

MAX_LEADER_EPOCH = 2**31 - 1
_DATA_VERSION = 1
_DATA_VERSION_OF_CONFIGURED = 0


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node with one data directory. With another directory it is another replica."""

    node_id: int
    directory_id: Uuid = ZERO_UUID


class Voter(NamedTuple):
    """A member of the quorum; endpoints as (listener name, host, port)."""

    voter_id: int
    directory_id: Uuid
    endpoints: tuple[tuple[str, str, int], ...]

    @classmethod
    def at(cls, key: ReplicaKey, endpoints: Iterable[Endpoint]) -> Voter:
        """The replica as a voter that listens there."""
        return cls(*key, tuple((each.listener_name, each.host, each.port) for each in endpoints))

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.voter_id, self.directory_id)


class OffsetAndEpoch(NamedTuple):
    """A place in the log, or a snapshot: everything before the offset, whose last batch is of that epoch."""

    end_offset: int
    epoch: int


class ElectionState(NamedTuple):
    """What a replica must not forget: the content of `quorum-state`."""

    leader_epoch: int
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


class RaftLog(Protocol):
    """What the rules need to know of the log."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Of the last batch, or of the newest snapshot where nothing follows it; 0 when there is neither."""
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
    """Write this durably before any later effect, and before the answer to the request that caused it."""

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
    """What a replica is in which epoch. The leader is the one that it follows, the vote the one that it gave."""

    role: str
    epoch: int
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


class Transition(NamedTuple):
    """A change of role: nothing depends on it, people are told."""

    before: Standing | None
    """None at the start."""
    after: Standing


class FetchVerdict(NamedTuple):
    """What a leader says to a Fetch; at most one field is set. With none, records follow from the asked offset."""

    error: ErrorCode = ErrorCode.NONE
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


class Peer(NamedTuple):
    """What a response says of its sender's view of the quorum."""

    leader: LeaderAndEpoch
    address: Address | None = None


def encode_election_state(state: ElectionState, configured: Sequence[Voter] = ()) -> bytes:
    """The file's JSON, in the field order of Apache Kafka: version 1 (KIP-853), or 0 with voters of a configuration."""
    fields: dict[str, object] = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter.voter_id} for voter in configured],
        "data_version": _DATA_VERSION_OF_CONFIGURED,
    }
    if configured:
        return json.dumps(fields, separators=(",", ":")).encode("ascii")
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": uuid_to_string(state.voted_directory_id),
        "data_version": _DATA_VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode_election_state(data: bytes) -> ElectionState:
    """Inverse of `encode_election_state`, reads version 0 too; raises ValueError for anything else."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    version = fields.get("data_version")
    if version not in (0, _DATA_VERSION):
        raise ValueError(f"it has data_version {version}")
    directory = fields.get("votedDirectoryId")
    state = ElectionState(
        _number(fields, "leaderEpoch"),
        _number(fields, "leaderId"),
        _number(fields, "votedId"),
        uuid_from_string(directory) if isinstance(directory, str) else ZERO_UUID,
    )
    if not 0 <= state.leader_epoch <= MAX_LEADER_EPOCH:
        raise ValueError(f"leaderEpoch is {state.leader_epoch}")
    return state


def decode_configured_voters(data: bytes) -> tuple[int, ...]:
    """The node ids of voters of a configuration that stand in version 0 of the file; none in others.

    Raises ValueError where it is damaged.
    """
    fields = json.loads(data)
    voters = fields.get("currentVoters") if isinstance(fields, dict) else None
    if not isinstance(voters, list):
        return ()
    if not all(isinstance(voter, dict) for voter in voters):
        raise ValueError("currentVoters is no list of voters")
    return tuple(_number(voter, "voterId") for voter in voters)


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise ValueError(f"{name} is missing or no number")
    return value
