"""The content of `quorum-state`, Apache Kafka's JSON plus a checksum, and of the file that records damage.

The checksum is an additional field, which Apache Kafka's reader ignores like any unknown name, so that file and
checksum are one write. Files without it, written by Apache Kafka or older versions, are accepted if they are JSON with
the right fields. The checksum is the CRC-32C of all other fields as written, in hexadecimal.

Not here: the path of the file (`metadata_log`) and the meaning of its fields (`raft`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ottla.common.kafka.ids import ZERO_UUID, uuid_from_string, uuid_to_string
from ottla.quorum.raft_types import MAX_LEADER_EPOCH, ElectionState, Voter
from ottla.record.checksum import crc32c

_DATA_VERSION = 1
_DATA_VERSION_OF_CONFIGURED = 0
_CHECKSUM = "checksum"


def encode_election_state(state: ElectionState, configured: Sequence[Voter] = ()) -> bytes:
    """The file's JSON, in the field order of Apache Kafka: version 1 (KIP-853), or 0 with configured voters.

    All fields but `must_catch_up`, which the file does not contain.
    """
    if configured:
        fields: dict[str, object] = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter.voter_id} for voter in configured],
            "data_version": _DATA_VERSION_OF_CONFIGURED,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_to_string(state.voted_directory_id),
            "data_version": _DATA_VERSION,
        }
    return encode_fields(fields)


def encode_fields(fields: Mapping[str, object]) -> bytes:
    """A file with these fields and their checksum."""
    content = {name: value for name, value in fields.items() if name != _CHECKSUM}
    return _dump(content | {_CHECKSUM: _checksum(content)})


def decode_fields(data: bytes) -> dict[str, object]:
    """The fields of the file without the checksum, which must match if present; raises ValueError."""
    try:
        fields = json.loads(data)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    checksum = fields.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(fields):
        raise ValueError("its checksum does not match")
    return fields


def decode_election_state(data: bytes) -> ElectionState:
    """Inverse of `encode_election_state`, reads version 0 too; raises ValueError for anything else."""
    fields = decode_fields(data)
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


def encode_catching_up(leader_epoch: int) -> bytes:
    """The content of the damage file: the last known epoch. No vote was given above it, neither before nor since."""
    return encode_fields({"leaderEpoch": leader_epoch})


def decode_catching_up(data: bytes) -> int:
    """Inverse of `encode_catching_up`; raises ValueError."""
    return _number(decode_fields(data), "leaderEpoch")


def decode_configured_voters(data: bytes) -> tuple[int, ...]:
    """The voter node ids of version 0 of the file; empty for other versions.

    Raises ValueError if the file is damaged.
    """
    voters = decode_fields(data).get("currentVoters")
    if not isinstance(voters, list):
        return ()
    if not all(isinstance(voter, dict) for voter in voters):
        raise ValueError("currentVoters is not a list of voters")
    return tuple(_number(voter, "voterId") for voter in voters)


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def _checksum(fields: Mapping[str, object]) -> str:
    return f"{crc32c(_dump(fields)):08x}"


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise ValueError(f"{name} is missing or not a number")
    return value
