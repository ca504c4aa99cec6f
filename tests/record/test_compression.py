"""Codecs: every form that clients write, and hostile data (bombs under RLIMIT_AS in a separate process)."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import textwrap
import time

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.reused_memory import ReusedMemory
from ottla.record import compression as c

CODECS = range(5)
TEXT = b"the quick brown fox jumps over the lazy dog; " * 3000


def code_of(codec_id, data, max_bytes=1 << 20):
    try:
        c.decompress(codec_id, data, max_bytes)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=5000) | st.binary(max_size=200).map(lambda data: data * 500), st.sampled_from(CODECS))
def test_compressed_bytes_round_trip(data, codec_id):
    for form in (bytes, bytearray, memoryview):
        assert c.decompress(codec_id, form(c.compress(codec_id, form(data)))) == data


@pytest.mark.parametrize("codec_id", CODECS)
def test_the_bound_is_exact(codec_id):
    packed = c.compress(codec_id, TEXT)
    assert c.decompress(codec_id, packed, len(TEXT)) == TEXT
    assert code_of(codec_id, packed, len(TEXT) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(codec_id, packed, 0) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec_id", [c.GZIP, c.LZ4, c.ZSTD])
def test_output_grows_by_need_up_to_the_bound(codec_id):
    zeros = bytes(20_000_000)
    packed = c.compress(codec_id, zeros)
    assert c.decompress(codec_id, packed, 20_000_000) == zeros
    assert code_of(codec_id, packed, 19_999_999) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec_id", CODECS)
def test_reused_memory_has_the_last_output_and_its_bound(codec_id):
    memory = ReusedMemory()
    for data in (TEXT * 10, b"short", TEXT):
        packed = c.compress(codec_id, data)
        assert c.decompress(codec_id, packed, len(data), memory) == data
        with pytest.raises(KafkaError) as caught:
            c.decompress(codec_id, packed, len(data) - 1, memory)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec_id", [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD])
def test_members_behind_one_another(codec_id):
    assert c.decompress(codec_id, c.compress(codec_id, b"one,") + c.compress(codec_id, b"two")) == b"one,two"


def test_gzip_of_the_standard_library():
    assert c.decompress(c.GZIP, gzip.compress(TEXT)) == TEXT
    assert gzip.decompress(c.compress(c.GZIP, TEXT)) == TEXT


def test_snappy_as_one_raw_block_and_in_chunks():
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert c.decompress(c.SNAPPY, raw) == TEXT
    chunks = c.compress(c.SNAPPY, TEXT)
    assert chunks[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    pieces, position = [], 16
    while position < len(chunks):
        (length,) = struct.unpack_from(">i", chunks, position)
        pieces.append(bytes(cramjam.snappy.decompress_raw(chunks[position + 4 : position + 4 + length])))
        position += 4 + length
    assert b"".join(pieces) == TEXT
    assert {len(piece) for piece in pieces[:-1]} == {32 * 1024}
    assert c.decompress(c.SNAPPY, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(raw)) + raw) == TEXT


def xxh32(data: bytes) -> int:
    """xxHash, 32 bits, seed 0, of fewer than 4 bytes: the header checksum of an lz4 frame without sizes."""
    mask = 0xFFFFFFFF
    value = 374761393 + len(data)
    for byte in data:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def lz4_frame(flags: int, blocks: list[tuple[bytes, bool]], content: bytes = b"") -> bytes:
    """Build a frame by its specification: descriptor and checksum, blocks of (data, is compressed), end mark."""
    descriptor = bytes((0x40 | flags, 0x40)) + content
    frame = struct.pack("<I", 0x184D2204) + descriptor + bytes(((xxh32(descriptor) >> 8) & 0xFF,))
    for data, is_compressed in blocks:
        frame += struct.pack("<I", len(data) | (0 if is_compressed else 1 << 31)) + data
    return frame + struct.pack("<I", 0)


def test_lz4_as_java_frames_it():
    # Java: independent blocks of 64 KiB, no checksums, no content size; a block that does not shrink stays as it is.
    pieces = [TEXT[i : i + 65536] for i in range(0, len(TEXT), 65536)]
    blocks = [(bytes(cramjam.lz4.compress_block(piece, store_size=False)), True) for piece in pieces]
    stored = random.Random(1).randbytes(500)
    assert c.decompress(c.LZ4, lz4_frame(0x20, [*blocks, (stored, False)])) == TEXT + stored


def test_lz4_that_is_written_has_independent_blocks():
    frame = c.compress(c.LZ4, TEXT)
    assert frame[:4] == struct.pack("<I", 0x184D2204)
    assert frame[4] & 0xE0 == 0x60  # version 1, blocks independent: Java refuses linked ones
    assert frame[5] == 0x40
    assert frame[6] == (xxh32(frame[4:6]) >> 8) & 0xFF


def test_default_lz4_level_is_fast_compressor_as_in_kafka():
    fast = c.compress(c.LZ4, TEXT)
    assert c.compress(c.LZ4, TEXT, 9) == fast
    assert c.compress(c.LZ4, TEXT, 12) != fast


def test_lz4_with_linked_blocks_and_content_checksum():
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=True)
    compressor.compress(TEXT)
    assert c.decompress(c.LZ4, bytes(compressor.finish())) == TEXT


def test_zstd_frames_of_a_stream_and_skippable_ones():
    compressor = cramjam.zstd.Compressor(level=1)
    stream = b""
    for start in range(0, len(TEXT), 1000):
        compressor.compress(TEXT[start : start + 1000])
        stream += bytes(compressor.flush())
    stream += bytes(compressor.finish())
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    assert c.decompress(c.ZSTD, skippable + stream + skippable) == TEXT


@pytest.mark.parametrize("codec_id", [5, 6, 7, -1])
def test_unknown_codecs(codec_id):
    assert code_of(codec_id, b"x") is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(KafkaError):
        c.compress(codec_id, b"x")


@pytest.mark.parametrize("codec_id", [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD])
def test_cut_trailing_or_foreign_bytes_are_rejected(codec_id):
    packed = c.compress(codec_id, TEXT)
    for cut in (1, 3, 9, 17, len(packed) // 2, len(packed) - 1):
        assert code_of(codec_id, packed[:cut]) is ErrorCode.CORRUPT_MESSAGE, cut
    for data in (b"", b"\0" * 40, b"\xff" * 40, packed + b"rubbish that is no frame"):
        assert code_of(codec_id, data) is ErrorCode.CORRUPT_MESSAGE, data[:20]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x0f" + b"\0" * 20,  # raw block that promises 4 GiB in 25 bytes
        b"\xff\xff\xff\xff\xff" * 5,
        b"\x82SNAPPY\0",
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"\0\0",
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 0),
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1) + b"xxxx",
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, (1 << 31) - 1) + b"xxxx",
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 5) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_hostile_snappy(data):
    assert code_of(c.SNAPPY, data) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec_id", [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD])
def test_mutations_give_bytes_or_a_kafka_error(codec_id):
    rng = random.Random(codec_id)
    seeds = [c.compress(codec_id, data) for data in (b"", b"a", TEXT[:500], rng.randbytes(300), bytes(5000))]
    seeds.append(bytes(cramjam.snappy.compress_raw(TEXT[:500])))
    for _ in range(3000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(data) + 1)
            if rng.randrange(3) and place < len(data):
                data[place] = rng.randrange(256)
            else:
                data[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        code_of(codec_id, bytes(data), 1 << 16)


def test_floods_of_tiny_members_take_linear_time():
    started = time.process_time()
    for codec_id in (c.GZIP, c.LZ4, c.ZSTD):
        member = c.compress(codec_id, b"")
        assert c.decompress(codec_id, member * 20_000, 1 << 20) == b""
    chunk = bytes(cramjam.snappy.compress_raw(b""))
    assert c.decompress(c.SNAPPY, c.compress(c.SNAPPY, b"") + (struct.pack(">i", len(chunk)) + chunk) * 20_000) == b""
    assert time.process_time() - started < 10


BOMB = """
    import resource, sys
    import cramjam
    from ottla.common.errors import ErrorCode, KafkaError
    from ottla.record import compression as c

    SIZE = 1 << 30
    chunk = bytes(1 << 24)

    def bomb(codec_id):
        if codec_id == c.GZIP:
            compressor = cramjam.gzip.Compressor(1)
        elif codec_id == c.ZSTD:
            compressor = cramjam.zstd.Compressor(1)
        else:
            compressor = cramjam.lz4.Compressor(1, block_linked=False)
        for _ in range(SIZE // len(chunk)):
            compressor.compress(chunk)
        return bytes(compressor.finish())

    def snappy_bombs():
        block = bytes(cramjam.snappy.compress_raw(chunk))
        xerial = c.compress(c.SNAPPY, b"")
        yield xerial + (len(block).to_bytes(4, "big") + block) * (SIZE // len(chunk))
        yield block  # 16 MiB, honest, beyond the bound
        yield b"\\xff\\xff\\xff\\xff\\x0f" + bytes(20)
        yield b"\\xff\\xff\\xff\\xff\\x0f" + block[4:]

    codec_id = int(sys.argv[1])
    bombs = list(snappy_bombs()) if codec_id == c.SNAPPY else [bomb(codec_id)]
    if codec_id == c.ZSTD:  # frames that ask for windows of 128 MiB and of 2 GiB
        bombs += [bytes.fromhex("28b52ffd00") + bytes((window << 3,)) + bombs[0][6:] for window in (17, 21, 31)]
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    limit = used + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for data in bombs:
        try:
            c.decompress(codec_id, data, 8 << 20)
        except KafkaError as error:
            print(error.code.name)
"""


@pytest.mark.parametrize("codec_id", [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD])
def test_a_bomb_of_a_gibibyte_is_refused_within_64_mib(codec_id):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOMB), str(codec_id)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    codes = done.stdout.split()
    assert done.returncode == 0, done.stderr
    assert codes[0] == "MESSAGE_TOO_LARGE"
    assert set(codes) <= {"MESSAGE_TOO_LARGE", "CORRUPT_MESSAGE"}
    assert len(codes) == {c.SNAPPY: 4, c.ZSTD: 4}.get(codec_id, 1)
