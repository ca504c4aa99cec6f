"""Reads: limits, the first batch, regions that outlive truncation, deletion and eviction; offsets by time."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.builder import RecordData, build_batch
from ottla.storage.files.descriptors import MAX_PLACES, Descriptor, Descriptors, Folder
from ottla.storage.files.log_config import LogConfig
from ottla.storage.files.off_loop import WouldBlock, run_off_loop

from .maintenance import run_retention

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def manager(fakes, disk, clock):
    return fakes.open_manager(disk, clock, config=CONFIG)


@pytest.fixture
def log(manager):
    return manager.create_log("t", 0, bytes(16))


def fill(fakes, log, clock, batches: int, count: int = 2, size: int = 20) -> list[bytes]:
    stored = []
    for _ in range(batches):
        clock.now_ms += 10
        batch = fakes.make_batch(clock.now_ms, count, size)
        log.append_as_leader(batch, 0, len(batch), 0)
        stored.append(bytes(batch))
    return stored


def take(result) -> bytes:
    if result.records is None:
        assert result.length == 0
        return b""
    assert 0 < result.records.length <= result.length
    data = result.records.read_all()
    result.records.release()
    return data


def test_every_offset_finds_its_batch(fakes, log, clock):
    batches = fill(fakes, log, clock, 40)
    assert len(log.segments) > 3
    for offset in range(80):
        assert take(log.read(offset, 1, max_offset=80)) == batches[offset // 2]
    assert take(log.read(80, 1, max_offset=80)) == b""


def test_read_after_truncation_returns_batch_written_since(fakes, log, clock):
    """The batches before the truncation began at other offsets, and positions of them were known."""
    fill(fakes, log, clock, 6, count=1)
    log.truncate_to(2)
    batches = fill(fakes, log, clock, 1, count=4)
    assert len(log.segments) == 1
    for offset in range(2, 6):
        assert take(log.read(offset, 1000, max_offset=6)) == batches[0]


def test_max_bytes_and_the_first_batch(fakes, log, clock):
    batches = fill(fakes, log, clock, 4)
    size = len(batches[0])
    assert take(log.read(0, size + 5, max_offset=8)) == b"".join(batches)[: size + 5]
    assert take(log.read(0, size - 1, max_offset=8)) == batches[0]
    assert take(log.read(0, size - 1, max_offset=8, min_one_batch=False)) == b""
    assert take(log.read(0, size, max_offset=8, min_one_batch=False)) == batches[0]
    assert take(log.read(1, 0, max_offset=8)) == batches[0]
    # At the tail, where the position comes from memory.
    assert take(log.read(4, size - 1, max_offset=8)) == batches[2]
    assert take(log.read(4, size - 1, max_offset=8, min_one_batch=False)) == b""


LARGE = LogConfig(index_interval_bytes=100)


@pytest.fixture
def large(fakes, disk, clock):
    """A log and its 20 batches of one record and 40 KB each."""
    log = fakes.open_manager(disk, clock, config=LARGE).create_log("t", 0, bytes(16))
    return log, fill(fakes, log, clock, 20, count=1, size=40_000)


def test_large_batch_over_limit_is_left_for_next_read(large):
    log, batches = large
    size = len(batches[0])
    assert take(log.read(3, 3 * size - 1, max_offset=20)) == b"".join(batches[3:5])
    assert take(log.read(5, 3 * size, max_offset=20)) == b"".join(batches[5:8])
    assert log.read(3, 3 * size - 1, max_offset=20).length == 3 * size - 1, "a read with enough room returns it"
    # A short beginning is cheaper to send than to find; and the first batch may be the one that is cut.
    assert take(log.read(8, 2 * size + 10_000, max_offset=20)) == b"".join(batches[8:11])[: 2 * size + 10_000]
    assert take(log.read(8, 2 * size - 1, max_offset=20, min_one_batch=False)) == batches[8]
    assert take(log.read(8, size - 1, max_offset=20)) == batches[8]
    assert take(log.read(8, size - 1, max_offset=20, min_one_batch=False)) == b""


def test_sequential_read_of_large_batches_needs_no_search(large, monkeypatch):
    log, batches = large
    limit = 3 * len(batches[0]) - 1
    take(log.read(0, limit, max_offset=20))
    reads = []
    read = Descriptor.read

    def counted(self, *where):
        reads.append(where)
        return read(self, *where)

    monkeypatch.setattr(Descriptor, "read", counted)
    for offset in range(2, 12, 2):  # the last eight batches are known anyway
        reads.clear()
        assert take(log.read(offset, limit, max_offset=20)) == b"".join(batches[offset : offset + 2])
        assert len(reads) == 1, "more than the header of the batch that is left out"
    reads.clear()
    for offset in range(2, 12, 2):
        assert take(log.read(offset, limit, max_offset=20)) == b"".join(batches[offset : offset + 2])
    assert not reads, "a second consumer searches again"


def test_found_batches_of_a_log_directory_are_bounded(disk):
    descriptors = Descriptors(disk, 1)
    found = Descriptor(Folder(descriptors, "/data"), "00000000000000000000.log")
    for offset in range(MAX_PLACES + 2):
        descriptors.remember((found, 0, offset), (offset, 1, offset, -1))
    assert len(descriptors.places) == MAX_PLACES
    assert (found, 0, 1) not in descriptors.places
    assert (found, 0, 2) in descriptors.places


def test_sparse_index_omits_no_whole_batch(fakes, disk, clock):
    log = fakes.open_manager(disk, clock, config=LogConfig(index_interval_bytes=150_000)).create_log("t", 0, bytes(16))
    batches = fill(fakes, log, clock, 20, count=1, size=40_000)
    whole = b"".join(batches)
    size = len(batches[0])
    for first in range(10):
        for limit in range(size, 6 * size, size // 4):
            data = take(log.read(first, limit, max_offset=20))
            assert data == whole[first * size :][: len(data)]
            assert limit // size * size <= len(data) <= limit


def test_omitted_batch_is_searched_again_after_truncation(fakes, large, clock):
    log, batches = large
    limit = 3 * len(batches[0]) - 1
    assert take(log.read(8, limit, max_offset=20)) == b"".join(batches[8:10])
    log.truncate_to(9)
    after = fill(fakes, log, clock, 11, count=1, size=30_000)
    assert take(log.read(10, len(after[1]), max_offset=20)) == after[1]


def test_wrong_index_omits_no_batch(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, config=LARGE)
    log = manager.create_log("t", 0, bytes(16))
    batches = fill(fakes, log, clock, 5, count=1, size=40_000)
    size = len(batches[0])
    path = log.segments[0].data.path.removesuffix(".log") + ".index"
    manager.shutdown()
    disk.write_bytes(path, pack(">4i", 2, 2 * size + 7, 4, 4 * size))  # the last entry is checked at the start
    log = fakes.open_manager(disk, clock, config=LARGE).get_log("t", 0)
    assert take(log.read(0, 3 * size - 1, max_offset=5)) == b"".join(batches)[: 3 * size - 1]


def test_nothing_beyond_max_offset(fakes, log, clock):
    batches = fill(fakes, log, clock, 30)
    for max_offset in range(0, 62, 2):
        data = take(log.read(0, 100_000, max_offset=max_offset))
        assert data == b"".join(batches)[: len(data)]
        end = sum(len(batch) for batch in batches[: max_offset // 2])
        first_segment = sum(len(batch) for batch in batches if batches.index(batch) * 2 < log.segments[1].base_offset)
        assert len(data) == min(end, first_segment)
    assert take(log.read(0, 100_000, max_offset=1)) == b""


def test_out_of_range(fakes, log, clock):
    fill(fakes, log, clock, 10)
    log.delete_records(5)
    for offset in (-1, 4, 21):
        with pytest.raises(KafkaError) as failure:
            log.read(offset, 100, max_offset=20)
        assert failure.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError) as failure:
        log.delete_records(21)
    assert failure.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(3) == 5


def test_reads_by_parts_without_blocking(fakes, disk, log, clock):
    batches = fill(fakes, log, clock, 3)
    result = log.read(0, 100_000, max_offset=6)
    whole = b"".join(batches)
    scratch = bytearray(50)
    data = b""
    while len(data) < result.length:
        count = result.records.try_read_into(memoryview(scratch), len(data))
        data += scratch[:count]
    assert data == whole
    disk.cold = True
    with pytest.raises(BlockingIOError):
        result.records.try_read_into(memoryview(scratch), 0)
    assert result.records.read_into(memoryview(scratch), 0) == 50
    result.records.release()


def test_a_region_survives_deletion_and_eviction(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, config=CONFIG, max_open_files=2)
    log = manager.create_log("t", 0, bytes(16))
    batches = fill(fakes, log, clock, 20)
    held = log.read(0, 100_000, max_offset=40)
    expected = b"".join(batches)[: held.length]
    for number in range(8):
        fill(fakes, manager.create_log("other", number, bytes(16)), clock, 2)
    assert manager.open_file_count <= 3
    manager.delete_log("t", 0)
    clock.now_ms += 120_000
    run_retention(manager)
    assert not any(name.startswith("t-0") for name in disk.listdir("/data"))
    assert held.records.read_all() == expected
    before = disk.open_count
    held.records.release()
    assert disk.open_count == before - 1


def test_region_above_truncation_fails_and_one_below_works(fakes, log, clock):
    batches = fill(fakes, log, clock, 4)
    below = log.read(0, len(batches[0]), max_offset=8)
    above = log.read(0, 100_000, max_offset=8)
    log.truncate_to(4)
    fill(fakes, log, clock, 2, size=21)
    assert below.records.read_all() == batches[0]
    with pytest.raises(OSError, match="truncated"):
        above.records.read_into(memoryview(bytearray(1000)), 0)
    below.records.release()
    above.records.release()


def test_send_by_reference_requires_descriptor(fakes, log, clock):
    fill(fakes, log, clock, 4)
    region = log.read(0, 100_000, max_offset=8).records
    region.committed = True
    assert not region.by_reference
    region.release()


def test_damaged_index_is_rebuilt(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, config=CONFIG)
    log = manager.create_log("t", 0, bytes(16))
    batches = fill(fakes, log, clock, 40)
    manager.shutdown()
    first = log.segments[0].data.path.removesuffix(".log")
    good = disk.read_bytes(first + ".index")
    for damage in (b"", good[:-3], good + bytes(80), b"\x00\x00\x00\x05\x7f\xff\xff\xff"):
        disk.write_bytes(first + ".index", damage)
        disk.unlink(first + ".timeindex")
        manager = fakes.open_manager(disk, clock, config=CONFIG)
        log = manager.get_log("t", 0)
        for offset in range(0, 80, 3):
            assert take(log.read(offset, 1, max_offset=80)) == batches[offset // 2]
        manager.shutdown()
    assert disk.read_bytes(first + ".index") == good


TIMES = st.lists(st.integers(0, 50), min_size=1, max_size=40)


@given(TIMES, st.integers(0, 52), st.integers(0, 10))
@settings(max_examples=size(30, 300), deadline=None)
def test_offsets_by_time(fakes, times, target, start):
    clock = fakes.Clock(now_ms=1000)
    manager = fakes.open_manager(fakes.Disk(clock), clock, config=LogConfig(segment_bytes=400, index_interval_bytes=90))
    log = manager.create_log("t", 0, bytes(16))
    for number in range(0, len(times), 3):
        batch = build_batch([RecordData(time, None, b"value") for time in times[number : number + 3]])
        log.append_as_leader(batch, 0, len(batch), 4)
    start = min(start, len(times))
    log.delete_records(start)
    expected = next(((n, t, 4) for n, t in enumerate(times) if t >= target and n >= start), None)
    assert log.lookup_timestamp(target) == expected
    if start == 0:
        newest = max(times)
        assert log.max_timestamp() == (times.index(newest), newest, 4)
    manager.shutdown()
    manager = fakes.open_manager(
        manager.directories[0]._disk, clock, config=LogConfig(segment_bytes=400, index_interval_bytes=90)
    )
    assert manager.get_log("t", 0).lookup_timestamp(target) == expected


def test_no_timestamp_at_all(log):
    assert log.max_timestamp() is None
    assert log.lookup_timestamp(0) is None
    batch = build_batch([RecordData(-1, None, b"x")])
    log.append_as_leader(batch, 0, len(batch), 0)
    assert log.max_timestamp() is None
    assert log.lookup_timestamp(0) is None


def without_blocking(fakes, call):
    """Return the final result of `call(known)`, and the work that it left to the pool."""
    known, pool, left, finished = {}, fakes.Pool(), [], []
    while True:
        try:
            return call(known), left
        except WouldBlock as needed:
            left.append(needed)
            run_off_loop([needed], known, pool, lambda: finished.append(True))
            pool.run_all()
            assert len(finished) == len(left)


class TestOffLoop:
    def test_a_cold_read_leaves_its_pages_to_the_pool(self, fakes, disk, log, clock):
        expected = fill(fakes, log, clock, 30)
        disk.cold = True
        for offset in (0, 17, 40):
            result, left = without_blocking(fakes, lambda known, at=offset: log.read(at, 1, max_offset=60, known=known))
            assert take(result) == expected[offset // 2]
            assert left
            assert not any(needed.computes for needed in left)
        keys = [needed.key for needed in left]
        assert len(set(keys)) == len(keys), "each round knows one thing more"
        assert log.folder.descriptors.known is None

    def test_read_without_known_results_blocks(self, fakes, disk, log, clock):
        expected = fill(fakes, log, clock, 30)
        disk.cold = True
        assert take(log.read(16, 1, max_offset=60)) == expected[8]

    def test_warm_reads_leave_nothing(self, fakes, log, clock):
        fill(fakes, log, clock, 30)
        result, left = without_blocking(fakes, lambda known: log.read(16, 1, max_offset=60, known=known))
        take(result)
        assert left == []

    def test_zero_max_bytes_needs_no_read(self, fakes, disk, log, clock):
        fill(fakes, log, clock, 30)
        disk.cold = True
        assert log.read(16, 0, max_offset=60, min_one_batch=False, known={}).records is None

    def test_a_truncation_in_between_is_seen(self, fakes, disk, log, clock):
        fill(fakes, log, clock, 30)
        disk.cold = True
        known, pool = {}, fakes.Pool()
        with pytest.raises(WouldBlock) as needed:
            log.read(16, 1, max_offset=60, known=known)
        log.truncate_to(10)
        run_off_loop([needed.value], known, pool, lambda: None)
        pool.run_all()
        with pytest.raises(KafkaError) as error:
            log.read(16, 1, max_offset=60, known=known)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_files_of_a_deleted_log_stay_open_for_the_pool(self, fakes, disk, clock, manager):
        log = manager.create_log("gone", 0)
        fill(fakes, log, clock, 30)
        disk.cold = True
        pool, known = fakes.Pool(), {}
        with pytest.raises(WouldBlock) as needed:
            log.read(16, 1, max_offset=60, known=known)
        run_off_loop([needed.value], known, pool, lambda: None)
        manager.delete_log("gone", 0)
        assert disk.open_count == 1
        pool.run_all()
        assert disk.open_count == 0

    def test_cold_open_of_index_leaks_no_descriptor(self, fakes, disk, clock):
        config = LogConfig(segment_bytes=400, index_interval_bytes=90)
        manager = fakes.open_manager(disk, clock, config=config)
        expected = fill(fakes, manager.create_log("t", 0), clock, 30)
        manager.shutdown()
        assert disk.open_count == 0
        manager = fakes.open_manager(disk, clock, config=config)
        log = manager.get_log("t", 0)
        disk.cold = True
        result, _ = without_blocking(fakes, lambda known: log.read(17, 1, max_offset=60, known=known))
        assert take(result) == expected[8]
        manager.shutdown()
        assert disk.open_count == 0

    def test_damaged_index_is_rebuilt_in_one_step(self, fakes, disk, clock):
        config = LogConfig(segment_bytes=400, index_interval_bytes=90)
        manager = fakes.open_manager(disk, clock, config=config)
        expected = fill(fakes, manager.create_log("t", 0), clock, 30)
        manager.shutdown()
        index = next(name for name in disk.listdir("/data/t-0") if name.endswith(".index"))
        disk.write_bytes(f"/data/t-0/{index}", b"abc")
        log = fakes.open_manager(disk, clock, config=config).get_log("t", 0)
        disk.cold = True
        result, _ = without_blocking(fakes, lambda known: log.read(0, 1, max_offset=60, known=known))
        assert take(result) == expected[0]
        assert disk.size(f"/data/t-0/{index}") != 3

    @pytest.mark.parametrize("codec", ["gzip", "zstd"])
    def test_a_lookup_by_time_leaves_decompression(self, fakes, log, clock, codec):
        batch = fakes.make_batch(clock.now_ms, count=5, compression=codec)
        log.append_as_leader(batch, 0, len(batch), 0)
        wanted = (3, clock.now_ms + 3, 0)
        assert log.lookup_timestamp(clock.now_ms + 3) == wanted
        found, left = without_blocking(fakes, lambda known: log.lookup_timestamp(clock.now_ms + 3, known))
        assert found == wanted
        assert [needed.computes for needed in left] == [True]
        found, left = without_blocking(fakes, log.max_timestamp)
        assert found == (4, clock.now_ms + 4, 0)
        assert len(left) == 1
