"""Records of the metadata log: bytes as in Apache Kafka, round trips of every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import KafkaError
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from ottla.protocol.messages.metadata_records import (
    METADATA_RECORDS,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.protocol.schema import schema_of

TOPIC_ID = bytes(range(16))


def written(record: object, version: int) -> bytes:
    out = bytearray()
    write_message(record, version, out)
    return bytes(out)


def test_bytes_of_the_commonest_records():
    feature = FeatureLevelRecord(name="metadata.version", feature_level=20)
    assert written(feature, 0) == b"\x11metadata.version\0\x14\0"
    assert written(TopicRecord(name="saz", topic_id=TOPIC_ID), 0) == b"\x04saz" + TOPIC_ID + b"\0"
    partition = PartitionRecord(
        partition_id=1,
        topic_id=TOPIC_ID,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[b"d" * 16],
    )
    body = b"\0\0\0\1" + TOPIC_ID + b"\2\0\0\0\1" * 2 + b"\1\1" + b"\0\0\0\1" + b"\0" * 8
    assert written(partition, 1) == body + b"\2" + b"d" * 16 + b"\0"
    with pytest.raises(KafkaError):
        written(partition, 0)
    change = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[1], leader=1)
    tags = b"\2\0\5\2\0\0\0\1\1\4\0\0\0\1"
    assert written(change, 0) == b"\0\0\0\1" + TOPIC_ID + tags
    assert written(PartitionChangeRecord(topic_id=TOPIC_ID), 2) == b"\xff\xff\xff\xff" + TOPIC_ID + b"\0"
    leader_change = LeaderChangeMessage(leader_id=1, voters=[LeaderChangeMessageVoter(voter_id=1)])
    assert written(leader_change, 0) == b"\0\0\0\0\0\1\2\0\0\0\1\0\1\0"


@pytest.mark.parametrize("key", METADATA_RECORDS)
def test_every_record_and_version(key, message_of):
    cls = METADATA_RECORDS[key]
    schema = schema_of(cls)
    assert schema.api_key == key
    assert schema.flexible_from == 0
    low, high = schema.versions
    versions = st.integers(low, high).flatmap(lambda v: st.tuples(st.just(v), message_of(cls, v)))

    @settings(max_examples=size(4, 40), deadline=None)
    @given(versions)
    def check(case):
        version, record = case
        data = written(record, version)
        assert read_message(cls, version, data, 0, len(data), MAX_RESPONSE_ELEMENTS) == (record, len(data))

    check()
