"""Index of aborted transactions: its bytes, its lifetime with the segment, its search, and rebuilding it."""

from __future__ import annotations

import errno

import pytest

from ottla.record.control import EndMarker
from ottla.storage.files.checkpoints import aborted_counts, read_offsets
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.files.log_config import LogConfig
from ottla.storage.files.off_loop import WouldBlock
from ottla.storage.segment.index import IndexCorruption
from ottla.storage.segment.transaction_index import ENTRY, TransactionIndex
from ottla.storage.segment.transactions import CompletedTransaction

from .maintenance import run_retention, write_checkpoints

CONFIG = LogConfig(segment_bytes=1 << 20, retention_ms=-1, file_delete_delay_ms=0)


@pytest.fixture
def manager(fakes, disk, clock):
    return fakes.open_manager(disk, clock, config=CONFIG)


@pytest.fixture
def log(manager):
    log = manager.create_log("t", 0, bytes(16))
    log.producers.verification_enabled = False
    return log


def write(fakes, clock, log, producer_id, count=1):
    entry = log.producers.get(producer_id)
    batch = fakes.make_batch(
        clock.now_ms,
        count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0 if entry is None else entry.last_sequence + 1,
        is_transactional=True,
    )
    return log.append_as_leader(batch, 0, len(batch), 0).base_offset


def end(log, producer_id, *, committed=False):
    return log.writer.append_end_markers([EndMarker(producer_id, 0, 1, committed, 1)], 0).base_offset


def abort(fakes, clock, log, producer_id, count=1):
    """Write one whole transaction; returns the offset of its marker."""
    write(fakes, clock, log, producer_id, count)
    return end(log, producer_id)


def listed(log, offset, max_bytes=1 << 20, known=None):
    found = log.read(offset, max_bytes, max_offset=log.log_end_offset)
    try:
        return list(log.aborted.within(offset, found, log.log_end_offset, known))
    finally:
        if found.records is not None:
            found.records.release()


def names(disk):
    return [name for name in disk.listdir("/data/t-0") if "txnindex" in name]


FIRST = "00000000000000000000.txnindex"


