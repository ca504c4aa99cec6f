"""The metadata log over starts, crashes, snapshots and failures of the disk."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.scale import size

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, OperatorError
from ottla.common.kafka.ids import ZERO_UUID, uuid_to_string
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import ApiMessageAndVersion, decode_record, versioned
from ottla.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.quorum.control import leader_change
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.election_file import decode_fields, encode_election_state, encode_fields
from ottla.quorum.metadata_log import MetadataLogConfig
from ottla.quorum.raft_types import FORGOTTEN_EPOCHS, ElectionState, Voter
from ottla.record.batch import iter_batches
from ottla.record.builder import build_batch
from ottla.record.control import ControlRecordType, control_record_type

from .snapshot_content import read_snapshot

DIRECTORY_ID = b"D" * 16


def topic_records(name: str, topic_id: bytes | None = None) -> list[ApiMessageAndVersion]:
    topic_id = topic_id or name.encode().ljust(16, b"-")
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
    )
    return [versioned(TopicRecord(name=name, topic_id=topic_id)), versioned(partition)]


def submit(driver: QuorumDriver, records: list[ApiMessageAndVersion]) -> list[BaseException | None]:
    outcome: list[BaseException | None] = []
    driver.submit(records, outcome.append)
    return outcome


def content(image: MetadataImage) -> tuple[Any, ...]:
    return (image.topics, image.configs, image.brokers, image.features, image.next_producer_id)


def test_new_directory_gets_kafkas_files(setup: Any) -> None:
    driver = setup.driver()
    assert driver.start([Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)])
    driver.close()
    names = {path.name for path in setup.directory.iterdir()}
    assert {
        "00000000000000000000.log",
        "00000000000000000000-0000000000.checkpoint",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
    } <= names
    assert decode_fields((setup.directory / "quorum-state").read_bytes()) == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": 1,
        "votedDirectoryId": uuid_to_string(DIRECTORY_ID),
        "data_version": 1,
    }
    snapshot = read_snapshot((setup.directory / "00000000000000000000-0000000000.checkpoint").read_bytes())
    assert [voter.voter_id for voter in snapshot.voters] == [1]
    batch = next(iter(iter_batches((setup.directory / "00000000000000000000.log").read_bytes())))
    assert batch.is_control
    assert batch.partition_leader_epoch == 1
    assert [control_record_type(record) for record in batch.records()] == [
        ControlRecordType.LEADER_CHANGE,
        ControlRecordType.KRAFT_VERSION,
        ControlRecordType.KRAFT_VOTERS,
    ]


def test_what_was_committed_is_there_after_a_restart_and_a_crash(setup: Any) -> None:
    driver = setup.started()
    for index in range(5):
        assert submit(driver, topic_records(f"t{index}")) == [None]
    image = driver.latest
    assert setup.publisher.image == image
    driver.close()
    for expected_epoch in (2, 3, 4):
        driver = setup.started()  # from 3 on after a crash: the one before was not closed
        assert driver.raft.state.epoch == expected_epoch
        assert content(driver.latest) == content(image)
        assert driver.latest.offset == driver.next_offset - 1


def test_records_in_the_file_are_those_submitted(setup: Any) -> None:
    driver = setup.started()
    records = [*topic_records("t"), versioned(ConfigRecord(resource_type=2, resource_name="t", name="a", value="b"))]
    submit(driver, records)
    data = (setup.directory / "00000000000000000000.log").read_bytes()
    batches = list(iter_batches(data))
    assert len(batches) == 2
    written = [record.value for record in batches[1].records()]
    assert [decode_record(value) for value in written if value is not None] == records
    assert all(batch.crc_matches() for batch in batches)


@pytest.mark.promise("D4")
def test_published_only_once_on_disk_and_in_order(setup: Any) -> None:
    driver = setup.started()
    setup.pool.immediate = False
    seen: list[tuple[str, int]] = []
    setup.publisher.register(lambda image, changes: seen.append(("image", len(image.topics))))
    for index in range(4):
        driver.submit(topic_records(f"t{index}"), lambda error, index=index: seen.append(("done", index)))
    driver.submit([], lambda error: seen.append(("barrier", 0)))
    assert len(driver.latest.topics) == 4
    assert setup.publisher.image is EMPTY_IMAGE
    assert seen == []
    setup.pool.run()
    assert seen == [step for index in range(4) for step in (("image", index + 1), ("done", index))] + [("barrier", 0)]
    assert setup.pool.runs == 2, "the first submission has a sync of its own, the others share the second"


def test_commit_latency_lasts_from_the_append_to_the_sync(setup: Any) -> None:
    driver = setup.started()
    commits = driver.raft.state.statistics.commits
    commits.clear()
    setup.pool.immediate = False
    submit(driver, topic_records("a"))
    setup.clock.now_ms += 2000
    submit(driver, topic_records("b"))
    assert not commits.count
    setup.clock.now_ms += 500
    setup.pool.run()
    assert (commits.count, commits.sum_s, commits.max_s) == (2, 3.0, 2.5)


def test_answer_may_submit_again(setup: Any) -> None:
    driver = setup.started()
    order: list[str] = []

    def again(error: BaseException | None) -> None:
        order.append("first")
        driver.submit(topic_records("b"), lambda error: order.append("second"))

    driver.submit(topic_records("a"), again)
    assert order == ["first", "second"]


def test_record_that_does_not_fit_changes_nothing(setup: Any) -> None:
    driver = setup.started()
    before = driver.next_offset
    with pytest.raises(InvariantError):
        submit(driver, [*topic_records("t"), versioned(RemoveTopicRecord(topic_id=b"?" * 16))])
    assert driver.next_offset == before
    assert driver.latest.topics == {}
    assert submit(driver, topic_records("t")) == [None]


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_torn_tail_is_cut(setup: Any, cut: int) -> None:
    driver = setup.started()
    submit(driver, topic_records("kept"))
    path = setup.directory / "00000000000000000000.log"
    size = path.stat().st_size
    submit(driver, topic_records("torn"))
    data = path.read_bytes()
    path.write_bytes(data[: min(len(data) - 1, size + cut)])
    driver = setup.started()
    assert list(driver.latest.topics) == ["kept"]
    assert submit(driver, topic_records("torn")) == [None]
    assert list(setup.started().latest.topics) == ["kept", "torn"]


def test_epoch_rises_even_if_the_log_is_lost(setup: Any) -> None:
    setup.started().close()
    setup.started().close()
    for name in ("00000000000000000000.log", "leader-epoch-checkpoint"):
        (setup.directory / name).unlink()
    assert setup.started().raft.state.epoch == 3


def take_snapshot(driver: QuorumDriver) -> bool:
    return driver._started.snapshots.take()


def run_snapshot(setup: Any, driver: QuorumDriver) -> None:
    assert take_snapshot(driver)
    setup.scheduler.run_soon()


def snapshot_names(setup: Any) -> list[str]:
    return sorted(path.name for path in setup.directory.iterdir() if path.suffix == ".checkpoint")


def test_snapshot_replaces_the_log_before_it(setup: Any) -> None:
    setup.config = MetadataLogConfig(snapshot_bytes=1, retention_bytes=0, snapshot_interval_ms=0)
    driver = setup.started()
    for index in range(size(100, 450)):
        submit(driver, topic_records(f"t{index}"))
        setup.scheduler.run_soon()
    image = driver.latest
    assert len(snapshot_names(setup)) == 2
    logs = sorted(path.name for path in setup.directory.iterdir() if path.suffix == ".log")
    assert logs[0] != "00000000000000000000.log"
    driver.close()
    driver = setup.started()
    assert content(driver.latest) == content(image)
    assert [voter.voter_id for voter in driver.raft.state.voters] == [1]


def test_snapshot_during_requests_contains_its_initial_image(setup: Any) -> None:
    driver = setup.started()
    for index in range(300):
        submit(driver, topic_records(f"t{index}"))
    end = driver.latest.offset + 1
    assert take_snapshot(driver)
    assert not take_snapshot(driver), "one at a time"
    submit(driver, topic_records("later"))
    setup.scheduler.run_soon()
    name = snapshot_names(setup)[-1]
    assert name == f"{end:020d}-{1:010d}.checkpoint"
    snapshot = read_snapshot((setup.directory / name).read_bytes())
    assert len([record for record in snapshot.records if isinstance(record.message, TopicRecord)]) == 300
    assert "later" in setup.started().latest.topics


def test_snapshot_by_time_only_with_something_new(setup: Any) -> None:
    setup.config = MetadataLogConfig(snapshot_interval_ms=1000)
    driver = setup.started()
    submit(driver, topic_records("t"))
    assert [timer[0] for timer in setup.scheduler.later] == [1.0]
    setup.scheduler.run_timers()
    assert len(snapshot_names(setup)) == 2
    setup.scheduler.run_timers()
    assert len(snapshot_names(setup)) == 2
    driver.close()
    assert all(timer[3].cancelled for timer in setup.scheduler.later)


@pytest.mark.parametrize("position", [20, 200, -5])
def test_damaged_snapshot_without_the_log_is_refused_by_name(setup: Any, position: int) -> None:
    setup.config = MetadataLogConfig(snapshot_bytes=1, retention_bytes=0, snapshot_interval_ms=0)
    driver = setup.started()
    for index in range(20):
        submit(driver, topic_records(f"t{index}"))
        setup.scheduler.run_soon()
    driver.close()
    (setup.directory / snapshot_names(setup)[0]).unlink()
    path = setup.directory / snapshot_names(setup)[-1]
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(OperatorError, match="checkpoint"):
        setup.started()


def test_log_that_lost_its_end_starts_at_the_newest_snapshot(setup: Any) -> None:
    """An older snapshot ends before the new log: a follower at its end would be sent to a snapshot forever."""
    driver = setup.started()
    for index in range(2):
        submit(driver, topic_records(f"t{index}"))
        run_snapshot(setup, driver)
    newest = driver.log.snapshots()[-1]
    driver.close()
    (setup.directory / "00000000000000000000.log").write_bytes(b"")
    driver = setup.started()
    assert driver.log.snapshots() == [newest]
    assert snapshot_names(setup) == [newest.file_name]
    assert list(driver.latest.topics) == ["t0", "t1"]


def test_a_damaged_snapshot_takes_no_log_with_it(setup: Any) -> None:
    driver = setup.started()
    submit(driver, topic_records("t"))
    run_snapshot(setup, driver)
    newest = driver.log.snapshots()[-1]
    driver.close()
    path = setup.directory / "00000000000000000000.log"
    data = path.read_bytes()
    damaged = newest._replace(end_offset=newest.end_offset + 1000)
    (setup.directory / damaged.file_name).write_bytes(b"damaged")
    with pytest.raises(OperatorError, match="checkpoint"):
        setup.started()
    assert path.read_bytes() == data


def test_missing_snapshot_is_refused(setup: Any) -> None:
    setup.config = MetadataLogConfig(snapshot_bytes=1, retention_bytes=0)
    driver = setup.started()
    for index in range(3):
        submit(driver, topic_records(f"t{index}"))
    driver.close()
    for name in snapshot_names(setup):
        (setup.directory / name).unlink()
    with pytest.raises(OperatorError, match="no snapshot covers"):
        setup.started()


@pytest.mark.parametrize(("node_id", "directory_id"), [(2, b"D" * 16), (1, b"E" * 16)])
def test_log_of_another_voter_is_refused(setup: Any, node_id: int, directory_id: bytes) -> None:
    setup.started().close()
    with pytest.raises(OperatorError, match="other voters"):
        setup.driver(node_id, directory_id).start([])


@pytest.mark.parametrize(("voters", "refused"), [((1, 2, 3), True), ((1,), False)])
def test_missing_configured_voters_are_refused(setup: Any, voters: tuple[int, ...], refused: bool) -> None:
    """The directory of an Apache Kafka node with several controller.quorum.voters."""
    setup.directory.mkdir()
    named = [Voter(each, ZERO_UUID, ()) for each in voters]
    (setup.directory / "quorum-state").write_bytes(encode_election_state(ElectionState(3, leader_id=2), named))
    batch = build_batch([leader_change(2, voters, 0)], leader_epoch=3, is_control=True)
    (setup.directory / "00000000000000000000.log").write_bytes(batch)
    before = (setup.directory / "quorum-state").read_bytes()
    if refused:
        with pytest.raises(OperatorError, match="names other voters"):
            setup.started()
        assert (setup.directory / "quorum-state").read_bytes() == before
    else:
        setup.started().close()


@pytest.mark.parametrize("end", [None, AbortTransactionRecord(), EndTransactionRecord()])
def test_a_transaction_that_does_not_count_is_refused(setup: Any, end: Any) -> None:
    driver = setup.started()
    records = [BeginTransactionRecord(), NoOpRecord(), *([end] if end else [])]
    submit(driver, [versioned(record) for record in records])
    driver.close()
    if isinstance(end, EndTransactionRecord):
        setup.started().close()
    else:
        with pytest.raises(OperatorError, match="which this version can't undo: start Apache Kafka"):
            setup.started()


def test_new_address_of_the_voter_is_noted(setup: Any) -> None:
    setup.started().close()
    driver = setup.driver()
    driver.start([Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9999)])
    driver.close()
    driver = setup.driver()
    driver.start([Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9999)])
    batches = list(iter_batches((setup.directory / "00000000000000000000.log").read_bytes()))
    assert [batch.records_count for batch in batches] == [3, 3, 1]


WRONG_CHECKSUM = encode_election_state(ElectionState(3, leader_id=1)).replace(b'"leaderEpoch":3', b'"leaderEpoch":2')


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"leaderEpoch":-4,"leaderId":1,"votedId":1,"data_version":1}', WRONG_CHECKSUM, None],
    ids=["empty", "no object", "no fields", "no epoch", "wrong checksum", "gone"],
)
def test_lost_quorum_state_continues_far_above_the_log_epoch(setup: Any, data: bytes | None) -> None:
    setup.started().close()
    path = setup.directory / "quorum-state"
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    driver = setup.started()
    assert driver.raft.state.epoch == 1 + FORGOTTEN_EPOCHS + 1, "its own election, after the one of the log"
    assert submit(driver, topic_records("new")) == [None]
    assert not (setup.directory / ".ottla_catching_up").exists(), "it is alone"
    driver.close()
    assert setup.started().raft.state.epoch == 1 + FORGOTTEN_EPOCHS + 2


def test_damaged_log_with_damaged_quorum_state_is_refused(setup: Any) -> None:
    driver = setup.started()
    for name in ("one", "two"):
        submit(driver, topic_records(name))
    driver.close()
    path = setup.directory / "00000000000000000000.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:400].replace(b"one", b"One") + whole[400:])
    assert path.read_bytes() != whole
    (setup.directory / "quorum-state").write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(OperatorError, match=r"quorum-state are both damaged .* restore"):
            setup.started()


def test_the_end_of_the_epochs_is_refused_with_the_way_out(setup: Any) -> None:
    setup.started().close()
    state = decode_fields((setup.directory / "quorum-state").read_bytes()) | {"leaderEpoch": 2**31 - 1}
    (setup.directory / "quorum-state").write_bytes(encode_fields(state))
    with pytest.raises(OperatorError, match=r"no leader epoch is left .*quorum-state.* ottla cluster repair-epoch"):
        setup.started()


def test_a_log_with_acls_is_refused(setup: Any) -> None:
    driver = setup.started()
    submit(driver, [versioned(AccessControlEntryRecord(id=b"A" * 16, resource_name="secret", principal="User:ann"))])
    driver.close()
    with pytest.raises(OperatorError, match=r"has 1 ACLs, but no authorizer.*authorizer.class.name.*super.users"):
        setup.started()


@pytest.mark.parametrize(("feature", "level"), [("metadata.version", 34), ("metadata.version", 6), ("no.such", 1)])
def test_unknown_feature_levels_are_refused_before_any_write(setup: Any, feature: str, level: int) -> None:
    driver = setup.started()
    submit(driver, [versioned(FeatureLevelRecord(name=feature, feature_level=level))])
    driver.close()
    before = {path.name: path.read_bytes() for path in setup.directory.iterdir() if path.suffix != ".index"}
    with pytest.raises(OperatorError, match=f"at level {level} of {feature}, .*--data-dir"):
        setup.started()
    assert {name: (setup.directory / name).read_bytes() for name in before} == before


class FailingDisk:
    """The real disk until a call is set to fail."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self.append_error: OSError | None = None
        self.sync_error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str, **options: Any) -> Any:
        return FailingFile(self, self._disk.open(path, **options))


