"""Message formats v0 and v1: exchange with kafka-python in both directions, and rejection of hostile sets."""

from __future__ import annotations

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from ottla.record.control import end_transaction_marker
from ottla.record.legacy.down_conversion import convert_down
from ottla.record.legacy.lz4_frame import with_right_checksum, with_wrong_checksum
from ottla.record.legacy.message_set import (
    Message,
    append_message,
    append_message_set,
    messages_of,
    read_entry,
    unpack_by_default,
)
from ottla.record.legacy.up_conversion import batch_of_message_set

CODECS = (NONE, GZIP, SNAPPY, LZ4)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
DATA = st.one_of(st.none(), st.binary(max_size=40))
MESSAGES = st.lists(st.tuples(st.integers(0, 2**40), DATA, DATA), min_size=1, max_size=12)


def written(messages, magic, codec, timestamp_type=CREATE_TIME):
    out = bytearray()
    append_message_set(out, messages, magic, codec, timestamp_type)
    return bytes(out)


def entries(data):
    view = memoryview(data)
    position = 0
    found = []
    while (entry := read_entry(view, position, len(view))) is not None:
        found.append(entry)
        position += entry.size_bytes
    return found


def read(data):
    return [
        Message(m.offset, m.timestamp_ms, *(None if field is None else bytes(field) for field in (m.key, m.value)))
        for entry in entries(data)
        for m in messages_of(entry)
    ]


def up(data):
    return BatchView(batch_of_message_set(memoryview(data), 0, len(data), unpack_by_default))


def down(data, magic, first_offset=0, max_bytes=1 << 20):
    return convert_down(memoryview(data), magic, first_offset, max_bytes)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@given(rows=MESSAGES, base=st.integers(0, 2**50))
@settings(max_examples=size(4, 25), deadline=None)
def test_written_message_set_is_read_back(magic, codec, rows, base):
    messages = [
        Message(base + 2 * i, time if magic else NO_TIMESTAMP, key, value) for i, (time, key, value) in enumerate(rows)
    ]
    assert read(written(messages, magic, codec)) == messages


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP])
@given(rows=MESSAGES)
@settings(max_examples=size(4, 25), deadline=None)
def test_kafka_python_reads_written_message_sets(magic, codec, rows):
    messages = [Message(7 + i, time, key, value) for i, (time, key, value) in enumerate(rows)]
    data = written(messages, magic, codec)
    theirs = [
        (record.offset, record.timestamp, record.key, record.value)
        for entry in entries(data)
        for record in LegacyRecordBatch(data[entry.position : entry.position + entry.size_bytes], magic)
    ]
    assert theirs == [(m.offset, m.timestamp_ms if magic else None, m.key, m.value) for m in messages]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP])
