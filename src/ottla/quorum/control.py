"""Control records of the metadata log and its snapshots: leader change, voters, snapshot bounds.

All are written in version 0, the one that Apache Kafka 4.x writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ProtocolError
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordEndpoint,
    VotersRecordVoter,
)
from ottla.quorum.raft_types import Voter
from ottla.record.batch import Record
from ottla.record.builder import RecordData
from ottla.record.control import ControlRecordType, control_record_key

KRAFT_VERSION = 1
"""The voters are records of the log (KIP-853), so one voter can become three without conversion."""


def _control(kind: ControlRecordType, message: object, timestamp_ms: int) -> RecordData:
    out = bytearray()
    write_message(message, 0, out)
    return RecordData(timestamp_ms, control_record_key(kind), bytes(out))


def leader_change(leader_id: int, voter_ids: Sequence[int], timestamp_ms: int) -> RecordData:
    """The first record of an epoch."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in voter_ids],
        granting_voters=[LeaderChangeMessageVoter(voter_id=leader_id)],
    )
    return _control(ControlRecordType.LEADER_CHANGE, message, timestamp_ms)


def voter_records(voters: Sequence[Voter], timestamp_ms: int) -> list[RecordData]:
    """The level of the voter protocol and the voters."""
    message = VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=voter.voter_id,
                voter_directory_id=voter.directory_id,
                endpoints=[
                    VotersRecordEndpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints
                ],
                kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION),
            )
            for voter in voters
        ]
    )
    return [
        _control(ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=KRAFT_VERSION), timestamp_ms),
        _control(ControlRecordType.KRAFT_VOTERS, message, timestamp_ms),
    ]


def read_voters(record: Record) -> tuple[Voter, ...]:
    """The voters of a KRAFT_VOTERS record; raises ProtocolError."""
    value = record.value
    if value is None:
        raise ProtocolError("a voters record has no value")
    message, _ = read_message(VotersRecord, 0, value, 0, len(value))
    return tuple(
        Voter(
            voter.voter_id,
            bytes(voter.voter_directory_id),
            tuple((endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
        )
        for voter in message.voters
    )


def snapshot_header(last_timestamp_ms: int, timestamp_ms: int) -> RecordData:
    """The first record of a snapshot; `last_timestamp_ms` of the last batch that it contains."""
    message = SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp_ms)
    return _control(ControlRecordType.SNAPSHOT_HEADER, message, timestamp_ms)


def snapshot_footer(timestamp_ms: int) -> RecordData:
    """The last record of a snapshot: without it the snapshot is incomplete."""
    return _control(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), timestamp_ms)
