"""Raft's rules as pure state (KIP-595): who leads in which epoch, and up to where the log is committed.

Invariants:
- A leader epoch is led once: it is above every epoch that was stored or stands in the log, and it is stored durably
  before anything is appended in it.
- The high watermark is an offset that a majority of the voters has on disk, never goes back, and does not move on
  records of older epochs alone (Raft, section 5.4.2).

Left out until there are several voters: votes, fetches between voters, resignation. Nothing here assumes one voter but
`elect_single_voter`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.common.errors import InvariantError
from ottla.common.ids import ZERO_UUID, Uuid, uuid_from_string, uuid_to_string

NO_NODE = -1
_DATA_VERSION = 1
MAX_LEADER_EPOCH = 2**31 - 1


class Voter(NamedTuple):
    """A member of the quorum; endpoints as (listener name, host, port)."""

    voter_id: int
    directory_id: Uuid
    endpoints: tuple[tuple[str, str, int], ...]


class ElectionState(NamedTuple):
    """What a voter must not forget: the content of `quorum-state`."""

    leader_epoch: int
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


def encode_election_state(state: ElectionState) -> bytes:
    """The file's JSON, in the field order of Apache Kafka (version 1, KIP-853)."""
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


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise ValueError(f"{name} is missing or no number")
    return value


def elect_single_voter(
    stored: ElectionState | None, log_epoch: int, node_id: int, directory_id: Uuid, voters: Sequence[Voter]
) -> ElectionState:
    """The state of the only voter after its election, which needs no other's vote.

    Raises InvariantError when it is not the only voter or has run out of epochs.
    """
    if [(voter.voter_id, voter.directory_id) for voter in voters] != [(node_id, directory_id)]:
        raise InvariantError(f"node {node_id} elects itself among {len(voters)} voters")
    epoch = max(stored.leader_epoch if stored else 0, log_epoch) + 1
    if epoch > MAX_LEADER_EPOCH:
        raise InvariantError("there is no leader epoch left")
    return ElectionState(epoch, node_id, node_id, directory_id)


class LeaderState:
    """The leader's view of how far the voters are, in one epoch."""

    __slots__ = ("_end_offsets", "epoch", "epoch_start_offset", "high_watermark")

    def __init__(self, epoch: int, epoch_start_offset: int, voter_ids: Sequence[int], high_watermark: int = 0) -> None:
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self._end_offsets = dict.fromkeys(voter_ids, 0)

    def update_end_offset(self, voter_id: int, end_offset: int) -> bool:
        """`voter_id` has everything before `end_offset` on disk; whether the high watermark moved."""
        if voter_id not in self._end_offsets:
            raise InvariantError(f"node {voter_id} is no voter")
        self._end_offsets[voter_id] = end_offset
        ranked = sorted(self._end_offsets.values(), reverse=True)
        committed = ranked[len(ranked) // 2]
        if committed <= self.epoch_start_offset or committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True
