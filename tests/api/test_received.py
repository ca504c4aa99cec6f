"""Both twins of `Record` against each other: what a record says is what the library's message says."""

from __future__ import annotations

import copy
import pickle

import confluent_kafka
import pytest

from ottla.api import _received_py

_received = pytest.importorskip("ottla.api._received", reason="the compiled module was not built")

TWINS = [pytest.param(_received, id="compiled"), pytest.param(_received_py, id="pure")]
FULL = {
    "topic": "views",
    "partition": 3,
    "offset": 7,
    "key": b"k",
    "value": b"v",
    "headers": [("h", b"1"), ("h", None)],
    "timestamp": (confluent_kafka.TIMESTAMP_CREATE_TIME, 5),
    "leader_epoch": 2,
}
BARE = {"topic": "views", "partition": 0, "offset": 0}


def message(**changes):
    return confluent_kafka.Message(**FULL | changes)


def said(record):
    return (
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        record.headers,
        record.timestamp_ms,
        record.leader_epoch,
        repr(record),
    )


@pytest.mark.parametrize("twin", TWINS)
def test_a_record_says_what_its_message_says(twin):
    full, bare = twin.records_of([message(), confluent_kafka.Message(**BARE)])
    assert said(full)[:-1] == ("views", 3, 7, b"k", b"v", (("h", b"1"), ("h", None)), 5, 2)
    assert repr(full) == "<Record views-3 at 7: key b'k', value b'v'>"
    assert said(bare)[:-1] == ("views", 0, 0, None, None, (), None, None)


@pytest.mark.parametrize("twin", TWINS)
def test_records_of_equal_messages_are_equal_and_have_no_hash_as_those(twin):
    one, same, other = twin.records_of([message(), message(), message(value=b"w")])
    assert one == same
    assert one != other
    assert one != one.message
    assert twin.Record(one.message) == one
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


@pytest.mark.parametrize("twin", TWINS)
def test_a_record_reaches_another_process_whole(twin):
    for record in twin.records_of([message(), confluent_kafka.Message(**BARE)]):
        for again in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
            assert said(again) == said(record)
            assert type(again) is twin.Record


@pytest.mark.parametrize("twin", TWINS)
def test_records_end_before_the_first_error(twin):
    failed = confluent_kafka.Message(error=confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF))
    messages = [message(), message(offset=8), failed, message(offset=9)]
    assert [record.offset for record in twin.records_of(messages)] == [7, 8]
    assert twin.records_of(messages[2:]) == []
    assert twin.records_of([]) == []


@pytest.mark.parametrize("twin", TWINS)
def test_a_record_is_read_only_and_says_what_it_is_a_record_of(twin):
    (record,) = twin.records_of([message()])
    with pytest.raises(AttributeError):
        record.value = b"w"
    assert twin.Record[bytes, str].__args__ == (bytes, str)