class TestFile:
    def test_bytes(self, fakes, disk, clock, log):
        write(fakes, clock, log, 7, 3)
        write(fakes, clock, log, 8)
        end(log, 8, committed=True)
        end(log, 7)
        assert disk.read_bytes(f"/data/t-0/{FIRST}") == bytes.fromhex(
            "0000"  # version
            "0000000000000007"  # producer id
            "0000000000000000"  # first offset
            "0000000000000005"  # last offset, of the marker
            "0000000000000006"  # last stable offset
        )

    def test_last_stable_offset_excludes_own_transaction(self, fakes, disk, clock, log):
        write(fakes, clock, log, 7)
        write(fakes, clock, log, 8)
        end(log, 8)
        end(log, 7)
        entries = list(ENTRY.iter_unpack(disk.read_bytes(f"/data/t-0/{FIRST}")))
        assert entries == [(0, 8, 1, 2, 0), (0, 7, 0, 3, 4)]

    def test_no_file_exists_before_first_abort(self, fakes, disk, clock, log):
        write(fakes, clock, log, 7)
        end(log, 7, committed=True)
        log.roll()
        log.flush()
        before = disk.open_count
        assert not names(disk)
        assert listed(log, 0) == []
        assert disk.open_count == before

    def test_start_opens_no_transaction_index(self, fakes, disk, clock, manager, log):
        for _ in range(3):
            abort(fakes, clock, log, 7)
            log.roll()
        manager.shutdown()
        reopened = fakes.open_manager(disk, clock, config=CONFIG)
        again = reopened.get_log("t", 0)
        assert len(names(disk)) == 3
        assert not [one for one in reopened._descriptors.open_files if "txnindex" in one.path]
        assert listed(again, 0) == [(7, 0)]

    def test_transaction_index_is_deleted_with_segment(self, fakes, disk, clock, manager, log):
        marker = abort(fakes, clock, log, 7)
        log.roll()
        log.offsets.begin_high_watermark(log.log_end_offset)
        log.delete_records(marker + 1)
        run_retention(manager)
        assert names(disk) in ([], [f"{FIRST}.deleted"])
        clock.now_ms += 1
        run_retention(manager)
        assert not names(disk)

    def test_transaction_index_is_deleted_on_log_restart(self, fakes, disk, clock, manager, log):
        abort(fakes, clock, log, 7)
        log.truncate_fully_and_start_at(0)
        run_retention(manager)
        assert FIRST not in names(disk)
        abort(fakes, clock, log, 7)
        assert listed(log, 0) == [(7, 0)]

    def test_a_truncation_cuts_it(self, fakes, disk, clock, log):
        first = abort(fakes, clock, log, 7)
        second = abort(fakes, clock, log, 7)
        log.truncate_to(second)
        assert len(disk.read_bytes(f"/data/t-0/{FIRST}")) == ENTRY.size
        assert listed(log, 0) == [(7, 0)]
        log.truncate_to(first)
        assert listed(log, 0) == []

    @pytest.mark.parametrize("action", ["append", "open"])
    def test_a_full_disk_keeps_entries_in_memory(self, fakes, disk, clock, manager, log, action):
        def full(doing, path):
            return OSError(errno.ENOSPC, "full") if path.endswith("txnindex") and doing == action else None

        disk.fault = full
        abort(fakes, clock, log, 7)
        assert listed(log, 0) == [(7, 0)]
        disk.fault = lambda action, path: None
        abort(fakes, clock, log, 7)
        assert len(disk.read_bytes(f"/data/t-0/{FIRST}")) == 2 * ENTRY.size

    @pytest.mark.parametrize("closing", [False, True])
    def test_entries_pending_on_full_disk_are_flushed_with_segment(self, fakes, disk, clock, log, closing):
        log.flush()  # makes the name of its directory durable
        for seed in range(1, 20):
            disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if path.endswith("txnindex") else None
            marker = abort(fakes, clock, log, 7)
            disk.fault = lambda action, path: None
            if not closing:
                log.roll()
            log.flush(closing=closing)
            log = self.after_power_failure(fakes, disk, clock, seed)
            assert listed(log, marker - 1) == [(7, marker - 1)]

    @staticmethod
    def after_power_failure(fakes, disk, clock, seed):
        disk.crash(fakes.Rng(seed))
        log = fakes.open_manager(disk, clock, config=CONFIG).get_log("t", 0)
        log.producers.verification_enabled = False
        return log


class TestSearch:
    def index(self, disk, count):
        index = TransactionIndex(Folder(Descriptors(disk, 10), "/data"), 0)
        for number in range(count):
            # Producer 1 writes at each tenth offset and aborts two later; 2 has one transaction in each hundred.
            at, spanning = number * 10, number // 10 * 100 + 5
            if number % 10 == 9:
                index.append(CompletedTransaction(2, spanning, at + 5, at + 6))
            else:
                index.append(CompletedTransaction(1, at, at + 2, spanning if number % 10 else at + 3))
        return index

    @pytest.mark.parametrize("count", [1, 3, 250, 700])
    def test_search_agrees_with_list(self, disk, count):
        disk.makedirs("/data")
        index = self.index(disk, count)
        entries = [index.unpack(number)[1:] for number in range(count)]
        for start in range(0, count * 10, 37):
            for upper in (start + 1, start + 40, start + 3000):
                found: list[tuple[int, int]] = []
                index.collect(start, upper, found)
                needed = [entry[:2] for entry in entries if entry[2] >= start and entry[1] < upper]
                assert found == needed

    def test_entries_behind_range_are_not_read(self, disk):
        disk.makedirs("/data")
        index = self.index(disk, 700)
        reads = []
        disk.fault = lambda action, path: reads.append(action) if action == "read" else None
        found: list[tuple[int, int]] = []
        assert index.collect(3000, 3030, found)
        assert len(found) < 20
        assert len(reads) < 15

    @pytest.mark.parametrize(
        "entry",
        [
            (1, 5, 0, 3, 4),
            (0, -5, 0, 3, 4),
            (0, 5, 3, 3, 4),
            (0, 5, -1, 3, 4),
            (0, 5, 0, 3, 9),
            (0, 5, 0, 3, -1),
            (0, 0, 0, 0, 0),
        ],
    )
    def test_invalid_entry_is_rejected(self, disk, entry):
        disk.makedirs("/data")
        disk.write_bytes("/data/00000000000000000000.txnindex", ENTRY.pack(*entry))
        index = TransactionIndex(Folder(Descriptors(disk, 10), "/data"), 0)
        assert index.take_up(ENTRY.size)
        with pytest.raises(IndexCorruption):
            index.collect(0, 100, [])


