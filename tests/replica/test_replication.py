"""Replication among brokers: acknowledgements, the ISR, truncation, and that all copies are equal."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.platform.channel import Part
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.record.builder import RecordData, build_batch
from ottla.replica.manager import ReplicationSettings
from ottla.replica.partition import EpochEnd, Partition
from ottla.replica.read_replica import select_by_rack
from ottla.storage.segment.data import SegmentRegion

from .world import TOPIC, TOPIC_ID, World, join

NONE = ErrorCode.NONE
MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(fakes: Any) -> MakeWorld:
    def make(*, replicas: tuple[int, ...] = (1, 2, 3), partitions: int = 1, **configs: Any) -> World:
        world = World(fakes, **{"min_insync_replicas": "2", **configs})
        for node in (1, 2, 3):
            world.start(node, rack=f"rack{node}")
        world.create_topic(replicas, partitions)
        return world

    return make


class TestAcknowledgement:
    @pytest.mark.promise("R2")
    def test_acks_all_waits_for_all_in_sync_replicas(self, make_world: MakeWorld) -> None:
        world = make_world()
        answer = world.produce(1, b"a", b"b")
        assert not answer.there
        assert answer.result() == (NONE, 0)
        assert [world.nodes[node].partition().log.log_end_offset for node in (1, 2, 3)] == [2, 2, 2]
        world.settle(1, 2, 3)

    def test_only_consumer_visible_records_are_committed(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Committed records may be sent by reference; followers also fetch records that an election may truncate."""
        committed: list[bool] = []

        def spy(parts: list[Part]) -> bytes:
            committed.extend(part.committed for part in parts if isinstance(part, SegmentRegion))
            return join(parts)

        monkeypatch.setattr("tests.replica.world.join", spy)
        world = make_world()
        world.produce(1, b"a", acks=1)
        world.settle(1, 2, 3)
        assert len(committed) >= 2
        assert not any(committed)
        committed.clear()
        for node in (1, 2):
            assert world.fetch(node, 0).records
        assert committed == [True, True]

    def test_acks_1_does_not_wait_and_consumers_do(self, make_world: MakeWorld) -> None:
        world = make_world()
        assert world.produce(1, b"a", acks=1).there
        data = world.fetch(1, 0)
        assert (data.error_code, data.high_watermark, bytes(data.records or b"")) == (0, 0, b"")
        world.settle(1, 2, 3)
        assert world.fetch(1, 0).high_watermark == 1

    @pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
    def test_new_high_watermark_is_due_for_the_checkpoint(
        self, make_world: MakeWorld, replicas: tuple[int, ...]
    ) -> None:
        world = make_world(replicas=replicas, min_insync_replicas="1")
        world.settle(*replicas)
        checkpoints = [world.nodes[node].logs.directories[0].checkpoints for node in replicas]

        def due() -> list[dict[tuple[str, int], int]]:
            files = [file for each in checkpoints for file in each.offsets_due()]
            for each in checkpoints:
                each.write_files(each.offsets_due())
            return [file.offsets for file in files if "replication" in file.name]

        assert due()
        assert not due()
        world.produce(1, b"a")
        world.settle(*replicas)
        world.loop.run_for(1)
        assert [list(offsets.values()) for offsets in due()] == [[1]] * len(replicas)

    def test_produce_below_min_isr_fails_before_and_after_append(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        waiting = world.produce(1, b"a", timeout_ms=200_000)
        world.loop.run_until(lambda: world.state().isr == (1,))
        world.loop.run_for(5)
        assert not waiting.there, "the high watermark stays while too few are in sync"
        assert world.produce(1, b"b").result()[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        assert world.produce(1, b"c", acks=1).result() == (NONE, 1)
        world.loop.run_for(60)
        assert world.nodes[1].partition().high_watermark == 0
        world.cuts.clear()
        assert waiting.result() == (NONE, 0)
        world.settle(1, 2, 3)

    def test_isr_shrinking_below_minimum_is_reported_to_producer(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        answer = world.produce(1, b"a")
        world.change(isr=(1, 2))
        partition = world.nodes[1].partition()
        world.cuts.discard(frozenset((2, 1)))
        world.loop.run_until(lambda: partition.log.high_watermark == 1)
        world.change(isr=(1,))
        assert answer.result()[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def test_a_leader_that_was_deposed_acknowledges_nothing_more(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        world.deaf.add(1)
        lost = world.produce(1, b"old")
        world.change(leader=2)
        kept = world.produce(2, b"new")
        world.loop.run_for(1)
        world.change(leader=1)
        world.deaf.clear()
        world.cuts.clear()
        world.change(leader=2)
        assert lost.result()[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert kept.result()[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was deposed, too"

    def test_leader_elected_again_fails_requests_from_before(self, make_world: MakeWorld) -> None:
        """It missed the metadata of the leader in between, so the records of that epoch are unknown to it."""
        world = make_world()
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        world.deaf.add(1)
        answer = world.produce(1, b"old")
        world.change(leader=2)
        world.deaf.clear()
        world.cuts.clear()
        world.change(leader=1)
        assert world.nodes[1].partition().leader_since == 2
        assert answer.result()[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_followers_flush_before_they_count(self, make_world: MakeWorld) -> None:
        world = make_world(flush_messages="1")
        assert world.produce(1, b"a").result() == (NONE, 0)
        for node in (1, 2, 3):
            assert world.nodes[node].partition().log.recovery_point == 1

    @pytest.mark.parametrize("idle_s", [0, 5], ids=["asked for", "resting in the session"])
    def test_coordinator_append_is_fetched_at_once(self, make_world: MakeWorld, idle_s: float) -> None:
        """Its records are committed during the fetch of a follower, which also fetches the other partition."""
        world = make_world(partitions=2)
        coordinated, other = (world.nodes[1].partition(index) for index in (1, 0))
        world.settle(1, 2, 3)
        world.loop.run_for(idle_s)

        def append(index: int, high_watermark: int) -> None:
            batch = build_batch([RecordData(1_700_000_000_000, None, b"marker")])
            other.append_records(batch, 0, len(batch), True)

        coordinated.high_watermark_listener = append
        world.produce(1, b"decision", index=1)
        world.loop.run_until(lambda: coordinated.high_watermark == 1)
        decided_s = world.loop.monotonic()
        world.loop.run_until(lambda: other.high_watermark == 1)
        assert world.loop.monotonic() - decided_s < 0.1

    def test_partition_failure_during_fetch_is_answered(self, make_world: MakeWorld) -> None:
        """The disk rejects a coordinator's append: no event would wake a waiting follower."""
        world = make_world(replicas=(1, 2), partitions=2)
        world.settle(1, 2)
        world.cuts.add(frozenset((1, 2)))
        coordinated, other = (world.nodes[1].partition(index) for index in (1, 0))
        coordinated.high_watermark_listener = lambda index, high_watermark: other.mark_offline()
        world.produce(1, b"decision", index=1)
        asked = [
            FetchPartition(partition=i, fetch_offset=i, log_start_offset=0, partition_max_bytes=100) for i in (0, 1)
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=2, replica_epoch=world.image.brokers[2].broker_epoch),
            max_wait_ms=30_000,
            min_bytes=1,
            max_bytes=1000,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=asked)],
        )
        answer = world.ask(1, request)
        assert answer.there
        partitions = answer.message().responses[0].partitions
        assert [row.error_code for row in partitions] == [ErrorCode.KAFKA_STORAGE_ERROR, NONE]
        assert coordinated.high_watermark == 1


class TestInSyncReplicas:
    def test_lagging_follower_leaves_and_rejoins_isr(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.cuts.add(frozenset((3, 1)))
        answer = world.produce(1, b"a", timeout_ms=200_000)
        world.loop.run_until(lambda: world.state().isr == (1, 2))
        statistics = world.nodes[1].statistics
        assert (statistics.isr_shrinks.value, statistics.isr_expands.value) == (1, 0)
        assert answer.result() == (NONE, 0)
        for number in range(20):
            world.produce(1, b"more %d" % number)
        world.cuts.clear()
        world.settle(1, 2, 3)
        assert world.isr_changes == [(1, 2), (1, 2, 3)]
        assert (statistics.isr_shrinks.value, statistics.isr_expands.value) == (1, 1)

    def test_a_fenced_broker_does_not_join(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.fence(3)
        world.change(isr=(1, 2))
        world.produce(1, b"a").result()
        world.loop.run_for(5)
        assert world.state().isr == (1, 2)
        world.fence(3, fenced=False)
        world.settle(1, 2, 3)

    def test_idle_follower_rejoins_isr_without_new_records(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.loop.run_for(5)
        world.change(isr=(1, 2))
        world.settle(1, 2, 3)
        assert world.isr_changes == [(1, 2, 3)]

    def test_an_idle_follower_is_in_sync_for_as_long_as_it_fetches(self, make_world: MakeWorld) -> None:
        """An idle partition of a session is not read, and counts as caught up all the same."""
        world = make_world(partitions=2)
        world.settle(1, 2, 3)
        world.loop.run_for(100)
        world.cuts.add(frozenset((3, 1)))
        world.loop.run_for(20)
        world.produce(1, b"a")
        world.loop.run_for(5)
        assert world.state().isr == (1, 2, 3), "it was heard of within replica.lag.time.max.ms"
        world.loop.run_for(30)
        assert world.state().isr == (1, 2)
        assert world.state(1).isr == (1, 2, 3), "it has all that there is"

    def test_dead_idle_follower_leaves_isr_at_next_record(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.loop.run_for(5)
        world.cuts.add(frozenset((3, 1)))
        world.loop.run_for(100)
        assert world.state().isr == (1, 2, 3), "there was nothing that it lacked"
        answer = world.produce(1, b"a", timeout_ms=200_000)
        began = world.loop.now_s
        assert answer.result() == (NONE, 0)
        assert world.state().isr == (1, 2)
        assert world.loop.now_s - began < 20, "it had been silent for longer than replica.lag.time.max.ms"

    def test_a_refused_change_is_tried_again(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        refusals = [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]

        def refuse(request: AlterPartitionRequest) -> int:
            return refusals.pop(0) if refusals else 0

        world.controller_refuses = refuse
        world.change(isr=(1, 2))
        world.settle(1, 2, 3)
        assert not refusals

    @pytest.mark.parametrize("code", ["OPERATION_NOT_ATTEMPTED", "INELIGIBLE_REPLICA", "INVALID_REQUEST"])
    def test_refused_return_does_not_keep_unreachable_member(self, make_world: MakeWorld, code: str) -> None:
        """A refused proposal is withdrawn: no other change is proposed while one is open."""
        world = make_world(min_insync_replicas="1")
        world.settle(1, 2, 3)

        def refuse(request: AlterPartitionRequest) -> int:
            (proposed,) = request.topics[0].partitions
            return ErrorCode[code] if 3 in {member.broker_id for member in proposed.new_isr_with_epochs} else 0

        world.controller_refuses = refuse
        world.change(isr=(1, 2))
        world.loop.run_for(1)
        world.cuts.add(frozenset((2, 1)))
        assert world.produce(1, b"a", timeout_ms=200_000).result() == (NONE, 0)
        assert world.state().isr == (1,)

    def test_a_controller_out_of_reach_is_asked_until_it_answers(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.change(isr=(1, 2))
        world.cuts.add(frozenset((1, 0)))
        world.loop.run_for(5)
        assert world.state().isr == (1, 2)
        waiting = world.produce(1, b"a")
        world.cuts.clear()
        assert waiting.result() == (NONE, 0)
        world.settle(1, 2, 3)

    def test_follower_of_earlier_incarnation_is_ignored(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.deaf |= {1}
        world.kill(3)
        world.start(3)
        answer = world.produce(1, b"a", timeout_ms=1000)
        assert answer.result()[0] == ErrorCode.REQUEST_TIMED_OUT, "the leader has not heard of the new incarnation"
        world.deaf.clear()
        world.change(isr=(1, 2))
        world.settle(1, 2, 3)


class TestElections:
    def test_new_leader_continues_with_all_records(self, make_world: MakeWorld) -> None:
        world = make_world()
        for number in range(10):
            world.produce(1, b"%d" % number)
        world.settle(1, 2, 3)
        world.kill(1)
        world.change(leader=2, isr=(2, 3))
        assert world.produce(2, b"next").result() == (NONE, 10)
        world.start(1)
        world.settle(1, 2, 3)

    def test_records_only_at_old_leader_are_truncated(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.produce(1, b"all have this").result()
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        for number in range(5):
            world.produce(1, b"lost %d" % number, acks=1)
        world.deaf.add(1)
        world.change(leader=2, isr=(2, 3))
        world.produce(2, b"kept").result()
        world.deaf.clear()
        world.cuts.clear()
        world.change(isr=(2, 3))
        world.settle(1, 2, 3)
        assert world.nodes[1].partition().log.log_end_offset == 2

    def test_truncated_records_are_not_waited_for(self, make_world: MakeWorld) -> None:
        """A due flush of truncated records held back the high watermark of the next epoch."""
        world = make_world(flush_messages="3")
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        for _ in range(3):
            world.produce(1, b"lost", acks=1)
        world.deaf.add(1)
        world.change(leader=2, isr=(2, 3))
        world.produce(2, b"kept").result()
        world.deaf.clear()
        world.cuts.clear()
        world.change(isr=(2, 3))
        world.settle(1, 2, 3)
        world.change(leader=1)
        assert world.produce(1, b"next").result() == (NONE, 1)

    def test_truncated_follower_gets_high_watermark_again(self, make_world: MakeWorld) -> None:
        world = make_world()
        for number in range(5):
            world.produce(1, b"%d" % number).result()
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        world.produce(1, b"lost", acks=1)
        world.kill(1)
        world.cuts.clear()
        world.change(leader=2, isr=(2, 3))
        world.start(1)
        world.settle(1, 2, 3)

    def test_a_leader_that_appended_nothing_leaves_no_epoch_behind(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.produce(1, b"a").result()
        world.settle(1, 2, 3)
        for leader in (2, 3, 1, 2):
            world.change(leader=leader)
            world.settle(1, 2, 3)
        world.produce(2, b"b").result()
        world.settle(1, 2, 3)

    @pytest.mark.promise("R4")
    def test_follower_is_not_cut_where_the_leader_lacks_an_epoch(self, make_world: MakeWorld) -> None:
        """Both have the batch; a missing entry made the follower truncate it again and again."""
        world = make_world()
        for _ in range(3):
            world.produce(1, b"%d").result()
            world.change(bump=True)
        world.settle(1, 2, 3)
        leader = world.nodes[1].partition()
        entries = leader.log.epochs.entries()
        (epoch, offset) = entries[1]
        leader.log.epochs.replace(0, leader.log.log_end_offset, [entry for entry in entries if entry[0] != epoch])
        assert leader.diverging_epoch(offset + 1, epoch) is not None
        assert leader.follower_divergence(offset + 1, epoch) is None
        assert leader.log.epochs.entries() == entries

    @pytest.mark.promise("R4")
    def test_follower_is_cut_below_its_high_watermark_once(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A leader that denies records that it has sent must not make a follower truncate and fetch for ever."""
        world = make_world()
        for number in range(5):
            world.produce(1, b"%d" % number).result()
        world.settle(1, 2, 3)

        def deny(partition: Partition, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
            return EpochEnd(0, 1) if fetch_offset > 1 else None

        monkeypatch.setattr(Partition, "follower_divergence", deny)
        world.kill(2)
        world.start(2)
        with caplog.at_level(logging.ERROR):
            world.loop.run_for(60.0)
        assert [world.nodes[node].statistics.committed_truncations.value for node in (2, 3)] == [1, 1]
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 4
        assert sum("below its high watermark 5" in error for error in errors) == 2
        assert sum("is not truncated to 1 again" in error for error in errors) == 2

    def test_logs_of_alternating_leaders_converge(self, make_world: MakeWorld) -> None:
        """Two brokers lead alternately, and each has a tail that the other never had (KIP-279)."""
        world = make_world(min_insync_replicas="1")
        world.settle(1, 2, 3)
        alone = {frozenset(pair) for pair in ((1, 2), (1, 3), (2, 3))}
        world.cuts |= alone
        for round_number in range(3):
            for leader in (1, 2):
                world.change(leader=leader, isr=(leader,))
                for number in range(round_number + leader):
                    world.produce(leader, b"%d of %d" % (number, leader), acks=1)
        world.cuts.clear()
        world.change(leader=3, isr=(3,))
        world.produce(3, b"from 3", acks=1)
        world.settle(1, 2, 3)

    def test_latest_offset_is_not_returned_before_it_is_known(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.produce(1, b"a").result()
        world.settle(1, 2, 3)
        world.cuts |= {frozenset((3, 1)), frozenset((3, 2)), frozenset((2, 1))}
        world.produce(1, b"b", acks=1)
        world.cuts.discard(frozenset((2, 1)))
        world.loop.run_until(lambda: world.nodes[2].partition().log.log_end_offset == 2)
        world.kill(1)
        world.change(leader=2, isr=(2, 3))
        assert world.latest(2).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert world.latest(2, 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        data = world.fetch(2, 2)
        assert (data.error_code, bytes(data.records or b"")) == (0, b"")
        world.cuts.clear()
        world.settle(2, 3)
        assert (world.latest(2).error_code, world.latest(2).offset) == (0, 2)

    def test_follower_lists_its_log_end_for_debugging(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.produce(1, b"a").result()
        world.settle(1, 2, 3)
        assert world.latest(2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = world.latest(2, replica_id=-2)
        assert (found.error_code, found.offset) == (0, 1)

    def test_a_replica_that_lost_its_tail_catches_up(self, make_world: MakeWorld) -> None:
        world = make_world()
        for number in range(30):
            world.produce(1, b"%d" % number).result()
        world.settle(1, 2, 3)
        world.kill(3, power=True)
        world.change(isr=(1, 2))
        world.produce(1, b"meanwhile").result()
        world.start(3)
        world.settle(1, 2, 3)

    def test_a_leader_that_lost_its_tail_follows_and_gets_it_back(self, make_world: MakeWorld) -> None:
        world = make_world()
        for number in range(30):
            world.produce(1, b"%d" % number).result()
        world.settle(1, 2, 3)
        world.kill(1, power=True)
        world.change(leader=2, isr=(2, 3))
        world.start(1)
        world.settle(1, 2, 3)
        assert world.nodes[1].partition().log.log_end_offset == 30


class TestFetching:
    def test_a_follower_far_behind_starts_where_the_leader_does(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.kill(3)
        world.change(isr=(1, 2))
        for number in range(10):
            world.produce(1, b"%d" % number).result()
        world.settle(1, 2)
        world.nodes[1].partition().delete_records(7)
        world.start(3)
        world.settle(1, 2, 3)
        starts = [world.nodes[node].partition().log for node in (1, 2, 3)]
        world.loop.run_until(lambda: {log.log_start_offset for log in starts} == {7})

    def test_follower_continues_after_retention_during_fetch(self, make_world: MakeWorld) -> None:
        world = make_world()
        for number in range(5):
            world.produce(1, b"%d" % number).result()
        world.settle(1, 2, 3)
        world.loop.run_for(0.3)
        assert world.nodes[2].partition().log.maybe_increment_log_start_offset(3)
        assert world.produce(1, b"later").result() == (NONE, 5)
        assert world.state().isr == (1, 2, 3)

    def test_deleted_records_are_gone_everywhere_before_the_answer(self, make_world: MakeWorld) -> None:
        world = make_world()
        for number in range(5):
            world.produce(1, b"%d" % number).result()
        world.settle(1, 2, 3)
        assert world.delete_records(1, 3).result() == (NONE, 3)
        assert [world.nodes[node].partition().log.log_start_offset for node in (1, 2, 3)] == [3, 3, 3]
        world.cuts.add(frozenset((1, 3)))
        assert world.delete_records(1, 4, timeout_ms=2000).result() == (ErrorCode.REQUEST_TIMED_OUT, -1)
        world.fence(3)
        assert world.delete_records(1, 4).result() == (NONE, 4)

    def test_a_leader_that_begins_within_a_batch_is_followed(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.kill(3)
        world.change(isr=(1, 2))
        world.produce(1, b"a", b"b", b"c", b"d").result()
        world.produce(1, b"e").result()
        world.settle(1, 2)
        world.nodes[1].partition().delete_records(2)
        world.start(3)
        world.settle(1, 2, 3)
        assert world.nodes[3].partition().log.log_start_offset == 2

    def test_many_partitions_share_a_session(self, make_world: MakeWorld) -> None:
        world = make_world(partitions=20)
        for index in range(20):
            world.produce(1, b"first", index=index)
        for index in range(20):
            world.settle(1, 2, 3, index=index)
        assert world.produce(1, b"second", index=7).result() == (NONE, 1)
        assert len(world.nodes[1].context.sessions) == 2

    def test_idle_partitions_of_a_follower_are_not_read(self, make_world: MakeWorld) -> None:
        world = make_world(partitions=20)
        for index in range(20):
            world.produce(1, b"first", index=index)
        for index in range(20):
            world.settle(1, 2, 3, index=index)
        world.loop.run_for(2)
        sessions = world.nodes[1].context.sessions._sessions.values()
        assert [list(session.active) for session in sessions] == [[], []]
        world.produce(1, b"second", index=7)
        assert [[partition.index for partition in session.active] for session in sessions] == [[7], [7]]
        world.settle(1, 2, 3, index=7)
        world.nodes[1].partition(3).delete_records(1)
        world.loop.run_until(lambda: world.nodes[2].partition(3).log.log_start_offset == 1)

    def test_new_partition_does_not_wait_for_long_poll(self, make_world: MakeWorld) -> None:
        world = make_world(partitions=2)
        world.change(1, leader=2)
        world.settle(1, 2, 3, index=1)
        world.loop.run_for(0.1)
        for leader in (2, 1, 2, 1):
            world.change(0, leader=leader)
            began = world.loop.now_s
            assert world.produce(leader, b"a").result()[0] == NONE
            assert world.loop.now_s - began < 0.15
        assert len(world.nodes[2].context.sessions) == 2, "one that was given up was closed"

    def test_follower_with_full_disk_backs_off(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        refused: list[float] = []

        def full(action: str, path: str) -> OSError | None:
            if action != "append" or not path.endswith(".log"):
                return None
            refused.append(world.loop.now_s)
            return OSError(errno.ENOSPC, "full")

        disk = world.nodes[2].disk
        healthy, disk.fault = disk.fault, full
        world.produce(1, b"a", acks=1)
        world.loop.run_for(20)
        assert len(refused) < 30, "each one brought the same records over the network"
        disk.fault = healthy
        world.settle(1, 2, 3)

    def test_lost_fetch_session_is_recreated(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        sessions = world.nodes[1].context.sessions
        world.nodes[1].context.sessions = type(sessions)(1000, world.rng, world.nodes[1].context.purgatory)
        assert world.produce(1, b"a").result() == (NONE, 0)
        world.settle(1, 2, 3)

    def test_follower_works_without_a_session_slot(self, make_world: MakeWorld) -> None:
        world = make_world()
        sessions = world.nodes[1].context.sessions
        world.nodes[1].context.sessions = type(sessions)(0, world.rng, world.nodes[1].context.purgatory)
        assert world.produce(1, b"a").result() == (NONE, 0)
        world.settle(1, 2, 3)

    def test_a_replica_that_moves_away_is_removed(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.produce(1, b"a").result()
        world.settle(1, 2, 3)
        world.change(replicas=(1, 2), isr=(1, 2))
        assert world.nodes[3].logs.get_log(TOPIC, 0) is None
        world.produce(1, b"b").result()
        world.settle(1, 2)
        world.change(replicas=(1, 2, 3))
        world.settle(1, 2, 3)

    def test_one_replica_becomes_three(self, make_world: MakeWorld) -> None:
        world = make_world(replicas=(1,))
        assert world.produce(1, b"a").result() == (NONE, 0)
        world.change(replicas=(1, 2, 3))
        world.settle(1, 2, 3)

    def test_a_throttled_replica_catches_up_no_faster_than_it_may(self, make_world: MakeWorld) -> None:
        world = make_world(leader_replication_throttled_replicas="*")
        world.kill(3)
        world.change(isr=(1, 2))
        for _ in range(20):
            world.produce(1, b"x" * 100_000).result()
        world.nodes[1].replicas.throttles.leader.bytes_per_s = 20_000
        world.start(3)
        began = world.loop.now_s
        world.loop.run_until(lambda: 3 in world.state().isr, limit_s=300)
        assert 40 < world.loop.now_s - began < 250


class TestReadingFromFollowers:
    def test_a_consumer_is_sent_to_the_replica_in_its_rack(self, make_world: MakeWorld) -> None:
        world = make_world(settings=ReplicationSettings(selector=select_by_rack))
        world.produce(1, b"a").result()
        world.settle(1, 2, 3)
        response = world.fetch(1, 0, rack="rack3")
        assert (response.preferred_read_replica, bytes(response.records or b"")) == (3, b"")
        assert world.fetch(1, 0, rack="rack1").preferred_read_replica == -1
        assert world.fetch(1, 0, rack="elsewhere").preferred_read_replica == -1
        read = world.fetch(3, 0, rack="rack3")
        assert (read.error_code, read.high_watermark, read.preferred_read_replica) == (0, 1, -1)
        assert bytes(read.records or b"") == world.nodes[1].log_bytes(0, 1)

    def test_old_consumers_read_from_leaders_only(self, make_world: MakeWorld) -> None:
        world = make_world()
        assert world.fetch(2, 0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert world.fetch(2, 0, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    def test_lagging_follower_returns_offset_not_available(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.settle(1, 2, 3)
        world.cuts.add(frozenset((3, 1)))
        world.produce(1, b"a", acks=1)
        assert world.fetch(3, 1).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert world.fetch(1, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
