"""Transactions on several replicas: followers and new leaders have the leader's state, and the last stable offset
waits for replication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import EndMarker
from ottla.replica.partition import READ_COMMITTED, Partition

from .world import TOPIC, World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(fakes: Any) -> MakeWorld:
    def make(**configs: Any) -> World:
        world = World(fakes, **{"min_insync_replicas": "2", **configs})
        for node in (1, 2, 3):
            world.start(node, rack=f"rack{node}")
        world.create_topic((1, 2, 3), 1)
        return world

    return make


def write(partition: Partition, producer_id: int, sequence: int = 0, *, producer_epoch: int = 0) -> None:
    guard = partition.begin_verification(producer_id, producer_epoch, sequence, supports_epoch_bump=True)
    batch = build_batch(
        [RecordData(1_700_000_000_000, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    partition.append_records(batch, 0, len(batch), True, guard=guard)


def end(partition: Partition, producer_id: int, *, committed: bool, producer_epoch: int = 1) -> None:
    partition.append_end_marker(EndMarker(producer_id, producer_epoch, 1, committed, 2))


def state(partition: Partition) -> Any:
    """State that must be equal on every replica: producers, open and aborted transactions."""
    log = partition.log
    entries = {
        producer_id: (
            entry.producer_epoch,
            entry.batches,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
            entry.last_timestamp,
        )
        for producer_id, entry in log.producers.entries().items()
    }
    indexes = [segment.aborted.index for segment in log.segments]
    aborted = [index.unpack(number) for index in indexes if index is not None for number in range(index.entry_count)]
    return entries, log.producers.transactions.open_transactions(), aborted


@pytest.mark.promise("T5")
def test_followers_have_transaction_state_of_leader(make_world: MakeWorld) -> None:
    world = make_world(segment_bytes="300")
    leader = world.nodes[1].partition()
    for number in range(5):
        write(leader, 7, producer_epoch=number)
        write(leader, 8, number)
        end(leader, 7, committed=number % 2 == 0, producer_epoch=number + 1)
    world.settle(1, 2, 3)
    assert len(leader.log.segments) > 2
    assert state(leader)[1] == {8: 1}
    assert len(state(leader)[2]) == 2
    for node in (2, 3):
        assert state(world.nodes[node].partition()) == state(leader)


def producers_on(world: World, node_id: int) -> DescribeProducersPartition:
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name=TOPIC, partition_indexes=[0])])
    found: DescribeProducersPartition = world.ask(node_id, request).message().topics[0].partitions[0]
    return found


def test_every_replica_describes_its_producers(make_world: MakeWorld) -> None:
    world = make_world()
    write(world.nodes[1].partition(), 7)
    world.settle(1, 2, 3)
    for node in (1, 2, 3):
        assert [one.producer_id for one in producers_on(world, node).active_producers] == [7]
    world.nodes[2].partition().mark_offline()
    assert producers_on(world, 2).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.start(4)
    assert producers_on(world, 4).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.promise("T5")
def test_new_leader_continues_open_transactions(make_world: MakeWorld) -> None:
    world = make_world()
    write(world.nodes[1].partition(), 7)
    world.settle(1, 2, 3)
    world.kill(1)
    world.change(leader=2, isr=(2, 3))
    leader = world.nodes[2].partition()
    assert leader.begin_verification(7, 0, 1, supports_epoch_bump=True) is None
    write(leader, 7, 1)
    with pytest.raises(KafkaError) as failure:
        end(leader, 7, committed=False, producer_epoch=0)
    assert failure.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    end(leader, 7, committed=False)
    world.start(1)
    world.settle(1, 2, 3)
    assert state(leader)[2] == [(0, 7, 0, 2, 3)]
    for node in (1, 3):
        assert state(world.nodes[node].partition()) == state(leader)
    world.loop.run_until(lambda: all(node.partition().high_watermark == 3 for node in world.nodes.values()))
    assert [node.partition().last_stable_offset for node in world.nodes.values()] == [3, 3, 3]


def test_a_marker_holds_its_readers_until_it_is_replicated(make_world: MakeWorld) -> None:
    world = make_world()
    leader = world.nodes[1].partition()
    write(leader, 7)
    world.loop.run_until(lambda: leader.high_watermark == 1)
    world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
    end(leader, 7, committed=True)
    assert (leader.high_watermark, leader.last_stable_offset, leader.read_end(READ_COMMITTED)) == (1, 0, 0)
    world.cuts.clear()
    world.loop.run_until(lambda: leader.high_watermark == 2)
    assert leader.last_stable_offset == 2


@pytest.mark.promise("T5")
def test_transaction_decided_by_old_leader_only_reopens(make_world: MakeWorld) -> None:
    world = make_world()
    leader = world.nodes[1].partition()
    write(leader, 7)
    world.settle(1, 2, 3)
    world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
    end(leader, 7, committed=False)
    assert state(leader)[1] == {}
    world.deaf.add(1)
    world.change(leader=2, isr=(2, 3))
    world.deaf.clear()
    world.cuts.clear()
    world.change(isr=(2, 3))
    world.settle(1, 2, 3)
    for node in world.nodes.values():
        assert state(node.partition())[1:] == ({7: 0}, [])
        assert node.partition().last_stable_offset == 0


def test_follower_rejects_transaction_writes(make_world: MakeWorld) -> None:
    world = make_world()
    follower = world.nodes[2].partition()
    for refused in (
        lambda: end(follower, 7, committed=True),
        lambda: follower.begin_verification(7, 0, 0, supports_epoch_bump=True),
    ):
        with pytest.raises(KafkaError) as failure:
            refused()
        assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_marker_is_rejected_below_min_isr(make_world: MakeWorld) -> None:
    world = make_world()
    leader = world.nodes[1].partition()
    write(leader, 7)
    world.change(isr=(1,))
    with pytest.raises(KafkaError) as failure:
        end(leader, 7, committed=True)
    assert failure.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
