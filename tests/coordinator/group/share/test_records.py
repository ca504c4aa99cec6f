"""Records of share groups as Apache Kafka writes them: their bytes, and the group that they restore."""

from __future__ import annotations

import struct

from ottla.coordinator.group.records import decode_record, encode_record

from .world import ShareWorld, partitions_of, share_topic_id

FOO, OLD = share_topic_id("foo"), share_topic_id("old")
GROUP_KEY = b"\0\5group"
MEMBER_KEY = GROUP_KEY + b"\0\1a"
TWO_PARTITIONS = b"\3" + struct.pack(">ii", 0, 1)

RECORDS = {
    b"\0\x0a" + MEMBER_KEY: b"\0\0" + b"\0" + b"\2c" + b"\3/h" + b"\2\4foo" + b"\0",
    b"\0\x0b" + GROUP_KEY: b"\0\0" + struct.pack(">iq", 7, 9) + b"\0",
    b"\0\x0c" + GROUP_KEY: b"\0\0" + struct.pack(">i", 6) + b"\1\0\x08" + struct.pack(">q", 5),
    b"\0\x0d" + MEMBER_KEY: b"\0\0" + b"\2" + FOO + TWO_PARTITIONS + b"\0" + b"\0",
    b"\0\x0e" + MEMBER_KEY: b"\0\0" + struct.pack(">iib", 6, 5, 0) + b"\2" + FOO + TWO_PARTITIONS + b"\0" + b"\0",
    b"\0\x0f" + GROUP_KEY: (
        b"\0\0"
        + (b"\2" + FOO + b"\4foo" + b"\2" + struct.pack(">i", 2) + b"\0")
        + (b"\2" + FOO + b"\4foo" + TWO_PARTITIONS + b"\0")
        + (b"\2" + OLD + b"\4old" + b"\0")
        + b"\0"
    ),
}


def test_records_are_written_as_apache_kafka_does():
    for key, value in RECORDS.items():
        record = decode_record(key, value)
        assert record is not None
        assert encode_record(record) == (key, value)


def test_group_of_apache_kafka_is_loaded():
    world = ShareWorld({"foo": 3})
    world.log.update(RECORDS)
    world.restart()
    group = world.share_group
    assert (group.group_epoch, group.assignment_epoch, group.metadata_hash) == (7, 6, 9)
    member = group.member("a")
    assert (member.member_epoch, member.previous_member_epoch, member.client_host) == (6, 5, "/h")
    assert member.subscribed_topic_names == {"foo"}
    assert world.assigned("a") == {"foo": [0, 1]}
    assert group.state.initialized(FOO) == {0, 1}
    assert group.state.topics[FOO].initializing == {2}
    assert group.state.deleting == {OLD: "old"}


def test_loaded_group_continues_where_it_was():
    world = ShareWorld({"foo": 3}, group_share_assignment_interval_ms=0)
    world.log.update(RECORDS)
    world.restart()
    response = world.beat("a", 6)
    assert response.member_epoch == 8
    assert partitions_of(response.assignment) is None
    assert {key.partition for key in world.initializations[0].start_offsets} == {2}
    assert world.converge("a") == {"a": {"foo": [0, 1, 2]}}


def test_tombstones_alone_create_no_group():
    world = ShareWorld({"foo": 3})
    for key in RECORDS:
        record = decode_record(key, None)
        assert record is not None
        world.shard.replay(0, record, -1, -1)
    assert world.shard.context.groups.find("group") is None
