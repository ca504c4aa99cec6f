"""Rules of the declaration compiler that parity with kio can't show."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.registry import API
from ottla.protocol.schema import INT32, STRING, f, message, parse_versions, schema_of, struct


def written(value: object, version: int) -> bytes:
    out = bytearray()
    write_message(value, version, out)
    return bytes(out)


def read(cls: type, version: int, data: bytes):
    value, position = read_message(cls, version, data, 0, len(data))
    assert position == len(data)
    return value


def test_layouts_written_out_by_hand():
    assert written(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert written(MetadataRequest(topics=None), 9) == b"\0\x01\0\0\0"
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
    classic = b"\0\0\0\1\0\1t\0\0\0\3\0\1\0\0\0\0\0\0\0\0\0\0\xea\x60\0"
    assert written(request, 4) == classic
    assert written(request, 5) == b"\2\2t\0\0\0\3\0\1\1\1\0\0\0\xea\x60\0\0"
    cursor = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=2))
    assert written(cursor, 0) == b"\1\0\0\7\xd0\1\2t\0\0\0\2\0\0"
    assert written(DescribeTopicPartitionsRequest(), 0) == b"\1\0\0\7\xd0\xff\0"
    features = ApiVersionsResponse(supported_features=[SupportedFeatureKey(name="f", min_version=1, max_version=2)])
    assert written(features, 3) == b"\0\0\1\0\0\0\0\1\0\x08\2\2f\0\1\0\2\0"


TOPIC_ID = bytes([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2])

NEWER_THAN_KIO = [
    (
        5,
        "026e023102630000000700",
        ApiVersionsRequest(client_software_name="n", client_software_version="1", cluster_id="c", node_id=7),
    ),
    (5, "026e023100ffffffff00", ApiVersionsRequest(client_software_name="n", client_software_version="1")),
    (5, "0081010000000300", ApiVersionsResponse(error_code=129, throttle_time_ms=3)),
    (3, "02026700", DeleteGroupsRequest(groups_names=["g"])),
    (
        3,
        "000000030302670086047768790002680000000000",
        DeleteGroupsResponse(
            throttle_time_ms=3,
            results=[
                DeletableGroupResult(group_id="g", error_code=134, error_message="why"),
                DeletableGroupResult(group_id="h"),
            ],
        ),
    ),
    (
        6,
        "027402670000000000000007000200000003026d00020000000000000001000000000000000202000000040000000000000005000000060278"
        "000000",
        TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=7,
            producer_epoch=2,
            generation_id_or_member_epoch=3,
            member_id="m",
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=4, committed_offset=5, committed_leader_epoch=6, committed_metadata="x"
                        )
                    ],
                )
            ],
        ),
    ),
    (
        6,
        "00000003020000000000000001000000000000000202000000040064000000",
        TxnOffsetCommitResponse(
            throttle_time_ms=3,
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic_id=TOPIC_ID,
                    partitions=[TxnOffsetCommitResponsePartition(partition_index=4, error_code=100)],
                )
            ],
        ),
    ),
]
"""What Apache Kafka 4.4.0 writes in versions that kio doesn't know (`test_kio_parity.NEWER`)."""


@pytest.mark.parametrize(("version", "data", "value"), NEWER_THAN_KIO)
def test_layouts_of_apache_kafka_itself(version: int, data: str, value: object) -> None:
    assert written(value, version).hex() == data
    assert read(type(value), version, bytes.fromhex(data)) == value


def test_a_value_that_the_version_cannot_carry():
    with pytest.raises(KafkaError) as caught:
        written(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 5)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError):
        written(MetadataRequest(topics=None), 0)
    with pytest.raises(KafkaError):
        written(MetadataRequest(allow_auto_topic_creation=False), 3)
    written(MetadataRequest(allow_auto_topic_creation=True), 3)
    topic = MetadataResponseTopic(name="t", topic_id=b"i" * 16, is_internal=True)
    old = read(MetadataResponse, 0, written(MetadataResponse(topics=[topic]), 0))
    assert old.topics[0].topic_id == ZERO_UUID
    assert not old.topics[0].is_internal


