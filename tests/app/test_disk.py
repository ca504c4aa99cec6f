"""The real disk: contract of the protocol in `common.platform.disk`, on a real file system and on tmpfs."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.app.disk import RealDisk


@pytest.fixture(params=["disk", "tmpfs"])
def folder(request, tmp_path, tmp_path_factory):
    if request.param == "disk":
        yield str(tmp_path)
        return
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs")
    path = f"/dev/shm/{tmp_path_factory.getbasetemp().name}-{os.getpid()}"
    RealDisk().makedirs(path)
    yield path
    RealDisk().rmtree(path)


def test_opening_a_pipe_does_not_block(folder):
    os.mkfifo(f"{folder}/pipe")
    os.mkdir(f"{folder}/directory")
    for name in ("pipe", "directory"):
        with pytest.raises(OSError, match=f"{folder}/{name}"):
            RealDisk().read_bytes(f"{folder}/{name}")
    with pytest.raises(OSError, match=f"{folder}/pipe"):
        RealDisk().overwrite(f"{folder}/pipe", b"x")
    os.mkfifo(f"{folder}/a.tmp")
    with pytest.raises(OSError, match=f"{folder}/a.tmp"):
        RealDisk().write_atomic(f"{folder}/a", b"x")
    file = RealDisk().open(f"{folder}/pipe", read_only=True)
    with pytest.raises(OSError, match="seek"):
        file.read(1, 0)
    file.close()


def test_appends_and_reads(folder):
    disk = RealDisk()
    file = disk.open(f"{folder}/a", create=True)
    assert file.append([b"one"]) == 3
    pieces = [b"%d," % number for number in range(3000)]
    assert file.append([*pieces, b"", memoryview(b"end"), bytearray(b"!")]) == len(b"".join(pieces)) + 4
    whole = b"one" + b"".join(pieces) + b"end!"
    assert file.size() == len(whole)
    assert file.read(1 << 20, 0) == whole
    assert file.read(5, 3) == whole[3:8]
    assert file.read(5, len(whole)) == b""
    view = memoryview(bytearray(10))
    assert file.read_into(view, len(whole) - 4) == 4
    assert bytes(view[:4]) == b"end!"
    file.close()
    file.close()


def test_bytes_of_another_file_are_appended_by_reference(folder):
    disk = RealDisk()
    source, file = disk.open(f"{folder}/a", create=True), disk.open(f"{folder}/b", create=True)
    source.append([bytes(range(256)) * 1000])
    file.append([b"first"])
    assert file.append_from(source, 1, 200_000) == 200_000
    assert file.append_from(source, 255_999, 10) == 1, "it ends there"
    source.close()
    file.append([b"last"])
    want = b"first" + (bytes(range(256)) * 1000)[1:200_001] + b"\xfflast"
    assert file.read(1 << 20, 0) == want
    file.truncate(5)
    file.append([b"!"])
    assert file.read(100, 0) == b"first!", "appends go to the end as before"
    file.close()


def test_a_file_system_that_copies_nothing_by_reference_says_so(tmp_path, monkeypatch):
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"data"])

    def fail(number):
        def copy(*args):
            raise OSError(number, "no")

        monkeypatch.setattr(os, "copy_file_range", copy)

    fail(errno.EXDEV)
    assert file.append_from(file, 0, 4) == 0
    fail(errno.EIO)
    with pytest.raises(OSError, match="no"):
        file.append_from(file, 0, 4)
    file.close()


def test_appends_go_to_the_end_after_truncation(folder):
    disk = RealDisk()
    file = disk.open(f"{folder}/a", create=True)
    file.append([b"0123456789"])
    file.truncate(6)
    file.append([b"ab"])
    file.append([b"cd"])
    assert file.read(100, 0) == b"012345abcd"
    again = disk.open(f"{folder}/a")
    again.append([b"ef"])
    file.append([b"gh"])
    assert file.read(100, 0) == b"012345abcdefgh"
    for each in (file, again):
        each.close()


def test_tried_reads_serve_cached_pages_or_refuse(folder):
    file = RealDisk().open(f"{folder}/a", create=True)
    file.append([bytes(range(256)) * 64])
    view = memoryview(bytearray(1000))
    try:
        count = file.try_read_into(view, 256)
    except BlockingIOError:
        # This file system does not report it; then the result never changes.
        with pytest.raises(BlockingIOError):
            file.try_read_into(view, 256)
    else:
        assert 0 < count <= 1000
        assert bytes(view[:count]) == (bytes(range(256)) * 64)[256 : 256 + count]
        assert file.try_read_into(view, 256 * 64) == 0
    file.close()


def test_is_cached_does_not_load_pages(tmp_path):
    """The middle of a file is dropped from the page cache; without cachestat(2), everything counts as cached."""
    file: Any = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append([bytes(8 << 20)])
    file.fsync()
    assert file.is_cached(0, 8 << 20)
    os.posix_fadvise(file.fileno(), 2 << 20, 4 << 20, os.POSIX_FADV_DONTNEED)
    release = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])
    if release < (6, 5):
        assert file.is_cached(3 << 20, 1000)
    else:
        for _ in range(2):  # the query loads no pages
            assert not file.is_cached(3 << 20, 1000)
            assert not file.is_cached(0, 8 << 20)
        assert file.is_cached(0, 1 << 20)
        file.read(1000, 3 << 20)
        assert file.is_cached(3 << 20, 1000)
    file.close()


def test_without_cachestat_all_counts_as_cached(tmp_path, monkeypatch):
    monkeypatch.setattr("ottla.app.disk._SYS_CACHESTAT", 1 << 20)
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append([bytes(1 << 20)])
    assert file.is_cached(0, 1 << 20)
    file.close()


def test_real_errors_of_a_tried_read_are_not_hidden(tmp_path):
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append([b"x"])
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.try_read_into(memoryview(bytearray(1)), 0)


def test_preallocation_keeps_the_size_and_is_given_back(tmp_path):
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append([b"x" * 100])
    file.preallocate(100, 4 << 20)
    assert file.size() == 100
    reserved = os.stat(file.path).st_blocks
    file.truncate(file.size())
    assert os.stat(file.path).st_blocks <= reserved
    assert file.read(200, 0) == b"x" * 100
    file.close()


def test_read_only_files_refuse_writes(folder):
    disk = RealDisk()
    disk.write_atomic(f"{folder}/a", b"x")
    file = disk.open(f"{folder}/a", read_only=True)
    assert file.read(1, 0) == b"x"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append([b"y"])
    file.close()
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/missing")


def test_atomic_write_replaces_or_leaves_all(folder, monkeypatch):
    disk = RealDisk()
    path = f"{folder}/a"
    disk.write_atomic(path, b"old")
    disk.write_atomic(path, b"new")
    assert disk.read_bytes(path) == b"new"

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        disk.write_atomic(path, b"newer")
    monkeypatch.undo()
    assert disk.read_bytes(path) == b"new"
    assert disk.listdir(folder) == ["a"]


def test_a_file_is_written_over_in_place(folder):
    disk = RealDisk()
    path = f"{folder}/a"
    disk.write_atomic(path, b"longer")
    blocks, inode = os.stat(path).st_blocks, os.stat(path).st_ino
    disk.overwrite(path, b"new")
    disk.overwrite(path, b"st", 4)
    assert disk.read_bytes(path) == b"newgst"
    assert (os.stat(path).st_blocks, os.stat(path).st_ino) == (blocks, inode), "it asked for no room"
    with pytest.raises(FileNotFoundError):
        disk.overwrite(f"{folder}/missing", b"new")
    assert disk.listdir(folder) == ["a"]


def test_names_and_attributes(folder):
    disk = RealDisk()
    disk.makedirs(f"{folder}/b/c")
    disk.makedirs(f"{folder}/b/c")
    disk.write_atomic(f"{folder}/b/c/file", b"12345")
    disk.write_atomic(f"{folder}/a", b"")
    os.symlink("/etc", f"{folder}/b/link")
    assert disk.listdir(folder) == ["a", "b"]
    assert disk.is_dir(f"{folder}/b")
    assert not disk.is_dir(f"{folder}/a")
    assert disk.size(f"{folder}/b/c/file") == 5
    disk.set_mtime_ms(f"{folder}/a", 1_700_000_000_123)
    assert disk.mtime_ms(f"{folder}/a") == 1_700_000_000_123
    disk.rename(f"{folder}/a", f"{folder}/b/c/file")
    assert disk.size(f"{folder}/b/c/file") == 0
    disk.fsync_dir(folder)
    disk.rmtree(f"{folder}/b")
    disk.rmtree(f"{folder}/b")
    assert not disk.exists(f"{folder}/b")
    assert disk.exists("/etc/passwd"), "a link was followed"
    disk.unlink(f"{folder}/missing")
    total, free = disk.usage(folder)
    assert 0 <= free <= total


def test_lock_excludes_within_the_process_and_ends_with_release(folder):
    disk = RealDisk()
    lock = disk.lock(f"{folder}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{folder}/.lock")
    lock.release()
    lock.release()
    disk.lock(f"{folder}/.lock").release()


def test_lock_excludes_other_processes_and_java_brokers(tmp_path):
    """Java's FileChannel.lock is a POSIX lock; both directions must conflict."""
    path = str(tmp_path / ".lock")
    lock = RealDisk().lock(path)
    script = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    sys.exit(7)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, path]
    assert subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode == 7
    lock.release()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            RealDisk().lock(path)
        holder.stdin.close()
    RealDisk().lock(path).release()


