"""Loading: replayed records, slices, failures."""

from __future__ import annotations

import struct

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import CoordinatorState
from ottla.coordinator.runtime.loader import LOGGED_PER_LOAD, RECORDS_PER_CLOCK_READ, RECORDS_PER_PART
from ottla.coordinator.runtime.runtime import LOAD_WAIT_S
from ottla.coordinator.runtime.slices import SLICE_S
from ottla.record.batch import ATTRIBUTES_POSITION, CRC_POSITION
from ottla.record.builder import RecordData, build_batch
from ottla.record.checksum import crc32c

from .harness import Outcome, Put, Setup, state_of


@pytest.mark.promise("G4")
def test_a_restart_finds_the_same_state(led: Setup) -> None:
    for number in range(50):
        led.write(Put(f"k{number % 7}", number if number % 5 else None))
        if number % 3 == 0:
            led.time.turn()
    led.time.settle()
    before = dict(led.shard().numbers)
    led.new_runtime()
    led.lead(leader_epoch=2)
    assert led.shard().numbers == led.committed() == before == state_of(led.log.records(0))
    assert led.shard().is_loaded
    assert led.runtime.statistics.records_loaded == 50
    outcome = led.write(Put("a", 1))
    led.time.turn()
    assert outcome.response == "written"
    assert led.shard().offsets == list(range(51))


@pytest.mark.parametrize("fails", [False, True])
def test_after_loading_callback_runs_at_load_end(setup: Setup, fails: bool) -> None:
    setup.store([Put("a", 1)])
    if fails:
        setup.log.read_failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    seen: list[CoordinatorState | None] = []

    def note() -> None:
        seen.append(setup.runtime.state(0))

    setup.runtime.after_loading(0, note)
    assert seen == [None], "nothing is being loaded"
    setup.log.leader_epoch[0] = 1
    setup.runtime.become_leader(0, 1)
    setup.runtime.after_loading(0, note)
    setup.runtime.after_loading(0, note)
    assert seen == [None]
    while setup.runtime.state(0) is CoordinatorState.LOADING:
        assert len(seen) == 1
        setup.time.turn()
    setup.time.turn()
    end = CoordinatorState.FAILED if fails else CoordinatorState.ACTIVE
    assert seen == [None, end, end]
    setup.time.advance(2 * LOAD_WAIT_S)
    assert len(seen) == 3, "once"
    setup.runtime.after_loading(0, note)
    assert len(seen) == 4


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(setup: Setup, compression: str) -> None:
    setup.store([Put(f"k{number}", number) for number in range(100)], compression=compression)
    setup.lead()
    assert len(setup.shard().numbers) == 100


