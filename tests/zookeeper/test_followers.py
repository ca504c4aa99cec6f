"""Followers of a controller on a simulated ZooKeeper: they have the same metadata, despite lost, late or wrong data.

`Node.published` checks that followers publish the same image as the controller of that term at each offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, ProtocolError
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.records import encode_record, versioned
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.protocol.messages.metadata_records import PartitionChangeRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Delete
from ottla.quorum import fetcher
from ottla.quorum.raft_types import OffsetAndEpoch, ReplicaKey
from ottla.quorum.rpc import fetch_request
from ottla.quorum.snapshot_file import SnapshotId
from ottla.quorum.snapshot_image import LoadedSnapshot
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.zookeeper import term_log
from ottla.zookeeper.log import first_offset

from .nodes import Node, World


def cluster(*node_ids: int, first: int = 1) -> World:
    """Brokers, each with a log; `first` is the controller."""
    world = World()
    world.start(first)
    world.join(*node_ids)
    world.settled()
    world.start(*(each for each in node_ids if each != first))
    world.until(lambda: together(world))
    return world


def alive(world: World) -> list[Node]:
    return [node for node in world.nodes.values() if node.process.alive]


def together(world: World) -> bool:
    """Whether all nodes have the controller's metadata."""
    active = world.active
    return active is not None and all(
        node.publisher.image.offset == active.publisher.image.offset for node in alive(world)
    )


def made(world: World, *names: str) -> None:
    for name in names:
        reported = world.settled().create(name, tuple(sorted(world.brokers))[:2])
        world.until(reported.__len__)
        assert reported[0][1] is None
        assert [topic.error_code for topic in reported[0][0].topics] == [0]


def snapshots_asked(world: World, node_id: int) -> int:
    return sum(asker == node_id and isinstance(each, FetchSnapshotRequest) for asker, each in world.wire.log)


def test_follower_has_the_metadata_of_the_controller() -> None:
    world = cluster(1, 2, 3)
    made(world, "t", "u")
    world.until(lambda: together(world))
    first = world.nodes[1]
    for node in alive(world):
        assert sorted(node.publisher.image.topics) == ["t", "u"]
        assert sorted(node.log.latest.brokers) == [1, 2, 3]
        assert node.log.leader == (1, first.log.leader.epoch)
        assert node.controller.active is (node is first)
    assert [world.nodes[each].log.leader_endpoint().host for each in (2, 3)] == ["h1", "h1"]


def test_it_follows_by_records_once_it_has_a_snapshot() -> None:
    world = cluster(1, 2)
    before = snapshots_asked(world, 2)
    assert before > 0
    published: list[int] = []
    world.nodes[2].publisher.register(lambda image, _changes: published.append(image.offset))
    made(world, "t", "u", "v")
    world.until(lambda: together(world))
    assert snapshots_asked(world, 2) == before
    assert len(published) > 1


def test_follower_that_missed_batches_continues_with_the_next() -> None:
    world = cluster(1, 2)
    before = snapshots_asked(world, 2)
    world.wire.cut.add(2)
    made(world, "t", "u")
    world.run(10)
    assert not world.nodes[2].publisher.image.topics
    world.wire.cut.clear()
    world.until(lambda: together(world))
    assert snapshots_asked(world, 2) == before


def test_one_that_missed_more_than_is_kept_takes_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_log, "MAX_BYTES", 500)
    world = cluster(1, 2)
    before = snapshots_asked(world, 2)
    made(world, "early")
    world.until(lambda: together(world))
    world.wire.cut.add(2)
    made(world, *(f"t{number}" for number in range(20)))
    reported = world.settled().delete("early")
    world.until(lambda: reported)
    gone: list[str] = []
    world.nodes[2].publisher.register(lambda _image, changes: gone.extend(each.name for each in changes.deleted_topics))
    world.wire.cut.clear()
    world.until(lambda: together(world))
    assert snapshots_asked(world, 2) > before
    assert gone == ["early"]


