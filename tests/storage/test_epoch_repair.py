"""Entries missing in `leader-epoch-checkpoint` are found in the batches, and damage is not taken for them."""

from __future__ import annotations

import logging
import struct

import pytest

from ottla.storage.files.log_config import LogConfig

FILE = "/data/t-0/leader-epoch-checkpoint"


@pytest.fixture
def store(fakes):
    return Store(fakes)


class Store:
    """A log of small segments with a leader epoch file that can be rewritten."""

    def __init__(self, fakes) -> None:
        self.fakes = fakes
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.open()
        self.log = self.manager.create_log("t", 0, bytes(16))

    def open(self):
        self.disk.locked.clear()
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=LogConfig(segment_bytes=300))
        self.log = self.manager.get_log("t", 0)
        return self.log

    def fill(self, batches: int, epoch: int) -> None:
        for _ in range(batches):
            batch = self.fakes.make_batch(self.clock.now_ms, 2)
            self.log.append_as_leader(batch, 0, len(batch), epoch)

    def stop_and_write(self, *entries: tuple[int, int]) -> None:
        self.manager.shutdown()
        lines = "".join(f"{epoch} {offset}\n" for epoch, offset in entries)
        self.disk.write_bytes(FILE, f"0\n{len(entries)}\n{lines}".encode())

    def _last_batch(self) -> tuple[str, bytearray, int]:
        """Path and bytes of the active segment, and the position of its last batch's leader epoch."""
        path = self.log.segments[-1].data.path
        data = bytearray(self.disk.read_bytes(path))
        position = following = 0
        while following < len(data):
            position = following
            following += 12 + struct.unpack_from(">i", data, position + 8)[0]
        return path, data, position + 12

    def last_epoch(self) -> int:
        _, data, at = self._last_batch()
        return int(struct.unpack_from(">i", data, at)[0])

    def write_last_epoch(self, epoch: int) -> None:
        path, data, at = self._last_batch()
        struct.pack_into(">i", data, at, epoch)
        self.disk.write_bytes(path, bytes(data))

    def written(self) -> list[str]:
        return self.disk.read_bytes(FILE).decode().splitlines()[2:]


WHOLE = [(4, 0), (6, 6), (7, 10), (9, 14)]


@pytest.fixture
def full(store):
    """Batches of two records in four epochs."""
    for epoch, batches in ((4, 3), (6, 2), (7, 2), (9, 4)):
        store.fill(batches, epoch)
    assert store.log.epochs.entries() == WHOLE
    assert len(store.log.segments) > 3
    return store


@pytest.mark.parametrize("kept", [WHOLE[:1], WHOLE[:2], WHOLE[:3], []], ids=len)
@pytest.mark.parametrize("is_killed", [False, True])
def test_start_adds_missing_entries_at_the_end(full, caplog, kept, is_killed):
    full.stop_and_write(*kept)
    if is_killed:
        full.disk.unlink("/data/.kafka_cleanshutdown")
    with caplog.at_level(logging.ERROR):
        log = full.open()
    assert log.epochs.entries() == WHOLE
    full.manager.shutdown()
    assert full.written() == [f"{epoch} {offset}" for epoch, offset in WHOLE]
    assert sum("lacked entries" in message for message in caplog.messages) <= 1


def test_first_entry_that_starts_too_late_is_moved(full):
    """As after a kill before the entries of a repaired first batch were written."""
    full.stop_and_write((4, 2), *WHOLE[1:])
    full.disk.unlink("/data/.kafka_cleanshutdown")
    assert full.open().epochs.entries() == WHOLE


@pytest.mark.parametrize(
    "damaged",
    [
        [(4, 0), (6, 2), (7, 10), (9, 14)],  # two batches early
        [(4, 0), (6, 5), (7, 10), (9, 14)],  # within a batch
        [(4, 0), (6, 6), (7, 10), (9, 11)],
        [(6, 0), (7, 10), (9, 14)],  # the entry before it is missing too
        [(4, 0), (6, 1), (7, 2), (9, 14)],
    ],
    ids=str,
)
def test_entries_that_start_too_early_are_moved(full, damaged):
    full.stop_and_write(*damaged)
    log = full.open()
    assert log.add_missing_epochs()
    assert log.epochs.entries() == WHOLE
    assert not log.add_missing_epochs()
    full.manager.shutdown()
    assert full.written() == [f"{epoch} {offset}" for epoch, offset in WHOLE]


@pytest.mark.parametrize(
    "damaged", [[(4, 0), (6, 4), (7, 10), (9, 14)], [(4, 0), (6, 6), (7, 10), (8, 12), (9, 14)]], ids=str
)
def test_single_batch_does_not_move_an_entry(full, damaged):
    full.stop_and_write(*damaged)
    log = full.open()
    assert not log.add_missing_epochs(), "the batch may have a damaged epoch"


@pytest.mark.parametrize("start", [15, 17, 1 << 40])
def test_wrong_start_does_not_change_the_last_batch(store, start):
    for epoch, batches in ((4, 7), (9, 1)):
        store.fill(batches, epoch)
    store.stop_and_write((4, 0), (9, start))
    store.disk.unlink("/data/.kafka_cleanshutdown")
    log = store.open()
    assert log.epochs.entries() == [(4, 0), (9, 14)]
    assert store.last_epoch() == 9


def test_last_batch_gets_the_epoch_of_its_entry(store):
    """The entry of a leader without records starts at the log end, so that the batch is wrong."""
    store.fill(8, 8)
    store.stop_and_write((8, 0), (9, 16))
    store.write_last_epoch(9)
    store.disk.unlink("/data/.kafka_cleanshutdown")
    assert store.open().epochs.entries() == [(8, 0)]
    assert store.last_epoch() == 8


@pytest.mark.parametrize("lost", [WHOLE[:1], WHOLE[:2], WHOLE[1:2], WHOLE[2:3], WHOLE[1:3]], ids=str)
def test_missing_entries_between_others_are_added(full, lost):
    full.stop_and_write(*(entry for entry in WHOLE if entry not in lost))
    log = full.open()
    assert log.epochs.entries() != WHOLE, "a clean start looks at the last batch only"
    assert log.add_missing_epochs()
    assert log.epochs.entries() == WHOLE
    assert not log.add_missing_epochs()
    full.manager.shutdown()
    assert full.written() == [f"{epoch} {offset}" for epoch, offset in WHOLE]


def test_single_batch_needs_a_second_replica(store):
    for epoch, batches in ((4, 3), (6, 1), (9, 3)):
        store.fill(batches, epoch)
    store.stop_and_write((4, 0), (9, 8))
    log = store.open()
    assert not log.add_missing_epochs(), "it may be a damaged epoch"
    assert not log.shares_epoch(5, 7)
    assert not log.shares_epoch(6, 5)
    assert log.shares_epoch(6, 7)
    assert log.epochs.entries() == [(4, 0), (6, 6), (9, 8)]


@pytest.mark.parametrize("epoch", [8, 1 << 30, 3])
def test_damaged_epoch_adds_no_entry(full, epoch):
    path = full.log.segments[1].data.path
    data = bytearray(full.disk.read_bytes(path))
    struct.pack_into(">i", data, 12, epoch)
    full.disk.write_bytes(path, bytes(data))
    assert not full.log.add_missing_epochs()
    assert full.log.epochs.entries() == WHOLE
