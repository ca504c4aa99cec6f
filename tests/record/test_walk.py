"""Twins of the walk on one hostile corpus, and compared with each other on mutations."""

from __future__ import annotations

import random
from array import array

import pytest

from ottla.common.errors import InvariantError
from ottla.record import _batch_py, errors, walk
from ottla.record.batch import HEADER_SIZE
from ottla.record.builder import RecordData, build_batch
from ottla.record.errors import InvalidRecord

_batch = pytest.importorskip("ottla.record._batch", reason="the compiled module was not built")

TWINS = [pytest.param(_batch, id="compiled"), pytest.param(_batch_py, id="pure")]
FUNCTIONS = ("walk_records", "index_records", "max_timestamp", "parse_records")


def outcome(twin, function, *args):
    """Outcome of a call: its result, or its error message."""
    try:
        return getattr(twin, function)(*args)
    except InvalidRecord as error:
        return f"{error.code.name}: {error}"


def outcomes(twin, body, count):
    # The body is inside of other bytes, so that a stray read finds bytes that look like a record.
    around = b"\x0c\x00\x00\x00\x01\x01\x00"
    buffer = around + body + around
    start, end = len(around), len(around) + len(body)
    found = {function: outcome(twin, function, buffer, start, end, count) for function in FUNCTIONS}
    found["find_timestamp"] = outcome(twin, "find_timestamp", buffer, start, end, count, 7, 1)
    found["refused_records"] = outcome(twin, "refused_records", buffer, start, end, count, True, 5, 0, 70, 2)
    return found


def test_the_compiled_twin_is_chosen():
    assert walk.IMPLEMENTATION == "compiled"
    assert walk.walk_records is _batch.walk_records
    assert _batch.INDEX_WIDTH == _batch_py.INDEX_WIDTH


@pytest.mark.parametrize("twin", TWINS)
def test_valid_bodies_pass(twin, corpus):
    for name, body, count in corpus.valid_cases():
        assert len(twin.parse_records(body, 0, len(body), count)) == count, name
        assert len(twin.index_records(body, 0, len(body), count)) == 8 * count, name


@pytest.mark.parametrize("twin", TWINS)
def test_hostile_bodies_are_refused_by_every_function(twin, corpus):
    for name, body, count in corpus.invalid_cases():
        for function, result in outcomes(twin, body, count).items():
            assert str(result).startswith("INVALID_RECORD: record "), f"{name} passed {function}"


def test_twins_agree_on_the_corpus_and_name_every_defect(corpus):
    seen = set()
    for name, body, count in corpus.cases():
        compiled, pure = outcomes(_batch, body, count), outcomes(_batch_py, body, count)
        assert compiled == pure, name
        seen.update(result.split(": ", 2)[2] for result in compiled.values() if isinstance(result, str))
    assert seen == set(errors._DEFECTS.values())


@pytest.mark.parametrize("seed", range(4))
def test_twins_agree_on_mutations(seed, corpus):
    for name, body, count in corpus.mutations(random.Random(seed), 2500):
        assert outcomes(_batch, body, count) == outcomes(_batch_py, body, count), f"{name}: {body.hex()} {count}"


def test_twins_agree_on_the_size_of_records(corpus):
    sizes = set()
    for cases in (corpus.cases(), corpus.mutations(random.Random(5), 2500)):
        for name, body, count in cases:
            for max_bytes in (1, 12, 60):
                compiled, pure = (
                    outcome(twin, "oversized_record", body + b"\x0c", 0, len(body), count, max_bytes)
                    for twin in (_batch, _batch_py)
                )
                assert compiled == pure, f"{name}: {body.hex()} {count}"
                sizes.add(pure)
    assert 0 in sizes
    assert len(sizes) > 10


@pytest.mark.parametrize("twin", TWINS)
def test_first_oversized_record_is_returned(twin):
    buffer = bytes(build_batch([RecordData(5, None, b"v" * length) for length in (10, 30, 200)]))
    sizes = [length + varint + 5 for length, varint in ((10, 1), (30, 1), (200, 2))]
    for max_bytes, expected in ((1, sizes[0]), (sizes[0], sizes[1]), (sizes[1], sizes[2]), (sizes[2], 0)):
        assert twin.oversized_record(buffer, HEADER_SIZE, len(buffer), 3, max_bytes) == expected
    with pytest.raises(InvariantError):
        twin.oversized_record(buffer, HEADER_SIZE, len(buffer) + 1, 3, 1)
    with pytest.raises(InvalidRecord):
        twin.oversized_record(buffer, HEADER_SIZE, len(buffer) - 1, 3, sizes[2])