def test_a_log_of_many_reads(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.coordinator.runtime.loader.READ_BYTES", 1000)
    for number in range(100):
        setup.store([Put(f"k{number}" + "x" * (number * 20), number)])
    setup.lead()
    assert len(setup.shard().numbers) == 100
    assert setup.log.reads > 50
    assert setup.shard().offsets == list(range(100))


def test_log_start_inside_a_batch(setup: Setup) -> None:
    setup.store([Put("a", 1), Put("b", 2), Put("c", 3)], [Put("d", 4)])
    setup.log.start[0] = 1
    setup.lead()
    assert setup.shard().numbers == {"b": 2, "c": 3, "d": 4}


def test_log_with_compacted_tail_is_loaded(setup: Setup) -> None:
    setup.store([Put("a", 1)], [Put("b", 2)], [Put("b", None)])
    del setup.log.batches[0][1:]
    setup.lead()
    assert setup.committed() == {"a": 1}
    outcome = setup.write(Put("c", 3))
    setup.time.turn()
    assert outcome.response == "written"
    assert setup.log.ends(0) == [1, 4]


def test_a_log_with_gaps(setup: Setup) -> None:
    setup.store([Put("a", 1)], [Put("b", 2)], [Put("c", 3)], [Put("d", 4)])
    del setup.log.batches[0][1:3]
    setup.log.high_watermark[0] = 2
    setup.lead()
    assert setup.shard().offsets == [0, 3]
    assert setup.shard().numbers == {"a": 1, "d": 4}
    setup.log.commit(0, 4)
    assert setup.committed() == {"a": 1, "d": 4}


def test_an_empty_log_needs_no_read(setup: Setup) -> None:
    setup.lead()
    assert setup.runtime.state(0) is CoordinatorState.ACTIVE
    assert setup.log.reads == 0
    assert setup.committed() == {}


def test_foreign_batches_are_skipped(setup: Setup) -> None:
    setup.store([Put("a", 1)])
    setup.store([Put("control", 2)], is_control=True)
    setup.store([Put("transactional", 3)], is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    setup.store([Put("unknown", 4), Put("b", 5)])
    setup.lead()
    assert setup.shard().numbers == {"a": 1, "b": 5}
    assert setup.shard().offsets == [0, 2, 4]


def test_operations_fail_with_load_in_progress(setup: Setup) -> None:
    setup.store([Put("a", 1)])
    setup.log.leader_epoch[0] = 1
    setup.runtime.become_leader(0, 1)
    outcome = Outcome()
    setup.runtime.schedule_read("read", 0, lambda shard, offset: None, outcome)
    assert outcome.error == setup.write(Put("a", 2)).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    setup.time.settle()
    assert setup.committed() == {"a": 1}


def test_load_runs_in_slices(setup: Setup) -> None:
    setup.replay_s = 0.0001
    for partition in range(3):
        for _ in range(5):
            setup.store([Put(f"k{number}", number) for number in range(400)], partition=partition)
        setup.log.leader_epoch[partition] = 1
    for partition in range(3):
        setup.runtime.become_leader(partition, 1)
    turns = []
    while True:
        started_s = setup.time.now_s
        if not setup.time.turn():
            break
        turns.append(setup.time.now_s - started_s)
    assert len(setup.runtime.active_shards()) == 3
    assert sum(turns) == pytest.approx(3 * 5 * 400 * 0.0001)
    assert max(turns) <= SLICE_S + RECORDS_PER_CLOCK_READ * setup.replay_s + 1e-9, (
        "turns are not multiplied by partitions"
    )
    assert len(turns) > 100
    assert setup.runtime.statistics.load_time_max_ms > 199


def test_a_loaded_shard_serves_while_another_loads(setup: Setup) -> None:
    setup.replay_s = 0.001
    setup.lead(1)
    setup.store([Put(f"k{number}", number) for number in range(1000)])
    setup.log.leader_epoch[0] = 1
    setup.runtime.become_leader(0, 1)
    setup.time.turn()
    setup.time.turn()
    outcome = setup.write(Put("a", 1), partition=1)
    setup.time.turn()
    assert setup.runtime.state(0) is CoordinatorState.LOADING
    assert outcome.response == "written"


@pytest.mark.promise("G4")
def test_records_above_high_watermark_are_loaded_uncommitted(setup: Setup) -> None:
    """The previous coordinator may have acknowledged these records: reads wait for their commit."""
    setup.log.commits = False
    setup.store([Put("a", 1)], [Put("a", 2)], [Put("a", 3)])
    setup.log.high_watermark[0] = 1
    setup.lead()
    assert setup.shard().numbers == {"a": 3}
    assert setup.read().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    outcome = setup.write()
    assert outcome.pending
    setup.log.commit(0, 2)
    assert setup.read().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert outcome.pending
    setup.log.commit(0, 3)
    assert setup.committed() == {"a": 3}
    assert outcome.response == "written"


def test_the_high_watermark_rises_while_loading(setup: Setup) -> None:
    setup.store([Put("a", 1)], [Put("a", 2)])
    setup.log.high_watermark[0] = 0
    setup.log.leader_epoch[0] = 1
    setup.runtime.become_leader(0, 1)
    setup.time.turn()
    setup.log.commit(0, 2)
    setup.time.settle()
    assert setup.committed() == {"a": 2}


def test_failed_read_is_retried(setup: Setup) -> None:
    setup.store([Put("a", 1)])
    setup.log.read_failures.extend([KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)] * 2)
    setup.lead()
    assert setup.runtime.state(0) is CoordinatorState.FAILED
    assert all(shard.is_unloaded for shard in setup.shards)
    assert setup.write(Put("a", 2)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.time.advance(0.9)
    assert setup.runtime.state(0) is CoordinatorState.FAILED
    setup.time.advance(0.2)
    assert setup.runtime.state(0) is CoordinatorState.FAILED
    assert setup.runtime.statistics.load_failures == 2
    setup.time.advance(2.1)
    assert setup.committed() == {"a": 1}


@pytest.mark.parametrize("fails", ["read", "offsets"])
def test_disk_error_is_logged_without_traceback(setup: Setup, caplog: pytest.LogCaptureFixture, fails: str) -> None:
    # Disk errors are expected: tracebacks are for defects of the broker (cluster seed 100680).
    setup.store([Put("a", 1)])
    failures = setup.log.read_failures if fails == "read" else setup.log.offsets_failures
    failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone"))
    setup.lead()
    assert setup.runtime.state(0) is CoordinatorState.FAILED
    assert setup.defects == []
    (record,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert record.exc_info is None
    assert "load failed at offset 0, retrying in 1 s" in record.getMessage()
    setup.time.advance(1.1)
    assert setup.committed() == {"a": 1}


def test_topic_deletion_during_load_is_not_a_defect(setup: Setup) -> None:
    setup.store([Put("a", 1)])
    setup.log.read_failures.append(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    setup.lead()
    assert setup.runtime.state(0) is CoordinatorState.FAILED
    assert setup.defects == []


def test_damage_fails_one_partition_and_no_other(setup: Setup) -> None:
    setup.store([Put("a", 1)], [Put("b", 2)])
    stored = bytearray(setup.log.batches[0][1])
    stored[-2] ^= 1
    setup.log.batches[0][1] = bytes(stored)
    setup.store([Put("a", 1)], partition=1)
    setup.log.leader_epoch[0] = 1
    setup.runtime.become_leader(0, 1)
    setup.lead(1)
    assert setup.runtime.state(0) is CoordinatorState.FAILED
    assert setup.committed(1) == {"a": 1}
    assert not setup.defects
    reads = setup.log.reads
    setup.time.advance(300)
    assert setup.log.reads - reads <= 10, "exponential backoff"
    setup.runtime.resign(0)
    setup.time.settle()
    assert setup.time.armed == 0


def compressed_nonsense() -> bytearray:
    """A batch that is marked as gzip-compressed, with a valid checksum."""
    batch = build_batch([RecordData(0, b"c", b"3")])
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, 1)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch


UNREADABLE = {
    "no key": (build_batch([RecordData(0, None, b"2"), RecordData(0, b"c", b"3")]), {"a": 1, "old": 1, "c": 3}),
    "value": (build_batch([RecordData(0, b"a", b"unreadable"), RecordData(0, b"c", b"3")]), {"old": 1, "c": 3}),
    "value that is kept": (build_batch([RecordData(0, b"old", b"unreadable")]), {"a": 1, "old": 1}),
    "key": (build_batch([RecordData(0, b"\xff", b"unreadable")]), {"a": 1, "old": 1}),
    "replay": (build_batch([RecordData(0, b"poison", b"2"), RecordData(0, b"c", b"3")]), {"a": 1, "old": 1, "c": 3}),
    "compressed nonsense": (compressed_nonsense(), {"a": 1, "old": 1}),
}


@pytest.mark.promise("G5")
@pytest.mark.parametrize("kind", UNREADABLE)
def test_unreadable_record_is_skipped_and_the_rest_is_loaded(
    setup: Setup, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Clients may write to the topic: one record must not block the partition permanently."""
    batch, state = UNREADABLE[kind]
    setup.store([Put("a", 1), Put("old", 1)])
    setup.log.put(0, batch)
    setup.store([Put("last", 9)])
    setup.lead()
    assert setup.runtime.state(0) is CoordinatorState.ACTIVE
    assert setup.committed() == {**state, "last": 9}
    assert setup.runtime.statistics.records_skipped == 1
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "-0: skipping the unreadable record at offset" in record.getMessage()
    assert record.exc_info is None


def test_many_unreadable_records_take_few_lines(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    setup.log.put(0, build_batch([RecordData(0, None, b"1")] * 1000))
    setup.log.high_watermark[0] = 1000
    setup.lead()
    *named, summary = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert [f"at offset {number}:" in line for number, line in enumerate(named)] == [True] * LOGGED_PER_LOAD
    assert "skipped 1000 unreadable records" in summary
    assert setup.runtime.statistics.records_skipped == 1000


def test_large_batch_is_replayed_in_parts(setup: Setup) -> None:
    """A batch of millions of small records must not become as many objects at once."""
    count = 2 * RECORDS_PER_PART + 1
    setup.log.put(0, build_batch([RecordData(0, b"k%d" % number, b"%d" % number) for number in range(count)]))
    setup.log.high_watermark[0] = count
    setup.lead()
    assert setup.committed() == {f"k{number}": number for number in range(count)}


def test_damage_behind_the_first_part_skips_the_rest(setup: Setup) -> None:
    batch = build_batch([RecordData(0, b"k", b"%d" % number) for number in range(RECORDS_PER_PART + 10)])
    batch[-3:] = b"\xff\xff\xff"
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    setup.log.put(0, batch)
    setup.store([Put("last", 9)])
    setup.lead()
    assert setup.committed() == {"k": RECORDS_PER_PART - 1, "last": 9}
    assert setup.runtime.statistics.records_skipped == 1


def test_leadership_loss_while_loading(setup: Setup) -> None:
    setup.replay_s = 0.001
    setup.store([Put(f"k{number}", number) for number in range(100)])
    setup.log.leader_epoch[0] = 1
    setup.runtime.become_leader(0, 1)
    for _ in range(5):
        setup.time.turn()
    assert 0 < len(setup.shards[0].offsets) < 100
    setup.runtime.resign(0, 2)
    setup.lead(1)
    assert len(setup.shards[0].offsets) < 100
    assert setup.shards[0].is_unloaded
    assert not setup.shards[0].is_loaded
    assert setup.write(Put("a", 1)).error == ErrorCode.NOT_COORDINATOR
    setup.lead(0, 3)
    assert len(setup.committed()) == 100