class FailingFile:
    def __init__(self, disk: FailingDisk, file: Any) -> None:
        self._failing = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, buffers: Any) -> int:
        if self._failing.append_error is not None:
            raise self._failing.append_error
        return int(self._file.append(buffers))

    def fsync(self) -> None:
        if self._failing.sync_error is not None:
            raise self._failing.sync_error
        self._file.fsync()


def test_full_disk_fails_the_request_and_nothing_else(setup: Any) -> None:
    setup.disk = FailingDisk(setup.disk)
    driver = setup.started()
    setup.disk.append_error = OSError(errno.ENOSPC, "No space left on device")
    (error,) = submit(driver, topic_records("t"))
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.latest.topics == {}
    setup.disk.append_error = None
    assert submit(driver, topic_records("t")) == [None]
    assert not setup.failures
    assert list(setup.started().latest.topics) == ["t"]


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_log_that_is_removed_under_it_ends_the_driver(setup: Any, how: str) -> None:
    """The file that is open takes everything, and a start finds nothing of it."""
    driver = setup.started()
    assert submit(driver, topic_records("kept")) == [None]
    (segment,) = setup.directory.glob("*.log")
    content = segment.read_bytes()
    if how == "moved":
        setup.directory.rename(setup.directory.with_name("elsewhere"))
    else:
        segment.unlink()
    if how == "replaced":
        segment.write_bytes(content)
    (error,) = submit(driver, topic_records("lost"))
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "removed, moved or replaced" in error.message
    assert list(setup.publisher.image.topics) == ["kept"]
    assert len(setup.failures) == 1


