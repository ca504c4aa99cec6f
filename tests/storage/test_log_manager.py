"""The directory as a whole: lock, identity, checkpoints, creation and deletion, flushing, going offline."""

from __future__ import annotations

import errno
import logging

import pytest

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, OperatorError
from ottla.common.kafka.ids import uuid_from_string, uuid_to_string
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.checkpoints import read_epochs, read_offsets
from ottla.storage.files.log_config import LogConfig

from .maintenance import remove_deleted, write_checkpoints

TOPIC_ID = bytes(range(16))


@pytest.fixture
def manager(fakes, disk, clock):
    return fakes.open_manager(disk, clock)


def put(fakes, log, clock, **options):
    batch = fakes.make_batch(clock.now_ms, **options)
    return log.append_as_leader(batch, 0, len(batch), 0)


def test_names_and_texts_of_files(fakes, disk, clock, manager):
    log = manager.create_log("some-topic", 3, TOPIC_ID)
    assert disk.listdir("/data/some-topic-3") == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "partition.metadata",
    ]
    text = disk.read_bytes("/data/some-topic-3/partition.metadata").decode()
    assert text == f"version: 0\ntopic_id: {uuid_to_string(TOPIC_ID)}"
    put(fakes, log, clock)
    put(fakes, log, clock, producer_id=1, producer_epoch=0, base_sequence=0)
    manager.shutdown()
    assert disk.listdir("/data") == [  # the real disk also has the file `.lock`
        ".kafka_cleanshutdown",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "some-topic-3",
    ]
    points = read_offsets(disk, "/data/recovery-point-offset-checkpoint")
    assert points == {(":ottla:no-gaps-above", 0): 0, ("some-topic", 3): 2}
    assert read_offsets(disk, "/data/replication-offset-checkpoint") == {("some-topic", 3): 2}
    assert disk.read_bytes("/data/some-topic-3/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert disk.exists("/data/some-topic-3/00000000000000000002.snapshot")


def test_meta_properties(fakes, disk, clock, manager):
    lines = disk.read_bytes("/data/meta.properties").decode().splitlines()
    fields = dict(line.split("=") for line in lines if not line.startswith("#"))
    assert set(fields) == {"cluster.id", "directory.id", "node.id", "version"}
    assert fields["version"] == "1"
    assert len(uuid_from_string(fields["cluster.id"])) == 16
    manager.shutdown()
    again = LogManager(disk, clock, fakes.Rng(99), ("/data",))
    meta = again.open(node_id=1)
    assert (meta.cluster_id, meta.directory_id) == (fields["cluster.id"], fields["directory.id"])
    again.shutdown()
    for options, word in (({"node_id": 2}, "node.id"), ({"node_id": 1, "cluster_id": "other"}, "other")):
        with pytest.raises(OperatorError, match=word):
            LogManager(disk, clock, fakes.Rng(), ("/data",)).open(**options)
    assert not disk.locked


@pytest.mark.parametrize("damage", [b"", b"version=0\nbroker.id=1\n", b"version=1\nnode.id=x\ncluster.id=a\n", b"\xff"])
def test_damaged_meta_properties_name_the_file(fakes, disk, clock, damage):
    disk.makedirs("/data")
    disk.write_bytes("/data/meta.properties", damage)
    with pytest.raises(OperatorError, match=r"/data/meta\.properties"):
        LogManager(disk, clock, fakes.Rng(), ("/data",)).open(node_id=1)


def test_empty_meta_properties_after_crash_are_rejected_as_lost(fakes, disk, clock):
    disk.makedirs("/data")
    disk.write_bytes("/data/meta.properties", b"")
    with pytest.raises(OperatorError, match=r"/data/meta.properties is damaged, it names no version: restore it"):
        LogManager(disk, clock, fakes.Rng(), ("/data",)).open(node_id=1)


def test_meta_properties_of_kafka(fakes, disk, clock):
    disk.makedirs("/data")
    text = b"#\n#Mon Jan 01 00:00:00 UTC 2024\ncluster.id=5L6g3nShT-eMCtK--X86sw\nversion=1\nnode.id=1\n"
    disk.write_bytes("/data/meta.properties", text + b"directory.id=J8aAPcfLQt2bqs1JT_rMgQ\n")
    meta = LogManager(disk, clock, fakes.Rng(), ("/data",)).open(node_id=1)
    assert (meta.cluster_id, meta.node_id, meta.directory_id) == (
        "5L6g3nShT-eMCtK--X86sw",
        1,
        "J8aAPcfLQt2bqs1JT_rMgQ",
    )


def test_a_second_broker_is_refused(fakes, disk, clock, manager):
    with pytest.raises(OperatorError, match="in use"):
        LogManager(disk, clock, fakes.Rng(), ("/data",)).open(node_id=1)
    manager.shutdown()
    LogManager(disk, clock, fakes.Rng(), ("/data",)).open(node_id=1)


def test_an_unreadable_directory_is_named(fakes, disk, clock):
    disk.fault = lambda action, path: PermissionError(errno.EACCES, "Permission denied", path)
    with pytest.raises(OperatorError, match=r"/data .*Permission denied"):
        LogManager(disk, clock, fakes.Rng(), ("/data",)).open(node_id=1)


def test_topic_ids_are_checked(manager):
    manager.create_log("t", 0, TOPIC_ID)
    assert manager.create_log("t", 0, TOPIC_ID) is manager.get_log("t", 0)
    with pytest.raises(KafkaError) as failure:
        manager.create_log("t", 0, bytes(15) + b"\x07")
    assert failure.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_foreign_directories_are_ignored(fakes, disk, clock, manager):
    manager.shutdown()
    for name in ("not a log", "__cluster_metadata-0", "t-0-future", "t-00", "lost+found", "-1"):
        disk.makedirs(f"/data/{name}")
    disk.makedirs("/data/with-dash-7")
    manager = fakes.open_manager(disk, clock)
    assert [log.name for log in manager.logs()] == ["with-dash-7"]
    assert disk.listdir("/data/__cluster_metadata-0") == []


def test_deletion_renames_now_and_removes_later(fakes, disk, clock, manager):
    long_name = "x" * 249
    for topic in ("t", long_name):
        put(fakes, manager.create_log(topic, 0, TOPIC_ID), clock)
        manager.delete_log(topic, 0)
        assert manager.get_log(topic, 0) is None
    renamed = [name for name in disk.listdir("/data") if name.endswith("-delete")]
    assert len(renamed) == 2
    assert all(len(name) <= 255 for name in renamed)
    assert manager.create_log("t", 0, bytes(15) + b"\x09").log_end_offset == 0
    clock.now_ms += 59_000
    remove_deleted(manager)
    assert len([name for name in disk.listdir("/data") if name.endswith("-delete")]) == 2
    clock.now_ms += 1_000
    remove_deleted(manager)
    assert not [name for name in disk.listdir("/data") if name.endswith("-delete")]


def test_interrupted_deletion_resumes_after_restart(fakes, disk, clock, manager):
    manager.create_log("t", 0, TOPIC_ID)
    manager.delete_log("t", 0)
    manager.shutdown()
    manager = fakes.open_manager(disk, clock)
    assert len(manager) == 0
    remove_deleted(manager)
    assert not [name for name in disk.listdir("/data") if "t-0" in name]


def test_checkpointed_high_watermarks_come_back(fakes, disk, clock, manager):
    log = manager.create_log("t", 0, TOPIC_ID)
    for _ in range(3):
        put(fakes, log, clock)
    log.offsets.high_watermark = 2
    for _ in range(2):  # a broker that stops before its replicas are open leaves it unchanged
        manager.shutdown()
        manager = fakes.open_manager(disk, clock)
        assert manager.checkpointed_high_watermark("t", 0) == 2
    assert manager.checkpointed_high_watermark("t", 1) is None


class TestIncarnations:
    """Record of the last incarnation, and whether its appends are complete (KIP-966)."""

    FIRST, SECOND = bytes(range(1, 17)), bytes(range(2, 18))

    def killed(self, fakes, disk, clock):
        disk.locked.clear()
        return fakes.open_manager(disk, clock)

    def test_process_end_is_lossless_and_machine_restart_is_not(self, fakes, disk, clock, manager):
        assert manager.begin_incarnation(self.FIRST) == self.FIRST
        manager.note_running(7)
        manager = self.killed(fakes, disk, clock)
        assert manager.last_broker_epoch == 7
        assert manager.begin_incarnation(self.SECOND) == self.SECOND, "the first one has served"
        manager.note_running(9)
        disk.crash(fakes.Rng(1))
        assert fakes.open_manager(disk, clock).last_broker_epoch == -1

    def test_incarnation_without_appends_registers_again(self, fakes, disk, clock, manager):
        # A new one would count as a successor without knowledge of the registered one (cluster seed 200338).
        manager.begin_incarnation(self.FIRST)
        manager.note_running(7)
        manager = self.killed(fakes, disk, clock)
        manager.begin_incarnation(self.FIRST)
        for _ in range(2):
            manager = self.killed(fakes, disk, clock)
            assert manager.last_broker_epoch == 7
            assert manager.begin_incarnation(self.SECOND) == self.FIRST
        disk.crash(fakes.Rng(1))
        manager = fakes.open_manager(disk, clock)
        assert manager.last_broker_epoch == -1
        assert manager.begin_incarnation(self.SECOND) == self.SECOND

    def test_a_clean_stop_before_it_serves(self, fakes, disk, clock, manager):
        manager.begin_incarnation(self.FIRST)
        manager.note_running(7)
        manager = self.killed(fakes, disk, clock)
        manager.begin_incarnation(self.FIRST)
        manager.shutdown(-1)
        disk.crash(fakes.Rng(1))
        assert fakes.open_manager(disk, clock).last_broker_epoch == 7, "its records are durable now"

    def test_a_full_disk_has_room_for_the_note(self, fakes, disk, clock, manager):
        # Registered but unknown to the next start, it would count as one that lost records (cluster seed 4).
        manager.begin_incarnation(self.FIRST)
        manager.note_running(7)
        disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if action == "append" else None
        manager = self.killed(fakes, disk, clock)
        manager.begin_incarnation(self.FIRST)
        manager = self.killed(fakes, disk, clock)
        assert manager.last_broker_epoch == 7
        assert manager.begin_incarnation(self.SECOND) == self.FIRST
        manager.note_running(123456789)
        manager = self.killed(fakes, disk, clock)
        assert manager.last_broker_epoch == 123456789
        assert manager.begin_incarnation(self.SECOND) == self.SECOND, "the first one has served"
        disk.crash(fakes.Rng(1))
        assert fakes.open_manager(disk, clock).last_broker_epoch == -1

    def test_new_incarnation_of_running_broker_is_recorded(self, fakes, disk, clock, manager):
        manager.begin_incarnation(self.FIRST)
        manager.note_running(7)
        assert manager.begin_incarnation(self.SECOND) == self.SECOND
        manager = self.killed(fakes, disk, clock)
        assert manager.last_broker_epoch == 7
        assert manager.begin_incarnation(self.FIRST) == self.SECOND

    def test_a_full_disk_that_refuses_the_note(self, fakes, disk, clock, manager, caplog):
        manager.begin_incarnation(self.FIRST)
        refused = ("append", "write")  # as in a copy-on-write file system
        disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if action in refused else None
        manager.note_running(7)
        assert ".ottla_running can't be written: full" in caplog.text
        disk.fault = lambda action, path: None
        manager = self.killed(fakes, disk, clock)
        assert manager.last_broker_epoch == -1
        assert manager.begin_incarnation(self.SECOND) == self.SECOND, "the first one may have taken something in"

    def filled(self, fakes, clock, manager):
        """A durable log of twenty batches of about 120 bytes; returns the path of its file."""
        manager.note_running(7)
        log = manager.create_log("t", 0, bytes(range(16)))
        for _ in range(20):
            batch = fakes.make_batch(clock.now_ms, 1, 50)
            log.append_as_leader(batch, 0, len(batch), 0)
        return log, "/data/t-0/00000000000000000000.log"

    @pytest.mark.promise("R5")
    @pytest.mark.parametrize("place", [0.53, 0.999])
    def test_a_batch_that_is_damaged_is_a_loss(self, fakes, disk, clock, manager, place):
        _, path = self.filled(fakes, clock, manager)
        data = bytearray(disk.read_bytes(path))
        data[int(len(data) * place)] ^= 1
        disk.write_bytes(path, bytes(data))
        assert self.killed(fakes, disk, clock).last_broker_epoch == -1
        assert self.killed(fakes, disk, clock).last_broker_epoch == -1, "the cut log looks well to the next start"

    def test_a_damaged_length_is_a_loss(self, fakes, disk, clock, manager):
        _, path = self.filled(fakes, clock, manager)
        data = bytearray(disk.read_bytes(path))
        size = len(data) // 20
        data[3 * size + 8] ^= 0x60  # the batch claims to reach beyond the end of the file, by more than a bit
        disk.write_bytes(path, bytes(data))
        manager = self.killed(fakes, disk, clock)
        assert manager.get_log("t", 0).log_end_offset == 3
        assert manager.last_broker_epoch == -1

    @pytest.mark.promise("R5")
    def test_torn_end_of_write_is_not_a_loss(self, fakes, disk, clock, manager):
        _, path = self.filled(fakes, clock, manager)
        disk.write_bytes(path, disk.read_bytes(path)[:-5])
        manager = self.killed(fakes, disk, clock)
        assert manager.get_log("t", 0).log_end_offset == 19
        assert manager.last_broker_epoch == 7

    def test_log_end_below_known_end_is_a_loss(self, fakes, disk, clock, manager):
        log, path = self.filled(fakes, clock, manager)
        log.flush()
        write_checkpoints(manager)
        data = disk.read_bytes(path)
        disk.write_bytes(path, data[: len(data) // 2])
        assert self.killed(fakes, disk, clock).last_broker_epoch == -1

    @pytest.mark.parametrize("left", [0.5, 0.51])
    def test_missing_end_after_clean_stop_is_a_loss(self, fakes, disk, clock, manager, left):
        _, path = self.filled(fakes, clock, manager)
        manager.shutdown(7)
        data = disk.read_bytes(path)
        disk.write_bytes(path, data[: int(len(data) * left)])
        assert fakes.open_manager(disk, clock).last_broker_epoch == -1

    @pytest.mark.parametrize(
        "damage",
        [
            b"",
            b"[]",
            b'{"brokerEpoch":"7","bootId":"boot 0"}',
            b'{"brokerEpoch":7,"bootId":"boot 0","incarnationId":"x"}',
        ],
    )
    def test_damaged_running_note_is_ignored(self, fakes, disk, clock, manager, damage):
        disk.write_bytes("/data/.ottla_running", damage)
        manager = self.killed(fakes, disk, clock)
        assert manager.last_broker_epoch == -1
        assert manager.begin_incarnation(self.SECOND) == self.SECOND


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize(
    "damage", [b"nonsense", b"0\n9\n", b"0\n1\nt 0\n", b"0\n1\nt 0 99999999999999999999\n", b"1\n0\n"]
)
def test_damaged_checkpoints_mean_a_full_check(fakes, disk, clock, manager, caplog, name, damage):
    put(fakes, manager.create_log("t", 0, TOPIC_ID), clock)
    manager.shutdown()
    disk.write_bytes(f"/data/{name}", damage)
    with caplog.at_level(logging.WARNING):
        manager = fakes.open_manager(disk, clock)
    assert any(name in message for message in caplog.messages)
    assert manager.get_log("t", 0).log_end_offset == 1


def test_open_files_are_bounded(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, max_open_files=10)
    logs = [manager.create_log("t", number, TOPIC_ID) for number in range(40)]
    for _ in range(3):
        for log in logs:
            put(fakes, log, clock)
            assert manager.open_file_count <= 10
    assert all(len(fakes.read_log(log)) == 3 for log in logs)
    assert disk.open_count <= 10
    manager.shutdown()
    assert disk.open_count == 0


def contents(disk) -> dict[str, bytes]:
    """Number of open files."""
    files = {name: inode for name, inode in disk.files.names.items() if inode is not None}
    return {name: bytes(inode.data) for name, inode in files.items() if not name.endswith(".deleted")}


class TestFlush:
    def test_requests_during_flush_share_next_sync(self, fakes, clock, disk, manager):
        pool, done = fakes.Pool(), []
        log = manager.create_log("t", 0, TOPIC_ID)
        put(fakes, log, clock)
        log.request_flush(pool, lambda error: done.append(("first", error)))
        for name in ("second", "third"):
            put(fakes, log, clock)
            log.request_flush(pool, lambda error, name=name: done.append((name, error)))
        assert len(pool.queue) == 1
        pool.run_one()
        assert done == [("first", None)]
        assert log.recovery_point == 1
        assert len(pool.queue) == 1
        pool.run_one()
        assert done == [("first", None), ("second", None), ("third", None)]
        assert log.recovery_point == 3
        log.request_flush(pool, lambda error: done.append(("fourth", error)))
        assert done[-1] == ("fourth", None)
        assert not pool.queue

    @pytest.mark.promise("D3")
    def test_complete_segments_of_earlier_process_are_flushed(self, fakes, disk, clock):
        """After a kill -9 no roll has to come first: before, the log was never cleaned, and scanned by each start."""
        config, pool = LogConfig(segment_bytes=300), fakes.Pool()
        log = fakes.open_manager(disk, clock, config=config).create_log("t", 0, TOPIC_ID, config)
        for _ in range(4):
            put(fakes, log, clock)
        assert len(log.segments) > 1
        disk.locked.clear()
        manager = fakes.open_manager(disk, clock, config=config)
        log = manager.get_log("t", 0)
        assert log.recovery_point == 0
        assert manager.flush_due(pool) == 1
        pool.run_all()
        assert log.recovery_point == 4
        manager.create_log("one segment", 0, TOPIC_ID, config)
        assert manager.flush_due(pool) == 0

    def test_two_flushes_at_once_break_an_invariant(self, fakes, clock, manager):
        log = manager.create_log("t", 0, TOPIC_ID)
        put(fakes, log, clock)
        task = log._flush.prepare()
        with pytest.raises(InvariantError):
            log._flush.prepare()
        task.run()
        task.finish(None)
        assert log.recovery_point == 1

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("full", ["leader-epoch-checkpoint", "index"])
    def test_flush_completes_after_disk_full_error(self, fakes, disk, clock, full, seed):
        """Cluster seed 100435: a flush had synced the data, and the file of leader epochs took the log offline."""
        config = LogConfig(segment_bytes=300, index_interval_bytes=1)
        manager = fakes.open_manager(disk, clock, config=config)
        pool, done = fakes.Pool(), []
        log = manager.create_log("t", 0, TOPIC_ID, config)
        for epoch in range(3):
            log.assign_leader_epoch(epoch)
            for _ in range(4):
                batch = fakes.make_batch(clock.now_ms)
                log.append_as_leader(batch, 0, len(batch), epoch)

        def fault(action: str, path: str) -> OSError | None:
            return OSError(errno.ENOSPC, "full") if action == "append" and path.endswith(full) else None

        disk.fault = fault
        log.segments[0].indexes.rebuild()  # if the disk refuses, its entries stay in memory
        log.request_flush(pool, done.append)
        pool.run_all()
        assert done == [None], "the data is on disk"
        assert not log.failed
        assert not manager.offline_directories
        assert (log.recovery_point, log.flushed_offset) == (0, 12)
        before, epochs = fakes.read_log(log), log.epochs.entries()
        assert manager.flush_due(pool) == 1
        pool.run_all()
        assert log.recovery_point == 0
        disk.fault = lambda action, path: None
        if seed % 2:  # it completes once there is space again
            manager.flush_due(pool)
            pool.run_all()
            assert log.recovery_point == 12
            assert manager.flush_due(pool) == 0
            write_checkpoints(manager)
        disk.crash(fakes.Rng(seed + 1))
        log = fakes.open_manager(disk, clock, config=config).get_log("t", 0)
        assert fakes.read_log(log) == before
        assert log.epochs.entries() == epochs

    def test_flush_does_not_cover_appends_after_truncation(self, fakes, disk, clock, manager):
        pool, done = fakes.Pool(), []
        log = manager.create_log("t", 0, TOPIC_ID)
        for _ in range(3):
            put(fakes, log, clock)
        log.request_flush(pool, lambda error: done.append("three"))
        work, finished = pool.queue.pop()
        work()
        log.truncate_to(1)
        put(fakes, log, clock)
        finished(None, None)
        assert (log.recovery_point, log.flushed_offset) == (1, 1)
        assert done == []
        pool.run_all()
        assert log.recovery_point == 2
        assert done == ["three"], "the third record is truncated, and no request waits for it"

    @pytest.mark.parametrize("has_room", [True, False])
    def test_truncation_replaces_the_epochs_of_a_flush(self, fakes, disk, clock, manager, monkeypatch, has_room):
        """The flush would restore entries of truncated records; if the disk refuses, it writes its own."""
        pool = fakes.Pool()
        log = manager.create_log("t", 0, TOPIC_ID)
        for epoch in (3, 5):
            batch = fakes.make_batch(clock.now_ms)
            log.append_as_leader(batch, 0, len(batch), epoch)
        log.request_flush(pool, lambda error: None)
        if has_room:
            log.truncate_to(1)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(disk, "capacity", 0)
                with pytest.raises(KafkaError):
                    log.truncate_to(1)
        pool.run_all()
        entries = [(3, 0)] if has_room else [(3, 0), (5, 1)]
        assert read_epochs(disk, "/data/t-0/leader-epoch-checkpoint") == entries

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
    def test_a_failed_sync_is_final(self, fakes, disk, clock, manager, caplog, code):
        pool, done = fakes.Pool(), []
        log = manager.create_log("t", 0, TOPIC_ID)
        put(fakes, log, clock)
        log.request_flush(pool, done.append)
        put(fakes, log, clock)
        log.request_flush(pool, done.append)
        disk.fault = lambda action, path: OSError(code, "bad block") if action == "fsync" else None
        pool.run_all()
        disk.fault = lambda action, path: None
        assert [error.errno for error in done] == [code] * 2
        assert log.recovery_point == 0
        assert log.failed
        assert manager.offline_directories
        with pytest.raises(KafkaError):
            manager.create_log("other", 0, TOPIC_ID)
        assert "resume automatically" not in caplog.text
        manager.shutdown()
        assert not disk.exists("/data/.kafka_cleanshutdown")

    def test_clean_stop_syncs_only_volatile_files(self, fakes, disk, clock, manager):
        """A thousand new partitions with seven syncs each made a stop take seconds."""
        for index in range(3):
            manager.create_log("t", index, TOPIC_ID).assign_leader_epoch(0)
        put(fakes, manager.get_log("t", 1), clock)
        synced = []
        disk.fault = lambda action, path: synced.append(path) if action == "fsync" else None
        manager.shutdown()
        names = ["00000000000000000000.log", "00000000000000000000.timeindex", "partition.metadata"]
        assert sorted(synced) == [f"/data/t-1/{name}" for name in names], "an empty log is recreated if need be"
        manager = fakes.open_manager(disk, clock)
        for index in range(3):
            manager.get_log("t", index).assign_leader_epoch(1)
        touched = []
        disk.fault = lambda action, path: touched.append(path) if "/t-" in path else None
        manager.shutdown()
        assert touched == [], "an epoch without a record needs no entry in the file"

    @pytest.mark.parametrize("crash", [False, True])
    def test_names_of_empty_log_become_durable_with_first_records(self, fakes, disk, clock, manager, crash):
        pool, done = fakes.Pool(), []
        manager.create_log("t", 0, TOPIC_ID)
        if crash:
            disk.locked.clear()
        else:
            manager.shutdown()
        log = fakes.open_manager(disk, clock).get_log("t", 0)
        assert log.topic_id == TOPIC_ID
        put(fakes, log, clock)
        log.request_flush(pool, done.append)
        pool.run_all()
        assert done == [None]
        for seed in range(20):
            disk.crash(fakes.Rng(seed + 1))
            log = fakes.open_manager(disk, clock).get_log("t", 0)
            assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 1)

    @pytest.mark.parametrize("seed", range(8))
    def test_a_power_failure_after_a_clean_stop_of_empty_logs(self, fakes, disk, clock, seed):
        """Whichever of their files remain, they are empty logs again, and accept the given topic id."""
        manager = fakes.open_manager(disk, clock)
        for index in range(4):
            manager.create_log("t", index, TOPIC_ID).assign_leader_epoch(3)
        manager.shutdown()
        disk.crash(fakes.Rng(seed + 1))
        manager = fakes.open_manager(disk, clock)
        assert manager.had_clean_shutdown
        for index in range(4):
            log = manager.create_log("t", index, TOPIC_ID)
            log.assign_leader_epoch(4)
            put(fakes, log, clock)
            assert (log.topic_id, log.log_end_offset, log.leader_epoch) == (TOPIC_ID, 1, 4)

    @pytest.mark.parametrize("seed", range(8))
    def test_power_failure_after_clean_stop_loses_nothing(self, fakes, disk, clock, seed):
        config = LogConfig(segment_bytes=300, index_interval_bytes=90)
        manager = fakes.open_manager(disk, clock, config=config)
        rng, before = fakes.Rng(seed + 1), {}
        for life in range(4):
            for index in range(4):
                log = manager.create_log("t", index, TOPIC_ID)
                log.assign_leader_epoch(life)
                for _ in range(1 + rng.randrange(6)):
                    put(fakes, log, clock)
                if rng.randrange(4) == 0:
                    log.truncate_to(rng.randrange(log.log_end_offset + 1))
                before[index] = fakes.read_log(log), log.log_end_offset
            manager.shutdown()
            files = contents(disk)
            disk.crash(rng)
            assert contents(disk) == files
            manager = fakes.open_manager(disk, clock, config=config)
            assert manager.had_clean_shutdown
            for index, expected in before.items():
                log = manager.get_log("t", index)
                assert (fakes.read_log(log), log.log_end_offset) == expected

    def test_a_stop_may_flush_in_the_pool_first(self, fakes, disk, clock, manager):
        pool, done = fakes.Pool(), []
        for index in range(3):
            put(fakes, manager.create_log("t", index, TOPIC_ID), clock)
        for log in manager.logs():
            log.request_flush(pool, done.append)
        pool.run_all()
        for log in manager.logs():
            log.request_closing_flush(pool, done.append)
        pool.run_all()
        assert done == [None] * 6
        assert disk.open_count <= 9
        synced = []
        disk.fault = lambda action, path: synced.append(path) if action == "fsync" else None
        manager.shutdown()
        assert synced == []
        assert disk.open_count == 0
        manager = fakes.open_manager(disk, clock)
        assert manager.had_clean_shutdown
        assert [log.log_end_offset for log in manager.logs()] == [1, 1, 1]

    def test_a_stop_that_can_not_sync_is_not_clean(self, fakes, disk, clock, manager):
        pool, done = fakes.Pool(), []
        log = manager.create_log("t", 0, TOPIC_ID)
        put(fakes, log, clock)
        disk.fault = lambda action, path: OSError(errno.EIO, "bad block") if action == "fsync" else None
        log.request_closing_flush(pool, done.append)
        pool.run_all()
        disk.fault = lambda action, path: None
        assert [error.errno for error in done] == [errno.EIO]
        manager.shutdown()
        assert not disk.exists("/data/.kafka_cleanshutdown")

    def test_a_deleted_log_may_fail_its_flush(self, fakes, disk, clock, manager):
        pool, done = fakes.Pool(), []
        log = manager.create_log("t", 0, TOPIC_ID)
        put(fakes, log, clock)
        log.request_flush(pool, done.append)
        manager.delete_log("t", 0)
        pool.run_all()
        assert len(done) == 1
        assert not manager.offline_directories
        assert disk.open_count == 0

    def test_rolled_segments_and_flush_ms(self, fakes, disk, clock):
        manager = fakes.open_manager(disk, clock, config=LogConfig(segment_bytes=200))
        pool = fakes.Pool()
        log = manager.create_log("t", 0, TOPIC_ID)
        for _ in range(3):
            put(fakes, log, clock)
        assert manager.flush_due(pool) == 1
        pool.run_all()
        assert log.recovery_point == 3
        put(fakes, log, clock)
        assert manager.flush_due(pool) == 0
        manager.get_log("t", 0).config = LogConfig(flush_ms=1000)
        clock.now_ms += 999
        assert manager.flush_due(pool) == 0
        clock.now_ms += 1
        assert manager.flush_due(pool) == 1
        pool.run_all()
        assert log.recovery_point == 4
        assert manager.flush_due(pool) == 0

    def test_a_log_without_flush_ms_or_gone_is_not_flushed_by_time(self, fakes, clock, manager):
        pool = fakes.Pool()
        timed = LogConfig(flush_ms=1000)
        for partition in range(3):
            put(fakes, manager.create_log("t", partition, TOPIC_ID, timed), clock)
        clock.now_ms += 1000
        manager.create_log("t", 1, TOPIC_ID, LogConfig())
        manager.delete_log("t", 2)
        assert manager.flush_due(pool) == 1
        pool.run_all()
        assert [log.recovery_point for log in manager.logs()] == [1, 0]


def test_error_logging_is_bounded(fakes, disk, clock, manager, caplog):
    log = manager.create_log("t", 0, TOPIC_ID)
    disk.capacity = 0
    with caplog.at_level(logging.ERROR):
        for _ in range(50):
            with pytest.raises(KafkaError):
                put(fakes, log, clock)
        assert len(caplog.messages) == 1
        clock.now_ms += 10_000
        with pytest.raises(KafkaError):
            put(fakes, log, clock)
    assert len(caplog.messages) == 2
    assert "49 more" in caplog.messages[1]
    assert not manager.offline_directories


def test_the_names_of_new_directories_are_durable(fakes, clock, disk):
    synced = []
    disk.fault = lambda action, path: synced.append(path) if action == "fsync" else None
    manager = fakes.open_manager(disk, clock, directory="/new/deep/data")
    assert {"/", "/new", "/new/deep"} <= set(synced)
    synced.clear()
    log = manager.create_log("t", 0, TOPIC_ID)
    put(fakes, log, clock)
    log.flush()
    assert synced.count("/new/deep/data") == 1
    put(fakes, log, clock)
    log.flush()
    assert synced.count("/new/deep/data") == 1, "once is enough"
    disk.locked.clear()
    synced.clear()
    fakes.open_manager(disk, clock, directory="/new/deep/data")
    assert "/new/deep/data" in synced, "after a crash it is unknown which names were synced"


def test_offset_checkpoints_are_due_after_change(fakes, clock, manager):
    (directory,) = manager.directories

    def due():
        files = directory.checkpoints.offsets_due()
        directory.checkpoints.write_files(files)
        directory.checkpoints.written(files, None)
        return [each.name for each in files]

    log = manager.create_log("t", 0, TOPIC_ID)
    assert due() == ["log-start-offset-checkpoint", "replication-offset-checkpoint"]
    assert due() == []
    put(fakes, log, clock)
    assert due() == ["replication-offset-checkpoint"]
    log.delete_records(1)
    assert due() == ["log-start-offset-checkpoint"]
    manager.delete_log("t", 0)
    put(fakes, manager.create_log("u", 0), clock)
    assert due() == ["log-start-offset-checkpoint", "replication-offset-checkpoint"]
    assert due() == []


def test_checkpoint_with_older_content_is_due_again(fakes, clock, manager):
    """The state of the logs counts as written only as long as the file has that content."""
    checkpoints = manager.directories[0].checkpoints
    log = manager.create_log("t", 0, TOPIC_ID)
    for _ in range(2):
        put(fakes, log, clock)
    log.offsets.begin_high_watermark(1)
    checkpoints.write_files(checkpoints.offsets_due())
    log.offsets.set_high_watermark(2)
    late = checkpoints.offsets_due()
    log.offsets.set_high_watermark(1)
    assert checkpoints.offsets_due() == []
    checkpoints.write_files(late)
    assert [each.offsets for each in checkpoints.offsets_due()] == [{("t", 0): 1}]


def test_unchanged_logs_build_no_checkpoint(manager, monkeypatch):
    """An idle broker with fifty thousand partitions did that every five seconds."""
    checkpoints = manager.directories[0].checkpoints
    for index in range(3):
        manager.create_log("t", index, TOPIC_ID).offsets.begin_high_watermark(0)
    checkpoints.write_files(checkpoints.offsets_due())
    checkpoints.write_recovery_points()
    assert checkpoints.offsets_due() == []
    assert checkpoints.recovery_points_due() is None
    monkeypatch.setattr("ottla.storage.files.offset_files.OffsetFiles.content", None)
    assert checkpoints.offsets_due() == []
    assert checkpoints.recovery_points_due() is None
    monkeypatch.setattr("ottla.storage.directory.held_logs.HeldLogs.in_order", None)
    assert checkpoints.offsets_due() == []


@pytest.mark.parametrize("due", ["nothing", "offset_checkpoints_due", "recovery_points_due"])
def test_recreated_log_inherits_no_offsets(fakes, disk, clock, manager, due):
    """A start dropped its records, since it trusted the start offset of the deleted log."""
    (directory,) = manager.directories
    old = manager.create_log("t", 0, TOPIC_ID)
    for _ in range(10):
        put(fakes, old, clock)
    old.delete_records(7)
    old.flush()
    directory.checkpoints.cleaner.put(("t", 0), 5)
    directory.checkpoints.cleaner.write(directory.checkpoints.cleaner.due())
    waiting = []
    if due == "nothing":
        write_checkpoints(manager)
    elif due == "offset_checkpoints_due":
        waiting = directory.checkpoints.offsets_due()
    else:
        waiting = [directory.checkpoints.recovery_points_due()]
    manager.delete_log("t", 0)
    log = manager.create_log("t", 0, bytes(16))
    for _ in range(3):
        put(fakes, log, clock)
    directory.checkpoints.write_files(waiting)
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        assert ("t", 0) not in read_offsets(disk, f"/data/{name}-offset-checkpoint"), name
    disk.locked.clear()
    log = fakes.open_manager(disk, clock).get_log("t", 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


def test_checkpoint_is_written_again_after_a_failure(fakes, disk, clock, manager, monkeypatch):
    """A file that was replaced before the failure must not count as the one before."""
    (directory,) = manager.directories
    log = manager.create_log("t", 0, TOPIC_ID)
    for _ in range(3):
        put(fakes, log, clock)
    log.flush()
    write_checkpoints(manager)
    before = disk.read_bytes("/data/recovery-point-offset-checkpoint")
    put(fakes, log, clock)
    log.flush()

    def replace_and_fail(path, data):
        disk.write_bytes(path, data)
        raise OSError(errno.ENOSPC, "no room", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_atomic", replace_and_fail)
        with pytest.raises(OSError, match="no room"):
            directory.checkpoints.write_recovery_points()
    assert disk.read_bytes("/data/recovery-point-offset-checkpoint") != before
    log.truncate_to(3)
    assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == before


def test_log_restarted_at_lower_offset_retains_records(fakes, disk, clock, manager):
    """After an unclean election a log may begin below its old offsets, which a start must not trust."""
    log = manager.create_log("t", 0, TOPIC_ID)
    log.truncate_fully_and_start_at(500)
    for _ in range(10):
        put(fakes, log, clock)
    log.delete_records(507)
    write_checkpoints(manager)
    log.truncate_fully_and_start_at(100)
    for _ in range(3):
        put(fakes, log, clock)
    for name in ("recovery-point", "log-start", "replication"):
        assert read_offsets(disk, f"/data/{name}-offset-checkpoint").get(("t", 0), 0) <= 100, name
    disk.locked.clear()
    log = fakes.open_manager(disk, clock).get_log("t", 0)
    assert (log.log_start_offset, log.log_end_offset) == (100, 103)


def test_stale_recovery_points_are_not_written_after_truncation(fakes, clock, disk, manager):
    (directory,) = manager.directories
    log = manager.create_log("t", 0, TOPIC_ID)
    for _ in range(3):
        put(fakes, log, clock)
    log.flush()
    due = directory.checkpoints.recovery_points_due()
    log.truncate_to(1)
    assert directory.checkpoints.write_off_loop(due) is False
    assert b"t 0 1" in disk.read_bytes("/data/recovery-point-offset-checkpoint")
    put(fakes, log, clock)
    log.flush()
    assert directory.checkpoints.write_off_loop(directory.checkpoints.recovery_points_due()) is True
    assert b"t 0 2" in disk.read_bytes("/data/recovery-point-offset-checkpoint")
    assert directory.checkpoints.recovery_points_due() is None
