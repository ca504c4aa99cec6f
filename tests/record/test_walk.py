"""Both twins of the walk on one hostile corpus, and against each other on mutations."""

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
FUNCTIONS = ("walk_records", "index_records", "first_null_key", "max_timestamp", "parse_records")


def outcome(twin, function, *args):
    """What a call gives: its result, or the words of its error."""
    try:
        return getattr(twin, function)(*args)
    except InvalidRecord as error:
        return f"{error.code.name}: {error}"


def outcomes(twin, body, count):
    # The body lies inside other bytes, so that a stray read gets something that looks like a record.
    around = b"\x0c\x00\x00\x00\x01\x01\x00"
    buffer = around + body + around
    start, end = len(around), len(around) + len(body)
    found = {function: outcome(twin, function, buffer, start, end, count) for function in FUNCTIONS}
    found["find_timestamp"] = outcome(twin, "find_timestamp", buffer, start, end, count, 7, 1)
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


@pytest.mark.parametrize("twin", TWINS)
def test_only_walk_records_demands_offsets_without_gaps(twin, corpus):
    body = corpus.record() + corpus.record(offset_delta=corpus.varint(7))
    with pytest.raises(InvalidRecord, match="record 1: the offset delta is out of order"):
        twin.walk_records(body, 0, len(body), 2)
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
    assert twin.first_null_key(buffer, HEADER_SIZE, len(buffer), 3) == 1
    assert twin.max_timestamp(buffer, HEADER_SIZE, len(buffer), 3) == (5, 2)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, -10, 0) == (0, 0)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, -10, 1) == (-10, 1)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, 1, 0) == (5, 2)
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, 6, 0) is None
    assert twin.find_timestamp(buffer, HEADER_SIZE, len(buffer), 3, -10, 3) is None


@pytest.mark.parametrize("twin", TWINS)
def test_max_timestamp_takes_the_first_of_equals_and_survives_negative_deltas(twin):
    records = [RecordData(t) for t in (100, 50, 100)]
    buffer = build_batch(records)
    assert twin.max_timestamp(buffer, HEADER_SIZE, len(buffer), 3) == (0, 0)
    assert twin.max_timestamp(b"", 0, 0, 0) == (-1, -1)


@pytest.mark.parametrize("twin", TWINS)
def test_broken_header_ranges_are_refused(twin):
    for data in (b"\x02", b"\x01\x01", b"\x00\x04a", b"\xff\xff", b"\x00\x03"):
        with pytest.raises(InvalidRecord):
            twin.parse_headers(data, 0, len(data))
