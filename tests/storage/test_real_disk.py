"""Storage on the machine's own file system, for behaviour that the crash disk cannot show."""

from __future__ import annotations

import os
import socket

import pytest

from ottla.app.disk import RealDisk
from ottla.common.errors import OperatorError
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.log_config import LogConfig

from .maintenance import run_retention


@pytest.fixture
def opened(fakes, tmp_path, clock):
    managers = []

    def make(**options):
        manager = fakes.open_manager(RealDisk(), clock, directory=str(tmp_path / "data"), **options)
        managers.append(manager)
        return manager

    yield make
    for manager in managers:
        manager.shutdown()


def fill(fakes, log, clock, count, size=1000):
    for _ in range(count):
        clock.now_ms += 1
        batch = fakes.make_batch(clock.now_ms, 2, size)
        log.append_as_leader(batch, 0, len(batch), 0)


def test_write_stop_start_read(fakes, opened, clock):
    config = LogConfig(segment_bytes=100_000)
    manager = opened(config=config)
    log = manager.create_log("t", 0, bytes(16))
    fill(fakes, log, clock, 500)
    stored = fakes.read_log(log)
    assert len(stored) == 500
    manager.shutdown()
    log = opened(config=config).get_log("t", 0)
    assert len(log.segments) == 11
    assert fakes.read_log(log) == stored
    log.truncate_to(333)  # in the middle of a batch
    assert log.log_end_offset == 332
    fill(fakes, log, clock, 3)
    assert log.log_end_offset == 332 + 6
    assert fakes.read_log(log)[:166] == stored[:166]


def test_reserved_blocks_are_released(fakes, opened, clock):
    manager = opened()
    log = manager.create_log("t", 0, bytes(16))
    fill(fakes, log, clock, 30, size=25_000)
    path = log.active_segment.data.path
    reserved = os.stat(path).st_blocks * 512
    assert os.stat(path).st_size == log.size_bytes > 1024 * 1024
    run_retention(manager)
    run_retention(manager)
    kept = os.stat(path).st_blocks * 512
    assert kept <= log.size_bytes + 65536
    assert reserved >= kept
    fill(fakes, log, clock, 30, size=25_000)
    assert len(fakes.read_log(log)) == 60


def drop_pages(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def test_cold_region_is_reported_and_read_after_log_deletion(fakes, opened, clock):
    manager = opened()
    log = manager.create_log("t", 0, bytes(16))
    fill(fakes, log, clock, 600)
    path = log.active_segment.data.path
    with open(path, "rb") as file:
        stored = file.read()
    region = log.read(0, len(stored), max_offset=1200).records
    assert not region.is_cold(0, region.length)
    drop_pages(path)
    if RealDisk().open(path).is_cached(0, len(stored)):
        pytest.skip("this system cannot determine cached pages, or caches them at once")
    assert region.is_cold(0, region.length)
    manager.delete_log("t", 0)
    clock.now_ms += 120_000
    run_retention(manager)
    assert not os.path.exists(path)
    view = memoryview(bytearray(len(stored)))
    assert region.read_into(view, 0) == len(stored)
    assert view == stored
    region.release()


def test_a_committed_region_is_sent_by_reference(fakes, opened, clock):
    log = opened().create_log("t", 0, bytes(16))
    fill(fakes, log, clock, 30)
    segment = log.active_segment
    with open(segment.data.path, "rb") as file:
        stored = file.read()
    region = segment.data.region(100, 20_000)
    assert not region.by_reference
    region.committed = True
    assert region.by_reference
    one, other = socket.socketpair()
    with one, other:
        assert region.send(one.fileno(), 7, 9_000) == 9_000
        assert other.recv(10_000) == stored[107:9_107]
        os.truncate(segment.data.path, 9_100)
        with pytest.raises(OSError, match="the file is shorter"):
            region.send(one.fileno(), 9_000, 11_000)
        log.truncate_to(0)
        with pytest.raises(OSError, match="truncated under a read"):
            region.send(one.fileno(), 0, 1)
        with pytest.raises(BlockingIOError):
            other.recv(1, socket.MSG_DONTWAIT)
    region.release()


def test_second_process_cannot_lock_directory(fakes, opened, clock, tmp_path):
    opened()
    with pytest.raises(OperatorError, match="in use"):
        LogManager(RealDisk(), clock, fakes.Rng(), (str(tmp_path / "data"),)).open(node_id=1)


def test_file_in_place_of_directory_is_rejected(fakes, clock, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="file"):
        LogManager(RealDisk(), clock, fakes.Rng(), (str(tmp_path / "file" / "data"),)).open(node_id=1)


def test_start_ignores_files_named_like_partitions(fakes, opened, clock, tmp_path):
    manager = opened()
    fill(fakes, manager.create_log("t", 0, bytes(16)), clock, 1)
    manager.shutdown()
    (tmp_path / "data" / "file-0").write_bytes(b"x")
    (tmp_path / "data" / "link-0").symlink_to(tmp_path / "missing")
    again = opened()
    assert [log.name for log in again.logs()] == ["t-0"]
    assert not again.offline_directories
