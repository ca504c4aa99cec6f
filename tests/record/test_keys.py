"""Twins of the key table, compared with each other and with a dictionary."""

from __future__ import annotations

import random
from array import array

import pytest

from ottla.common.errors import InvariantError
from ottla.record import _keys_py, keys
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.record.walk import INDEX_WIDTH, index_records

_keys = pytest.importorskip("ottla.record._keys", reason="the compiled module was not built")

TWINS = [pytest.param(_keys, id="compiled"), pytest.param(_keys_py, id="pure")]
SECRET = bytes(range(16))
NO_ROW = array("q")


def random_batches(rng, count=40):
    """(body, rows, base offset, base timestamp) of batches with few keys, some without, and without values."""
    base_offset = 0
    for _ in range(count):
        records = [
            RecordData(
                rng.randrange(1000),
                rng.choice([None, b"", b"k%d" % rng.randrange(30), b"k" * rng.randrange(40)]),
                rng.choice([None, b"", b"value" * rng.randrange(9)]),
                [("h", None)] * rng.randrange(2),
            )
            for _ in range(rng.randrange(1, 12))
        ]
        batch = BatchView(build_batch(records, base_offset=base_offset))
        body = batch.body()
        yield body, index_records(body, 0, len(body), len(records)), base_offset, batch.base_timestamp
        base_offset += len(records) + rng.randrange(3)


def key_of(body, rows, number):
    start, length = rows[number * INDEX_WIDTH + 2 : number * INDEX_WIDTH + 4]
    return bytes(body[start : start + length]) if length >= 0 else None


def test_the_compiled_twin_is_chosen():
    assert keys.KeyTable is _keys.KeyTable
    assert (_keys.ENTRY_BYTES, _keys.SECRET_BYTES) == (_keys_py.ENTRY_BYTES, _keys_py.SECRET_BYTES)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_the_hash_is_siphash_by_the_vectors_of_its_authors(length, expected):
    assert _keys.hash_key(SECRET, bytes(range(length))).to_bytes(16, "little").hex() == expected


