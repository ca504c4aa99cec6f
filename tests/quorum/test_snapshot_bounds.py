"""A node can read its own files: batches split by size, snapshots checked before older data is deleted, and the
fallback."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ottla.app.disk import RealDisk
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, ProtocolError
from ottla.metadata.bounds import MAX_BATCH_BYTES
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord, UserScramCredentialRecord
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.metadata_log import UNREADABLE_SUFFIX, MetadataLogConfig
from ottla.quorum.snapshot_file import (
    SnapshotBuilder,
    SnapshotId,
    batches_in,
    batches_of,
    check_snapshot,
    replay_snapshot,
)
from ottla.quorum.snapshot_image import load_snapshot
from ottla.quorum.snapshots import encode_in_steps
from ottla.record.batch import iter_batches

from . import driver_world
from .driver_world import LOG_CONFIG, World
from .snapshot_content import read_snapshot

MIB = 1024 * 1024


def sized(name: str, size: int) -> ApiMessageAndVersion:
    """A record that is larger than any handler creates."""
    record = UserScramCredentialRecord(
        name=name, mechanism=1, salt=b"v" * size, stored_key=b"s" * 32, server_key=b"k" * 32, iterations=4096
    )
    return versioned(record)


def submit(driver: QuorumDriver, *records: ApiMessageAndVersion) -> BaseException | None:
    outcome: list[BaseException | None] = []
    driver.submit(records, outcome.append)
    return outcome[0]


def take_snapshot(setup: Any, driver: QuorumDriver) -> SnapshotId:
    assert driver._started.snapshots.take()
    setup.scheduler.run_soon()
    return driver.log.snapshots()[-1]


def damage(setup: Any, snapshot: SnapshotId) -> None:
    path = setup.directory / snapshot.file_name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)


def test_snapshot_batches_are_cut_by_bytes(setup: Any) -> None:
    records = [sized(f"t{number}", 3 * MIB) for number in range(7)]
    builder, done = SnapshotBuilder(1, 0, 0, ()), []
    encode_in_steps(builder, iter(records), setup.scheduler, done.append, lambda: False)
    setup.scheduler.run_soon()
    sizes = [batch.size_bytes for batch in iter_batches(done[0]) if not batch.is_control]
    assert [size // MIB for size in sizes] == [6, 6, 6, 3]
    assert read_snapshot(done[0]).records == records


@pytest.mark.parametrize("seed", range(3))
def test_any_sizes_written_are_read_back(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 100, MIB, MAX_BATCH_BYTES - 200, MAX_BATCH_BYTES + 1)) for _ in range(12)]
    records = [sized(f"t{number}", size) for number, size in enumerate(sizes)]
    builder = SnapshotBuilder(1, 0, 0, ())
    builder.add(records)
    data = builder.finish()
    check_snapshot(data)
    assert read_snapshot(data).records == records
    assert not [batch for batch in iter_batches(data) if batch.size_bytes > MAX_BATCH_BYTES and batch.records_count > 1]


def test_records_above_one_batch_are_refused_and_change_nothing(setup: Any) -> None:
    driver = setup.started()
    end = driver.next_offset
    error = submit(driver, sized("t", MAX_BATCH_BYTES // 2), sized("u", MAX_BATCH_BYTES // 2))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert driver.next_offset == end
    assert not driver.latest.scram_credentials
    assert submit(driver, sized("t", 10)) is None


def test_the_largest_batch_is_read_from_log_and_snapshot(setup: Any) -> None:
    driver = setup.started()
    assert submit(driver, sized("t", MAX_BATCH_BYTES - 200)) is None
    image = driver.latest
    driver.close()
    driver = setup.started()
    assert driver.latest.scram_credentials == image.scram_credentials
    assert submit(driver, sized("u", 10)) is None
    before = driver.latest.scram_credentials
    take_snapshot(setup, driver)
    driver.close()
    assert setup.started().latest.scram_credentials == before


@pytest.mark.promise("D14")
def test_an_unreadable_snapshot_falls_back_to_the_one_before(setup: Any, caplog: pytest.LogCaptureFixture) -> None:
    setup.config = MetadataLogConfig(snapshot_bytes=1, retention_bytes=0, snapshot_interval_ms=0)
    driver = setup.started()
    for number in range(20):
        assert submit(driver, sized(f"t{number}", 10)) is None
        setup.scheduler.run_soon()
    before, kept = driver.latest.scram_credentials, driver.log.snapshots()
    assert len(kept) == 2
    assert driver.log.start_offset == kept[0].end_offset > 0
    driver.close()
    damage(setup, kept[-1])
    driver = setup.started()
    assert driver.latest.scram_credentials == before
    assert driver.log.snapshots()[0] == kept[0]
    assert kept[-1] not in driver.log.snapshots()
    assert (setup.directory / (kept[-1].file_name + UNREADABLE_SUFFIX)).exists()
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    driver.close()
    assert setup.started().latest.scram_credentials == before


@pytest.mark.promise("D14")
def test_two_unreadable_snapshots_are_refused_and_left(setup: Any) -> None:
    setup.config = MetadataLogConfig(snapshot_bytes=1, retention_bytes=0, snapshot_interval_ms=0)
    driver = setup.started()
    for number in range(20):
        submit(driver, sized(f"t{number}", 10))
        setup.scheduler.run_soon()
    kept = driver.log.snapshots()
    driver.close()
    for snapshot in kept:
        damage(setup, snapshot)
    before = sorted(path.name for path in setup.directory.iterdir())
    with pytest.raises(OperatorError, match=kept[-1].file_name):
        setup.started()
    assert sorted(path.name for path in setup.directory.iterdir()) == before


def test_damage_in_the_log_behind_the_older_snapshot_is_refused(setup: Any) -> None:
    driver = setup.started()
    submit(driver, sized("s", 1000))
    take_snapshot(setup, driver)
    submit(driver, sized("t", 1000))
    newest = take_snapshot(setup, driver)
    driver.close()
    damage(setup, newest)
    log = setup.directory / "00000000000000000000.log"
    log.write_bytes(log.read_bytes().replace(b"v" * 1000, b"w" * 1000))
    with pytest.raises(OperatorError, match=newest.file_name):
        setup.started()


def test_a_snapshot_that_is_not_whole_deletes_nothing(setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.config = MetadataLogConfig(snapshot_bytes=1, retention_bytes=0, snapshot_interval_ms=0)
    driver = setup.started()
    for number in range(6):
        submit(driver, sized(f"t{number}", 10))
        setup.scheduler.run_soon()
    kept, start = driver.log.snapshots(), driver.log.start_offset
    finish = SnapshotBuilder.finish
    monkeypatch.setattr(SnapshotBuilder, "finish", lambda builder: finish(builder)[:-1])
    for number in range(6):
        submit(driver, sized(f"u{number}", 10))
        setup.scheduler.run_soon()
    assert driver.log.snapshots() == kept
    assert driver.log.start_offset == start
    driver.close()
    assert len(setup.started().latest.scram_credentials) == 12


@pytest.mark.parametrize("cut", [0, 1, 70])
def test_snapshot_check_refuses_truncated_data(cut: int) -> None:
    builder = SnapshotBuilder(1, 0, 0, ())
    builder.add([sized("t", 10)])
    data = builder.finish()
    with pytest.raises(ProtocolError):
        check_snapshot(data[: len(data) - cut] if cut else b"")


def written(path: Path, sizes: list[int]) -> bytes:
    """A snapshot with a batch for each size."""
    builder = SnapshotBuilder(1, 0, 0, ())
    for number, size in enumerate(sizes):
        builder.add([sized(f"t{number}", size)])
    data = builder.finish()
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("piece", [61, 200, 1000, 1 << 20])
def test_snapshot_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr("ottla.quorum.snapshot_file._READ_BYTES", piece)
    data = written(tmp_path / "snapshot", [10, 2000, 10, 700, 10])
    file = RealDisk().open(str(tmp_path / "snapshot"), read_only=True)
    found = [(position, batch.to_bytes()) for position, batch in batches_in(file)]
    file.close()
    assert found == [(position, batch.to_bytes()) for position, batch in batches_of(data)]


@pytest.mark.parametrize("piece", [61, 1 << 20])
def test_any_damaged_or_cut_snapshot_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("ottla.quorum.snapshot_file._READ_BYTES", piece)
    path = tmp_path / "snapshot"
    data = written(path, [10, 10])
    damaged = [data[:cut] for cut in range(len(data))]
    for batch in iter_batches(data):
        length, covered = range(8, 12), range(16, batch.size_bytes)  # not offset and epoch, which no CRC covers
        damaged += [
            data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]
            for position in (batch.position + each for each in (*length, *covered))
        ]
    for each in damaged:
        path.write_bytes(each)
        file = RealDisk().open(str(path), read_only=True)
        with pytest.raises(ProtocolError):
            replay_snapshot(batches_in(file), lambda _: None)
        file.close()


def test_loading_takes_little_more_memory_than_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.quorum.snapshot_file._READ_BYTES", 16 * 1024)
    records = []
    for number in range(50):
        topic_id = number.to_bytes(16)
        records.append(versioned(TopicRecord(name=f"t{number}", topic_id=topic_id)))
        for index in range(100):
            partition = PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1
            )
            records.append(versioned(partition))
    builder, rest = SnapshotBuilder(1, 0, 0, ()), iter(records)
    while builder.add_step(rest, 100):
        pass
    path = tmp_path / "snapshot"
    path.write_bytes(builder.finish())
    del records, rest, builder
    file = RealDisk().open(str(path), read_only=True)
    tracemalloc.start()
    try:
        loaded = load_snapshot(SnapshotId(1, 1), batches_in(file))
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        file.close()
    assert loaded.image.partition_count() == 5_000
    assert peak < 1.4 * size, f"{peak} bytes for {size}"


def test_the_largest_batch_reaches_all_voters_in_one_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_world, "LOG_CONFIG", LOG_CONFIG._replace(segment_bytes=MAX_BATCH_BYTES))
    world = World(5, observers=1)
    world.run(8.0)
    leader = world.active()
    assert leader is not None
    assert leader.driver is not None
    assert leader.process is not None
    epoch, outcome = leader.driver.raft.state.epoch, []
    for size in (MAX_BATCH_BYTES - 200, 20 * MIB):
        leader.process.run(leader.driver.submit, [sized("large", size)], outcome.append)
        world.run(10.0)
    assert outcome[0] is None
    assert isinstance(outcome[1], KafkaError)
    assert outcome[1].code is ErrorCode.RECORD_LIST_TOO_LARGE
    world.calm()
    for node in world.nodes.values():
        assert node.driver is not None
        assert node.driver.raft.state.epoch == epoch
        assert ("large", 1) in node.driver.latest.scram_credentials