@given(rows=MESSAGES)
@settings(max_examples=size(4, 25), deadline=None)
def test_kafka_python_message_set_becomes_batch(magic, codec, rows):
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, (time, key, value) in enumerate(rows):
        builder.append(offset, time, key, value)
    batch = up(builder.build())
    assert batch.crc_matches()
    assert batch.codec_id == codec
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch.records()] == [
        (i, time if magic else NO_TIMESTAMP, key, value, ()) for i, (time, key, value) in enumerate(rows)
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_converted_down_without_its_headers(magic, codec):
    records = [RecordData(1000 + i, b"k%d" % i, None if i == 3 else b"v%d" % i, (("h", b"x"),)) for i in range(6)]
    converted = down(build_batch(records, base_offset=50, compression=NAMES[codec]), magic)
    assert read(converted.data) == [
        Message(50 + i, r.timestamp_ms if magic else NO_TIMESTAMP, r.key, r.value) for i, r in enumerate(records)
    ]
    assert converted.next_offset == 56
    assert len(entries(converted.data)) == (6 if codec == NONE else 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_time_that_the_broker_set_stays_one(codec):
    batch = build_batch([RecordData(5000, None, b"v")] * 2, compression=NAMES[codec], timestamp_type=LOG_APPEND_TIME)
    converted = down(batch, 1)
    assert {entry.timestamp_type for entry in entries(converted.data)} == {LOG_APPEND_TIME}
    assert [m.timestamp_ms for m in read(converted.data)] == [5000, 5000]


def test_a_wrapper_with_the_brokers_time_gives_it_to_all():
    inner = written([Message(0, 11, None, b"a"), Message(1, 12, None, b"b")], 1, NONE)
    out = bytearray()
    append_message(out, 1, GZIP | 8, 41, 99, None, compress(GZIP, inner))
    assert [(m.offset, m.timestamp_ms) for m in read(out)] == [(40, 99), (41, 99)]


def test_relative_offsets_count_back_from_the_wrapper():
    """Also with gaps of compaction."""
    inner = written([Message(o, 1, None, b"x") for o in (0, 3, 7)], 1, NONE)
    out = bytearray()
    append_message(out, 1, SNAPPY, 107, 1, None, compress(SNAPPY, inner))
    assert [m.offset for m in read(out)] == [100, 103, 107]


def test_a_producers_wrapper_without_an_offset_is_read():
    inner = written([Message(o, 1, None, b"x") for o in (0, 1)], 1, NONE)
    out = bytearray()
    append_message(out, 1, GZIP, 0, 1, None, compress(GZIP, inner))
    assert [m.offset for m in read(out)] == [0, 1]


def test_v0_writes_wrong_lz4_checksum_and_reads_both():
    right = compress(LZ4, b"page view" * 100)
    wrong = with_wrong_checksum(right)
    with pytest.raises(KafkaError):
        decompress(LZ4, wrong)
    assert with_right_checksum(wrong) == right
    data = written([Message(0, -1, None, b"page view" * 100)], 0, LZ4)
    (entry,) = entries(data)
    with pytest.raises(KafkaError):
        decompress(LZ4, entry.value)
    for frame in (right, wrong):
        inner = bytes(with_right_checksum(frame))
        assert bytes(decompress(LZ4, inner)) == b"page view" * 100


def test_xerial_and_raw_snappy_are_read():
    inner = written([Message(0, 1, None, b"x" * 100)], 1, NONE)
    for data in (compress(SNAPPY, inner), bytes(cramjam.snappy.compress_raw(inner))):
        out = bytearray()
        append_message(out, 1, SNAPPY, 0, 1, None, data)
        assert [m.value for m in read(out)] == [b"x" * 100]


def test_conversion_drops_markers_but_not_aborted_records():
    data = bytes(
        build_batch([RecordData(1, None, b"a")], base_offset=0, producer_id=1, producer_epoch=0, base_sequence=0,
                    is_transactional=True)
    )  # fmt: skip
    marker = end_transaction_marker(
        commit=False, timestamp_ms=2, producer_id=1, producer_epoch=0, coordinator_epoch=0, base_offset=1
    )
    after = bytes(build_batch([RecordData(3, None, b"c")], base_offset=2))
    converted = down(data + bytes(marker) + after, 1)
    assert [(m.offset, m.value) for m in read(converted.data)] == [(0, b"a"), (2, b"c")]
    only = down(bytes(marker), 0)
    assert (only.data, only.next_offset) == (b"", 2)


def test_zstd_is_not_converted_but_earlier_batches_are():
    plain = bytes(build_batch([RecordData(1, None, b"a")]))
    zstd = bytes(build_batch([RecordData(1, None, b"b")], base_offset=1, compression="zstd"))
    with pytest.raises(KafkaError) as caught:
        down(zstd, 1)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    converted = down(plain + zstd, 1)
    assert ([m.offset for m in read(converted.data)], converted.next_offset) == ([0], 1)


def test_records_before_the_offset_come_only_within_a_wrapper():
    records = [RecordData(1, None, b"%d" % i) for i in range(4)]
    assert [m.offset for m in read(down(build_batch(records), 1, 2).data)] == [2, 3]
    assert [m.offset for m in read(down(build_batch(records, compression="gzip"), 1, 2).data)] == [0, 1, 2, 3]


def test_conversion_stops_at_limit_after_at_least_one_batch():
    batches = b"".join(bytes(build_batch([RecordData(1, None, b"x" * 50)], base_offset=i)) for i in range(5))
    assert [m.offset for m in read(down(batches, 1, 0, 1).data)] == [0]
    assert [m.offset for m in read(down(batches, 1, 0, 150).data)] == [0, 1]


def test_incomplete_batch_is_ignored():
    batches = bytes(build_batch([RecordData(1, None, b"x")])) + bytes(build_batch([RecordData(1)], base_offset=1))
    assert [m.offset for m in read(down(batches[:-3], 0).data)] == [0]
    old = written([Message(0, 1, None, b"a"), Message(1, 1, None, b"b")], 1, NONE)
    assert [m.offset for m in read(down(old[:-1], 1).data)] == [0]


@pytest.mark.parametrize("codec", CODECS)
def test_v1_becomes_v0_and_v0_stays(codec):
    messages = [Message(10 + i, 5, b"k", b"v%d" % i) for i in range(3)]
    v1, v0 = written(messages, 1, codec), written(messages, 0, codec)
    converted = down(v1 + v0, 0, 10)
    assert read(converted.data) == [m._replace(timestamp_ms=NO_TIMESTAMP) for m in messages] * 2
    assert down(v1 + v0, 1, 10).data == v1 + v0


def refused(data):
    with pytest.raises(KafkaError) as caught:
        up(data)
    return caught.value.code


def wrapper(inner, codec=GZIP, magic=1, offset=0):
    out = bytearray()
    append_message(out, magic, codec, offset, 1, None, None if inner is None else compress(codec, inner))
    return out


def test_hostile_sets_are_refused():
    plain = written([Message(0, 1, b"k", b"v")], 1, NONE)
    v0 = written([Message(0, -1, b"k", b"v")], 0, NONE)
    assert refused(b"") == ErrorCode.INVALID_RECORD
    assert refused(plain[:-1]) == ErrorCode.INVALID_RECORD
    assert refused(plain[:-1] + b"!") == ErrorCode.CORRUPT_MESSAGE
    assert refused(wrapper(wrapper(plain))) == ErrorCode.INVALID_RECORD
    assert refused(wrapper(v0)) == ErrorCode.INVALID_RECORD
    assert refused(wrapper(b"")) == ErrorCode.INVALID_RECORD
    assert refused(wrapper(None)) == ErrorCode.INVALID_RECORD
    assert refused(wrapper(plain, ZSTD)) == ErrorCode.INVALID_RECORD
    assert refused(bytes(wrapper(plain)) + plain) == ErrorCode.INVALID_RECORD
    assert refused(plain + bytes(wrapper(plain))) == ErrorCode.INVALID_RECORD
    broken = bytearray(plain)
    broken[-1] ^= 1
    assert refused(wrapper(broken)) == ErrorCode.CORRUPT_MESSAGE
    out = bytearray()
    append_message(out, 1, 8, 0, 1, None, b"v")
    assert refused(out) == ErrorCode.INVALID_TIMESTAMP
    out = bytearray()
    append_message(out, 1, GZIP, 0, 1, None, b"no gzip")
    assert refused(out) == ErrorCode.CORRUPT_MESSAGE
    out = bytearray()
    append_message(out, 1, 6, 0, 1, None, b"v")
    assert refused(out) == ErrorCode.INVALID_RECORD


def test_a_bomb_stops_at_the_bound():
    bomb = wrapper(written([Message(0, 1, None, bytes(4 << 20))], 1, NONE))
    with pytest.raises(KafkaError) as caught:
        batch_of_message_set(memoryview(bomb), 0, len(bomb), lambda codec, data: decompress(codec, data, 1 << 20))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@given(data=st.binary(max_size=120), flips=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 255)), max_size=3))
@settings(max_examples=size(15, 150), deadline=None)
def test_any_bytes_are_read_or_refused(data, flips):
    whole = bytearray(wrapper(written([Message(i, 1, b"k", b"v") for i in range(3)], 1, NONE)) + data)
    for at, bits in flips:
        whole[at % len(whole)] ^= bits
    for magic in (0, 1):
        try:
            down(bytes(whole), magic)
            up(whole)
        except KafkaError:
            pass
