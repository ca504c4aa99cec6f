"""Leadership changes: partitions move, operations reach the right shard or are rejected."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import CoordinatorResult, CoordinatorState
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.coordinator.runtime.loader import LARGE_LOAD_RECORDS
from ottla.coordinator.runtime.runtime import REMEMBERED_KEYS
from ottla.coordinator.runtime.slices import SLICE_S

from .harness import Outcome, Put, Setup


def test_the_partition_of_a_key_follows_the_number_of_partitions(setup: Setup) -> None:
    keys = [f"group-{number}" for number in range(REMEMBERED_KEYS + 10)] + ["g" * 300]
    for count in (3, 50):
        setup.runtime.start(count)
        for _ in range(2):
            assert [setup.runtime.partition_for(key) for key in keys] == [partition_for(key, count) for key in keys]


def test_before_start_coordinator_is_not_available(setup: Setup) -> None:
    setup.runtime.stop()
    with pytest.raises(KafkaError) as raised:
        setup.runtime.partition_for("group")
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert setup.write(Put("a", 1)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_other_partitions_are_not_coordinated(setup: Setup) -> None:
    outcome = Outcome()
    setup.runtime.schedule_read("read", 0, lambda shard, offset: None, outcome)
    assert outcome.error == setup.write(Put("a", 1)).error == ErrorCode.NOT_COORDINATOR


def test_resigning_fails_waiting_operations(led: Setup) -> None:
    led.log.commits = False
    parked = led.write(Put("a", 1))
    led.time.turn()
    reading = led.write()
    pending = led.write(Put("b", 2))
    led.shard().timer.schedule("t", 1000, lambda: pytest.fail("a timer outlived its shard"))
    led.runtime.resign(0, 2)
    assert parked.error == reading.error == pending.error == ErrorCode.NOT_COORDINATOR
    assert led.shards[0].is_unloaded
    assert led.runtime.state(0) is None
    led.log.commit(0, 1)
    led.time.advance(10)
    assert led.log.ends(0) == [1]
    assert led.time.armed == 0


def test_unloaded_soft_state_writes_nothing(led: Setup) -> None:
    inside: list[Outcome] = []
    led.shard().unloaded = lambda: inside.append(led.write(Put("a", 1)))  # type: ignore[method-assign]
    led.runtime.resign(0)
    assert inside[0].error == ErrorCode.NOT_COORDINATOR


def test_older_epochs_are_ignored(setup: Setup) -> None:
    setup.lead(leader_epoch=5)
    shard = setup.shard()
    setup.runtime.become_leader(0, 5)
    setup.runtime.become_leader(0, 4)
    setup.runtime.resign(0, 5)
    setup.runtime.resign(0, 3)
    setup.runtime.resign(1, 9)
    assert setup.shard() is shard
    setup.runtime.resign(0, 6)
    assert setup.runtime.state(0) is None


def test_new_epoch_reloads_the_log(led: Setup) -> None:
    parked = led.write(Put("a", 1))
    led.store([Put("a", 2)])
    led.lead(leader_epoch=3)
    assert parked.error == ErrorCode.NOT_COORDINATOR
    assert led.committed() == {"a": 2}


def test_uncommitted_records_that_the_next_leader_cut(led: Setup) -> None:
    led.log.commits = False
    parked = led.write(Put("a", 1))
    led.time.turn()
    led.runtime.resign(0, 2)
    led.log.truncate(0, 0)
    led.store([Put("b", 2)])
    led.lead(leader_epoch=3)
    assert parked.error == ErrorCode.NOT_COORDINATOR
    assert led.committed() == {"b": 2}


def test_deposed_leader_fails_writes(led: Setup) -> None:
    led.log.leader_epoch[0] = 2
    outcome = led.write(Put("a", 1))
    led.time.turn()
    assert outcome.error == ErrorCode.NOT_COORDINATOR
    assert not led.shard().numbers


def test_stop_flushes_pending_records(led: Setup) -> None:
    outcome = led.write(Put("a", 1))
    led.runtime.stop()
    assert outcome.response == "written"
    assert led.log.ends(0) == [1]
    assert led.runtime.state_counts()[CoordinatorState.ACTIVE] == 0
    led.time.settle()
    assert led.time.armed == 0


def test_every_shard(setup: Setup) -> None:
    for partition in range(3):
        setup.store([Put("p", partition)], partition=partition)
        setup.lead(partition)
    seen: list[object] = []
    setup.runtime.schedule_read_all(
        "read all",
        lambda shard, offset: shard.numbers.get_at("p", offset),
        lambda responses, error: seen.append((responses, error)),
    )
    assert seen == [([0, 1, 2], None)]

    outcomes: list[object] = []
    setup.log.append_failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    setup.runtime.schedule_write_all(
        "write all",
        lambda shard: CoordinatorResult((Put("p", 9),), shard.partition),
        lambda by_partition: outcomes.append(
            {number: (response, error and error.code) for number, (response, error) in by_partition.items()}
        ),
    )
    assert outcomes == []
    setup.time.settle()
    assert outcomes == [{0: (None, ErrorCode.NOT_COORDINATOR), 1: (1, None), 2: (2, None)}]


def test_every_shard_with_one_that_loads(setup: Setup) -> None:
    setup.lead(0)
    setup.log.leader_epoch[1] = 1
    setup.runtime.become_leader(1, 1)
    seen: list[tuple[list[int], ErrorCode | None]] = []
    setup.runtime.schedule_read_all(
        "read all",
        lambda shard, offset: shard.partition,
        lambda responses, error: seen.append((responses, None if error is None else error.code)),
    )
    assert seen == [([0], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    written: list[list[int]] = []
    setup.runtime.schedule_write_all(
        "write all", lambda shard: CoordinatorResult(), lambda outcomes: written.append(list(outcomes))
    )
    assert written == [[0]]
    assert setup.runtime.state_counts()[CoordinatorState.LOADING] == 1


def test_write_all_without_shards(setup: Setup) -> None:
    written: list[object] = []
    setup.runtime.schedule_write_all("write all", lambda shard: CoordinatorResult(), written.append)
    assert written == [{}]


def test_closed_shards_are_released_in_slices(setup: Setup) -> None:
    for partition in range(3):
        setup.store([Put(f"k{number}", number) for number in range(1_000)], partition=partition)
        setup.lead(partition)
    shards = list(setup.shards)
    setup.replay_s = 0.0001
    setup.runtime.stop()
    assert all(len(shard.numbers) == 1_000 for shard in shards), "not at once"
    turns = []
    while True:
        started_s = setup.time.now_s
        if not setup.time.turn():
            break
        turns.append(setup.time.now_s - started_s)
    assert not any(shard.numbers for shard in shards)
    assert max(turns) <= SLICE_S + setup.replay_s + 1e-9, "turns are not multiplied by partitions"
    assert len(turns) > 70


def test_large_load_calls_after_large_load(setup: Setup) -> None:
    setup.store([Put(f"k{number}", number) for number in range(LARGE_LOAD_RECORDS - 1)])
    setup.lead(0, 1)
    assert setup.large_loads == 0
    setup.store([Put("one more", 1)])
    setup.lead(0, 2)
    assert setup.large_loads == 1
