"""Builder and view as inverses, and inputs that the view rejects."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.record import batch as b
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import CODEC_NAMES
from ottla.record.control import (
    ControlRecordType,
    control_record_key,
    control_record_type,
    end_transaction_marker,
    read_end_transaction_marker,
)
from ottla.record.errors import CorruptBatch, InvalidRecord

BYTES = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.builds(
        RecordData,
        st.integers(-1, 1 << 62),
        BYTES,
        BYTES,
        st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), BYTES), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
ONE = [RecordData(5, b"k", b"v")]


def data_of(view):
    return [RecordData(r.timestamp, r.key, r.value, r.headers) for r in view.records()]


@settings(max_examples=size(6, 60), deadline=None)
@given(RECORDS, st.sampled_from(CODEC_NAMES), st.integers(0, 1 << 60))
def test_built_batch_is_read_back(records, compression, base_offset):
    batch = build_batch(records, base_offset=base_offset, compression=compression)
    [view] = b.iter_batches(batch)
    assert view.crc_matches()
    assert view.compression == compression
    assert data_of(view) == records
    assert [r.offset for r in view.records()] == list(range(base_offset, base_offset + len(records)))
    assert view.max_timestamp == max(r.timestamp_ms for r in records)
    assert (view.next_offset, view.size_bytes) == (base_offset + len(records), len(batch))


def test_every_header_field():
    batch = build_batch(
        [RecordData(1000, b"k", b"v"), RecordData(900)],
        base_offset=70,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=(1 << 31) - 1,
        is_transactional=True,
        is_control=True,
        timestamp_type=b.LOG_APPEND_TIME,
    )
    view = b.BatchView(b"xx" + batch + b"yy", 2)
    assert (view.base_offset, view.last_offset, view.next_offset, view.last_offset_delta) == (70, 71, 72, 1)
    assert (view.size_bytes, view.end) == (len(batch), len(batch) + 2)
    assert (view.partition_leader_epoch, view.magic, view.records_count) == (4, 2, 2)
    assert (view.base_timestamp, view.max_timestamp, view.timestamp_type) == (1000, 1000, b.LOG_APPEND_TIME)
    assert (view.producer_id, view.producer_epoch, view.base_sequence, view.last_sequence) == (9, 2, (1 << 31) - 1, 0)
    assert view.is_transactional
    assert view.is_control
    assert view.attributes == b.TIMESTAMP_TYPE_MASK | b.TRANSACTIONAL_MASK | b.CONTROL_MASK
    assert view.delete_horizon_ms is None
    assert (view.codec_id, view.compression) == (0, "none")
    assert view.crc == view.compute_crc()
    assert view.to_bytes() == batch
    assert view.header == b.BATCH_HEADER.unpack_from(batch)
    assert [r.timestamp for r in view.records()] == [1000, 1000]
    assert "base_offset=70" in repr(view)


def test_batches_behind_one_another_and_a_cut_last_one():
    first, second = build_batch(ONE, base_offset=1), build_batch(ONE * 3, base_offset=2)
    both = first + second
    assert [view.position for view in b.iter_batches(both)] == [0, len(first)]
    for cut in range(len(first), len(both)):
        assert [view.base_offset for view in b.iter_batches(both[:cut])] == [1]
        assert [view.base_offset for view in b.iter_batches(both, 0, cut)] == [1]
    assert [view.base_offset for view in b.iter_batches(both, len(first))] == [2]
    assert list(b.iter_batches(b"")) == []


@pytest.mark.parametrize("length", [48, 0, -1, -(1 << 31)])
def test_an_impossible_length_is_corrupt(length):
    batch = build_batch(ONE)
    good = bytes(batch)
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch) as caught:
        list(b.iter_batches(good + batch))
    assert caught.value.position == len(good)
    with pytest.raises(CorruptBatch):
        b.BatchView(batch)


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (1, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_formats_are_refused(magic, code):
    batch = build_batch(ONE)
    batch[b.MAGIC_POSITION] = magic
    with pytest.raises(KafkaError) as caught:
        list(b.iter_batches(batch))
    assert caught.value.code is code
    with pytest.raises(KafkaError) as caught:
        list(b.BatchView(batch).records())
    assert caught.value.code is code


def test_view_without_body_rejects_only_body_access():
    batch = build_batch(ONE)
    view = b.BatchView(batch[: b.HEADER_SIZE])
    assert view.size_bytes == len(batch)
    for use in (view.compute_crc, view.body, view.to_bytes, lambda: list(view.records())):
        with pytest.raises(CorruptBatch):
            use()
    for buffer, position in ((batch[:60], 0), (batch, 20), (batch, -1)):
        with pytest.raises(CorruptBatch):
            b.BatchView(buffer, position)


def test_every_flipped_byte_behind_the_crc_is_noticed():
    batch = build_batch([RecordData(1, b"key", b"value", (("h", b"x"),))])
    for position in range(b.CRC_POSITION, len(batch)):
        batch[position] ^= 0x10
        assert not b.BatchView(batch).crc_matches()
        batch[position] ^= 0x10
    assert b.BatchView(batch).crc_matches()


def test_records_out_of_offset_or_time_range_are_rejected():
    batch = build_batch(ONE * 3)
    struct.pack_into(">i", batch, 23, 1)
    with pytest.raises(InvalidRecord, match="beyond the last offset"):
        list(b.BatchView(batch).records())
    batch = build_batch([RecordData(0), RecordData(1 << 62)])
    struct.pack_into(">q", batch, 27, (1 << 63) - 1)
    with pytest.raises(InvalidRecord, match="out of range"):
        list(b.BatchView(batch).records())


def test_an_unknown_codec_has_a_name_and_no_records():
    batch = build_batch(ONE)
    batch[22] |= 6
    view = b.BatchView(batch)
    assert view.compression == "6"
    with pytest.raises(KafkaError) as caught:
        list(view.records())
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_delete_horizon_is_the_base_timestamp():
    batch = build_batch(ONE)
    batch[22] |= b.DELETE_HORIZON_MASK
    assert b.BatchView(batch).delete_horizon_ms == 5


def test_decompression_of_records_is_bounded():
    batch = build_batch([RecordData(0, None, bytes(100_000))], compression="zstd")
    with pytest.raises(KafkaError) as caught:
        list(b.BatchView(batch).records(max_bytes=50_000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_builder_rejects_invalid_input():
    with pytest.raises(InvariantError):
        build_batch([])
    with pytest.raises(KafkaError) as caught:
        build_batch(ONE, compression="brotli")
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers(commit):
    marker = end_transaction_marker(
        commit=commit, timestamp_ms=77, producer_id=5, producer_epoch=1, coordinator_epoch=3, base_offset=9
    )
    view = b.BatchView(marker)
    [record] = view.records()
    assert (view.is_control, view.is_transactional, view.producer_id, view.base_sequence) == (True, True, 5, -1)
    assert control_record_type(record) is (ControlRecordType.COMMIT if commit else ControlRecordType.ABORT)
    assert record.value == struct.pack(">hi", 0, 3)
    built = build_batch(
        [RecordData(77, record.key, record.value)],
        base_offset=9,
        producer_id=5,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
    )
    assert marker == built
    assert read_end_transaction_marker(marker) == (commit, 3)


def control_batch(key, value):
    return build_batch([RecordData(1, key, value)], producer_id=5, producer_epoch=1, is_control=True)


@pytest.mark.parametrize(
    "batch",
    [
        control_batch(struct.pack(">hh", 1, 1) + b"more", struct.pack(">hi", 1, 3) + b"more"),
        control_batch(struct.pack(">hh", 1, 1), struct.pack(">hi", 0, 3)),
    ],
)
def test_markers_of_other_versions_are_read_as_this_one(batch):
    assert read_end_transaction_marker(batch) == (True, 3)


def test_control_batch_without_record_is_ignored():
    batch = bytearray(control_batch(b"", b"")[: b.HEADER_SIZE])
    struct.pack_into(">i", batch, b.LENGTH_POSITION, b.MIN_BATCH_LENGTH)
    struct.pack_into(">i", batch, b.HEADER_SIZE - 4, 0)
    assert read_end_transaction_marker(batch) is None


@pytest.mark.parametrize(
    "batch",
    [
        control_batch(control_record_key(ControlRecordType.LEADER_CHANGE), struct.pack(">hi", 0, 3)),
        control_batch(control_record_key(ControlRecordType.ABORT), None),
        control_batch(control_record_key(ControlRecordType.ABORT), b"\0\0\0"),
        control_batch(control_record_key(ControlRecordType.ABORT), struct.pack(">hi", -1, 3)),
        control_batch(struct.pack(">hh", -1, 0), struct.pack(">hi", 0, 3)),
        control_batch(None, struct.pack(">hi", 0, 3)),
    ],
)
def test_invalid_marker_is_rejected(batch):
    with pytest.raises(InvalidRecord):
        read_end_transaction_marker(batch)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (control_record_key(ControlRecordType.LEADER_CHANGE), ControlRecordType.LEADER_CHANGE),
        (struct.pack(">hh", 5, 6) + b"more", ControlRecordType.KRAFT_VOTERS),
        (struct.pack(">hh", 0, 99), ControlRecordType.UNKNOWN),
    ],
)
def test_control_types(key, expected):
    assert control_record_type(b.Record(0, 0, key, None, (), 0)) is expected


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_control_records_without_a_type_are_refused(key):
    with pytest.raises(InvalidRecord):
        control_record_type(b.Record(0, 0, key, None, (), 0))
