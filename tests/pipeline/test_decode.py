"""Batches to Arrow: every value unchanged, exact ranges, without control and aborted batches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.record.batch import ATTRIBUTES_POSITION, BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import CODEC_IDS, compress
from ottla.record.control import end_transaction_marker

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.model.decode import DEAD_LETTER_SCHEMA, MAX_TIMESTAMP_MS, SCHEMA, DecodeError, DecodeResult, decode  # noqa: E402

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Aborted:
    producer_id: int
    first_offset: int


def decoded(
    data: bytes | bytearray, start: int = 0, end: int = 1 << 40, aborted: tuple[Aborted, ...] = ()
) -> DecodeResult:
    return decode(bytes(data), topic="clicks", partition=3, start_offset=start, end_offset=end, aborted=aborted)


def rows(result: DecodeResult) -> list[dict[str, object]]:
    return pa.Table.from_batches(result.batches, schema=SCHEMA).to_pylist()


def offsets(result: DecodeResult) -> list[int]:
    return [int(row["offset"]) for row in rows(result)]  # type: ignore[call-overload]


def simple(count: int, base_offset: int = 0, **options: object) -> bytearray:
    records = [RecordData(1_000 + number, b"k%d" % number, b"v%d" % (base_offset + number)) for number in range(count)]
    return build_batch(records, base_offset=base_offset, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS)
def test_every_field_arrives(codec: str) -> None:
    records = [
        RecordData(1_700_000_000_000, b"key", b"value", [("trace", b"abc"), ("empty", b""), ("null", None)]),
        RecordData(1_700_000_000_123, None, b"", []),
        RecordData(1_700_000_000_007, b"", None, [("n\u00e4me", b"\xff\x00")]),
    ]
    result = decoded(build_batch(records, base_offset=41, compression=codec))
    found = rows(result)
    assert [row["offset"] for row in found] == [41, 42, 43]
    assert {(row["topic"], row["partition"], row["timestamp_type"]) for row in found} == {("clicks", 3, 0)}
    assert [(row["key"], row["value"]) for row in found] == [(b"key", b"value"), (None, b""), (b"", None)]
    assert found[0]["timestamp"] == datetime.fromtimestamp(1_700_000_000, UTC)
    assert [row["timestamp"].microsecond for row in found] == [0, 123_000, 7_000]  # type: ignore[attr-defined]
    assert found[0]["headers"] == [
        {"key": "trace", "value": b"abc"},
        {"key": "empty", "value": b""},
        {"key": "null", "value": None},
    ]
    assert found[1]["headers"] == []
    assert found[2]["headers"] == [{"key": "n\u00e4me", "value": b"\xff\x00"}]
    assert result.next_offset == 44
    assert result.rows == 3
    for batch in result.batches:
        batch.validate(full=True)


optional_bytes = st.none() | st.binary(max_size=300)
record = st.builds(
    RecordData,
    st.integers(0, MAX_TIMESTAMP_MS),
    optional_bytes,
    optional_bytes,
    st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3),
)


@given(
    batches=st.lists(st.tuples(st.lists(record, min_size=1, max_size=20), st.sampled_from(CODECS)), max_size=6),
    cut=st.tuples(st.integers(0, 100), st.integers(0, 100)),
)
def test_any_range_equals_built_records(batches: list[tuple[list[RecordData], str]], cut: tuple[int, int]) -> None:
    data, expected, offset = bytearray(), [], 5
    for records, codec in batches:
        data += build_batch(records, base_offset=offset, compression=codec)
        for one in records:
            expected.append((offset, one.timestamp_ms, one.key, one.value, [tuple(pair) for pair in one.headers]))
            offset += 1
    start, end = min(cut), max(cut)
    result = decoded(data, start, end)
    found = [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),  # type: ignore[attr-defined]
            row["key"],
            row["value"],
            [(pair["key"], pair["value"]) for pair in row["headers"]],  # type: ignore[attr-defined]
        )
        for row in rows(result)
    ]
    assert found == [row for row in expected if start <= row[0] < end]


def test_a_range_inside_one_batch() -> None:
    result = decoded(simple(10, 100), 103, 107)
    assert offsets(result) == [103, 104, 105, 106]
    assert result.next_offset == 107


def test_record_at_range_end_belongs_to_next_range() -> None:
    """The last record of a batch may be the first of the next range."""
    data = simple(3, base_offset=10)
    assert offsets(decoded(data, 10, 12)) == [10, 11]
    assert offsets(decoded(data, 12, 20)) == [12]


def test_decode_resumes_after_last_whole_batch() -> None:
    data = simple(4) + simple(4, 4)
    result = decoded(data[:-1])
    assert offsets(result) == [0, 1, 2, 3]
    assert result.next_offset == 4
    assert decoded(b"").next_offset == 0


def test_gaps_of_compaction_and_a_range_that_ends_in_one() -> None:
    data = simple(2, 10) + simple(2, 50)
    assert offsets(decoded(data, 0, 60)) == [10, 11, 50, 51]
    result = decoded(data, 0, 30)
    assert offsets(result) == [10, 11]
    assert result.next_offset == 30


def test_log_append_time_is_the_time_of_the_batch() -> None:
    records = [RecordData(1_000, None, b"a"), RecordData(9_000, None, b"b")]
    found = rows(decoded(build_batch(records, timestamp_type=1)))
    assert [row["timestamp_type"] for row in found] == [1, 1]
    assert len({row["timestamp"] for row in found}) == 1


def test_a_record_without_timestamp_has_null() -> None:
    records = [RecordData(-1, None, b"a"), RecordData(5, None, b"b")]
    result = decoded(build_batch(records))
    assert [row["timestamp"] is None for row in rows(result)] == [True, False]
    assert not result.dead_letters


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP_MS + 1, 2**62, -2])
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_unrepresentable_timestamp_is_dead_letter(timestamp: int, timestamp_type: int) -> None:
    """The dead letter has the whole record with its stored timestamp, and the table does not."""
    good, bad = RecordData(5, b"k", b"good"), RecordData(timestamp, b"k", b"bad", [("h", b"1"), ("h", None)])
    append_time = timestamp_type == 1 and timestamp > 0
    result = decoded(build_batch([good, bad, good], base_offset=7, timestamp_type=timestamp_type if append_time else 0))
    letters = pa.Table.from_batches(result.dead_letters, schema=DEAD_LETTER_SCHEMA).to_pylist()
    assert result.next_offset == 10
    if append_time:  # then it is the time of the whole batch
        assert ([row["offset"] for row in letters], result.rows) == ([7, 8, 9], 0)
        return
    assert offsets(result) == [7, 9]
    assert result.rows == 2
    assert letters == [
        {
            "topic": "clicks",
            "partition": 3,
            "offset": 8,
            "timestamp_ms": timestamp,
            "timestamp_type": 0,
            "key": b"k",
            "value": b"bad",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "reason": f"timestamp {timestamp} is not within the years 1970 to 9999",
        }
    ]


def test_the_last_instant_of_the_year_9999_is_held() -> None:
    result = decoded(build_batch([RecordData(MAX_TIMESTAMP_MS, None, b"a")]))
    assert str(rows(result)[0]["timestamp"]) == "9999-12-31 23:59:59.999000+00:00"
    assert not result.dead_letters


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    return end_transaction_marker(
        commit=commit,
        timestamp_ms=1_000,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        base_offset=offset,
    )


def in_transaction(offset: int, producer_id: int, count: int = 1) -> bytearray:
    return simple(count, offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def test_control_batches_advance_without_rows() -> None:
    result = decoded(in_transaction(0, 7, count=2) + marker(2, 7, commit=True))
    assert offsets(result) == [0, 1]
    assert result.next_offset == 3


def test_aborted_transactions_are_dropped() -> None:
    """Producer 7 aborts offsets 0 and 2 (marker 4), then commits 5; producer 8 commits 3; 1 has no transaction."""
    first = in_transaction(0, 7)
    rest = simple(1, 1) + in_transaction(2, 7) + in_transaction(3, 8) + marker(4, 7, commit=False)
    rest += in_transaction(5, 7) + marker(6, 8, commit=True) + marker(7, 7, commit=True)
    assert offsets(decoded(first + rest, aborted=(Aborted(7, 0),))) == [1, 3, 5]
    assert offsets(decoded(first + rest)) == [0, 1, 2, 3, 5]
    inside = decoded(rest, 1, 3, aborted=(Aborted(7, 0),))
    assert offsets(inside) == [1]
    assert inside.next_offset == 3


def test_two_aborts_of_one_producer() -> None:
    data = in_transaction(0, 7) + marker(1, 7, commit=False) + in_transaction(2, 7) + marker(3, 7, commit=False)
    data += in_transaction(4, 7)
    assert offsets(decoded(data, aborted=(Aborted(7, 2), Aborted(7, 0)))) == [4]


def test_a_flipped_byte_names_topic_partition_and_offset() -> None:
    data = simple(3) + simple(3, 3)
    data[-2] ^= 1
    with pytest.raises(DecodeError, match=r"topic 'clicks' partition 3: the batch at offset 3 .*checksum"):
        decoded(data)


def test_a_bad_batch_beyond_the_range_is_not_looked_at() -> None:
    good, bad = simple(3), simple(3, 3)
    bad[-2] ^= 1
    assert offsets(decoded(good + bad, 0, 3)) == [0, 1, 2]


@pytest.mark.parametrize("codec", CODECS)
def test_wrong_record_length_is_reported(codec: str) -> None:
    data = simple(3, compression=codec)
    view = BatchView(data)
    body = bytearray(view.body())
    body[0] = 0x7E  # the first record claims 63 bytes
    packed = compress(CODEC_IDS[codec], bytes(body))
    data[61:] = packed
    data[8:12] = (49 + len(packed)).to_bytes(4, "big")
    data[17:21] = crc32c.crc32c(bytes(data[ATTRIBUTES_POSITION:])).to_bytes(4, "big")
    with pytest.raises(DecodeError, match="record 0"):
        decoded(data)


def test_nonsense_instead_of_a_batch() -> None:
    with pytest.raises(DecodeError, match="clicks"):
        decoded(bytes(100))
    old = bytearray(simple(1))
    old[16] = 1
    with pytest.raises(DecodeError, match="the CRC of a message does not match"):
        decoded(old)


def test_many_batches_make_few_arrow_batches() -> None:
    data = b"".join(bytes(simple(50, 50 * number)) for number in range(1_000))
    result = decoded(data)
    assert result.rows == 50_000
    assert len(result.batches) == 1
    assert offsets(result) == list(range(50_000))
