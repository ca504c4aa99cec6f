"""Records of the coordinators' internal topics as objects."""

from __future__ import annotations

from struct import pack

import pytest

from ottla.protocol.codec import write_message
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.search.decoder_names import GROUPS, TRANSACTIONS
from ottla.search.decoders import decoder_for
from ottla.search.evaluation import compile_filter
from ottla.search.parser import parse_query
from ottla.search.subject import Decoders

from .records import decode, subject

MEMBER_KIND, OFFSET_KIND = 5, 1


def framed(number, message, version=0):
    out = bytearray(pack(">h", number))
    write_message(message, version, out)
    return bytes(out)


OFFSET_KEY = framed(OFFSET_KIND, OffsetCommitKey(group="g", topic="t", partition=3))
OFFSET_VALUE = framed(4, OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9, topic_id=bytes(range(16))), 4)


def test_offset_commit_is_an_object_with_its_schema_names():
    assert decode(GROUPS, OFFSET_KEY).value == {"type": "OffsetCommit", "group": "g", "topic": "t", "partition": 3}
    assert decode(GROUPS, OFFSET_VALUE, OFFSET_KEY).value == {
        "version": 4,
        "offset": 7,
        "leaderEpoch": -1,
        "metadata": "m",
        "commitTimestamp": 9,
        "expireTimestamp": -1,
        "topicId": "AAECAwQFBgcICQoLDA0ODw",
    }


def test_member_and_transaction_are_decoded_with_nested_fields():
    key = framed(MEMBER_KIND, ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"))
    value = framed(0, ConsumerGroupMemberMetadataValue(client_id="c", subscribed_topic_names=["t"]))
    assert decode(GROUPS, key).failure is None
    decoded = decode(GROUPS, value, key)
    assert decoded.failure is None
    assert isinstance(decoded.value, dict)
    assert decoded.value["subscribedTopicNames"] == ["t"]

    key = framed(0, TransactionLogKey(transactional_id="pay"))
    value = framed(
        1,
        TransactionLogValue(producer_id=5, transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])]),
        1,
    )
    assert decode(TRANSACTIONS, key).value == {"type": "TransactionLog", "transactionalId": "pay"}
    decoded = decode(TRANSACTIONS, value, key)
    assert isinstance(decoded.value, dict)
    assert decoded.value["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 2]}]


def test_filter_sees_the_fields_of_a_value():
    record = subject(OFFSET_VALUE, OFFSET_KEY, decoders=Decoders(GROUPS, GROUPS))
    assert compile_filter(parse_query('key.group == "g" && value.offset >= 7', 0).filter)(record)


@pytest.mark.parametrize(
    ("data", "key", "reason"),
    [
        (b"\0", None, "1 bytes are too short"),
        (b"\x7f\0", None, "record type 32512 is unknown"),
        (OFFSET_KEY + b"x", None, "OffsetCommitKey has 1 trailing bytes"),
        (OFFSET_KEY[:-1], None, "OffsetCommitKey of version 0: "),
        (b"", OFFSET_KEY, "0 bytes are too short"),
        (b"\0\x63", OFFSET_KEY, "OffsetCommitValue of version 99: "),
    ],
)
def test_invalid_record_has_a_reason_and_its_bytes(data, key, reason):
    decoded = decode(GROUPS, data, key)
    assert decoded.value == data
    assert decoded.failure is not None
    assert decoded.failure.startswith(reason)


def test_auto_chooses_the_decoder_of_an_internal_topic():
    assert decoder_for("__consumer_offsets", "auto") == GROUPS
    assert decoder_for("__transaction_state", "auto") == TRANSACTIONS
    assert decoder_for("__transaction_state", "hex") == "hex"
    assert decoder_for("orders", "auto") == "auto"
