"""The records of a small snapshot, as a list."""

from __future__ import annotations

from typing import NamedTuple

from ottla.metadata.records import ApiMessageAndVersion
from ottla.quorum.raft_types import Voter
from ottla.quorum.snapshot_file import batches_of, replay_snapshot


class Snapshot(NamedTuple):
    records: list[ApiMessageAndVersion]
    voters: tuple[Voter, ...]


def read_snapshot(data: bytes) -> Snapshot:
    """The content of the file; raises ProtocolError if it is not a complete snapshot."""
    records: list[ApiMessageAndVersion] = []
    voters = replay_snapshot(batches_of(data), records.append)
    return Snapshot(records, voters)
