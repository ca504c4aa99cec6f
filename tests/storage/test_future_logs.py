"""Move of a log to another data directory of its node, and a crash at each step of it."""

from __future__ import annotations

import errno

import pytest

from ottla.common.errors import OperatorError
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files import names
from ottla.storage.log.log import Log

from .maintenance import write_checkpoints

DIRS = "/a,/b"
KEY = ("t", 0)
TOPIC_ID = bytes(15) + b"t"
RECORDS = 6


class Killed(BaseException):
    """The process died."""


def put(fakes, log: Log, clock, count: int = 1) -> None:
    for _ in range(count):
        batch = fakes.make_batch(clock.now_ms)
        log.append_as_leader(batch, 0, len(batch), 0)


def copy_rest(manager: LogManager, log: Log) -> Log:
    copy = manager.futures.get(KEY)
    assert copy is not None
    while copy.log_end_offset < log.log_end_offset:
        found = log.read(copy.log_end_offset, 1 << 20, max_offset=log.log_end_offset)
        assert found.records is not None
        data = found.records.read_all()
        found.records.release()
        copy.append_as_follower(data, 0, len(data))
    return copy


def move(manager: LogManager, target: int) -> None:
    """Do the whole move, in the order of `replica.moves`."""
    source, directory = manager.directory_of(KEY), manager.directories[target]
    log = manager.get_log(*KEY)
    assert source is not None
    assert log is not None
    if manager.futures.get(KEY) is None:
        manager.futures.create(directory, KEY, TOPIC_ID, log.config)
    copy = copy_rest(manager, log)
    copy.flush()
    manager.futures.preparation(KEY, source)()
    assert manager.futures.take_place(KEY, source)
    manager.futures.conclusion(copy, source)()


def where(manager: LogManager) -> list[str]:
    return [each.path for each in manager.directories if KEY in each.logs]


def left(disk) -> list[str]:
    """Directories of the partition, except those that are about to be removed."""
    return sorted(
        f"{path}/{name}"
        for path in DIRS.split(",")
        for name in disk.listdir(path)
        if name.startswith("t-0") and not name.endswith("-delete")
    )


@pytest.fixture
def manager(fakes, disk, clock) -> LogManager:
    manager = fakes.open_manager(disk, clock, directory=DIRS)
    log = manager.create_log(*KEY, TOPIC_ID)
    put(fakes, log, clock, RECORDS)
    log.flush()
    return manager


def test_copy_replaces_log(fakes, disk, clock, manager):
    manager.cleaner_checkpoint.put(KEY, 3)
    before = fakes.read_log(manager.get_log(*KEY))
    move(manager, 1)
    assert where(manager) == ["/b"]
    assert left(disk) == ["/b/t-0"]
    assert fakes.read_log(manager.get_log(*KEY)) == before
    assert manager.cleaner_checkpoint.get(KEY) == 3
    assert not disk.exists(f"/b/t-0/{names.MOVED_FROM}")
    put(fakes, manager.get_log(*KEY), clock)
    manager.shutdown()
    again = fakes.open_manager(disk, clock, directory=DIRS)
    assert where(again) == ["/b"]
    assert fakes.read_log(again.get_log(*KEY))[:RECORDS] == before
    assert again.get_log(*KEY).log_end_offset == RECORDS + 1
    assert again.cleaner_checkpoint.get(KEY) == 3


def test_a_copy_that_is_not_complete_is_found_again(fakes, disk, clock, manager):
    manager.futures.create(manager.directories[1], KEY, TOPIC_ID, manager.get_log(*KEY).config)
    copy_rest(manager, manager.get_log(*KEY))
    put(fakes, manager.get_log(*KEY), clock)
    manager.shutdown()
    again = fakes.open_manager(disk, clock, directory=DIRS)
    assert where(again) == ["/a"]
    assert again.had_clean_shutdown
    copy = again.futures.get(KEY)
    assert (copy.log_end_offset, again.get_log(*KEY).log_end_offset) == (RECORDS, RECORDS + 1)
    again.delete_log(*KEY)
    assert left(disk) == []


def crash_at(fakes, disk, clock, manager: LogManager, step: int, *, power: bool) -> bool:
    """Begin a move, and crash at its `step`-th change of the disk; returns whether it got there."""
    count = 0

    def fault(action: str, path: str) -> None:
        nonlocal count
        count += 1
        if count > step:
            raise Killed

    disk.fault = fault
    try:
        move(manager, 1)
        died = False
    except Killed:
        died = True
    disk.fault = lambda action, path: None
    if power:
        disk.crash(fakes.Rng(step + 1))
    else:
        disk.files.process_died()
    return died


