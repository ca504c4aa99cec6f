"""Several data directories of one node: identity, placement of logs, and failure of one of them."""

from __future__ import annotations

import errno

import pytest

from ottla.common.errors import DataDirectoryError, ErrorCode, KafkaError, OperatorError
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.checkpoints import NO_GAPS_ABOVE, format_offsets, read_offsets

from .maintenance import write_checkpoints

DIRS = "/a,/b"


def broken(path: str, code: int = errno.EIO):
    """A disk on which everything below `path` fails."""

    def fault(action: str, touched: str) -> OSError | None:
        return OSError(code, "Input/output error", touched) if f"{touched}/".startswith(f"{path}/") else None

    return fault


@pytest.fixture
def manager(fakes, disk, clock):
    return fakes.open_manager(disk, clock, directory=DIRS)


def put(fakes, log, clock) -> None:
    batch = fakes.make_batch(clock.now_ms)
    log.append_as_leader(batch, 0, len(batch), 0)


def where(manager: LogManager) -> dict[str, list[str]]:
    return {each.path: [f"{t}-{p}" for t, p in each.logs] for each in manager.directories}


def test_a_new_log_goes_where_the_fewest_are(fakes, disk, clock, manager):
    for number in range(3):
        manager.create_log("t", number)
    assert where(manager) == {"/a": ["t-0", "t-2"], "/b": ["t-1"]}
    manager.delete_log("t", 0)
    manager.delete_log("t", 2)
    manager.create_log("u", 0)
    assert where(manager) == {"/a": ["u-0"], "/b": ["t-1"]}


def test_each_directory_has_its_own_files_and_id(fakes, disk, clock, manager):
    for number in range(2):
        put(fakes, manager.create_log("t", number), clock)
    manager.shutdown()
    for number, path in enumerate(("/a", "/b")):
        points = read_offsets(disk, f"{path}/recovery-point-offset-checkpoint")
        assert points == {NO_GAPS_ABOVE: 0, ("t", number): 1}
        assert disk.exists(f"{path}/.kafka_cleanshutdown")
    again = fakes.open_manager(disk, clock, directory=DIRS)
    first, second = [each.meta for each in again.directories]
    assert first.directory_id != second.directory_id
    assert first.cluster_id == second.cluster_id
    assert again.had_clean_shutdown
    assert again.checkpointed_high_watermark("t", 1) == 1
    assert where(again) == {"/a": ["t-0"], "/b": ["t-1"]}


def test_new_directory_is_formatted_and_used(fakes, disk, clock, manager):
    cluster_id = manager.meta_properties.cluster_id
    manager.create_log("t", 0)
    manager.shutdown()
    wider = fakes.open_manager(disk, clock, directory="/a,/b,/c")
    assert [each.meta.cluster_id for each in wider.directories] == [cluster_id] * 3
    wider.create_log("t", 1)
    wider.create_log("t", 2)
    assert where(wider) == {"/a": ["t-0"], "/b": ["t-1"], "/c": ["t-2"]}


def refusal(fakes, disk, clock, directories: str, metadata_dir: str | None = None) -> str:
    with pytest.raises(OperatorError) as caught:
        LogManager(disk, clock, fakes.Rng(), directories.split(","), metadata_dir=metadata_dir).open(node_id=1)
    assert not disk.locked
    return str(caught.value)


@pytest.mark.promise("D10")
def test_a_copy_of_a_directory_is_refused(fakes, disk, clock, manager):
    manager.shutdown()
    disk.write_bytes("/b/meta.properties", disk.read_bytes("/a/meta.properties"))
    sentence = refusal(fakes, disk, clock, DIRS)
    assert "directory.id" in sentence
    assert "log.dirs" in sentence


def test_a_directory_of_another_cluster_or_node_is_refused(fakes, disk, clock, manager):
    manager.shutdown()
    LogManager(disk, clock, fakes.Rng(5), ("/x",)).open(node_id=1, cluster_id="other")
    LogManager(disk, clock, fakes.Rng(5), ("/y",)).open(node_id=2, cluster_id=manager.meta_properties.cluster_id)
    disk.locked.clear()
    assert "take /x out of log.dirs" in refusal(fakes, disk, clock, "/a,/x")
    assert "node.id" in refusal(fakes, disk, clock, "/a,/y")


