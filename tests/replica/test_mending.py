"""Damage on the disk of one of three replicas: it does not lead if another can, does not spread, and is repaired."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import LOST_UUID
from ottla.record.batch import iter_batches
from ottla.record.control import EndMarker
from ottla.storage.files.checkpoints import read_offsets
from ottla.storage.files.damage import Damage

from .test_transactions import end, state, write
from .world import TOPIC, Node, World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(fakes: Any) -> MakeWorld:
    def make(**configs: Any) -> World:
        world = World(fakes, **{"min_insync_replicas": "2", "segment_bytes": "300", **configs})
        for node in (1, 2, 3):
            world.start(node)
        world.create_topic((1, 2, 3))
        return world

    return make


def fill(world: World, count: int = 12, first: int = 0) -> None:
    for number in range(first, first + count):
        assert world.produce(1, b"value %d" % number * 5).result()[0] == 0
    world.settle(1, 2, 3)


def path_of(node: Node, offset: int) -> str:
    return node.partition().log.segments.holding(offset)[0].data.path


def flip(node: Node, offset: int, at: int, mask: int = 1) -> None:
    """Change byte `at` of the batch that contains `offset`, while the file is open."""
    path = path_of(node, offset)
    inode = node.disk.files.names[path]
    data = bytearray(inode.data)
    (batch,) = [batch for batch in iter_batches(data) if batch.base_offset <= offset <= batch.last_offset]
    data[batch.position + at] ^= mask
    inode.data[:] = data


STEPS = 20
"""Number of disk changes that complete a repair."""
CHANGES = ("append", "write", "truncate", "fsync", "create", "rename", "unlink")
BODY = 70
EPOCH = 12


def damage(node: Node, offset: int) -> None:
    """Damage the disk and report it to the broker, as a scan of files does."""
    flip(node, offset, BODY)
    report_damage(node, offset)


def report_damage(node: Node, offset: int) -> None:
    segment = node.partition().log.segments.holding(offset)[0]
    node.replicas.report_damage(Damage((TOPIC, 0), segment.base_offset, offset, offset, "the CRC does not match"))


def whole(world: World, node_id: int) -> bool:
    node = world.nodes[node_id]
    return not len(node.replicas.repair) and world.state().directory_of(node_id) != LOST_UUID


def repaired(world: World, node_id: int) -> None:
    world.loop.run_until(lambda: whole(world, node_id))
    world.settle(1, 2, 3)


class TestLeader:
    @pytest.mark.promise("R6")
    def test_damaged_leader_resigns_and_is_repaired(self, make_world: MakeWorld) -> None:
        world = make_world()
        fill(world)
        before = world.nodes[2].log_bytes(0, 12)
        damage(world.nodes[1], 5)
        world.loop.run_until(lambda: world.state().leader != 1)
        assert 1 not in world.state().isr
        repaired(world, 1)
        assert world.nodes[1].log_bytes(0, 12) == before

    def test_last_in_sync_replica_serves_until_another_joins(
        self, make_world: MakeWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = make_world(min_insync_replicas="1")
        fill(world)
        world.cuts |= {frozenset((2, 1)), frozenset((3, 1))}
        world.produce(1, b"unheard", acks=1)
        world.loop.run_until(lambda: world.state().isr == (1,))
        damage(world.nodes[1], 2)
        world.loop.run_for(30)
        assert world.state().leader == 1
        assert world.produce(1, b"more").result() == (0, 13)
        assert sum("no other replica of it is in sync" in record.message for record in caplog.records) == 1
        world.cuts.clear()
        world.loop.run_until(lambda: world.state().leader != 1)
        repaired(world, 1)

    def test_stalled_follower_reveals_damage_of_leader(
        self, make_world: MakeWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        world = make_world()
        fill(world)
        world.kill(3)
        world.disks.pop(3)
        world.change(isr=(1, 2))
        flip(world.nodes[1], 7, BODY)
        world.start(3)
        world.loop.run_until(lambda: world.state().leader == 2)
        repaired(world, 1)
        assert sum("rejects records of broker 1" in record.message for record in caplog.records) == 1

    @pytest.mark.parametrize("mask", [0x80, 0x40, 0x01])
    def test_follower_reveals_flipped_leader_epoch(self, make_world: MakeWorld, mask: int) -> None:
        world = make_world()
        fill(world)
        world.kill(3)
        world.disks.pop(3)
        world.change(isr=(1, 2))
        flip(world.nodes[1], 7, EPOCH, mask)
        world.start(3)
        world.loop.run_until(lambda: world.state().leader == 2)
        repaired(world, 1)

    def test_follower_reveals_flipped_offset(self, make_world: MakeWorld) -> None:
        world = make_world()
        fill(world)
        world.kill(3)
        world.disks.pop(3)
        world.change(isr=(1, 2))
        flip(world.nodes[1], 7, 7, 0x08)  # 7 becomes 15
        world.start(3)
        world.loop.run_until(lambda: world.state().leader == 2)
        repaired(world, 1)
        assert [node.log_bytes(0, 12) for node in world.nodes.values()] == [world.nodes[2].log_bytes(0, 12)] * 3


class TestFollower:
    @pytest.mark.parametrize("offset", [0, 5, 11])
    def test_only_damaged_segment_is_fetched_again(self, make_world: MakeWorld, offset: int) -> None:
        world = make_world()
        fill(world)
        node = world.nodes[3]
        paths = [segment.data.path for segment in node.partition().log.segments]
        inodes = {path: node.disk.files.names[path] for path in paths}
        damaged = path_of(node, offset)
        damage(node, offset)
        assert node.partition().log.log_end_offset == 12
        repaired(world, 3)
        changed = [path for path in paths if node.disk.files.names[path] is not inodes[path]]
        assert changed == [damaged]

    def test_replica_in_repair_is_out_of_isr(self, make_world: MakeWorld) -> None:
        world = make_world()
        fill(world)
        world.cuts.add(frozenset((3, 1)))
        damage(world.nodes[3], 5)
        world.loop.run_until(lambda: world.state().isr == (1, 2))
        began = world.loop.now_s
        assert world.produce(1, b"more").result() == (0, 12)
        assert world.loop.now_s - began < 1
        world.cuts.clear()
        repaired(world, 3)

    def test_damage_reported_after_the_repair_is_corrected(self, make_world: MakeWorld) -> None:
        """The broker reaches its leader, and not the controller until the repair is over."""
        world = make_world()
        fill(world)
        node = world.nodes[3]
        world.cuts.add(frozenset((3, 0)))
        damage(node, 5)
        world.produce(1, b"more")
        world.loop.run_until(lambda: not len(node.replicas.repair))
        assert world.state().directory_of(3) != LOST_UUID
        world.cuts.clear()
        world.loop.run_until(lambda: world.state().directory_of(3) == LOST_UUID)
        repaired(world, 3)

    def test_records_deleted_at_leader_are_dropped(self, make_world: MakeWorld) -> None:
        world = make_world()
        fill(world)
        world.cuts.add(frozenset((3, 1)))
        damage(world.nodes[3], 1)
        world.loop.run_until(lambda: world.state().isr == (1, 2))
        assert world.nodes[1].partition().delete_records(7) == 7
        world.cuts.clear()
        repaired(world, 3)
        assert world.nodes[3].partition().log.log_start_offset == 7

    def test_compacted_log_is_fetched_again_as_a_whole(self, make_world: MakeWorld) -> None:
        world = make_world()
        fill(world)
        node = world.nodes[3]
        node.logs.cleaner_checkpoint.put((TOPIC, 0), 3)
        paths = [segment.data.path for segment in node.partition().log.segments][:-1]
        inodes = {path: node.disk.files.names[path] for path in paths}
        damage(node, 5)
        repaired(world, 3)
        assert all(node.disk.files.names[path] is not inodes[path] for path in paths)
        assert read_offsets(node.disk, "/node3/cleaner-offset-checkpoint") == {(TOPIC, 0): 0}

    def test_repair_retains_transaction_state(self, make_world: MakeWorld) -> None:
        world = make_world()
        leader = world.nodes[1].partition()
        for number in range(6):
            write(leader, 7, producer_epoch=number)
            world.settle(1, 2, 3)
            end(leader, 7, committed=bool(number % 2), producer_epoch=number + 1)
            world.settle(1, 2, 3)
        write(leader, 8)
        world.settle(1, 2, 3)
        damage(world.nodes[3], 4)
        repaired(world, 3)
        assert state(world.nodes[3].partition()) == state(leader)
        leader.append_end_marker(EndMarker(8, 1, 1, True, 2))
        world.settle(1, 2, 3)
        assert state(world.nodes[3].partition()) == state(leader)

    def test_lost_transaction_index_is_rebuilt(self, make_world: MakeWorld) -> None:
        world = make_world()
        leader = world.nodes[1].partition()
        write(leader, 7)
        end(leader, 7, committed=False)
        fill(world)
        node = world.nodes[3]
        path = path_of(node, 1).replace(".log", ".txnindex")
        node.disk.files.names[path].data[:] = b"no entry"
        damage(node, 1)
        repaired(world, 3)
        assert state(node.partition()) == state(leader)

    def test_restart_scans_damaged_replica(self, make_world: MakeWorld) -> None:
        world = make_world()
        fill(world)
        world.cuts.add(frozenset((3, 1)))
        damage(world.nodes[3], 2)
        world.loop.run_until(lambda: world.state().directory_of(3) == LOST_UUID)
        stopped = world.nodes[3]
        stopped.replicas.stop()
        stopped.logs.shutdown(stopped.broker_epoch)
        world.kill(3)
        assert world.start(3).partition().log.log_end_offset == 12, "a start does not read synced segments"
        world.loop.run_for(2)
        assert 3 not in world.state().isr
        world.cuts.clear()
        repaired(world, 3)

    @pytest.mark.parametrize("mask", [0x40, 0x80])
    def test_start_corrects_flipped_epoch(self, make_world: MakeWorld, mask: int) -> None:
        """In the last batch, without a neighbour as evidence: a future epoch, and one that never existed."""
        world = make_world()
        fill(world)
        flip(world.nodes[3], 11, EPOCH, mask)
        world.kill(3)
        world.change(isr=(1, 2))
        world.start(3)
        repaired(world, 3)
        assert world.nodes[3].partition().log.epochs.entries() == world.nodes[1].partition().log.epochs.entries()
        assert world.nodes[3].log_bytes(0, 12) == world.nodes[1].log_bytes(0, 12)

    def test_records_above_high_watermark_are_fetched_normally(self, make_world: MakeWorld) -> None:
        world = make_world(min_insync_replicas="3")
        fill(world)
        world.cuts.add(frozenset((2, 1)))
        assert world.produce(1, b"more", acks=1).result()[0] == ErrorCode.NONE
        node = world.nodes[3]
        world.loop.run_until(lambda: node.partition().log.log_end_offset == 13)
        damage(node, 12)
        world.loop.run_until(lambda: whole(world, 3))
        assert node.partition().high_watermark == 12
        world.cuts.clear()
        world.settle(1, 2, 3)

    @pytest.mark.promise("R6")
    @pytest.mark.parametrize("step", range(1, STEPS + 2))
    def test_crash_at_any_step_leaves_old_or_new_log(self, make_world: MakeWorld, step: int) -> None:
        world = make_world()
        fill(world)
        node = world.nodes[3]
        count = 0

        def fail(action: str, path: str) -> OSError | None:
            nonlocal count
            if action in CHANGES:
                count += 1
                if count >= step:
                    return OSError("the power is gone")
            return None

        damage(node, 5)
        node.disk.fault = fail
        world.loop.run_for(3)
        node.disk.fault = lambda action, path: None
        world.kill(3, power=True)
        world.change(isr=tuple(member for member in world.state().isr if member != 3))
        world.start(3)
        repaired(world, 3)