@pytest.mark.promise("D13")
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power failure"])
def test_a_crash_at_each_step_loses_nothing_and_leaves_one_log(fakes, clock, power):
    places, step, died = set(), 0, True
    while died:
        disk = fakes.Disk(clock)
        manager = fakes.open_manager(disk, clock, directory=DIRS)
        log = manager.create_log(*KEY, TOPIC_ID)
        put(fakes, log, clock, RECORDS)
        log.flush()
        write_checkpoints(manager)
        before = fakes.read_log(log)
        died = crash_at(fakes, disk, clock, manager, step, power=power)
        again = fakes.open_manager(disk, clock, directory=DIRS)
        (place,) = where(again)
        places.add(place)
        assert fakes.read_log(again.get_log(*KEY)) == before, f"step {step}"
        put(fakes, again.get_log(*KEY), clock)
        if place == "/a":
            move(again, 1)  # with the remainder of the copy
        assert where(again) == ["/b"]
        assert again.get_log(*KEY).log_end_offset == RECORDS + 1
        again.shutdown()
        assert left(disk) == ["/b/t-0"], f"step {step}"
        last = fakes.open_manager(disk, clock, directory=DIRS)
        assert where(last) == ["/b"]
        assert last.get_log(*KEY).log_end_offset == RECORDS + 1
        move(last, 0)  # no remainder of the earlier move interferes
        last.shutdown()
        assert where(fakes.open_manager(disk, clock, directory=DIRS)) == ["/a"]
        step += 1
    assert places == {"/a", "/b"}
    assert step > 20


def failing(what: str, where_: str):
    """A disk that fails at one action on one path."""
    return lambda action, path: (
        OSError(errno.EIO, "Input/output error", path) if (action, path) == (what, where_) else None
    )


@pytest.mark.parametrize("note", [None, b"", b"cut0", b"\xa5garbage"])
def test_ambiguous_directories_are_rejected(fakes, disk, clock, manager, note):
    disk.fault = failing("rename", "/a/t-0")
    move(manager, 1)
    assert where(manager) == ["/b"]
    disk.fault = lambda action, path: None
    disk.unlink(f"/b/t-0/{names.MOVED_FROM}")
    if note is not None:
        disk.write_bytes(f"/b/t-0/{names.MOVED_FROM}", note)
    disk.files.process_died()
    with pytest.raises(OperatorError, match=r"t-0 is in /\w/t-0 and /\w/t-0"):
        fakes.open_manager(disk, clock, directory=DIRS)


def test_old_directory_may_be_offline_at_next_start(fakes, disk, clock, manager):
    """It could not be renamed there; when it is back, its log is the older one."""
    disk.fault = failing("rename", "/a/t-0")
    move(manager, 1)
    put(fakes, manager.get_log(*KEY), clock)
    manager.get_log(*KEY).flush()
    disk.fault = lambda action, path: OSError(errno.EIO, "Input/output error", path) if path.startswith("/a") else None
    disk.files.process_died()
    again = LogManager(disk, clock, fakes.Rng(3), DIRS.split(","), metadata_dir="/b")
    again.open(node_id=1)
    again.load_logs()
    assert where(again) == ["/b"]
    again.shutdown()
    disk.fault = lambda action, path: None
    last = fakes.open_manager(disk, clock, directory=DIRS)
    assert where(last) == ["/b"]
    assert last.get_log(*KEY).log_end_offset == RECORDS + 1
    assert left(disk) == ["/b/t-0"]


def test_log_with_volatile_name_rejects_appends(fakes, disk, clock, manager):
    log = manager.get_log(*KEY)
    manager.futures.create(manager.directories[1], KEY, TOPIC_ID, log.config)
    copy = copy_rest(manager, log)
    copy.flush()
    manager.futures.preparation(KEY, manager.directories[0])()
    disk.fault = failing("fsync", "/b")
    assert not manager.futures.take_place(KEY, manager.directories[0])
    assert manager.get_log(*KEY) is copy
    assert copy.failed
    assert manager.directories[1].health.offline is not None
    disk.fault = lambda action, path: None
    disk.crash(fakes.Rng(2))
    assert fakes.open_manager(disk, clock, directory=DIRS).get_log(*KEY).log_end_offset == RECORDS


def test_requested_directory_applies_to_one_creation(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, directory=DIRS)
    manager.futures.set_target_dir(KEY, "/b")
    manager.create_log(*KEY)
    assert where(manager) == ["/b"]
    manager.delete_log(*KEY)
    manager.create_log(*KEY)
    assert where(manager) == ["/a"]