def test_one_that_is_a_reign_behind_takes_that_one_s_snapshot() -> None:
    world = cluster(1, 2, 3)
    made(world, "t", "u")
    world.until(lambda: together(world))
    world.wire.cut.add(3)
    made(world, "v")
    world.nodes[1].kill()
    world.until(lambda: world.active is not None)
    second = world.settled()
    reported = second.delete("t")
    world.until(lambda: reported)
    late = world.nodes[3] if second.node_id == 2 else world.nodes[2]
    offset = late.publisher.image.offset
    assert offset < first_offset(second.log.leader.epoch)
    seen: list[tuple[list[str], list[str]]] = []
    late.publisher.register(
        lambda _image, changes: seen.append(
            ([each.name for each in changes.created_topics], [each.name for each in changes.deleted_topics])
        )
    )
    world.wire.cut.clear()
    world.until(lambda: together(world))
    assert sorted(late.publisher.image.topics) == ["u", "v"]
    assert seen[0][1] == ["t"]


def test_follower_becomes_controller_when_the_old_one_leaves() -> None:
    world = cluster(1, 2, 3)
    made(world, "t")
    epoch = world.settled().log.leader.epoch
    world.nodes[1].kill()
    world.until(lambda: world.active is not None)
    second = world.settled()
    world.wire.log.clear()
    world.run(5)
    assert {asker for asker, _ in world.wire.log} == {2, 3} - {second.node_id}
    world.leave(1)
    world.until(lambda: world.partition("t").leader == 2 and together(world))
    assert [node.log.leader for node in alive(world)] == [LeaderAndEpoch(second.node_id, epoch + 1)] * 2
    made(world, "u")
    world.until(lambda: together(world))


def test_a_controller_that_lost_its_claim_follows() -> None:
    """A zombie that was paused beyond its session rejects all requests after it resumes."""
    world = cluster(1, 2)
    made(world, "t")
    zombie = world.nodes[1]
    zombie.process.pause()
    reported = zombie.create("late", (1, 2))
    world.until(lambda: world.active is world.nodes[2])
    made(world, "u")
    assert "u" not in zombie.publisher.image.topics
    zombie.process.resume()
    world.until(lambda: reported and together(world))
    assert reported[0][1].code is ErrorCode.NOT_CONTROLLER
    assert zombie.log.leader.leader_id == 2
    epoch = zombie.log.leader.epoch - 1
    refused: list[FetchResponse] = []
    end = OffsetAndEpoch(first_offset(epoch) + 1, epoch)
    request = fetch_request("c" * 22, ReplicaKey(3), epoch, end, -1, max_wait_ms=500, max_bytes=100)
    zombie.log.service.fetch(request, refused.append)
    assert refused[0].responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert sorted(zombie.publisher.image.topics) == ["t", "u"]


def test_follower_of_a_zombie_sees_only_data_of_the_tree() -> None:
    """Its own session lives, another has the claim: the follower learns it late, and the zombie never."""
    world = cluster(1, 2)
    zombie = world.nodes[1]
    late = zombie.create("late", (1, 2))
    world.write(Delete(paths.CONTROLLER))
    world.until(lambda: late)
    world.until(lambda: together(world))
    assert late[0][1].code is ErrorCode.NOT_CONTROLLER
    for node in alive(world):
        assert list(node.publisher.image.topics) == list(world.tree.topics)


def test_controller_is_found_at_its_new_registration() -> None:
    world = cluster(1, 2)
    world.leave(1)
    world.until(lambda: world.nodes[2].log.leader_endpoint() is None)
    made(world, "u")
    world.join(1)
    world.until(lambda: together(world))
    assert world.nodes[2].log.leader_endpoint().host == "h1"


