"""Checks of every stored batch, one broken field at a time, and the in-place patches."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from crc32c import crc32c
from tests.scale import size

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.record import _batch_py, validate, walk
from ottla.record import batch as b
from ottla.record.batch import BASE_OFFSET, LAST_OFFSET_DELTA, MAX_TIMESTAMP
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import CODEC_NAMES, DEFAULT_MAX_BYTES, MAX_RATIO, compress, decompress
from ottla.record.legacy.message_set import append_message
from ottla.record.validate import check_batch, check_replicated_batch, patch_batch, set_log_append_time

FIELDS = [
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"),
    (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i"),
]  # fmt: skip
"""Positions and layouts of the header fields except the CRC."""
RECORDS = [RecordData(1000 + i, b"k", b"v") for i in range(3)]


def edited(position, layout, value, compression="none", **fields):
    """Return a batch with one header field overwritten and a valid CRC."""
    batch = build_batch(RECORDS, compression=compression, **fields)
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, b.CRC_POSITION, crc32c(bytes(batch[b.ATTRIBUTES_POSITION :])))
    return batch


def code_of(check, batch, start=0, end=None):
    try:
        check(batch, memoryview(batch), start, len(batch) if end is None else end)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_valid_batch_at_any_position_returns_its_header():
    for compression in ("none", "lz4"):
        batch = build_batch(RECORDS, base_offset=5, compression=compression)
        buffer = bytearray(b"front" + batch + b"behind")
        view = memoryview(buffer)
        for check in (check_batch, check_replicated_batch):
            assert check(buffer, view, 5, len(buffer)) == b.BATCH_HEADER.unpack_from(batch)


@pytest.mark.parametrize("check", [check_batch, check_replicated_batch])
def test_broken_bytes_are_corrupt(check):
    batch = build_batch(RECORDS)
    for end in (0, 16, 17, 60, 61, len(batch) - 1):
        assert code_of(check, batch, 0, end) is ErrorCode.CORRUPT_MESSAGE
    for position in (8, 17, 21, 22, 30, 60, 61, len(batch) - 1):
        broken = bytearray(batch)
        broken[position] ^= 0x81
        assert code_of(check, broken) is ErrorCode.CORRUPT_MESSAGE, position
    for length in (-1, 0, 48, 1 << 30, -(1 << 31), (1 << 31) - 1):
        assert code_of(check, edited(8, ">i", length)) is ErrorCode.CORRUPT_MESSAGE, length


def test_old_formats_are_distinguished_from_garbage():
    old = struct.pack(">qiIbbii", 0, 14, 0, 0, 0, -1, -1)
    assert code_of(check_batch, old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert code_of(check_batch, edited(16, ">b", 1)) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    for check in (check_batch, check_replicated_batch):
        assert code_of(check, edited(16, ">b", 3)) is ErrorCode.CORRUPT_MESSAGE
        assert code_of(check, edited(16, ">b", -1)) is ErrorCode.CORRUPT_MESSAGE


def test_old_format_messages_are_replicated_by_own_checksum():
    message = bytearray()
    append_message(message, 1, 0, 7, 1_700_000_000_000, b"k", b"v")
    with memoryview(message) as view:
        header = check_replicated_batch(message, view, 0, len(message))
    assert (header[BASE_OFFSET], header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP]) == (7, 0, 1_700_000_000_000)
    message[-1] ^= 1
    assert code_of(check_replicated_batch, message) is ErrorCode.CORRUPT_MESSAGE


INVALID = ErrorCode.INVALID_RECORD
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("position", "layout", "value", "code"),
    [
        pytest.param(23, ">i", 3, INVALID, id="last offset delta above the count"),
        pytest.param(23, ">i", 1, INVALID, id="last offset delta below the count"),
        pytest.param(23, ">i", -1, INVALID, id="negative last offset delta"),
        pytest.param(57, ">i", 0, INVALID, id="no records"),
        pytest.param(57, ">i", -1, INVALID, id="negative count"),
        pytest.param(21, ">h", b.CONTROL_MASK, INVALID, id="control bit"),
        pytest.param(21, ">h", b.TRANSACTIONAL_MASK, INVALID, id="transactional without producer id"),
        pytest.param(21, ">h", b.DELETE_HORIZON_MASK, INVALID, id="delete horizon"),
        pytest.param(21, ">h", b.TIMESTAMP_TYPE_MASK, TIMESTAMP, id="timestamp type of the broker"),
        pytest.param(21, ">h", 5, INVALID, id="unknown codec"),
        pytest.param(43, ">q", 7, INVALID, id="producer id without epoch and sequence"),
        pytest.param(43, ">q", -2, INVALID, id="negative producer id"),
    ],
)
def test_impossible_fields_of_a_client(position, layout, value, code):
    assert code_of(check_batch, edited(position, layout, value)) is code


@pytest.mark.parametrize(
    ("count", "delta", "code"),
    [
        (0, -1, ErrorCode.CORRUPT_MESSAGE),
        (-1, 0, ErrorCode.CORRUPT_MESSAGE),
        (2, 0, ErrorCode.CORRUPT_MESSAGE),
        (1, 0, ErrorCode.NONE),
        (0, 0, ErrorCode.NONE),
        (1, 5, ErrorCode.NONE),
    ],
)
def test_counts_possible_after_compaction_are_replicated(count, delta, code):
    batch = edited(23, ">i", delta)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, b.CRC_POSITION, crc32c(bytes(batch[b.ATTRIBUTES_POSITION :])))
    assert code_of(check_replicated_batch, batch) is code


@pytest.mark.parametrize("count", [1000, (1 << 31) - 1])
def test_a_count_that_the_bytes_cannot_hold(count):
    batch = edited(23, ">i", count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, b.CRC_POSITION, crc32c(bytes(batch[b.ATTRIBUTES_POSITION :])))
    assert code_of(check_batch, batch) is INVALID


def claiming(count, codec_id, size):
    """A compressed batch of `size` bytes behind its header, with unchecked records."""
    fields = (0, b.MIN_BATCH_LENGTH + size, -1, 2, 0, codec_id, count - 1, 0, 0, -1, -1, -1, count)
    batch = bytearray(b.BATCH_HEADER.pack(*fields) + bytes(size))
    struct.pack_into(">I", batch, b.CRC_POSITION, crc32c(bytes(batch[b.ATTRIBUTES_POSITION :])))
    return batch


@pytest.mark.parametrize("codec_id", [1, 2, 3, 4])
def test_a_count_that_no_compressed_bytes_can_hold(codec_id):
    assert code_of(check_batch, claiming((1 << 31) - 1, codec_id, 28)) is INVALID  # 89 bytes that roll a segment
    assert code_of(check_batch, claiming(150_000, codec_id, 28)) is INVALID
    assert code_of(check_batch, claiming(80, codec_id, 28)) is ErrorCode.NONE
    assert code_of(check_batch, claiming(DEFAULT_MAX_BYTES // 7 + 1, codec_id, 1 << 22)) is INVALID
    assert code_of(check_batch, claiming(0x7FFFFFFF, codec_id, 1 << 22)) is INVALID


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_smallest_records_of_each_codec_pass(codec):
    records = [RecordData(0, None, None)] * 200_000
    batch = build_batch(records, compression=codec)
    assert code_of(check_batch, batch) is ErrorCode.NONE
    same = bytes(1 << 26)
    body = compress(CODEC_NAMES.index(codec), same)
    assert len(body) * MAX_RATIO[CODEC_NAMES.index(codec)] >= len(same)


def test_idempotent_and_transactional_producer_fields_pass():
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert code_of(check_batch, build_batch(RECORDS, **fields)) is ErrorCode.NONE
    assert code_of(check_batch, build_batch(RECORDS, is_transactional=True, **fields)) is ErrorCode.NONE
    assert code_of(check_batch, edited(51, ">h", -1, **fields)) is INVALID
    assert code_of(check_batch, edited(53, ">i", -1, **fields)) is INVALID


def test_records_without_a_timestamp_pass():
    assert code_of(check_batch, build_batch([RecordData(-1, None, b"v")])) is ErrorCode.NONE


@pytest.mark.parametrize("compression", CODEC_NAMES)
@pytest.mark.parametrize("claimed", [-1, 999])
def test_a_missing_max_timestamp_is_taken_from_the_records(compression, claimed):
    # Sarama sends -1.
    batch = edited(b.MAX_TIMESTAMP_POSITION, ">q", claimed, compression)
    buffer = bytearray(b"front") + batch + b"behind"
    with memoryview(buffer) as view:
        header = check_batch(buffer, view, 5, len(buffer))
    corrected = b.BatchView(buffer, 5)
    assert corrected.crc_matches()
    assert header == corrected.header
    assert (corrected.base_timestamp, corrected.max_timestamp) == (1000, 1002)
    assert buffer[5 : len(buffer) - 6] == build_batch(RECORDS, compression=compression)
    assert (buffer[:5], buffer[-6:]) == (b"front", b"behind")
    buffer.extend(b"the buffer is not pinned by a view")


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(
    ("times", "claimed", "stored"),
    [
        ((-5_000, -4_000), None, -1),
        ((-5_000, -4_000), -9_000, -1),
        ((-5_000, -4_000), -1, -1),
        ((-(2**62),), None, -1),
        ((-5_000, 7), None, 7),
        ((-5_000, 7), -2, 7),
        ((1_000, 1_002), -7, 1_002),
    ],
)
def test_times_before_1970_are_stored(
    times: tuple[int, ...], claimed: int | None, stored: int, compression: str
) -> None:
    """As Apache Kafka does, with a max timestamp that starts at -1."""
    batch = build_batch([RecordData(time, b"k", b"v") for time in times], compression=compression)
    if claimed is not None:
        struct.pack_into(">q", batch, b.MAX_TIMESTAMP_POSITION, claimed)
        struct.pack_into(">I", batch, b.CRC_POSITION, crc32c(bytes(batch[b.ATTRIBUTES_POSITION :])))
    header = check_batch(batch, memoryview(batch), 0, len(batch))
    assert header[b.MAX_TIMESTAMP] == stored
    view = b.BatchView(batch)
    assert view.crc_matches()
    assert [record.timestamp for record in view.records()] == list(times)


def test_uncorrectable_max_timestamp_is_rejected():
    far = edited(27, ">q", (1 << 63) - 1)
    assert code_of(check_batch, far) is TIMESTAMP
    broken = edited(b.MAX_TIMESTAMP_POSITION, ">q", -1)
    broken[b.HEADER_SIZE] = 2
    struct.pack_into(">I", broken, b.CRC_POSITION, crc32c(bytes(broken[b.ATTRIBUTES_POSITION :])))
    assert code_of(check_batch, broken) is INVALID
    bomb = build_batch([RecordData(5, None, bytes(2 << 20))], compression="zstd")
    struct.pack_into(">q", bomb, b.MAX_TIMESTAMP_POSITION, -1)
    struct.pack_into(">I", bomb, b.CRC_POSITION, crc32c(bytes(bomb[b.ATTRIBUTES_POSITION :])))

    def unpack_little(codec_id, stored):
        return decompress(codec_id, stored, 1 << 20)

    def check(buffer, view, start, end):
        return check_batch(buffer, view, start, end, unpack_little)

    assert code_of(check, bomb) is ErrorCode.MESSAGE_TOO_LARGE


def test_broker_batches_may_be_compacted_and_control():
    assert code_of(check_replicated_batch, edited(23, ">i", 9)) is ErrorCode.NONE
    assert code_of(check_replicated_batch, edited(57, ">i", 0)) is ErrorCode.NONE
    assert code_of(check_replicated_batch, edited(21, ">h", b.CONTROL_MASK)) is ErrorCode.NONE
    assert code_of(check_replicated_batch, edited(23, ">i", 1)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(check_replicated_batch, edited(23, ">i", -1)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(check_replicated_batch, edited(57, ">i", -1)) is ErrorCode.CORRUPT_MESSAGE


def test_patching_leaves_the_crc_right():
    batch = build_batch(RECORDS)
    original = bytes(batch)
    buffer = bytearray(b"front") + batch + b"behind"
    patch_batch(buffer, 5, 1 << 40, 12)
    view = b.BatchView(buffer, 5)
    assert (view.base_offset, view.partition_leader_epoch, view.crc_matches()) == (1 << 40, 12, True)
    assert buffer[5 + 8 : 5 + 12] == original[8:12]
    assert buffer[5 + 16 :] == original[16:] + b"behind"
    assert buffer[:5] == b"front"


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_log_append_time_replaces_all_timestamps(compression):
    buffer = bytearray(b"front") + build_batch(RECORDS, compression=compression) + b"behind"
    set_log_append_time(buffer, 5, 777)
    view = b.BatchView(buffer, 5)
    assert view.crc_matches()
    assert (view.timestamp_type, view.max_timestamp, view.compression) == (b.LOG_APPEND_TIME, 777, compression)
    assert [record.timestamp for record in view.records()] == [777] * 3
    buffer.extend(b"the buffer is not pinned by a view")


def outcome_of(check, batch, end):
    """Return the header that a check returns, or its error, and the batch after it."""
    buffer = bytearray(batch)
    try:
        return check(buffer, memoryview(buffer), 0, end), bytes(buffer)
    except KafkaError as error:
        return error.code, str(error), bytes(buffer)


def test_short_way_of_a_usual_batch_equals_the_reference():
    """Header fields at random, most of them with a valid CRC: both ways return the same, and twins are equal."""
    rng = random.Random(7)
    short = 0
    for _ in range(size(1500, 30_000)):
        batch = build_batch(RECORDS, compression=rng.choice(("none", "none", "lz4")))
        for _ in range(rng.randrange(3)):
            position, layout = rng.choice(FIELDS)
            limit = 1 << (8 * struct.calcsize(layout) - 1)
            value = rng.choice((-limit, -2, -1, 0, 1, 2, 3, 4, 7, 49, 64, 999, 1000, 1002, limit - 1))
            struct.pack_into(layout, batch, position, max(-limit, min(value, limit - 1)))
        if rng.random() < 0.9:
            struct.pack_into(">I", batch, b.CRC_POSITION, crc32c(bytes(batch[b.ATTRIBUTES_POSITION :])))
        end = rng.choice((len(batch), len(batch), rng.randrange(len(batch) + 1)))
        assert outcome_of(check_batch, batch, end) == outcome_of(validate._check_any_batch, batch, end)
        found = walk.usual_header(batch, 0, end)
        assert found == _batch_py.usual_header(batch, 0, end)
        short += found is not None
    assert short > 100


@pytest.mark.parametrize(("start", "end"), [(-1, 61), (62, 61), (0, 200), (200, 200)])
def test_header_range_outside_of_the_buffer_is_an_invariant_error(start, end):
    for twin in (walk, _batch_py):
        with pytest.raises(InvariantError):
            twin.usual_header(bytearray(100), start, end)
