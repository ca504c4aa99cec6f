"""Values of control records of the metadata log and its snapshots (KIP-595, KIP-630, KIP-853).

The field `version` repeats the written version of the value. In Kafka's schemas the nested structs of two of these
messages have the same names; here each has the name of its message in front. LeaderChangeMessage is written in version
0 below kraft.version 1; Apache's dump tool (4.3) reads no other.
"""

from __future__ import annotations

from ottla.protocol.schema import INT16, INT32, INT64, STRING, UINT16, UUID, array, f, message, struct


@struct
class LeaderChangeMessageVoter:
    voter_id: int = f(INT32, "0+")
    voter_directory_id: bytes = f(UUID, "1+")


@message("0-1", flexible="0+")
class LeaderChangeMessage:
    version: int = f(INT16, "0+")
    leader_id: int = f(INT32, "0+")
    voters: list[LeaderChangeMessageVoter] = f(array(LeaderChangeMessageVoter), "0+")
    granting_voters: list[LeaderChangeMessageVoter] = f(array(LeaderChangeMessageVoter), "0+")


@message("0", flexible="0+")
class SnapshotHeaderRecord:
    version: int = f(INT16, "0+")
    last_contained_log_timestamp: int = f(INT64, "0+")


@message("0", flexible="0+")
class SnapshotFooterRecord:
    version: int = f(INT16, "0+")


@message("0", flexible="0+")
class KRaftVersionRecord:
    version: int = f(INT16, "0+")
    kraft_version: int = f(INT16, "0+")


@struct
class VotersRecordEndpoint:
    name: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    port: int = f(UINT16, "0+")


@struct
class KRaftVersionFeature:
    min_supported_version: int = f(INT16, "0+")
    max_supported_version: int = f(INT16, "0+")


@struct
class VotersRecordVoter:
    voter_id: int = f(INT32, "0+")
    voter_directory_id: bytes = f(UUID, "0+")
    endpoints: list[VotersRecordEndpoint] = f(array(VotersRecordEndpoint), "0+")
    kraft_version_feature: KRaftVersionFeature = f(KRaftVersionFeature, "0+")


@message("0", flexible="0+")
class VotersRecord:
    version: int = f(INT16, "0+")
    voters: list[VotersRecordVoter] = f(array(VotersRecordVoter), "0+")