def test_lock_file_stays_for_the_next_holder(tmp_path):
    RealDisk().lock(str(tmp_path / ".lock")).release()
    assert Path(tmp_path, ".lock").exists()


def test_descriptors_are_not_inherited(tmp_path):
    file: Any = RealDisk().open(str(tmp_path / "a"), create=True)
    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    file.close()


def test_a_file_is_sent_by_reference(folder):
    file = RealDisk().open(f"{folder}/a", create=True)
    data = bytes(range(256)) * 4096
    file.append([data])
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        assert file.can_send
        assert file.send(one.fileno(), 1001, 5000) == 5000
        assert other.recv(10_000) == data[1001:6001]
        assert file.send(one.fileno(), len(data) - 3, 5000) == 3
        assert other.recv(10_000) == data[-3:]
        assert file.send(one.fileno(), len(data), 5000) == 0
        taken = file.send(one.fileno(), 0, len(data))
        assert 0 < taken < len(data), "more than a socket holds"
        with pytest.raises(BlockingIOError) as full:
            file.send(one.fileno(), taken, len(data) - taken)
        assert full.value.errno == errno.EAGAIN
        assert file.can_send
        received = b""
        while len(received) < taken:
            received += other.recv(1 << 20)
        assert received == data[:taken]
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.send(-1, 0, 1)
    file.close()


def test_a_file_system_without_sendfile_is_remembered(tmp_path, monkeypatch):
    file = RealDisk().open(str(tmp_path / "a"), create=True)

    def refuse(*arguments):
        raise OSError(errno.EINVAL, "invalid argument")

    monkeypatch.setattr(os, "sendfile", refuse)
    with pytest.raises(BlockingIOError):
        file.send(-1, 0, 1)
    assert not file.can_send
    file.close()
