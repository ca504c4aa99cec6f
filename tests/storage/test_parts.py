"""Storage components: indexes and epochs compared with plain models, snapshots, descriptors, checkpoints, config."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.record.batch import BATCH_HEADER
from ottla.record.checksum import crc32c
from ottla.record.control import end_transaction_marker
from ottla.storage.files import names
from ottla.storage.files.checkpoints import (
    CheckpointCorruption,
    format_epochs,
    format_offsets,
    read_epochs,
    read_offsets,
)
from ottla.storage.files.descriptors import Descriptor, Descriptors, Folder
from ottla.storage.files.epochs import LeaderEpochCache
from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.producer_state import ProducerState, SnapshotCorruption, decode_snapshot
from ottla.storage.repair.reader import (
    SegmentDamage,
    base_offset_of,
    check_indexes,
    iter_segment,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
)
from ottla.storage.segment.index import OffsetIndex, TimeIndex


def folder_on(fakes, limit: int = 10) -> Folder:
    disk = fakes.Disk(fakes.Clock())
    disk.makedirs("/d")
    return Folder(Descriptors(disk, limit), "/d")


class TestIndexes:
    @given(
        st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=700),
        st.lists(st.integers(0, 40_000), min_size=1, max_size=30),
        st.integers(0, 40_000),
    )
    @settings(max_examples=60, deadline=None)
    def test_offset_index_equals_a_list(self, fakes, steps, targets, cut):
        index = OffsetIndex(folder_on(fakes), 1000)
        index.create()
        entries, offset, position = [], 1000, 0
        for offset_step, position_step in steps:
            offset += offset_step
            position += position_step
            index.append(offset, position)
            entries.append((offset, position))

        def check():
            for target in targets:
                expected = [where for last, where in entries if last <= 1000 + target]
                assert index.lookup(1000 + target)[1] == (expected[-1] if expected else 0)
            assert index.entry_count == len(entries)
            assert index.last_position() == (entries[-1][1] if entries else 0)
            assert [(1000 + first, second) for first, second in index.entries()] == entries

        check()
        index.truncate_to_offset(1000 + cut)
        entries = [entry for entry in entries if entry[0] < 1000 + cut]
        check()
        index.write_pending()
        index.close()
        again = OffsetIndex(index._descriptor._folder, 1000)
        again.open()
        index = again
        check()

    def test_time_index_adds_only_newer_timestamps(self, fakes):
        index = TimeIndex(folder_on(fakes), 100)
        index.create()
        assert index.last_entry() == (-1, 100)
        for timestamp, offset in ((50, 105), (50, 110), (40, 115), (60, 120)):
            index.maybe_append(timestamp, offset)
        assert [(t, 100 + relative) for t, relative in index.entries()] == [(50, 105), (60, 120)]
        assert [index.lookup(t)[1] for t in (0, 50, 51, 60, 61)] == [100, 100, 105, 105, 120]
        index.truncate_to_offset(120)
        assert index.last_entry() == (50, 105)

    def test_bytes_in_the_files(self, fakes):
        folder = folder_on(fakes)
        index, time_index = OffsetIndex(folder, 1000), TimeIndex(folder, 1000)
        index.create()
        time_index.create()
        index.append(1007, 0x01020304)
        time_index.maybe_append(0x0102030405060708, 1007)
        index.write_pending()
        time_index.write_pending()
        disk = folder.disk
        assert disk.read_bytes("/d/00000000000000001000.index") == bytes.fromhex("0000000701020304")
        assert disk.read_bytes("/d/00000000000000001000.timeindex") == bytes.fromhex("010203040506070800000007")


class TestEpochs:
    @given(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30), st.integers(0, 60), st.integers(0, 60)
    )
    @settings(max_examples=200, deadline=None)
    def test_epoch_answers_equal_those_of_records(self, steps, cut_end, cut_start):
        """Each record has its epoch; every answer follows from that list."""
        cache, records = LeaderEpochCache([]), []
        for epoch, count in steps:
            latest = records[-1] if records else -1
            if epoch < latest or not count:
                continue
            cache.assign(epoch, len(records))
            records += [epoch] * count
        cache.truncate_from_end(cut_end)
        records = records[:cut_end]
        start = min(cut_start, len(records))
        cache.truncate_from_start(start)
        for offset in range(start, len(records)):
            assert cache.epoch_for_offset(offset) == records[offset]
        known = sorted(set(records[start:]))
        if start == len(records):
            return
        assert cache.latest_epoch == records[-1]
        assert [epoch for epoch, _ in cache.entries()] == known
        for epoch in range(22):
            got = cache.end_offset_for(epoch, len(records))
            at_most = [known_epoch for known_epoch in known if known_epoch <= epoch]
            if epoch > known[-1]:
                assert got == (-1, -1)
            elif not at_most:
                assert got == (epoch, start)
            else:
                last = max(n for n in range(start, len(records)) if records[n] == at_most[-1])
                assert got == (at_most[-1], last + 1)

    def test_a_new_leader_before_its_first_append(self):
        cache = LeaderEpochCache([(1, 0)])
        cache.assign(2, 10)
        assert cache.end_offset_for(1, 10) == (1, 10)
        assert cache.end_offset_for(2, 10) == (2, 10)
        cache.assign(3, 10)
        assert cache.entries() == [(1, 0), (3, 10)]
        assert not cache.must_be_written(10), "an epoch without a record is dropped by a start"
        assert cache.must_be_written(11)
        cache.assign(4, 11)
        assert cache.must_be_written(11), "another epoch took over before the file was asked about"
        cache.note_written()
        assert not cache.must_be_written(12)


class TestSnapshots:
    def test_bytes(self):
        state = ProducerState(0)
        header = (0, 0, 0, 2, 0, 0x10, 2, 1000, 1005, 7, 3, 40, 3)
        state.update(header, 90, 1005)
        marker = end_transaction_marker(
            commit=True, timestamp_ms=900, producer_id=7, producer_epoch=3, coordinator_epoch=11
        )
        state.end_transaction(BATCH_HEADER.unpack_from(marker), 95, marker)
        state.update(header, 100, 1005)
        data = state.encode()
        assert data[:2] == b"\x00\x01"
        assert data[6:] == bytes.fromhex(
            "00000001"  # one entry
            "0000000000000007"  # producer id
            "0003"  # epoch
            "0000002a"  # last sequence 42
            "0000000000000066"  # last offset 102
            "00000002"  # offset delta
            "00000000000003ed"  # timestamp 1005
            "0000000b"  # coordinator epoch
            "0000000000000064"  # first offset of the transaction
        )
        entry = decode_snapshot(data)[7]
        assert entry.batches == [(40, 42, 102, 1005)]
        assert (entry.producer_epoch, entry.coordinator_epoch, entry.current_txn_first_offset) == (3, 11, 100)
        again = ProducerState(0)
        again.load(data, 103, now_ms=10**15, expiration_ms=1)
        assert again.transactions.open_transactions() == {7: 100}  # an open transaction doesn't expire
        assert again.encode() == data

    @given(st.binary(max_size=200))
    def test_invalid_bytes_are_rejected(self, data):
        with pytest.raises(SnapshotCorruption):
            decode_snapshot(data)

    def test_expired_producers_are_left_out(self):
        state = ProducerState(0)
        state.update((0, 0, 0, 2, 0, 0, 0, 1000, 1000, 1, 0, 0, 1), 0, 1000)
        state.update((0, 0, 0, 2, 0, 0, 0, 5000, 5000, 2, 0, 0, 1), 1, 5000)
        again = ProducerState(0)
        again.load(state.encode(), 2, now_ms=5500, expiration_ms=1000)
        assert list(again.entries()) == [2]


class TestDescriptors:
    def test_pins_outlive_eviction_and_close(self, fakes):
        folder: Any = folder_on(fakes, limit=2)
        descriptors = [Descriptor(folder, f"f{number}") for number in range(5)]
        for descriptor in descriptors:
            descriptor.create_empty()
        assert folder.disk.open_count == 2
        files = [descriptor.pin() for descriptor in descriptors]
        assert folder.disk.open_count == 5
        for descriptor in descriptors:
            descriptor.close()
        assert [file.size() for file in files] == [0] * 5
        for descriptor in descriptors:
            descriptor.unpin()
        assert folder.disk.open_count == 0
        assert len(folder.descriptors) == 0


class TestCheckpoints:
    @given(
        st.dictionaries(
            st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 99)),
            st.integers(0, 2**63 - 1),
            max_size=20,
        )
    )
    def test_offsets_round_trip(self, fakes, offsets):
        disk = fakes.Disk(fakes.Clock())
        disk.write_bytes("/c", format_offsets(offsets))
        assert read_offsets(disk, "/c") == offsets

    @given(st.binary(max_size=60) | st.text("0129 -\n", max_size=30).map(str.encode))
    @settings(max_examples=300)
    def test_any_bytes_are_read_or_refused(self, fakes, data):
        disk = fakes.Disk(fakes.Clock())
        disk.write_bytes("/c", data)
        for read in (read_offsets, read_epochs):
            with contextlib.suppress(CheckpointCorruption):
                read(disk, "/c")

    @pytest.mark.promise("D7")
    def test_any_flipped_bit_is_found(self, fakes):
        """Except for one that turns the checksum into an entry of an unknown topic: the covered data is unchanged."""
        disk = fakes.Disk(fakes.Clock())
        offsets = {("a", 0): 40_000, ("a", 1): 7, ("longer.name", 12): 2**40}
        data = format_offsets(offsets)
        refused = 0
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            disk.write_bytes("/c", changed)
            try:
                assert read_offsets(disk, "/c").items() >= offsets.items()
            except CheckpointCorruption:
                refused += 1
        assert refused > 8 * len(data) * 2 // 3

    def test_files_of_others_have_no_checksum(self, fakes):
        disk = fakes.Disk(fakes.Clock())
        disk.write_bytes("/c", b"0\n2\na 0 5\nb 1 7\n")
        assert read_offsets(disk, "/c") == {("a", 0): 5, ("b", 1): 7}

    def test_texts(self, fakes):
        checksum = crc32c(b"a 2 3\na 10 1\nb 0 5")
        assert format_offsets({("b", 0): 5, ("a", 10): 1, ("a", 2): 3}) == (
            b"0\n4\n:ottla:crc32c 0 %d\na 2 3\na 10 1\nb 0 5\n" % checksum
        )
        assert format_epochs([(0, 0), (4, 17)]) == b"0\n2\n0 0\n4 17\n"
        assert read_offsets(fakes.Disk(fakes.Clock()), "/absent") == {}


def test_config_by_kafkas_names():
    config = LogConfig.from_properties(
        {
            "segment.bytes": "1000",
            "cleanup.policy": "compact, delete",
            "preallocate": "TRUE",
            "min.cleanable.dirty.ratio": "0.25",
            "message.timestamp.type": "LogAppendTime",
            "unknown.name": "x",
        }
    )
    assert config.segment_bytes == 1000
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.compacted
    assert config.deleted_by_age_or_size
    assert config.preallocate
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.retention_ms == LogConfig().retention_ms
    with pytest.raises(ValueError, match=r"segment\.bytes"):
        LogConfig.from_properties({"segment.bytes": "many"})
    with pytest.raises(ValueError, match="preallocate"):
        LogConfig.from_properties({"preallocate": "maybe"})


def test_names():
    assert names.offset_name(42, ".log") == "00000000000000000042.log"
    assert names.parse_offset("00000000000000000042.log", ".log") == 42
    for wrong in (
        "42.log",
        "00000000000000000042.index",
        "0000000000000000004x.log",
        "00000000000000000042.log.deleted",
    ):
        assert names.parse_offset(wrong, ".log") is None
    assert names.parse_partition_dir("a-b-12") == ("a-b", 12)
    for wrong in ("a", "a-", "-1", "a-01", "a-b", "a-1.ff-delete", "a-²"):
        assert names.parse_partition_dir(wrong) is None


class TestReader:
    def test_segments_indexes_and_snapshots_of_a_real_log(self, fakes, disk, clock):
        manager = fakes.open_manager(disk, clock, config=LogConfig(index_interval_bytes=50))
        log = manager.create_log("t", 0, bytes(16))
        for number in range(30):
            clock.now_ms += 5 if number % 3 else -4
            batch = fakes.make_batch(clock.now_ms, 2, producer_id=1, producer_epoch=0, base_sequence=2 * number)
            log.append_as_leader(batch, 0, len(batch), 0)
        manager.shutdown()
        read = {name: disk.read_bytes(f"/data/t-0/{name}") for name in disk.listdir("/data/t-0")}
        name = "00000000000000000000"
        batches = list(iter_segment(io.BytesIO(read[f"{name}.log"])))
        assert [stored.batch.base_offset for stored in batches] == list(range(0, 60, 2))
        assert all(stored.batch.crc_matches() for stored in batches)
        offset_index = read_offset_index(read[f"{name}.index"], 0)
        time_index = read_time_index(read[f"{name}.timeindex"], 0)
        assert len(offset_index) > 10
        assert len(time_index) > 5
        assert check_indexes(batches, offset_index, time_index) == []
        assert read_offset_index(read[f"{name}.index"] + bytes(80), 0) == offset_index
        wrong = [(offset + 1, position) for offset, position in offset_index]
        assert len(check_indexes(batches, wrong, [])) == len(wrong)
        assert len(check_indexes(batches, [], [(timestamp + 1, offset) for timestamp, offset in time_index])) == len(
            time_index
        )
        assert read_producer_snapshot(read[f"{60:020d}.snapshot"])[1].last_sequence == 59
        assert base_offset_of(f"{60:020d}.snapshot") == 60
        assert base_offset_of("leader-epoch-checkpoint") is None

    @given(st.binary(max_size=300))
    def test_invalid_bytes_are_damage(self, data):
        if not data:
            return
        with pytest.raises(SegmentDamage) as failure:
            list(iter_segment(io.BytesIO(data)))
        assert failure.value.position == 0

    def test_cut_segment_returns_whole_batches(self, fakes):
        batch = bytes(fakes.make_batch(1000, 2))
        found = []
        with pytest.raises(SegmentDamage) as failure:
            found.extend(iter_segment(io.BytesIO(batch * 2 + batch[:-1])))
        assert failure.value.position == 2 * len(batch)
        assert [stored.position for stored in found] == [0, len(batch)]
