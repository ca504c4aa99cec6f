"""Headers, frames and the registry's rules."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_reader
from tests.request_header import parse_request_header

from ottla.common.errors import InvariantError, ProtocolError
from ottla.protocol.framing import frame_length
from ottla.protocol.header import decode_response, encode_request, encode_response
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.registry import API, VERSIONS, ApiKey, spec_of_request
from ottla.protocol.schema import schema_of

HEADER = struct.Struct(">hhih")


@pytest.mark.parametrize("version", range(14))
@settings(max_examples=20, deadline=None)
@given(client_id=st.one_of(st.none(), st.text(max_size=200)), correlation_id=st.integers(-(1 << 31), (1 << 31) - 1))
def test_request_header_reads_as_kio_reads_it(version, client_id, correlation_id):
    frame = encode_request(ApiKey.METADATA, version, correlation_id, client_id, MetadataRequest())
    assert frame_length(frame, 0) == len(frame) - 4
    header = parse_request_header(bytearray(frame), 4, len(frame))
    assert (header.api_key, header.api_version) == (3, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
    kio_header, size = entity_reader(KioHeader2 if version >= 9 else KioHeader1)(frame, 4)
    assert (kio_header.client_id, kio_header.correlation_id) == (client_id, correlation_id)
    assert header.body_start == 4 + size


def test_api_versions_response_header_has_no_tags():
    """A tagged-field byte there made a client allocate 34 GB."""
    for version in range(5):
        frame = encode_response(ApiKey.API_VERSIONS, version, 1, ApiVersionsResponse(error_code=35))
        assert frame[4:10] == b"\0\0\0\1\0\x23"
        assert decode_response(ApiKey.API_VERSIONS, version, frame[4:]) == (1, ApiVersionsResponse(error_code=35))
    flexible = encode_response(ApiKey.METADATA, 9, 1, MetadataResponse())
    assert flexible[4:9] == b"\0\0\0\1\0"
    classic = encode_response(ApiKey.METADATA, 8, 1, MetadataResponse())
    assert len(classic) == 4 + 4 + 4 + 4 + 2 + 4 + 4 + 4


def test_versions_beyond_those_served_still_have_a_header():
    """The broker has to answer ApiVersions of a future version with UNSUPPORTED_VERSION (KIP-511)."""
    future = bytearray(HEADER.pack(18, 99, 5, 2) + b"me" + b"\0" + b"future body")
    header = parse_request_header(future, 0, len(future))
    assert (header.api_version, header.correlation_id, header.client_id, header.body_start) == (99, 5, "me", 13)
    assert not API[18].supports(99)
    produce = bytearray(HEADER.pack(0, 2, 5, -1))
    assert parse_request_header(produce, 0, 10).client_id is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\3\0\1\0\0\0\1\0",
        HEADER.pack(3, 1, 1, 5) + b"abcd",
        HEADER.pack(3, 9, 1, 0),
        HEADER.pack(3, 9, 1, 0) + b"\1",
        HEADER.pack(3, 9, 1, 0) + b"\1\0\x05abc",
        HEADER.pack(3, 9, 1, 0) + b"\xff\xff\xff\xff\xff\x01",
        HEADER.pack(9999, 0, 1, -1),
        HEADER.pack(-1, 0, 1, -1),
    ],
)
def test_truncated_or_unknown_headers_are_rejected(data):
    buffer = bytearray(data + b"\0" * 64)
    with pytest.raises(ProtocolError):
        parse_request_header(buffer, 0, len(data))


def test_client_id_of_any_bytes_is_readable():
    data = bytearray(HEADER.pack(3, 1, 1, 2) + b"\xff\xfe")
    assert parse_request_header(data, 0, len(data)).client_id == "\ufffd\ufffd"


def test_frame_sizes():
    assert frame_length(b"\0\0\0\0", 0) == 0
    assert frame_length(b"xx\0\0\1\0", 2) == 256
    for size in (-1, -(1 << 31), 101):
        with pytest.raises(ProtocolError):
            frame_length(struct.pack(">i", size), 0, 100)


def test_response_that_ends_within_its_header():
    for data in (b"", b"\0\0\0", b"\0\0\0\1"):
        with pytest.raises(ProtocolError):
            decode_response(ApiKey.METADATA, 9, data)


def test_registry_follows_apache_kafka():
    assert {spec.name: (spec.min_version, spec.max_version) for spec in API.values()} == {
        "Produce": (0, 13),
        "Fetch": (0, 18),
        "ListOffsets": (0, 11),
        "Metadata": (0, 13),
        "FindCoordinator": (0, 6),
        "OffsetCommit": (0, 10),
        "OffsetFetch": (0, 10),
        "JoinGroup": (0, 9),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 6),
        "ListGroups": (0, 5),
        "DeleteGroups": (0, 3),
        "OffsetDelete": (0, 0),
        "ConsumerGroupHeartbeat": (0, 1),
        "ConsumerGroupDescribe": (0, 1),
        "ApiVersions": (0, 5),
        "CreateTopics": (2, 7),
        "DeleteTopics": (1, 6),
        "DeleteRecords": (0, 2),
        "InitProducerId": (0, 5),
        "AddPartitionsToTxn": (0, 5),
        "AddOffsetsToTxn": (0, 4),
        "EndTxn": (0, 5),
        "WriteTxnMarkers": (1, 2),
        "TxnOffsetCommit": (0, 6),
        "DescribeTransactions": (0, 0),
        "ListTransactions": (0, 2),
        "OffsetForLeaderEpoch": (2, 4),
        "DescribeConfigs": (1, 4),
        "AlterConfigs": (0, 2),
        "DescribeLogDirs": (1, 5),
        "CreatePartitions": (0, 3),
        "IncrementalAlterConfigs": (0, 1),
        "UpdateFeatures": (0, 2),
        "DescribeCluster": (0, 2),
        "GetTelemetrySubscriptions": (0, 0),
        "PushTelemetry": (0, 0),
        "ListConfigResources": (0, 1),
        "DescribeTopicPartitions": (0, 0),
        "Vote": (0, 2),
        "BeginQuorumEpoch": (0, 1),
        "EndQuorumEpoch": (0, 1),
        "DescribeQuorum": (0, 2),
        "FetchSnapshot": (0, 1),
        "AddRaftVoter": (0, 1),
        "RemoveRaftVoter": (0, 0),
        "UpdateRaftVoter": (0, 0),
        "InitializeShareGroupState": (0, 0),
        "ReadShareGroupState": (0, 0),
        "WriteShareGroupState": (0, 1),
        "DeleteShareGroupState": (0, 0),
        "ReadShareGroupStateSummary": (0, 1),
        "AlterPartition": (2, 3),
        "BrokerRegistration": (0, 4),
        "BrokerHeartbeat": (0, 2),
        "UnregisterBroker": (0, 0),
        "UnregisterController": (0, 0),
        "AllocateProducerIds": (0, 0),
        "Envelope": (0, 0),
        "ControllerRegistration": (0, 0),
        "DescribeClientQuotas": (0, 1),
        "AlterClientQuotas": (0, 1),
        "DescribeUserScramCredentials": (0, 0),
        "AlterUserScramCredentials": (0, 0),
        "SaslHandshake": (0, 1),
        "SaslAuthenticate": (0, 2),
        "ElectLeaders": (0, 2),
        "AlterPartitionReassignments": (0, 1),
        "ListPartitionReassignments": (0, 0),
        "DescribeAcls": (1, 3),
        "CreateAcls": (1, 3),
        "DeleteAcls": (1, 3),
        "AlterReplicaLogDirs": (1, 2),
        "CreateDelegationToken": (1, 3),
        "RenewDelegationToken": (1, 2),
        "ExpireDelegationToken": (1, 2),
        "DescribeDelegationToken": (1, 3),
        "DescribeProducers": (0, 0),
        "ShareGroupHeartbeat": (1, 1),
        "ShareGroupDescribe": (1, 1),
        "DescribeShareGroupOffsets": (0, 1),
        "AlterShareGroupOffsets": (0, 0),
        "DeleteShareGroupOffsets": (0, 0),
        "ShareFetch": (1, 2),
        "ShareAcknowledge": (1, 2),
        "AssignReplicasToDirs": (0, 0),
    }
    assert list(API) == sorted(API)
    assert list(ApiKey) == sorted(ApiKey)
    for spec in API.values():
        assert spec.versions == (spec.min_version, spec.max_version)
        for version in (spec.flexible_from - 1, spec.flexible_from):
            flexible = version >= spec.flexible_from
            assert spec.request_header_version(version) == 1 + flexible
            assert spec.response_header_version(version) == (flexible and spec.key is not ApiKey.API_VERSIONS)


def test_request_framing_is_the_same_for_all_apis():
    frame = encode_request(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest(client_software_name="n"))
    assert frame[4:] == HEADER.pack(18, 3, 1, 1) + b"c\0\2n\1\0"


def test_advertised_versions_are_those_of_the_request():
    for key, spec in API.items():
        declared = schema_of(spec.request).versions
        high = 5 if key is ApiKey.INIT_PRODUCER_ID else declared.high
        assert VERSIONS[key] == (declared.low, high)
        assert spec.name == spec.request.__name__.removesuffix("Request")


def test_an_api_without_messages_is_not_in_the_registry():
    for key in (ApiKey.LEADER_AND_ISR, 999, -1):
        assert API.get(key) is None
        assert key not in API


def test_spec_of_request_accepts_only_requests():
    assert spec_of_request(ApiVersionsRequest()) is API[ApiKey.API_VERSIONS]
    for message in (MetadataResponse(), "text"):
        with pytest.raises(InvariantError):
            spec_of_request(message)
