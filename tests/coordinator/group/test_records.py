"""Records of `__consumer_offsets`: bytes as in Apache Kafka, round trips of every type and version."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import KafkaError, ProtocolError
from ottla.coordinator.group.offsets.committed_offset import NO_TIMESTAMP, pack, unpack
from ottla.coordinator.group.records import (
    GroupRecord,
    GroupRecordSerde,
    OffsetPlace,
    decode_record,
    encode_record,
)
from ottla.protocol.codec import write_message
from ottla.protocol.messages.coordinator_records import (
    COORDINATOR_RECORDS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    CurrentAssignmentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

TOPIC_ID = bytes(range(16))


def test_bytes_of_an_offset_commit():
    record = GroupRecord(OffsetPlace("g", "to", 3), pack(5, 2, 7, NO_TIMESTAMP, TOPIC_ID, "m"))
    key, value = encode_record(record)
    assert key == b"\0\1" + b"\0\1g" + b"\0\2to" + b"\0\0\0\3"
    body = struct.pack(">qi", 5, 2) + b"\2m" + struct.pack(">q", 7) + b"\1\0\x10" + TOPIC_ID
    assert value == b"\0\4" + body
    assert decode_record(key, value) == record


def test_an_offset_with_its_own_expiry_is_written_in_version_1():
    record = GroupRecord(OffsetPlace("g", "t", 0), pack(5, 2, 7, 9, TOPIC_ID, ""))
    key, value = encode_record(record)
    assert value == b"\0\1" + struct.pack(">q", 5) + b"\0\0" + struct.pack(">qq", 7, 9)
    assert decode_record(key, value) == record


def test_a_null_value_is_a_tombstone():
    record = GroupRecord(GroupMetadataKey(group="g"), None)
    key, value = encode_record(record)
    assert (key, value) == (b"\0\2\0\1g", None)
    assert decode_record(key, value) == record


def test_bytes_of_classic_group_metadata():
    member = MemberMetadata(
        member_id="a",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"s",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="a",
        current_state_timestamp=8,
        members=[member],
    )
    record = GroupRecord(GroupMetadataKey(group="g"), value)
    key, encoded = encode_record(record)
    head = b"\0\3" + b"\0\x08consumer" + b"\0\0\0\1" + b"\0\5range" + b"\0\1a" + struct.pack(">q", 8) + b"\0\0\0\1"
    body = b"\0\1a" + b"\xff\xff" + b"\0\1c" + b"\0\2/h" + struct.pack(">ii", 1, 2) + b"\0\0\0\1s" + b"\0\0\0\0"
    assert encoded == head + body
    assert decode_record(key, encoded) == record


def test_consumer_protocol_records_round_trip():
    partitions = CurrentAssignmentTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 2], assignment_epochs=[4, 5])
    for record in (
        GroupRecord(
            ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
            ConsumerGroupMemberMetadataValue(client_id="c", client_host="/h", subscribed_topic_names=["t"]),
        ),
        GroupRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            ConsumerGroupCurrentMemberAssignmentValue(member_epoch=5, state=1, assigned_partitions=[partitions]),
        ),
    ):
        assert decode_record(*encode_record(record)) == record


@pytest.mark.parametrize("kind", COORDINATOR_RECORDS)
def test_every_kind_carries_its_number(kind):
    key_class, value_class = COORDINATOR_RECORDS[kind]
    key, value = encode_record(GroupRecord(key_class(), value_class()))
    assert key[:2] == struct.pack(">h", kind)
    decoded = decode_record(key, value)
    assert decoded is not None
    if kind > 1:
        assert decoded == GroupRecord(key_class(), value_class())
    else:
        assert decoded == GroupRecord(OffsetPlace("", "", 0), pack(0, -1, 0, NO_TIMESTAMP, bytes(16), ""))


def test_older_values_are_read():
    key, _ = encode_record(GroupRecord(OffsetPlace("g", "t", 0), None))
    for version in range(5):
        value = bytearray(struct.pack(">h", version))
        write_message(OffsetCommitValue(offset=9, metadata="x", commit_timestamp=1), version, value)
        decoded = decode_record(key, value)
        assert decoded is not None
        assert unpack(decoded.value).offset == 9


def test_an_unknown_kind_is_skipped():
    assert decode_record(b"\0\x11\0\1g", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\1", None),
        (b"\0\1", None),
        (b"\0\2\0\1g\0", None),
        (b"\0\2\0\1g", b"\0"),
        (b"\0\2\0\1g", b"\x7f\0"),
        (b"\0\2\0\1g", b"\xff\xff"),
        (b"\0\2\0\1g", b"\0\3\0\x08consumer"),
        (b"\0\2\0\xff", None),
    ],
)
def test_damage_is_a_protocol_error(key, value):
    with pytest.raises(ProtocolError):
        decode_record(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (GroupMetadataKey(group="g"), GroupMetadataValue(generation=2**31 - 1)),
        (ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=2**31 - 1)),
        (ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=-1)),
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            ConsumerGroupCurrentMemberAssignmentValue(member_epoch=-3),
        ),
    ],
)
def test_out_of_range_epoch_is_rejected(key, value):
    """The next epoch of this group could not be written."""
    with pytest.raises(ProtocolError, match=r"has the invalid (generation|epoch|member_epoch) -?\d+"):
        decode_record(*encode_record(GroupRecord(key, value)))


@given(
    st.lists(
        st.tuples(
            st.builds(OffsetPlace, st.sampled_from(["g", "gg", ""]), st.sampled_from(["t", ""]), st.integers(-1, 3)),
            st.builds(
                OffsetCommitValue,
                offset=st.integers(-1, 2**63 - 1),
                leader_epoch=st.integers(-1, 5),
                metadata=st.one_of(st.text(max_size=5), st.just("m" * 126), st.just("m" * 127)),
                commit_timestamp=st.integers(0, 2**60),
                expire_timestamp=st.sampled_from([-1, -1, 77]),
                topic_id=st.sampled_from([bytes(16), TOPIC_ID]),
            ),
            st.booleans(),
        )
    )
)
def test_cached_offset_codec_equals_the_general_one(row):
    """The serializer's cache has no effect on the result; the general codec is the reference."""
    serde = GroupRecordSerde()
    for place, value, removed in row:
        version = 4 if value.expire_timestamp == NO_TIMESTAMP else 1
        reference_key, reference_value = bytearray(b"\0\1"), bytearray(struct.pack(">h", version))
        write_message(
            OffsetCommitKey(group=place.group, topic=place.topic, partition=place.partition), 0, reference_key
        )
        write_message(value, version, reference_value)
        packed = pack(
            value.offset,
            value.leader_epoch,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            value.metadata,
        )
        record = GroupRecord(place, None if removed else packed)
        encoded = serde.encode(record)
        assert encoded == (reference_key, None if removed else reference_value)
        assert encoded == encode_record(record)
        assert serde.decode(*encoded) == decode_record(*encoded) == record


@given(
    st.sampled_from(["", "m", "m" * 126, "m" * 200]),
    st.sampled_from([-1, 77]),
    st.integers(0, 60),
    st.binary(max_size=2),
)
def test_corrupt_offset_commits_are_rejected(metadata, expire_timestamp, cut, more):
    """By the fast path, which only accepts complete values, and by the general one."""
    serde = GroupRecordSerde()
    key, value = serde.encode(
        GroupRecord(OffsetPlace("g", "t", 0), pack(1, 2, 3, expire_timestamp, TOPIC_ID, metadata))
    )
    assert value is not None
    for damaged in ((key[:cut] + more, value), (key, value[:cut] + more)):
        outcomes: list[Any] = []
        for decode in (decode_record, serde.decode):
            try:
                outcomes.append(decode(*damaged))
            except (ProtocolError, KafkaError):
                outcomes.append("damage")
        assert outcomes[0] == outcomes[1]