def test_undeclared_versions_are_rejected():
    for version in (-1, 14, 99):
        with pytest.raises(KafkaError):
            written(MetadataRequest(), version)
        with pytest.raises(KafkaError):
            read_message(MetadataRequest, version, b"\0" * 10, 0, 10)


def test_string_length_limit_equals_kafkas():
    request = CreateTopicsRequest(topics=[CreatableTopic(name="x" * 32767)])
    for version in (2, 7):
        assert read(CreateTopicsRequest, version, written(request, version)) == request
        with pytest.raises(KafkaError):
            written(CreateTopicsRequest(topics=[CreatableTopic(name="x" * 32768)]), version)


def test_unknown_tags_are_skipped_and_known_ones_checked():
    body = b"\0\0\1\0\0\0\0"
    assert read(ApiVersionsResponse, 3, body + b"\1\x64\3abc") == ApiVersionsResponse()
    epoch = b"\1\x08\0\0\0\0\0\0\0\7"
    assert read(ApiVersionsResponse, 3, body + b"\2" + epoch + b"\x64\0").finalized_features_epoch == 7
    for bad in (b"\1\1\x07\0\0\0\0\0\0\7", b"\1\1\x09\0\0\0\0\0\0\0\7\0", b"\1\x64\4abc", b"\1\x64"):
        with pytest.raises(ProtocolError):
            read_message(ApiVersionsResponse, 3, body + bad, 0, len(body + bad))


def test_reader_stays_in_its_range():
    data = written(CreateTopicsRequest(topics=[CreatableTopic(name="topic")]), 7)
    around = bytearray(b"\x11" * 5 + data + b"\x11" * 5)
    value, position = read_message(CreateTopicsRequest, 7, around, 5, 5 + len(data))
    assert (value.topics[0].name, position) == ("topic", 5 + len(data))
    for end in range(5, 5 + len(data)):
        with pytest.raises(ProtocolError):
            read_message(CreateTopicsRequest, 7, around, 5, end)
    around.clear()  # no view on it remains, not even in the errors above


def test_messages_compare_print_and_share_nothing():
    make: Any = CreatableTopic
    one, two = make(name="t"), make(name="t")
    assert one == two
    assert one != make(name="u")
    assert one != "t"
    one.configs.append("x")
    assert two.configs == []
    assert repr(two) == "CreatableTopic(name='t', num_partitions=0, replication_factor=0, assignments=[], configs=[])"
    with pytest.raises(TypeError):
        make(nmae="t")
    with pytest.raises(TypeError):
        make("t")
    with pytest.raises(AttributeError):
        two.surplus = 1


def test_declarations_are_checked():
    assert parse_versions("3+").low == 3
    assert 4 not in parse_versions("1-3")
    assert 0 not in parse_versions("")
    with pytest.raises(InvariantError):
        schema_of(int)

    class Unspecified:
        name: str = ""

    with pytest.raises(InvariantError):
        struct(Unspecified)

    @message("0-1")
    class Plain:
        name: str = f(STRING, "0+")
        size: int = f(INT32, "1+", default=5, ignorable=True)

    assert written(Plain(name="ab", size=9), 0) == b"\0\2ab"
    assert read(Plain, 0, b"\0\2ab").size == 5
    assert written(Plain(name="ab"), 1) == b"\0\2ab\0\0\0\5"


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_empty_message_round_trip(spec):
    """Fields that a handler does not set have a default that every version can represent."""
    for version in range(spec.min_version, spec.max_version + 1):
        for cls in (spec.request, spec.response):
            data = written(cls(), version)
            assert read(cls, version, data) == cls()


def test_long_error_message_is_cut_between_characters():
    result = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_message="x" + "\u20ac" * 20_000)])
    for version in (2, 7):
        message = read(CreateTopicsResponse, version, written(result, version)).topics[0].error_message
        assert message == "x" + "\u20ac" * 10_922