def test_another_secret_gives_other_hashes():
    assert _keys.hash_key(SECRET, b"key") != _keys.hash_key(bytes(16), b"key")


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("seed", range(4))
def test_a_table_equals_a_dictionary(twin, seed):
    batches = list(random_batches(random.Random(seed)))
    table = twin.KeyTable(500, 400, SECRET)
    first_offset, latest = 20, {}
    for body, rows, base_offset, _ in batches:
        assert table.note(body, rows, base_offset, first_offset) == len(rows) // INDEX_WIDTH
        for number in range(len(rows) // INDEX_WIDTH):
            offset = base_offset + rows[number * INDEX_WIDTH]
            if offset >= first_offset and key_of(body, rows, number) is not None:
                latest[key_of(body, rows, number)] = offset
    assert table.count == len(latest)
    known_offset = batches[-3][2]
    for body, rows, base_offset, _ in batches:
        for keeps_tombstones in (True, False):
            expected, keyless, tombstones = [], 0, 0
            for number in range(len(rows) // INDEX_WIDTH):
                offset, key = base_offset + rows[number * INDEX_WIDTH], key_of(body, rows, number)
                is_tombstone = rows[number * INDEX_WIDTH + 5] < 0
                if offset <= known_offset:
                    keyless += key is None
                    if key is None or offset < latest.get(key, -1) or (is_tombstone and not keeps_tombstones):
                        continue
                expected.append(number)
                tombstones += is_tombstone
            found = table.surviving(body, rows, base_offset, known_offset, keeps_tombstones=keeps_tombstones)
            assert found == (array("q", expected), keyless, tombstones)


def test_twins_fill_up_at_the_same_record():
    tables = [twin.KeyTable(21, 20, SECRET) for twin in (_keys, _keys_py)]
    noted = []
    for body, rows, base_offset, _ in random_batches(random.Random(1)):
        noted.append([table.note(body, rows, base_offset, 0) for table in tables])
        if noted[-1][0] * INDEX_WIDTH < len(rows):
            break
    assert all(compiled == pure for compiled, pure in noted)
    assert [table.count for table in tables] == [20, 20]
    assert noted[-1][0] * INDEX_WIDTH < len(rows), "it never was full"


@pytest.mark.parametrize("base_timestamp", [0, 7, (1 << 63) - 5, -(1 << 63)])
def test_twins_gather_the_same_records(base_timestamp):
    rng = random.Random(3)
    for body, rows, _, _ in random_batches(rng):
        kept = array("q", [number for number in range(len(rows) // INDEX_WIDTH) if rng.randrange(2)])
        expected = _keys_py.gather(body, rows, kept, base_timestamp)
        assert _keys.gather(body, rows, kept, base_timestamp) == expected
        again = index_records(expected[0], 0, len(expected[0]), len(kept))
        assert again[::INDEX_WIDTH] == array("q", [rows[number * INDEX_WIDTH] for number in kept])


def test_no_records_gather_nothing():
    for twin in (_keys, _keys_py):
        assert twin.gather(b"", NO_ROW, NO_ROW, 5) == (b"", -1)


@pytest.mark.parametrize("twin", TWINS)
def test_a_table_without_a_free_entry_or_a_secret_is_refused(twin):
    with pytest.raises(InvariantError, match="free entry"):
        twin.KeyTable(5, 5, SECRET)
    with pytest.raises(InvariantError, match="a secret has 16 bytes"):
        twin.KeyTable(5, 4, b"short")


@pytest.mark.parametrize("twin", TWINS)
def test_impossible_table_size_raises_memory_error(twin):
    with pytest.raises(MemoryError):
        twin.KeyTable(1 << 58, 1, SECRET)


@pytest.mark.parametrize(
    "row",
    [
        (0, 0, 0, 11, 0, 0, 0, 10),
        (0, 0, -1, 1, 0, 0, 0, 10),
        (0, 0, 11, 0, 0, 0, 0, 10),
        (0, 0, 0, 1, 0, 0, 11, 0),
        (0, 0, 0, 1, 0, 0, 0, 11),
        (0, 0, 0, 1, 0, 0, 5, -1),
    ],
)
def test_rows_that_point_beyond_the_body_are_never_followed(row):
    rows = array("q", row)
    table = _keys.KeyTable(5, 4, SECRET)
    for use in (
        lambda: table.note(bytes(10), rows, 0, 0),
        lambda: table.surviving(bytes(10), rows, 0, 0, keeps_tombstones=True),
        lambda: _keys.gather(bytes(10), rows, array("q", [0]), 0),
    ):
        with pytest.raises(InvariantError, match="outside the body"):
            use()
    with pytest.raises(InvariantError, match="no such row"):
        _keys.gather(bytes(10), NO_ROW, array("q", [0]), 0)


def test_a_closed_table_is_not_used():
    table = _keys.KeyTable(5, 4, SECRET)
    table.close()
    with pytest.raises(InvariantError, match="closed"):
        table.note(b"", NO_ROW, 0, 0)


@pytest.mark.parametrize("twin", TWINS)
def test_key_filter_has_all_its_keys_and_few_others(twin):
    rng = random.Random(3)
    keys = []
    hashes = array("Q")
    for body, rows, _, _ in random_batches(rng):
        hashes.extend(twin.key_hashes(SECRET, body, rows))
        keys += [key_of(body, rows, number) for number in range(len(rows) // INDEX_WIDTH)]
    present = {key for key in keys if key is not None}
    assert set(hashes) == {twin.hash_key(SECRET, key) % (1 << 64) for key in present}
    data = b"header" + bytes(twin.key_filter(hashes, 10 * len(hashes), 7))
    places = array("q", [6, 10 * len(hashes)])
    for key in present:
        wanted = array("Q", [twin.hash_key(SECRET, key) % (1 << 64)])
        assert twin.filters_with(data, places, wanted, 7) == b"\1"
    absent = (array("Q", [twin.hash_key(SECRET, b"absent%d" % number) % (1 << 64)]) for number in range(2_000))
    assert sum(twin.filters_with(data, places, each, 7) == b"\1" for each in absent) < 60


def test_twins_agree_on_filters():
    rng = random.Random(4)
    for _ in range(200):
        hashes = array("Q", [rng.getrandbits(64) for _ in range(rng.randrange(1, 20))])
        bits = rng.randrange(1, 300)
        written = [bytes(twin.key_filter(hashes, bits, 5)) for twin in (_keys, _keys_py)]
        assert written[0] == written[1]
        data = written[0] + written[0]
        places = array("q", [0, bits, len(written[0]), bits, 0, 0])
        wanted = array("Q", [rng.choice([*hashes, rng.getrandbits(64)]) for _ in range(3)])
        assert _keys.filters_with(data, places, wanted, 5) == _keys_py.filters_with(data, places, wanted, 5)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("place", [(-1, 8), (3, 8), (2, 9), (0, -1)])
def test_filter_outside_of_its_data_is_refused(twin, place):
    with pytest.raises(InvariantError):
        twin.filters_with(b"abc", array("q", place), array("Q", [1]), 7)