def test_missing_metadata_directory_is_not_recreated(fakes, disk, clock, manager):
    manager.shutdown()
    with pytest.raises(DataDirectoryError, match=r"metadata\.log\.dir"):
        LogManager(disk, clock, fakes.Rng(), ["/new", "/a", "/b"]).open(node_id=1)
    assert not disk.exists("/new/meta.properties")
    wider = LogManager(disk, clock, fakes.Rng(3), ("/new", "/a", "/b"), metadata_dir="/a")
    wider.open(node_id=1)
    assert disk.exists("/new/meta.properties")


def test_separate_metadata_directory_has_no_partitions(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, directory=DIRS, metadata_dir="/meta")
    for number in range(4):
        manager.create_log("t", number)
    assert where(manager) == {"/a": ["t-0", "t-2"], "/b": ["t-1", "t-3"]}
    assert manager.metadata_directory.path == "/meta"
    manager.shutdown()
    assert "/meta" in refusal(fakes, disk, clock, DIRS, metadata_dir="/elsewhere").replace("/elsewhere", "/meta")


def test_a_partition_in_two_directories_is_refused(fakes, disk, clock, manager):
    put(fakes, manager.create_log("t", 0), clock)
    manager.shutdown()
    disk.makedirs("/b/t-0")
    disk.write_bytes(f"/b/t-0/{0:020d}.log", b"records")
    again = LogManager(disk, clock, fakes.Rng(), DIRS.split(","))
    again.open(node_id=1)
    with pytest.raises(OperatorError, match="t-0 is in /a/t-0 and /b/t-0: keep the log that ends at the higher offset"):
        again.load_logs()


@pytest.mark.parametrize("failing", ["/a", "/b"])
@pytest.mark.parametrize("survives", [2, 5])
def test_new_log_skips_failing_disk_and_leftover_is_removed(fakes, disk, clock, manager, failing, survives):
    """The start with the repaired disk found the partition in two directories, and was refused."""
    if failing == "/b":
        manager.create_log("t", 0)
    left = [survives]

    def fail(action: str, path: str) -> OSError | None:
        if not path.startswith(f"{failing}/"):
            return None
        left[0] -= 1
        return OSError(errno.EIO, "input/output error", path) if left[0] < 0 else None

    disk.fault = fail
    log = manager.create_log("t", 1, bytes(15) + b"t")
    put(fakes, log, clock)
    assert log.directory.startswith("/b" if failing == "/a" else "/a")
    manager.shutdown()
    disk.fault = lambda action, path: None
    assert disk.exists(f"{failing}/t-1"), "the disk did not let it be removed"
    again = fakes.open_manager(disk, clock, directory=DIRS)
    assert again.get_log("t", 1).log_end_offset == 1
    assert not disk.exists(f"{failing}/t-1")