def test_failed_sync_ends_the_driver(setup: Any) -> None:
    setup.disk = FailingDisk(setup.disk)
    driver = setup.started()
    setup.disk.sync_error = OSError(errno.EIO, "Input/output error")
    (error,) = submit(driver, topic_records("t"))
    assert isinstance(error, KafkaError)
    assert setup.publisher.image is EMPTY_IMAGE
    assert len(setup.failures) == 1
    setup.disk.sync_error = None
    (error,) = submit(driver, topic_records("u"))
    assert isinstance(error, KafkaError)
    assert len(setup.failures) == 1


def test_stop_answers_pending_submissions(setup: Any) -> None:
    driver = setup.started()
    setup.pool.immediate = False
    outcome = submit(driver, topic_records("t"))
    setup.pool.run()
    late = submit(driver, [])
    driver.close()
    assert outcome == late == [None]
    (error,) = submit(driver, topic_records("u"))
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_stop_in_the_answer_of_the_last_submission(setup: Any) -> None:
    driver = setup.started()
    setup.pool.immediate = False
    outcome: list[BaseException | None] = []
    driver.submit(topic_records("t"), outcome.append)
    driver.submit([], lambda error: driver.close())
    setup.pool.run()
    assert outcome == [None]
    assert list(setup.started().latest.topics) == ["t"]