@pytest.mark.parametrize("twin", TWINS)
def test_only_producer_batches_need_gapless_offsets(twin, corpus):
    body = corpus.record() + corpus.record(offset_delta=corpus.varint(7))
    with pytest.raises(InvalidRecord, match="record 1: the offset delta is out of order"):
        twin.walk_records(body, 0, len(body), 2)
    with pytest.raises(InvalidRecord, match="record 1: the offset delta is out of order"):
        twin.refused_records(body, 0, len(body), 2, False, 0, 0, 1, 1)
    assert [row[0] for row in twin.parse_records(body, 0, len(body), 2)] == [0, 7]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("span", [(-1, 4), (0, 5), (3, 2), (5, 5)])
def test_a_range_outside_the_buffer_breaks_an_invariant(twin, span):
    for function in FUNCTIONS:
        with pytest.raises(InvariantError):
            getattr(twin, function)(b"1234", *span, 0)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, 5), (5, 0), (2, -1), (4, 1), (1, (1 << 63) - 1)])
def test_a_header_range_outside_the_buffer_breaks_an_invariant(twin, start, length):
    with pytest.raises(InvariantError):
        twin.parse_headers(b"1234", start, length)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: memoryview(data).toreadonly()])
def test_the_index_locates_every_part(twin, make):
    records = [
        RecordData(1000, b"key", b"value", (("a", b"1"), ("b", None))),
        RecordData(990, None, b"", ()),
        RecordData(1005, b"", None, (("", b""),)),
    ]
    buffer = make(bytes(build_batch(records)))
    index = twin.index_records(buffer, HEADER_SIZE, len(buffer), 3)
    assert isinstance(index, array)
    assert index.typecode == "q"
    for number, record in enumerate(records):
        row = index[8 * number : 8 * number + 8]
        assert row[:2].tolist() == [number, record.timestamp_ms - 1000]
        for start, length, expected in ((row[2], row[3], record.key), (row[4], row[5], record.value)):
            assert (None if length < 0 else bytes(buffer[start : start + length])) == expected
        assert twin.parse_headers(buffer, row[6], row[7]) == record.headers
    whole = (buffer, HEADER_SIZE, len(buffer), 3)
    assert twin.refused_records(*whole, True, 1000, 0, 2000, 9) == (1, [(1, 990, True)])
    assert twin.refused_records(*whole, False, 1000, 0, 2000, 9) == (0, [])
    assert twin.refused_records(*whole, False, 1000, 991, 1004, 9) == (2, [(1, 990, False), (2, 1005, False)])
    assert twin.refused_records(*whole, True, 1000, 1001, 1001, 2) == (3, [(0, 1000, False), (1, 990, True)])
    assert twin.refused_records(*whole, False, 9, 0, 2000, 9) == (0, []), "-1 means no timestamp"
    overflow = twin.refused_records(*whole, False, (1 << 63) - 1, 0, (1 << 63) - 1, 9)
    assert overflow == (1, [(2, -(1 << 63) + 4, False)])
    assert twin.max_timestamp(buffer, HEADER_SIZE, len(buffer), 3) == (5, 2)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, -10, 0) == (0, 0)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, -10, 1) == (-10, 1)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, 1, 0) == (5, 2)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, 6, 0) is None
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, -10, 3) is None


@pytest.mark.parametrize("twin", TWINS)
def test_max_timestamp_is_first_of_equals(twin):
    records = [RecordData(t) for t in (100, 50, 100)]
    buffer = build_batch(records)
    assert twin.max_timestamp(buffer, HEADER_SIZE, len(buffer), 3) == (0, 0)
    assert twin.max_timestamp(b"", 0, 0, 0) == (-1, -1)


@pytest.mark.parametrize("twin", TWINS)
def test_broken_header_ranges_are_refused(twin):
    for data in (b"\x02", b"\x01\x01", b"\x00\x04a", b"\xff\xff", b"\x00\x03"):
        with pytest.raises(InvalidRecord):
            twin.parse_headers(data, 0, len(data))
