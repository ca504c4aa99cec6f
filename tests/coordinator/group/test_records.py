"""Records of `__consumer_offsets`: bytes as Apache Kafka lays them out, every kind and version back and forth."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import ProtocolError
from ottla.coordinator.group.records import (
    GroupRecord,
    _decode_any,
    _decode_usual_offset_commit,
    _encode_any,
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
    CurrentAssignmentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

TOPIC_ID = bytes(range(16))


def test_bytes_of_an_offset_commit():
    record = GroupRecord(
        OffsetCommitKey(group="g", topic="to", partition=3),
        OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7, topic_id=TOPIC_ID),
    )
    key, value = encode_record(record)
    assert key == b"\0\1" + b"\0\1g" + b"\0\2to" + b"\0\0\0\3"
    body = struct.pack(">qi", 5, 2) + b"\2m" + struct.pack(">q", 7) + b"\1\0\x10" + TOPIC_ID
    assert value == b"\0\4" + body
    assert decode_record(key, value) == record


def test_an_offset_with_its_own_expiry_is_written_in_version_1():
    record = GroupRecord(
        OffsetCommitKey(group="g", topic="t", partition=0),
        OffsetCommitValue(offset=5, metadata="", commit_timestamp=7, expire_timestamp=9),
    )
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


def test_records_of_the_consumer_protocol_come_back():
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
    if kind:
        assert decoded == GroupRecord(key_class(), value_class())
    else:
        assert decoded == GroupRecord(OffsetCommitKey(), OffsetCommitValue())


def test_older_values_are_read():
    key, _ = encode_record(GroupRecord(OffsetCommitKey(group="g", topic="t", partition=0), None))
    for version in range(5):
        value = bytearray(struct.pack(">h", version))
        write_message(OffsetCommitValue(offset=9, metadata="x", commit_timestamp=1), version, value)
        decoded = decode_record(key, value)
        assert decoded is not None
        assert decoded.value.offset == 9


def test_an_unknown_kind_is_skipped():
    assert decode_record(b"\0\x0a\0\1g", b"\0\0") is None


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


@given(
    st.builds(
        OffsetCommitKey, group=st.text(max_size=5), topic=st.text(max_size=5), partition=st.integers(-1, 2**31 - 1)
    ),
    st.builds(
        OffsetCommitValue,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.integers(-1, 5),
        metadata=st.one_of(st.text(max_size=5), st.just("m" * 126), st.just("m" * 127), st.just("m" * 200)),
        commit_timestamp=st.integers(0, 2**60),
        expire_timestamp=st.sampled_from([-1, -1, 77]),
        topic_id=st.sampled_from([bytes(16), TOPIC_ID]),
    ),
    st.integers(0, 60),
    st.binary(max_size=2),
)
def test_the_short_way_for_offset_commits_does_what_the_general_one_does(key, value, cut, more):
    """The fast and the reference implementation, on whole and on damaged bytes."""
    key_bytes, value_bytes = encode_record(GroupRecord(key, value))
    assert value_bytes is not None
    assert (key_bytes, value_bytes) == _encode_any(GroupRecord(key, value))
    assert _decode_any(key_bytes, value_bytes) == decode_record(key_bytes, value_bytes)
    for damaged in ((key_bytes[:cut] + more, value_bytes), (key_bytes, value_bytes[:cut] + more)):
        fast = _decode_usual_offset_commit(*damaged)
        if fast is not None:
            assert fast == _decode_any(*damaged)