def test_log_possibly_on_failed_disk_is_not_recreated(fakes, disk, clock, manager):
    disk.fault = broken("/a")
    with pytest.raises(KafkaError) as caught:
        manager.create_log("t", 0, is_new=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert where(manager)["/b"] == []


def test_a_directory_that_fails_at_the_start_takes_its_logs_only(fakes, disk, clock, manager):
    for number in range(2):
        put(fakes, manager.create_log("t", number), clock)
    manager.shutdown()
    disk.fault = broken("/b")
    again = fakes.open_manager(disk, clock, directory=DIRS)
    assert where(again) == {"/a": ["t-0"], "/b": []}
    assert [each.path for each in again.offline_directories] == ["/b"]
    with pytest.raises(KafkaError, match="/b is offline"):
        again.create_log("t", 1, is_new=False)
    again.create_log("t", 7)
    assert where(again) == {"/a": ["t-0", "t-7"], "/b": []}
    write_checkpoints(again)
    again.shutdown()
    disk.fault = lambda action, path: None
    assert disk.exists("/b/.kafka_cleanshutdown"), "nothing of it was touched"
    assert b"t 1 1" in disk.read_bytes("/b/recovery-point-offset-checkpoint")


def test_metadata_directory_or_last_directory_failure_is_fatal(fakes, disk, clock, manager):
    manager.shutdown()
    disk.fault = broken("/a")
    assert "/a can't be used" in refusal(fakes, disk, clock, DIRS)
    disk.fault = broken("/b")
    assert "/b can't be used" in refusal(fakes, disk, clock, "/b")


def test_a_full_directory_sends_new_logs_to_another(fakes, disk, clock, manager):
    manager.create_log("t", 0)
    manager.create_log("t", 1)
    manager.create_log("t", 2)
    disk.fault = broken("/b", errno.ENOSPC)
    manager.create_log("t", 3)
    assert where(manager) == {"/a": ["t-0", "t-2", "t-3"], "/b": ["t-1"]}
    assert not manager.offline_directories
    disk.fault = lambda action, path: OSError(errno.ENOSPC, "No space left", path)
    with pytest.raises(KafkaError) as caught:
        manager.create_log("t", 4)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("refused", ["append", "open"])
def test_new_log_leaves_nothing_in_full_directory(fakes, disk, clock, manager, refused):
    """As tmpfs does, and other file systems with space in the directory block."""
    for number in range(3):
        manager.create_log("t", number, bytes(15) + b"t")

    def full(action: str, path: str) -> OSError | None:
        return OSError(errno.ENOSPC, "No space left", path) if action == refused and path.startswith("/b/") else None

    disk.fault = full
    log = manager.create_log("t", 3, bytes(15) + b"t")
    assert where(manager) == {"/a": ["t-0", "t-2", "t-3"], "/b": ["t-1"]}
    disk.fault = lambda action, path: None
    put(fakes, log, clock)
    assert not disk.exists("/b/t-3")
    assert not manager.offline_directories
    manager.shutdown()
    again = fakes.open_manager(disk, clock, directory=DIRS)
    assert {each.path: set(names) for each, names in zip(again.directories, where(again).values(), strict=True)} == {
        "/a": {"t-0", "t-2", "t-3"},
        "/b": {"t-1"},
    }
    assert again.get_log("t", 3).topic_id == bytes(15) + b"t"


def test_a_directory_that_fails_later_gets_no_new_logs(fakes, disk, clock):
    heard = []
    manager = fakes.open_manager(
        disk, clock, directory=DIRS, on_offline=lambda directory, error: heard.append(directory.path)
    )
    first, second = (manager.create_log("t", number) for number in range(2))
    disk.fault = broken("/b")
    with pytest.raises(KafkaError):
        put(fakes, second, clock)
    assert heard == ["/b"]
    put(fakes, first, clock)
    manager.create_log("t", 2)
    manager.create_log("t", 3)
    assert where(manager) == {"/a": ["t-0", "t-2", "t-3"], "/b": ["t-1"]}


def test_loss_in_one_directory_voids_lossless_epoch(fakes, disk, clock, manager):
    manager.shutdown(broker_epoch=9)
    assert fakes.open_manager(disk, clock, directory="/a,/b").last_broker_epoch == 9
    disk.locked.clear()
    manager = fakes.open_manager(disk, clock, directory="/a,/b")
    manager.shutdown(broker_epoch=9)
    disk.unlink("/b/.kafka_cleanshutdown")
    disk.unlink("/b/.ottla_running")
    again = fakes.open_manager(disk, clock, directory="/a,/b")
    assert again.last_broker_epoch == -1
    assert not again.had_clean_shutdown


def test_cleaned_offsets_are_kept_where_the_log_is(fakes, disk, clock, manager):
    for number in range(2):
        manager.create_log("t", number)
        manager.cleaner_checkpoint.put(("t", number), 5 + number)
    due = manager.cleaner_checkpoint.due()
    manager.cleaner_checkpoint.write(due)
    assert disk.read_bytes("/a/cleaner-offset-checkpoint") == format_offsets({("t", 0): 5})
    assert disk.read_bytes("/b/cleaner-offset-checkpoint") == format_offsets({("t", 1): 6})
    assert manager.cleaner_checkpoint.due() is None


def test_cordoned_directory_gets_no_new_logs_if_others_exist(fakes, disk, clock, manager, caplog):
    manager.create_log("t", 0)
    manager.cordon(["/a", "/c"])
    assert "/c" in caplog.text
    for number in range(1, 4):
        manager.create_log("t", number)
    assert where(manager) == {"/a": ["t-0"], "/b": ["t-1", "t-2", "t-3"]}
    manager.cordon(["*"])
    assert [each.is_cordoned for each in manager.directories] == [True, True]
    manager.create_log("t", 4)
    assert where(manager)["/a"] == ["t-0", "t-4"], "it has to go somewhere"
    manager.cordon([])
    manager.create_log("t", 5)
    assert where(manager)["/a"] == ["t-0", "t-4", "t-5"]