class TestReading:
    def test_read_lists_overlapping_aborts(self, fakes, clock, log):
        write(fakes, clock, log, 1)  # 0
        write(fakes, clock, log, 2)  # 1
        end(log, 2)  # 2
        log.roll()
        write(fakes, clock, log, 2)  # 3
        end(log, 2)  # 4
        end(log, 1)  # 5
        write(fakes, clock, log, 3)  # 6
        end(log, 3, committed=True)  # 7
        assert listed(log, 0) == [(2, 1), (1, 0)]  # the first segment only: its transactions end in the second
        assert listed(log, 2) == [(2, 1), (1, 0)]
        assert listed(log, 3) == [(2, 3), (1, 0)]
        assert listed(log, 5) == [(1, 0)]
        assert listed(log, 6) == []

    def test_a_page_that_is_not_cached_is_left_to_the_pool(self, fakes, disk, clock, manager, log):
        abort(fakes, clock, log, 7)
        log.flush()
        found = log.read(0, 100, max_offset=log.log_end_offset)
        disk.cold = True
        with pytest.raises(WouldBlock) as needed:
            log.aborted.within(0, found, log.log_end_offset, {})
        known = {needed.value.key: needed.value.attempt()}
        assert list(log.aborted.within(0, found, log.log_end_offset, known)) == [(7, 0)]

    def test_unclean_start_rebuilds_transaction_index(self, fakes, disk, clock, log):
        write(fakes, clock, log, 1)
        log.roll()
        abort(fakes, clock, log, 2)
        end(log, 1)
        disk.unlink("/data/t-0/00000000000000000001.txnindex")
        disk.locked.clear()
        again = fakes.open_manager(disk, clock, config=CONFIG).get_log("t", 0)
        assert listed(again, 0) == [(1, 0)]
        assert listed(again, 1) == [(2, 1), (1, 0)]

    @pytest.mark.promise("T4")
    def test_clean_start_rebuilds_index_cut_inside_entry(self, fakes, disk, clock, manager, log):
        abort(fakes, clock, log, 2)
        manager.shutdown()
        disk.write_bytes(f"/data/t-0/{FIRST}", disk.read_bytes(f"/data/t-0/{FIRST}")[:20])
        again = fakes.open_manager(disk, clock, config=CONFIG).get_log("t", 0)
        assert listed(again, 0) == [(2, 0)]

    @pytest.mark.parametrize("left", [None, 0, 1, 3])
    def test_clean_start_rebuilds_index_with_wrong_entry_count(self, fakes, disk, clock, manager, log, left):
        """Only for the damaged segment: the log of other segments is not read."""
        abort(fakes, clock, log, 1)
        log.roll()
        first = abort(fakes, clock, log, 1) - 1
        abort(fakes, clock, log, 2)
        log.roll()
        abort(fakes, clock, log, 1)
        path = f"/data/t-0/{first:020d}.txnindex"
        whole = disk.read_bytes(path)
        assert len(whole) == 2 * ENTRY.size
        manager.shutdown()
        if left is None:
            disk.unlink(path)
        else:
            disk.write_bytes(path, (whole * 2)[: left * ENTRY.size])
        read = []
        disk.fault = lambda action, path: read.append(path) if action == "read" else None
        again = fakes.open_manager(disk, clock, config=CONFIG).get_log("t", 0)
        disk.fault = lambda action, path: None
        assert disk.read_bytes(path) == whole
        assert f"/data/t-0/{0:020d}.log" not in read
        assert listed(again, first) == [(1, first), (2, first + 2)]

    def test_entry_counts_of_stop_are_dropped_after_appends(self, fakes, disk, clock, manager, log):
        abort(fakes, clock, log, 1)
        points = "/data/recovery-point-offset-checkpoint"
        manager.shutdown()
        assert aborted_counts(read_offsets(disk, points)) == {("t", 0): {0: 1}}
        again = fakes.open_manager(disk, clock, config=CONFIG)
        write_checkpoints(again)
        assert aborted_counts(read_offsets(disk, points)) == {}
        assert ("t", 0) in read_offsets(disk, points)
