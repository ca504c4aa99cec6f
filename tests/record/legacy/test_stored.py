"""Logs that mix formats v0, v1 and v2: entries are found by headers, and all records are returned as batches."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import KafkaError
from ottla.record.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import GZIP, LZ4, NONE, SNAPPY, compress
from ottla.record.errors import InvalidRecord
from ottla.record.legacy.message_set import (
    Message,
    append_message,
    append_message_set,
    messages_of,
    read_entry,
    unpack_by_default,
    unpack_wrapper,
)
from ottla.record.legacy.stored import MessageView, header_of_any, iter_any_batches, whole_size
from ottla.record.legacy.up_conversion import batch_of_message_set
from ottla.storage.repair.reader import SegmentDamage, iter_segment
from ottla.storage.segment.outlines import OutlineScan

DATA = st.one_of(st.none(), st.binary(max_size=30))
RECORDS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2**40), DATA, DATA), min_size=1, max_size=5)
CHUNKS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from((NONE, GZIP, SNAPPY, LZ4)), st.sampled_from((CREATE_TIME, 1)), RECORDS
    ),
    max_size=8,
)


class File:
    """Source of a scan."""

    def __init__(self, data):
        self._data = data

    def read(self, length, position):
        return self._data[position : position + length]


def stored(chunks):
    """(bytes of a log, its records, the last offset of each entry)."""
    out = bytearray()
    records: list[tuple[object, ...]] = []
    lasts = []
    offset = -1
    for magic, codec, kind, rows in chunks:
        if magic == 2:
            data = [RecordData(time, key, value) for _, time, key, value in rows]
            out += build_batch(data, base_offset=offset + 1)
            records += [(offset + 1 + at, time, key, value) for at, (time, key, value, _) in enumerate(data)]
            offset += len(rows)
            lasts.append(offset)
            continue
        by_append_time = kind == LOG_APPEND_TIME and magic
        messages = []
        for gap, time, key, value in rows:
            offset += gap
            time = (rows[0][1] if by_append_time else time) if magic else NO_TIMESTAMP
            messages.append(Message(offset, time, key, value))
        append_message_set(out, messages, magic, codec, kind)
        records += [(message.offset, message.timestamp_ms, message.key, message.value) for message in messages]
        lasts += [offset] if codec else [message.offset for message in messages]
    return bytes(out), records, lasts


def rows_of(batches):
    return [(r.offset, r.timestamp, r.key, r.value) for batch in batches for r in batch.records()]


@given(CHUNKS)
@settings(max_examples=size(15, 150), deadline=None)
def test_any_mix_is_read_by_headers_and_by_records(chunks):
    data, records, lasts = stored(chunks)
    batches = list(iter_any_batches(data))
    assert rows_of(batches) == records
    assert all(batch.crc_matches() for batch in batches)
    assert [batch.next_offset for batch in batches] == sorted({batch.next_offset for batch in batches})
    outlines = list(OutlineScan(File(data), 0, len(data)))
    assert [last for _, _, last, _ in outlines] == lasts
    assert sum(size for _, size, _, _ in outlines) == len(data) == whole_size(data)
    dumped = list(iter_segment(io.BytesIO(data)))
    assert rows_of(one.batch for one in dumped) == records
    assert [(one.position, one.size_bytes) for one in dumped] == [(at, size) for at, size, _, _ in outlines]


@given(CHUNKS, st.integers(1, 100))
@settings(max_examples=size(10, 100), deadline=None)
def test_incomplete_message_is_ignored(chunks, missing):
    data, _, lasts = stored(chunks)
    ends = [at + size for at, size, _, _ in OutlineScan(File(data), 0, len(data))]
    cut = max(0, len(data) - missing)
    whole = [end for end in ends if end <= cut]
    assert len(list(OutlineScan(File(data[:cut]), 0, cut))) == len(whole)
    assert whole_size(data[:cut]) == (whole[-1] if whole else 0)
    found = list(iter_any_batches(data[:cut]))
    assert (found[-1].next_offset - 1 if found else None) == (lasts[len(whole) - 1] if whole else None)
    if cut not in (0, *ends):
        with pytest.raises(SegmentDamage):
            list(iter_segment(io.BytesIO(data[:cut])))


@given(st.binary(max_size=120), st.integers(0, 1))
@settings(max_examples=size(20, 200), deadline=None)
def test_invalid_bytes_are_rejected(noise, magic):
    data = noise[:16] + bytes([magic]) + noise[16:]
    header_of_any(data, 0)
    list(OutlineScan(File(data), 0, len(data)))
    for read in (lambda: list(iter_any_batches(data)), lambda: whole_size(data)):
        with contextlib.suppress(KafkaError):
            read()


def test_offsets_that_go_back_within_a_wrapper_are_refused():
    out = bytearray()
    append_message_set(out, [Message(3, 0, None, b"a"), Message(2, 0, None, b"b")], 0, GZIP)
    with pytest.raises(InvalidRecord, match="offset 2 of a message follows after 3"):
        list(iter_any_batches(bytes(out)))


@pytest.mark.parametrize(
    ("magic", "time_bit", "offsets", "times"),
    [
        (1, 0, (0, 2), [NO_TIMESTAMP, 70]),
        (1, 8, (0, 2), [NO_TIMESTAMP, 500]),  # LogAppendTime
        (0, 0, (40, 42), [NO_TIMESTAMP, 70]),
    ],
)
def test_a_wrapper_may_hold_messages_of_the_other_format(magic, time_bit, offsets, times):
    """KAFKA-4298, as in Apache Kafka: the wrapper defines the offsets, each message its timestamp."""
    inner, out = bytearray(), bytearray()
    append_message(inner, 0, 0, offsets[0], NO_TIMESTAMP, b"k", b"v0")
    append_message(inner, 1, time_bit, offsets[1], 70, b"l", b"v1")
    append_message(out, magic, GZIP | time_bit, 42, 500, None, compress(GZIP, inner))
    view = MessageView(out)
    assert [tuple(message) for message in messages_of(view.entry())] == [
        (40, times[0], b"k", b"v0"),
        (42, times[1], b"l", b"v1"),
    ]
    (batch,) = iter_any_batches(bytes(out))
    assert [(record.offset, record.key, record.value) for record in batch.records()] == [
        (40, b"k", b"v0"),
        (42, b"l", b"v1"),
    ]
    base_offset, keys, _ = view.index_records(unpack_by_default)
    assert (base_offset, keys) == (40, b"kl")
    cleaned = view.with_records([0], unpack_by_default)
    assert {inner.magic for inner in wrapped(cleaned)} == {magic}, "the cleaner unifies the format"
    assert [message.offset for message in messages_of(MessageView(cleaned).entry())] == [40]
    with pytest.raises(KafkaError, match="LogAppendTime" if time_bit else "holds one of format"):
        batch_of_message_set(memoryview(out), 0, len(out), unpack_by_default)


def wrapped(data):
    body = unpack_wrapper(MessageView(data).entry(), unpack_by_default)
    position = 0
    while (entry := read_entry(body, position, len(body))) is not None:
        yield entry
        position += entry.size_bytes