def test_controller_without_the_listener_is_not_followed() -> None:
    world = cluster(1, 2)
    node = world.nodes[2]
    node.log._listener_name = "OTHER"
    epoch = world.settled().log.leader.epoch
    world.leave(1)
    world.join(1)
    world.run(5)
    assert node.log.leader_endpoint() is None
    assert node.log.leader == (1, epoch)


class TestLosses:
    def test_answers(self) -> None:
        world = cluster(1, 2, 3)
        world.wire.change = lambda response: None if world.rng.chance(0.4) else response
        made(world, *(f"t{number}" for number in range(10)))
        world.until(lambda: together(world), within_s=120)

    def test_session_of_the_follower(self) -> None:
        world = cluster(1, 2)
        node = world.nodes[2]
        before = snapshots_asked(world, 2)
        published: list[int] = []
        node.publisher.register(lambda image, _changes: published.append(image.offset))
        node.session.expire()
        world.until(lambda: not node.log.session_id)
        assert node.log.leader.leader_id == -1
        world.until(lambda: node.log.leader.leader_id == 1)
        world.run(2)
        assert not published, "nothing is new"
        made(world, "t")
        world.until(lambda: together(world))
        assert snapshots_asked(world, 2) == before, "within a term only new records are needed"
        assert sum(not way.failed for way in world.wire.ways) == 1

    def test_a_snapshot_of_the_last_reign_is_read_late(self) -> None:
        """Its thread was busy, and another is the controller when it is done."""
        world = cluster(1, 2)
        made(world, "t")
        world.start(3)
        world.join(3)
        late = world.nodes[3]
        late.process.pool_delay_s = 20.0
        world.until(lambda: snapshots_asked(world, 3))
        world.run(0.1)
        world.nodes[1].kill()
        world.until(lambda: world.active is not None)
        late.process.pool_delay_s = 0.0
        world.until(lambda: together(world))
        offset = late.publisher.image.offset
        world.run(30)
        assert late.publisher.image.offset == offset
        assert not world.loop.failures


class TestSnapshots:
    def test_one_is_taken_while_the_log_grows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Piece by piece, and with another one begun every few topics: some are gone before they are whole."""
        monkeypatch.setattr(term_log, "MAX_BYTES", 1_000)
        monkeypatch.setattr(fetcher, "MAX_FETCH_BYTES", 700)
        world = World()
        world.start(1)
        world.join(1, 2)
        node = world.settled()
        made(world, *(f"t{number}" for number in range(10)))
        world.start(2)
        reported: list[Any] = []
        for number in range(40):
            reported.append(node.create(f"u{number}", (1, 2)))
            world.run(0.02)
        world.until(lambda: all(reported) and together(world))
        assert len(world.nodes[2].publisher.image.topics) == 50
        assert len(node.log._term_log._snapshots) == 2
        assert len(b"".join(node.log._term_log._batches)) < 4_000

    def test_the_first_image_is_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Components of a broker never act on a state older than that of other brokers."""
        monkeypatch.setattr(fetcher, "MAX_FETCH_BYTES", 100)
        world = cluster(1)
        made(world, "t", "u")
        node = world.settled()
        world.start(2)
        seen: list[int] = []
        world.nodes[2].publisher.register(lambda image, _changes: seen.append(len(image.topics)))
        world.until(lambda: seen)
        assert seen[0] == 2
        assert world.nodes[2].publisher.image.offset == node.publisher.image.offset


def records_of(partition: PartitionData) -> bytearray:
    assert partition.records is not None
    return bytearray(partition.records)


def damaged(partition: PartitionData) -> None:
    """It can be read, and names another topic."""
    data = records_of(partition).replace(b"\x02t", b"\x02u")
    assert data != partition.records
    partition.records = bytes(data)


def shifted(partition: PartitionData) -> None:
    data = records_of(partition)
    view = BatchView(data, 0)
    data[0:8] = (view.base_offset + 1).to_bytes(8, "big")
    partition.records = bytes(data)