def test_raising_listener_ends_the_driver_and_answers_all(setup: Any) -> None:
    driver = setup.started()

    def broken(image: MetadataImage, changes: object) -> None:
        raise RuntimeError("a bug")

    setup.publisher.register(broken)
    outcome: list[BaseException | None] = []
    with pytest.raises(RuntimeError):
        driver.submit(topic_records("t"), outcome.append)
    assert [getattr(error, "code", None) for error in outcome] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert len(setup.failures) == 1


def test_driver_starts_once_and_close_is_idempotent(setup: Any) -> None:
    never_started = setup.driver()
    never_started.close()
    driver = setup.started()
    with pytest.raises(InvariantError):
        driver.start([])
    assert submit(driver, topic_records("t")) == [None], "the second start changed nothing"
    driver.close()
    driver.close()
    for closed in (driver, never_started):
        (error,) = submit(closed, [])
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.BROKER_NOT_AVAILABLE
        stopped: list[BaseException | None] = []
        closed.stop(stopped.append)
        assert stopped == [None]


def test_a_node_alone_leads_on_while_it_drains(setup: Any) -> None:
    """Records submitted before the stop are on disk with the flush that the stop waits for."""
    driver = setup.started()
    setup.pool.immediate = False
    first, second = submit(driver, topic_records("a")), submit(driver, topic_records("b"))
    stopped: list[BaseException | None] = []
    driver.stop(stopped.append)
    assert (first, second, stopped) == ([], [], [])
    setup.pool.run()
    assert (first, second, stopped) == ([None], [None], [None])
    driver.close()
    assert list(setup.started().latest.topics) == ["a", "b"]


def test_failed_driver_stops_at_once_and_keeps_its_error(setup: Any) -> None:
    setup.disk = FailingDisk(setup.disk)
    driver = setup.started()
    setup.disk.sync_error = OSError(errno.EIO, "Input/output error")
    submit(driver, topic_records("t"))
    setup.disk.sync_error = None
    assert not driver.active
    stopped: list[BaseException | None] = []
    driver.stop(stopped.append)
    assert stopped == [None]
    driver.close()
    (error,) = submit(driver, [])
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
