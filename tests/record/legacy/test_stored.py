"""Logs that mix formats v0, v1 and v2: each entry is found by headers, and all records come out as batches."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import KafkaError
from ottla.record.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import GZIP, LZ4, NONE, SNAPPY
from ottla.record.errors import InvalidRecord
from ottla.record.legacy.message_set import Message, append_message_set
from ottla.record.legacy.stored import header_of_any, iter_any_batches, whole_size
from ottla.storage.reader import SegmentDamage, iter_segment
from ottla.storage.segment import OutlineScan

DATA = st.one_of(st.none(), st.binary(max_size=30))
RECORDS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2**40), DATA, DATA), min_size=1, max_size=5)
CHUNKS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from((NONE, GZIP, SNAPPY, LZ4)), st.sampled_from((CREATE_TIME, 1)), RECORDS
    ),
    max_size=8,
)


class File:
    """What a scan reads from."""

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
@settings(max_examples=150, deadline=None)
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
@settings(max_examples=100, deadline=None)
def test_what_is_cut_short_is_left_out(chunks, missing):
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
@settings(max_examples=200, deadline=None)
def test_nonsense_is_refused(noise, magic):
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