def of_another_epoch(partition: PartitionData) -> None:
    data = records_of(partition)
    data[12:16] = (BatchView(data, 0).partition_leader_epoch + 1).to_bytes(4, "big")
    partition.records = bytes(data)


def nonsense(partition: PartitionData) -> None:
    partition.records = b"\xff" * 100


def senseless(partition: PartitionData) -> None:
    """A whole batch that speaks of a topic that there is not."""
    view = BatchView(records_of(partition), 0)
    record = versioned(PartitionChangeRecord(partition_id=0, topic_id=b"n" * 16, leader=1))
    partition.records = bytes(
        build_batch(
            [RecordData(0, None, encode_record(record))],
            base_offset=view.base_offset,
            leader_epoch=view.partition_leader_epoch,
        )
    )
    partition.high_watermark = view.base_offset + 1


def old(partition: PartitionData) -> None:
    partition.high_watermark = 1


def diverging(partition: PartitionData) -> None:
    partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset = 1, 5


def another_leader(partition: PartitionData) -> None:
    partition.current_leader.leader_id = 7


def old_snapshot(partition: PartitionData) -> None:
    partition.snapshot_id.epoch, partition.snapshot_id.end_offset = 1, 9


class TestInvalidData:
    @pytest.mark.parametrize(
        "how",
        [damaged, shifted, of_another_epoch, nonsense, senseless, old, diverging, another_leader, old_snapshot],
    )
    def test_records(self, how: Callable[[PartitionData], None]) -> None:
        world = cluster(1, 2)
        wrong = 0

        def change(response: Any) -> Any:
            nonlocal wrong
            if isinstance(response, FetchResponse) and response.responses:
                partition = response.responses[0].partitions[0]
                if partition.records:
                    how(partition)
                    wrong += 1
            return response

        world.wire.change = change
        made(world, "t")
        world.run(5)
        assert 0 < wrong < 200, "it rests before it asks again"
        assert not world.nodes[2].publisher.image.topics
        world.wire.change = lambda response: response
        world.until(lambda: together(world))
        assert list(world.nodes[2].publisher.image.topics) == ["t"]
        assert not world.loop.failures
        assert sum(not way.failed for way in world.wire.ways) == 1

    def test_a_snapshot(self) -> None:
        world = cluster(1)
        wrong = 0

        def change(response: Any) -> Any:
            nonlocal wrong
            if isinstance(response, FetchSnapshotResponse) and response.topics:
                partition = response.topics[0].partitions[0]
                data = bytearray(partition.unaligned_records)
                data[len(data) // 2] ^= 1
                partition.unaligned_records = bytes(data)
                wrong += 1
            return response

        world.wire.change = change
        world.start(2)
        world.until(lambda: wrong > 2)
        assert world.nodes[2].publisher.image.offset == -1
        world.wire.change = lambda response: response
        world.until(lambda: together(world))

    @pytest.mark.parametrize("epoch", [1, 3])
    def test_snapshot_of_another_term(self, epoch: int) -> None:
        follower = cluster(1, 2).nodes[2].log._follower
        with pytest.raises(ProtocolError):
            follower.loaded(SnapshotId(first_offset(epoch) + 9, epoch + 1), LoadedSnapshot(EMPTY_IMAGE, ()))

    def test_a_listener_that_raises_ends_the_node(self) -> None:
        world = cluster(1, 2)

        def raises(_image: object, _changes: object) -> None:
            raise RuntimeError("a part of the broker")

        world.nodes[2].publisher.register(raises)
        world.settled().create("t", (1, 2))
        with pytest.raises(RuntimeError, match="a part of the broker"):
            world.run(1)
        assert [type(each) for each in world.loop.failures] == [RuntimeError]
        world.loop.failures.clear()
        offset = world.nodes[2].publisher.image.offset
        made(world, "u")
        world.run(5)
        assert world.nodes[2].publisher.image.offset == offset
