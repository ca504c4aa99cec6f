"""Writes: batching, parking, failures, reverts."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.coordinator.runtime import TIMER, CoordinatorResult, CoordinatorState
from ottla.coordinator.runtime.context import WRITE_BATCH_BYTES
from ottla.record.batch import BatchView

from .harness import MapShard, Outcome, Put, Setup


def test_operations_of_one_turn_share_an_append(led: Setup) -> None:
    outcomes = [led.write(Put(f"k{number}", number)) for number in range(10)]
    assert led.shard().numbers["k9"] == 9, "replayed at once"
    assert led.log.end[0] == 0
    assert all(outcome.pending for outcome in outcomes)
    led.time.turn()
    assert led.log.ends(0) == [10]
    assert [outcome.response for outcome in outcomes] == ["written"] * 10
    assert led.shard().offsets == list(range(10))
    assert led.time.armed == 0
    assert led.runtime.statistics.batches_appended == 1
    assert led.runtime.statistics.records_appended == 10


def test_a_batch_carries_epoch_and_time(led: Setup) -> None:
    led.write(Put("a", 1))
    led.time.turn()
    batch = BatchView(led.log.batches[0][0])
    assert batch.partition_leader_epoch == 1
    assert batch.base_timestamp == led.time.time_ms()
    assert batch.crc_matches()


def test_the_response_waits_for_the_high_watermark(led: Setup) -> None:
    led.log.commits = False
    first = led.write(Put("a", 1))
    led.time.turn()
    second = led.write(Put("a", 2))
    led.time.turn()
    assert led.committed() == {}
    assert first.pending
    led.log.commit(0, 1)
    assert first.response == "written"
    assert second.pending
    assert led.committed() == {"a": 1}
    led.log.commit(0, 2)
    assert second.response == "written"
    assert led.committed() == {"a": 2}
    assert led.time.armed == 0


def test_high_watermark_inside_a_batch_commits_nothing(led: Setup) -> None:
    led.log.commits = False
    outcome = led.write(Put("a", 1), Put("b", 2))
    led.time.turn()
    led.log.commit(0, 1)
    assert outcome.pending
    assert led.committed() == {}
    led.log.commit(0, 2)
    assert outcome.response == "written"


def test_operation_without_records_waits_for_commit(led: Setup) -> None:
    idle = led.write()
    assert idle.response == "written"
    led.log.commits = False
    led.write(Put("a", 1))
    in_batch = led.write()
    led.time.turn()
    behind_parked = led.write()
    assert in_batch.pending
    assert behind_parked.pending
    led.log.commit(0, 1)
    assert in_batch.response == "written"
    assert behind_parked.response == "written"
    assert led.write().response == "written"


@pytest.mark.promise("G3")
def test_a_failed_append_reverts_and_fails_the_whole_batch(led: Setup) -> None:
    led.write(Put("a", 1))
    led.time.turn()
    outcomes = [led.write(Put("a", 2)), led.write(), led.write(Put("b", 3))]
    led.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    led.time.turn()
    assert [outcome.error for outcome in outcomes] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    assert led.shard().numbers == {"a": 1}
    again = led.write(Put("a", 4))
    led.time.turn()
    assert again.response == "written"
    assert led.shard().numbers == led.committed() == {"a": 4}
    assert led.log.ends(0) == [1, 2]
    assert led.shard().offsets == [0, 1, 2, 1]


@pytest.mark.promise("G3")
def test_operation_fails_with_the_batch_it_depends_on(led: Setup) -> None:
    led.log.batch_bytes = 300
    led.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    first = led.write(Put("a" * 150, 1))

    def count(shard: MapShard) -> CoordinatorResult[Put, int]:
        return CoordinatorResult((Put("count" + "x" * 100, len(shard.numbers)),), len(shard.numbers))

    second = Outcome()
    led.runtime.schedule_write("write", 0, count, second)
    led.time.settle()
    assert first.error == second.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert led.shard().numbers == {}
    assert led.log.ends(0) == []


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_COORDINATOR),
        (KafkaError(ErrorCode.FENCED_LEADER_EPOCH), ErrorCode.NOT_COORDINATOR),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR),
        (KafkaError(ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.RECORD_LIST_TOO_LARGE),
        (KafkaError(ErrorCode.INVALID_RECORD), ErrorCode.INVALID_RECORD),
        (OSError("disk gone"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_append_errors_are_translated(led: Setup, raised: Exception, expected: ErrorCode) -> None:
    led.log.append_failures.append(raised)
    outcome = led.write(Put("a", 1))
    led.time.turn()
    assert outcome.error == expected
    assert not led.shard().numbers
    assert len(led.defects) == isinstance(raised, OSError)


def test_revert_keeps_appended_uncommitted_records(led: Setup) -> None:
    led.log.commits = False
    parked = led.write(Put("a", 1))
    led.time.turn()
    led.log.append_failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    failed = led.write(Put("a", 2))
    led.time.turn()
    assert failed.error == ErrorCode.NOT_COORDINATOR
    assert parked.pending
    assert led.shard().numbers == {"a": 1}
    assert led.committed() == {}
    led.log.commit(0, 1)
    assert parked.response == "written"


def test_a_full_batch_is_appended_at_once(led: Setup) -> None:
    count = 0
    while not led.log.ends(0):
        led.write(Put("k" * 1000 + str(count), count))
        count += 1
    assert WRITE_BATCH_BYTES / 1100 - 2 < count < WRITE_BATCH_BYTES / 1000 + 2
    assert len(led.log.batches[0][0]) <= WRITE_BATCH_BYTES
    led.time.settle()
    assert sum(BatchView(batch).records_count for batch in led.log.batches[0]) == count


def test_an_operation_is_one_batch_however_large(led: Setup) -> None:
    small = led.write(Put("a", 1))
    large = led.write(*(Put("k" * 1000 + str(number), number) for number in range(600)))
    assert led.log.ends(0) == [1, 601], "both were flushed before the turn ended"
    assert small.response == large.response == "written"


def test_operation_above_max_message_bytes_fails_alone(led: Setup) -> None:
    led.log.batch_bytes = 2000
    small = led.write(Put("a", 1))
    large = led.write(*(Put("k" * 100 + str(number), number) for number in range(30)))
    after = led.write(Put("b", 2))
    led.time.turn()
    assert small.response == "written"
    assert large.error == ErrorCode.RECORD_LIST_TOO_LARGE
    assert after.response == "written"
    assert led.committed() == {"a": 1, "b": 2}


def test_records_that_need_not_be_atomic_are_spread(led: Setup) -> None:
    led.log.batch_bytes = 2000
    outcome = led.write(*(Put("k" * 100 + str(number), number) for number in range(100)), atomic=False)
    led.time.turn()
    assert outcome.response == "written"
    assert len(led.committed()) == 100
    assert len(led.log.batches[0]) > 3
    assert all(len(batch) <= 2000 for batch in led.log.batches[0])


def test_failure_of_piecemeal_records_is_reported_once(led: Setup) -> None:
    led.log.batch_bytes = 2000
    led.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    outcome = led.write(*(Put("k" * 100 + str(number), number) for number in range(100)), atomic=False)
    led.time.settle()
    assert outcome.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert led.shard().numbers == led.committed() == {}


def test_rejected_operation_changes_nothing(led: Setup) -> None:
    pending = led.write(Put("a", 1))

    def refuse(shard: MapShard) -> CoordinatorResult[Put, None]:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    outcome = Outcome()
    led.runtime.schedule_write("write", 0, refuse, outcome)
    assert outcome.error == ErrorCode.UNKNOWN_MEMBER_ID
    unencodable = led.write(Put("b", 1), Put("unencodable", 1))
    assert unencodable.error == ErrorCode.INVALID_REQUEST
    led.time.turn()
    assert pending.response == "written"
    assert led.committed() == {"a": 1}


def test_a_defect_of_an_operation_harms_only_itself(led: Setup) -> None:
    pending = led.write(Put("a", 1))

    def broken(*args: Any) -> CoordinatorResult[Put, None]:
        raise ValueError("a defect")

    outcomes = [Outcome(), Outcome()]
    led.runtime.schedule_write("change-it", 0, broken, outcomes[0])
    led.runtime.schedule_read("look-at-it", 0, broken, outcomes[1])
    led.time.turn()
    assert [outcome.error for outcome in outcomes] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert [where for where, _ in led.defects] == ["__numbers: running change-it", "__numbers: running look-at-it"]
    assert pending.response == "written"


def test_a_record_that_cannot_be_replayed_fails_the_batch(led: Setup) -> None:
    pending = led.write(Put("a", 1))
    poison = led.write(Put("b", 2), Put("poison", 3))
    assert poison.error == pending.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not led.shard().numbers
    led.time.settle()
    assert led.log.ends(0) == []
    assert [where for where, _ in led.defects] == ["__numbers: replaying what write returned"]
    fine = led.write(Put("a", 5))
    led.time.turn()
    assert fine.response == "written"


def test_a_broken_invariant_is_not_swallowed(led: Setup) -> None:
    def broken(shard: MapShard) -> CoordinatorResult[Put, None]:
        raise InvariantError("broken")

    with pytest.raises(InvariantError):
        led.runtime.schedule_write("write", 0, broken, Outcome())
    assert led.write().response == "written"


def test_appended_callback_runs_before_the_response(led: Setup) -> None:
    heard: list[Any] = []
    result = CoordinatorResult((Put("a", 1),), "response", heard.append, replay=False)
    led.runtime.schedule_write("write", 0, lambda shard: result, lambda response, error: heard.append(response))
    assert not led.shard().numbers, "not replayed"
    led.time.turn()
    assert heard == [None, "response"]
    assert led.log.records(0) == [Put("a", 1)]
    heard.clear()
    led.log.append_failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    led.runtime.schedule_write("write", 0, lambda shard: result, lambda response, error: heard.append(response))
    led.time.turn()
    assert [getattr(entry, "code", entry) for entry in heard] == [ErrorCode.NOT_COORDINATOR, None]


def test_failing_callback_does_not_affect_others(led: Setup) -> None:
    def broken(*args: object) -> None:
        raise ValueError("a defect")

    result = CoordinatorResult((Put("a", 1),), "response", broken)
    led.runtime.schedule_write("change-it", 0, lambda shard: result, broken)
    other = led.write(Put("b", 2))
    led.time.turn()
    assert other.response == "written"
    assert [where for where, _ in led.defects] == ["__numbers: answering change-it"] * 2


def test_operations_are_counted_by_name(led: Setup) -> None:
    led.write(Put("a", 1))
    led.write()
    led.shard().timer.schedule("t", 100, lambda: CoordinatorResult((Put("b", 2),)))
    led.time.advance(0.2)
    assert led.committed() == {"a": 1, "b": 2}
    assert led.runtime.statistics.operations == {"write": 2, "read": 1, TIMER: 1}


def test_an_operation_scheduled_inside_another_runs_after_it(led: Setup) -> None:
    order: list[str] = []
    inner = Outcome()

    def inside(shard: MapShard) -> CoordinatorResult[Put, str]:
        order.append(f"inner sees {dict(shard.numbers)}")
        return CoordinatorResult((Put("b", 2),), "inner")

    def outside(shard: MapShard) -> CoordinatorResult[Put, str]:
        led.runtime.schedule_write("write", 0, inside, inner)
        order.append("outer")
        return CoordinatorResult((Put("a", 1),), "outer")

    outer = Outcome()
    led.runtime.schedule_write("write", 0, outside, outer)
    assert order == ["outer", "inner sees {'a': 1}"]
    led.time.turn()
    assert (outer.response, inner.response) == ("outer", "inner")


def test_response_callback_may_write(led: Setup) -> None:
    second = Outcome()

    def answered(response: Any, error: KafkaError | None) -> None:
        led.runtime.schedule_write("write", 0, lambda shard: CoordinatorResult((Put("a", 2),), "second"), second)

    led.runtime.schedule_write("write", 0, lambda shard: CoordinatorResult((Put("a", 1),)), answered)
    led.time.settle()
    assert second.response == "second"
    assert led.log.ends(0) == [1, 2]


def test_leadership_loss_during_an_operation(led: Setup) -> None:
    def losing(shard: MapShard) -> CoordinatorResult[Put, str]:
        led.runtime.resign(0)
        return CoordinatorResult((Put("a", 1),), "never")

    outcome = Outcome()
    led.runtime.schedule_write("write", 0, losing, outcome)
    led.time.settle()
    assert outcome.error == ErrorCode.NOT_COORDINATOR
    assert led.log.ends(0) == []


def test_stalled_high_watermark_times_out(led: Setup) -> None:
    led.log.commits = False
    outcome = led.write(Put("a", 1))
    led.time.turn()
    led.time.advance(4.9)
    assert outcome.pending
    led.time.advance(0.2)
    assert outcome.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    behind = led.write()
    assert behind.pending
    assert led.shard().numbers == {"a": 1}, "it is in the log and may yet be committed"
    led.log.commit(0, 1)
    assert behind.response == "written"
    assert led.committed() == {"a": 1}
    assert led.runtime.statistics.write_timeouts == 1
    assert led.time.armed == 0


def test_log_with_foreign_write_is_reloaded(led: Setup) -> None:
    led.store([Put("foreign", 7)])
    outcome = led.write(Put("a", 1))
    led.time.turn()
    assert outcome.error == ErrorCode.NOT_COORDINATOR
    assert led.runtime.state(0) is CoordinatorState.LOADING
    assert led.shards[0].is_unloaded
    led.time.settle()
    assert led.committed() == {"foreign": 7, "a": 1}
    assert len(led.defects) == 1
    again = led.write(Put("b", 2))
    led.time.turn()
    assert again.response == "written"
    assert led.log.ends(0) == [1, 2, 3]
