"""Drivers of several nodes: elections, replication, snapshots, changes of voters, and all that under faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
from simulation.disk import Mount
from simulation.loop import Process
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.messages.vote import VoteRequest
from ottla.quorum.metadata_log import ReplicaLog
from ottla.quorum.raft_roles import Follower
from ottla.quorum.raft_types import Voter
from ottla.quorum.replay import batch_content
from ottla.quorum.rpc import fetch_request
from ottla.quorum.snapshot_file import SnapshotId
from ottla.quorum.snapshot_image import load_snapshot
from ottla.storage.files.names import METADATA_TOPIC

from .driver_world import CLUSTER_ID, DATA_DIR, PORT, Node, World, topic_records, voter_of


def snapshot_voters(log: ReplicaLog) -> tuple[Voter, ...]:
    """The voters in the newest snapshot."""
    newest = log.snapshots()[-1]
    return log.read_snapshot(newest, partial(load_snapshot, newest)).voters


def active(world: World) -> Node:
    node = world.active()
    assert node is not None
    return node


@pytest.mark.parametrize(("voters", "observers"), [(1, 0), (1, 2), (2, 0), (3, 0), (3, 2), (5, 0)])
def test_cluster_starts_and_all_nodes_publish_committed_records(voters: int, observers: int) -> None:
    world = World(1, voters, observers)
    world.run(10.0)
    world.calm()
    assert len(world.acknowledged) > 10
    assert set(world.acknowledged) <= set(active(world).publisher.image.topics)


@pytest.mark.parametrize("asked", [1, 4])
def test_missing_majority_is_named_with_its_voters(asked: int) -> None:
    world = World(1, 3, 1)
    world.run(10.0)
    found: list[str | None] = []

    def ask() -> None:
        driver = world.nodes[asked].driver
        assert driver is not None
        driver.service.describe_missing_majority(found.append)
        driver.service.describe_missing_majority(found.append)

    world.nodes[2].kill()
    ask()
    world.run(3.0, submits=False)
    assert found == [None, None], "two of three voters are a majority"
    found.clear()
    world.nodes[3].kill()
    ask()
    world.run(3.0, submits=False)
    text = (
        f"the metadata quorum has no majority: 1 of 3 voters answer node {asked} (1 at node-1:{PORT}), 2 are needed; "
        f"no answer from 2 at node-2:{PORT}, 3 at node-3:{PORT}: start 1 of them, or restore their network"
    )
    assert found == [text, text]


@pytest.mark.parametrize("seed", size((5,), tuple(range(6))))
def test_nothing_acknowledged_is_lost_under_faults(seed: int) -> None:
    world = World(seed, 3 + 2 * (seed % 3 == 2), observers=seed % 2)
    world.run(60.0, faults=True)
    world.calm()
    missing = set(world.acknowledged) - set(active(world).publisher.image.topics)
    assert not missing
    assert world.acknowledged


@pytest.mark.parametrize("seed", size((1,), tuple(range(6))))
def test_faults_lose_no_record_with_configured_voters(seed: int) -> None:
    world = World(seed, 3, observers=seed % 2, configured=True)
    world.run(60.0, faults=True)
    world.calm()
    missing = set(world.acknowledged) - set(active(world).publisher.image.topics)
    assert not missing
    assert world.acknowledged


def test_configured_voters_stand_in_no_file_and_never_change() -> None:
    world = World(13, 3, observers=1, configured=True)
    world.run(40.0)
    world.calm()
    leader = active(world)
    driver = leader.driver
    assert driver is not None
    assert driver.log.start_offset > 0, "there is a snapshot"
    assert snapshot_voters(driver.log) == ()
    assert not any(sets for batch in driver.log.batches(driver.log.start_offset) for sets in batch_content(batch)[1])
    assert leader.mount is not None
    state = json.loads(leader.mount.read_bytes(f"{driver.log.directory}/quorum-state"))
    assert state["data_version"] == 0
    assert state["currentVoters"] == [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}]
    assert describe(leader) == ([1, 2, 3], [4])
    assert add(world, voter_of(4)) is ErrorCode.UNSUPPORTED_VERSION
    assert remove(world, voter_of(1)) is ErrorCode.UNSUPPORTED_VERSION


def name_voters(world: World) -> KafkaError | None:
    """Write the voters to the log, like `kafka-features upgrade --feature kraft.version=1`; returns the error."""
    node = world.active()
    if node is None or node.process is None or node.driver is None:
        return KafkaError(ErrorCode.NOT_CONTROLLER, "no node leads")
    try:
        node.driver.name_voters()
    except KafkaError as error:
        return error
    return None


def are_named(world: World) -> bool:
    return all(node.driver is not None and node.driver.kraft_version == 1 for node in world.nodes.values())


def test_voters_are_written_once_all_announced_directories() -> None:
    world = World(16, 3, observers=1, configured=True)
    world.run(8.0)
    away = next(node for node in world.nodes.values() if node is not active(world) and node.node_id < 4)
    away.kill()
    active(world).kill()  # the next leader has no announcements yet
    world.run(1.0)
    for node in world.nodes.values():
        if node is not away:
            node.start()
    world.run(10.0)
    refused = name_voters(world)
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_UPDATE_VERSION
    assert f"on nodes {away.node_id}: their directory ids are unknown" in refused.message
    away.start()
    world.calm()
    assert until_named(world) is None
    leader = active(world).driver
    assert leader is not None
    named_at = leader.raft.state.voter_sets.latest_offset
    while leader.log.snapshots()[-1].end_offset <= named_at:
        world.run(1.0)
    world.calm()
    assert leader.raft.state.voters == tuple(map(voter_of, (1, 2, 3)))
    assert snapshot_voters(leader.log) == leader.raft.state.voters
    assert describe(active(world)) == ([1, 2, 3], [4])
    assert add(world, voter_of(4)) is ErrorCode.NONE
    assert remove(world, voter_of(1)) is ErrorCode.NONE
    world.run(5.0)
    for node in world.nodes.values():  # the configuration is unchanged, and the log wins
        node.kill()
    world.calm()
    assert sorted(describe(active(world))[0]) == [2, 3, 4]


def until_named(world: World) -> KafkaError | None:
    error = name_voters(world)
    until = world.loop.time() + 10.0
    while error is not None and world.loop.time() < until:
        world.run(0.5)
        error = name_voters(world)
    return error


@pytest.mark.parametrize("seed", range(size(1, 3)))
def test_writing_configured_voters_loses_no_acknowledged_record(seed: int) -> None:
    world = World(seed, 3, observers=seed % 2, configured=True)
    world.run(10.0, faults=True)
    for _ in range(10):
        name_voters(world)
        world.run(2.0, faults=True)
    world.calm()
    assert until_named(world) is None
    world.run(1.0)
    world.calm()
    assert are_named(world)
    missing = set(world.acknowledged) - set(active(world).publisher.image.topics)
    assert not missing
    assert world.acknowledged


def test_lost_voters_record_leaves_the_voters_configured() -> None:
    """The leader alone has it; the others elect one of them, and all three vote on."""
    world = World(17, 3, configured=True)
    world.run(8.0)
    first = active(world)
    for other in world.nodes.values():
        world.network.block(first.host, other.host)
        world.network.block(other.host, first.host)
    assert name_voters(world) is None
    assert first.driver is not None
    assert first.driver.kraft_version == 1
    world.loop.run_until(world.loop.time() + 20.0, lambda: world.active() not in (None, first))
    second = active(world)
    first.kill()  # with the record in its log
    second.kill()
    first.start()
    world.network.unblock_all()
    # Of two that are left one has the record and the other a newer epoch: it is elected.
    world.loop.run_until(world.loop.time() + 20.0, lambda: world.active() is not None)
    assert world.active() is not None
    world.run(1.0)
    world.calm()
    assert not any(node.driver is None or node.driver.kraft_version for node in world.nodes.values())
    assert until_named(world) is None
    world.run(1.0)
    world.calm()
    assert are_named(world)


def test_configured_voters_that_were_away_for_long_vote_again() -> None:
    """A snapshot that names no voters does not take them away."""
    world = World(14, 3, configured=True)
    world.run(8.0)
    away = next(node for node in world.nodes.values() if node is not active(world))
    away.kill()
    world.run(40.0)
    away.start()
    world.calm()
    active(world).kill()
    world.loop.run_until(world.loop.time() + 20.0, lambda: world.active() is not None)
    assert world.active() is not None
    world.run(1.0)
    world.calm()


def test_voters_in_the_log_win_over_configured_ones() -> None:
    world = World(15, 3)
    world.run(8.0)
    node = active(world)
    node.kill()
    world.configured = (voter_of(9)._replace(directory_id=bytes(16)),)
    node.start()
    world.calm()
    assert describe(active(world))[0] == [1, 2, 3]
    assert node.driver is not None
    assert node.driver.raft.state.is_voter


def test_leader_dies_and_another_takes_over_within_seconds() -> None:
    world = World(3)
    world.run(8.0)
    first = active(world)
    epoch = first.driver.raft.state.epoch if first.driver else 0
    first.kill()
    world.loop.run_until(world.loop.time() + 8.0, lambda: world.active() is not None)
    second = active(world)
    assert second is not first
    assert second.driver is not None
    assert second.driver.raft.state.epoch > epoch
    world.run(1.0)
    world.calm()


@pytest.mark.parametrize("seed", range(1, size(2, 6)))
def test_new_leader_does_not_wait_for_idle_followers(seed: int) -> None:
    world = World(seed)
    world.run(5.0)
    first = active(world)
    first.kill()

    def leads() -> bool:
        drivers = [node.driver for node in world.nodes.values() if node.driver is not None]
        return any(driver.raft.state.leading is not None for driver in drivers)

    loop = world.loop
    loop.run_until(loop.time() + 30.0, leads)
    elected = loop.time()
    loop.run_until(elected + 30.0, lambda: world.active() is not None)
    assert world.active() is not None
    assert loop.time() - elected < 0.2


def test_requests_between_replicas_are_counted_with_their_bytes() -> None:
    world = World(3)
    world.run(8.0)
    replicas = [node.driver.raft for node in world.nodes.values() if node.driver is not None]
    assert len(replicas) == 3
    for raft in replicas:
        counts = raft.state.statistics
        assert counts.requests >= counts.responses > 0
        assert counts.request_bytes > counts.requests
        assert counts.response_bytes > counts.responses
    followers = [raft.state.statistics.response_bytes for raft in replicas if raft.state.leading is None]
    (leader,) = (raft for raft in replicas if raft.state.leading is not None)
    assert min(followers) > leader.state.log.end_offset, "they fetch its log"


def test_a_leader_that_stops_hands_over_at_once() -> None:
    world = World(4)
    world.run(8.0)
    first = active(world)
    assert first.driver is not None
    assert first.process is not None
    began = world.loop.time()
    stopped: list[BaseException | None] = []
    first.process.run(first.driver.stop, stopped.append)
    world.loop.run_until(began + 5.0, lambda: world.active() not in (None, first))
    assert world.loop.time() - began < 1.5, "sooner than any fetch timeout"
    world.loop.run_until(world.loop.time() + 2.0, lambda: bool(stopped))
    assert stopped == [None]
    first.driver.close()
    first.kill()
    world.run(1.0)
    world.calm()


def test_submission_without_a_majority_fails_when_leader_resigns() -> None:
    world = World(5)
    world.run(8.0)
    first = active(world)
    assert first.driver is not None
    for node in world.nodes.values():
        if node is not first:
            world.network.block(first.host, node.host)
            world.network.block(node.host, first.host)
    outcome: list[BaseException | None] = []
    first.driver.submit(topic_records("lost"), outcome.append)
    world.loop.run_until(world.loop.time() + 10.0)
    (error,) = outcome
    assert getattr(error, "code", None) is ErrorCode.NOT_CONTROLLER
    assert not first.driver.active
    assert active(world) is not first
    world.calm()
    assert "lost" not in first.publisher.image.topics


def test_follower_far_behind_gets_a_snapshot() -> None:
    world = World(6)
    world.run(8.0)
    away = next(node for node in world.nodes.values() if node is not active(world))
    away.kill()
    end = away.disk  # its log stays where it was
    world.run(40.0)
    driver = active(world).driver
    assert driver is not None
    assert driver.log.start_offset > 0
    away.start()
    assert away.disk is end
    assert away.driver is not None
    behind = away.driver.next_offset
    assert behind < driver.log.start_offset
    world.calm()
    assert away.driver.log.start_offset >= driver.log.start_offset - 1000
    assert away.driver.log.start_offset > behind
    assert set(world.acknowledged) <= set(away.publisher.image.topics)


def test_snapshot_replaces_uncommitted_tail_at_any_kill_point() -> None:
    """The file was stored, the log not yet cut: a start believed both, and the log could not be cut any more."""
    world = World(6)
    world.run(8.0)
    away = active(world)
    assert away.driver is not None
    assert away.process is not None
    for node in world.nodes.values():
        world.network.block(away.host, node.host)
        world.network.block(node.host, away.host)
    for number in range(200):
        away.process.run(away.driver.submit, topic_records(f"lost-{number}"), lambda error: None)
    end = away.driver.log.end_offset
    world.loop.run_until(world.loop.time() + 1.0, lambda: away.driver.log.flushed_offset >= end)
    epoch = away.driver.raft.state.epoch
    away.kill()
    world.network.unblock_all()
    for _ in range(100):
        world.run(0.5)
        newer = world.active()
        if newer is not None and newer.driver.log.earliest_snapshot.epoch > epoch:
            break
    snapshot = active(world).driver.log.latest_snapshot
    assert snapshot is not None
    assert snapshot.epoch > epoch
    assert snapshot.end_offset < end, "the snapshot ends within the tail"
    away.start()
    stored = f"{away.driver.log.directory}/{SnapshotId(*snapshot).file_name}"
    world.loop.run_until(world.loop.time() + 20.0, lambda: stored in away.disk.names)
    assert away.driver.log.end_offset == end
    away.kill()
    away.start()
    assert away.driver.log.snapshots() == [SnapshotId(*snapshot)]
    assert away.driver.log.start_offset == away.driver.log.end_offset == snapshot.end_offset
    world.calm()
    assert "lost-1" not in away.publisher.image.topics


def describe(node: Node) -> tuple[list[int], list[int]]:
    """(voters, observers) as reported by the leader."""
    assert node.driver is not None
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition()])
    answer = node.driver.service.describe(DescribeQuorumRequest(topics=[topic])).topics[0].partitions[0]
    assert answer.error_code == 0
    return [item.replica_id for item in answer.current_voters], [item.replica_id for item in answer.observers]


def add(world: World, voter: Voter) -> ErrorCode:
    answers: list[AddRaftVoterResponse] = []
    driver = active(world).driver
    assert driver is not None
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=10_000,
        voter_id=voter.voter_id,
        voter_directory_id=voter.directory_id,
        listeners=[RaftEndpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
    )
    driver.service.add_voter(request, answers.append)
    world.loop.run_until(world.loop.time() + 20.0, lambda: bool(answers))
    return ErrorCode(answers[0].error_code)


def remove(world: World, voter: Voter) -> ErrorCode:
    answers: list[RemoveRaftVoterResponse] = []
    driver = active(world).driver
    assert driver is not None
    request = RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=voter.voter_id, voter_directory_id=voter.directory_id
    )
    driver.service.remove_voter(request, answers.append)
    world.loop.run_until(world.loop.time() + 20.0, lambda: bool(answers))
    return ErrorCode(answers[0].error_code)


def with_empty_directory(world: World, node: Node) -> Node:
    """The replacement of `node`, which lost its disk; started."""
    node.kill()
    reborn = Node(world, node.node_id, voter_of(node.node_id, directory=7), ())
    world.nodes[node.node_id] = reborn
    reborn.start()
    return reborn


def test_voter_change_refused_by_the_disk_is_answered_once() -> None:
    """The refusal is the answer; a timer that was left behind answered a second time, which ended the broker."""
    world = World(7, voters=1, observers=1)
    world.run(5.0)
    leader = active(world)
    leader.disk.full = leader.was_full = True
    answers: list[AddRaftVoterResponse] = []
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=1_000,
        voter_id=2,
        voter_directory_id=voter_of(2).directory_id,
        listeners=[RaftEndpoint(name=name, host=host, port=port) for name, host, port in voter_of(2).endpoints],
    )
    assert leader.driver is not None
    leader.driver.service.add_voter(request, answers.append)
    world.loop.run_until(world.loop.time() + 10.0, lambda: bool(answers))
    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR]
    leader.disk.full = False
    world.run(5.0)
    assert len(answers) == 1
    assert add(world, voter_of(2)) is ErrorCode.NONE


def caught_up_ghost(world: World, ghost: Voter) -> None:
    """A client fetches to the end of the leader's log under an invented replica id."""
    driver = active(world).driver
    assert driver is not None
    end = driver.log_end
    request = fetch_request(CLUSTER_ID, ghost.key, driver.raft.state.epoch, end, -1, max_wait_ms=0, max_bytes=1)
    driver.service.fetch(request, lambda response: None)


@pytest.mark.promise("S10")
def test_unreachable_voter_is_not_added() -> None:
    """Ghosts among the voters would be a permanent majority without an election."""
    world = World(7)
    world.run(8.0)
    for ghost in (voter_of(9), voter_of(9)._replace(endpoints=voter_of(2).endpoints)):
        caught_up_ghost(world, ghost)
        assert add(world, ghost) is not ErrorCode.NONE
    caught_up_ghost(world, Voter(-1, bytes(15) + b"1", voter_of(2).endpoints))
    assert add(world, Voter(-1, bytes(15) + b"1", voter_of(2).endpoints)) is ErrorCode.INVALID_REQUEST
    assert sorted(describe(active(world))[0]) == [1, 2, 3]


@pytest.mark.parametrize("of_leader", [False, True])
def test_voter_address_is_not_updated_when_wrong(of_leader: bool) -> None:
    world = World(7)
    world.run(8.0)
    leader = active(world)
    driver = leader.driver
    assert driver is not None
    victim = next(node for node in world.nodes.values() if (node is leader) is of_leader)
    other = next(node for node in world.nodes.values() if node not in (leader, victim))
    for host, port in ((other.host, PORT), ("nowhere", PORT), ("", PORT), ("h" * 300, PORT), (other.host, 0)):
        answers: list[UpdateRaftVoterResponse] = []
        request = UpdateRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            current_leader_epoch=driver.raft.state.epoch,
            voter_id=victim.node_id,
            voter_directory_id=victim.voter.directory_id,
            listeners=[RaftEndpoint(name="CONTROLLER", host=host, port=port)],
        )
        driver.service.update_voter(request, answers.append)
        world.loop.run_until(world.loop.time() + 10.0, partial(bool, answers))
        assert answers[0].error_code != ErrorCode.NONE
    assert {voter.endpoints for voter in driver.raft.state.voters} == {voter_of(node).endpoints for node in (1, 2, 3)}


@pytest.mark.parametrize("cluster_id", [None, "another-cluster-id-000"])
def test_only_replicas_of_this_cluster_are_heard(cluster_id: str | None) -> None:
    world = World(7)
    world.run(8.0)
    driver = active(world).driver
    assert driver is not None
    service = driver.service
    calls: list[Callable[[], object]] = [
        lambda: service.vote(VoteRequest(cluster_id=cluster_id)),
        lambda: service.begin_quorum_epoch(BeginQuorumEpochRequest(cluster_id=cluster_id)),
        lambda: service.end_quorum_epoch(EndQuorumEpochRequest(cluster_id=cluster_id)),
        lambda: service.fetch(FetchRequest(cluster_id=cluster_id), lambda response: None),
        lambda: service.fetch_snapshot(FetchSnapshotRequest(cluster_id=cluster_id), lambda response: None),
        lambda: service.update_voter(UpdateRaftVoterRequest(cluster_id=cluster_id), lambda response: None),
    ]
    for call in calls:
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_voter_that_lags_elects_one_that_was_just_added() -> None:
    """It does not know yet that the other is a voter, and its vote is the one that is missing (KIP-853)."""
    world = World(7, voters=2, observers=1)
    world.run(8.0)
    leader = active(world)
    lags = next(node for node in world.nodes.values() if node.node_id in (1, 2) and node is not leader)
    caught_up = world.nodes[3]
    assert leader.driver is not None
    lags.kill()
    assert add(world, caught_up.voter) is ErrorCode.NONE
    world.run(1.0)
    leader.kill()
    lags.start()
    assert lags.driver is not None
    assert 3 not in {voter.voter_id for voter in lags.driver.raft.state.voters}
    world.loop.run_until(world.loop.time() + 30.0, lambda: world.active() is caught_up)
    assert world.active() is caught_up


def test_administrators_need_not_name_the_cluster() -> None:
    world = World(7, voters=1, observers=1)
    world.run(5.0)
    driver = active(world).driver
    assert driver is not None
    answers: list[AddRaftVoterResponse] = []
    voter = voter_of(2)
    listeners = [RaftEndpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints]
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=10_000,
        voter_id=2,
        voter_directory_id=voter.directory_id,
        listeners=listeners,
    )
    driver.service.add_voter(request, answers.append)
    world.loop.run_until(world.loop.time() + 20.0, lambda: bool(answers))
    assert answers[0].error_code == ErrorCode.NONE


def test_voters_come_and_go() -> None:
    world = World(7, voters=1, observers=2)
    world.run(5.0)
    assert add(world, voter_of(9)) is ErrorCode.REQUEST_TIMED_OUT, "no node has published it"
    assert add(world, voter_of(1, directory=5)) is ErrorCode.DUPLICATE_VOTER
    assert add(world, voter_of(2)) is ErrorCode.NONE
    assert add(world, voter_of(3)) is ErrorCode.NONE
    assert describe(active(world)) == ([1, 2, 3], [])
    assert remove(world, voter_of(2, directory=1)) is ErrorCode.VOTER_NOT_FOUND
    first = active(world)
    assert first.node_id == 1
    assert remove(world, voter_of(1)) is ErrorCode.NONE
    world.loop.run_until(world.loop.time() + 10.0, lambda: world.active() not in (None, first))
    assert active(world).node_id in (2, 3), "the leader that was removed leaves the lead to a voter"
    world.run(5.0)
    world.calm()
    voters, observers = describe(active(world))
    assert sorted(voters) == [2, 3]
    assert observers == [1]


def test_voter_with_a_lost_directory_returns_as_observer() -> None:
    world = World(8)
    world.run(8.0)
    lost = next(node for node in world.nodes.values() if node is not active(world))
    reborn = with_empty_directory(world, lost)
    world.run(5.0)
    voters, observers = describe(active(world))
    assert voters == [1, 2, 3], "its old self is still counted"
    assert observers == [lost.node_id]
    assert reborn.driver is not None
    assert isinstance(reborn.driver.raft.state.role, Follower)
    assert remove(world, voter_of(lost.node_id)) is ErrorCode.NONE
    assert add(world, reborn.voter) is ErrorCode.NONE
    world.run(2.0)
    world.calm()
    assert sorted(describe(active(world))[0]) == [1, 2, 3]
    assert reborn.driver.raft.state.is_voter


def test_empty_node_killed_before_first_snapshot_recovers() -> None:
    """It knows the leader from its quorum-state, but no voter and so no address: any node returns it."""
    world = World(8)
    world.run(8.0)
    lost = next(node for node in world.nodes.values() if node is not active(world))
    reborn = with_empty_directory(world, lost)
    assert reborn.driver is not None
    while not isinstance(reborn.driver.raft.state.role, Follower):
        world.loop.run_until(world.loop.time() + 0.001)
    assert reborn.driver.log.end_offset == 0
    reborn.kill()
    reborn.start()
    assert reborn.driver is not None
    assert isinstance(reborn.driver.raft.state.role, Follower)
    assert reborn.driver.raft.state.leader_address is None
    world.run(2.0)
    assert active(world).driver.log.start_offset > 0
    assert reborn.driver.log.end_offset > 0


@pytest.mark.promise("R7")
def test_a_lost_directory_never_votes_in_place_of_the_old() -> None:
    """Two of three lose their disks: the third alone must not find a majority among the empty ones."""
    world = World(9)
    world.run(8.0)
    kept = active(world)
    for node in list(world.nodes.values()):
        if node is not kept:
            with_empty_directory(world, node)
    world.loop.run_until(world.loop.time() + 30.0)
    assert world.active() is None


def last_epoch_position(segment: bytes | bytearray) -> int:
    """Position of the leader epoch of the last batch, which no CRC covers."""
    position = 0
    while (following := position + 12 + int.from_bytes(segment[position + 8 : position + 12])) < len(segment):
        position = following
    return position + 12


def spoil(node: Node, suffix: str, *, in_epoch: bool = False) -> None:
    """Flip a bit in the last metadata file with this suffix, in a log behind its snapshots; the node is stopped."""
    mount = Mount(node.disk, Process(node.world.loop, node.rng.fork("spoil")))
    directory = f"{DATA_DIR}/__cluster_metadata-0"
    path = [f"{directory}/{name}" for name in mount.listdir(directory) if name.endswith(suffix)][-1]
    data = bytearray(mount.read_bytes(path))
    at = last_epoch_position(data) if in_epoch else -300 if suffix == ".log" else len(data) // 2
    data[at] ^= 1
    mount.write_atomic(path, bytes(data))


@pytest.mark.promise("R7")
@pytest.mark.parametrize(("suffix", "in_epoch"), [("quorum-state", False), (".log", False), (".log", True)])
def test_damaged_voter_votes_again_after_catching_up(suffix: str, in_epoch: bool) -> None:
    """It forgot records or votes: until it has caught up it gives none."""
    world = World(21)
    world.run(8.0)
    damaged = next(node for node in world.nodes.values() if node is not active(world))
    others = [node for node in world.nodes.values() if node is not damaged]
    damaged.kill()
    world.run(1.0)
    spoil(damaged, suffix, in_epoch=in_epoch)
    for node in others:
        node.kill()
    damaged.start()
    assert damaged.driver is not None
    assert damaged.driver.raft.state.election.must_catch_up
    damaged.kill()
    damaged.start()
    assert damaged.driver.raft.state.election.must_catch_up, "also in its next life"
    others[0].start()
    world.loop.run_until(world.loop.time() + 30.0)
    assert world.active() is None, "one of three has lost its votes"
    others[1].start()
    world.run(10.0)
    world.calm()
    assert not damaged.driver.raft.state.election.must_catch_up
    first = next(node for node in others if node is active(world) or active(world) is damaged)
    first.kill()
    world.loop.run_until(world.loop.time() + 20.0, lambda: world.active() not in (None, first))
    assert active(world) is not first, "two of three can elect again"
    world.calm()


def test_observer_joins_the_voters_automatically() -> None:
    world = World(16, voters=1, observers=2, auto_join=True)
    world.run(20.0)
    world.calm()
    voters, observers = describe(active(world))
    assert sorted(voters) == [1, 2, 3]
    assert observers == []
    lost = next(node for node in world.nodes.values() if node is not active(world))
    reborn = with_empty_directory(world, lost)
    world.run(20.0)
    world.calm()
    assert reborn.driver is not None
    assert reborn.driver.raft.state.is_voter
    assert sorted(describe(active(world))[0]) == [1, 2, 3], "in place of its old self"


@pytest.mark.parametrize("seed", range(size(1, 4)))
def test_nothing_acknowledged_is_lost_while_voters_join(seed: int) -> None:
    world = World(seed, voters=1, observers=2, auto_join=True)
    world.run(60.0, faults=True)
    world.calm()
    assert not set(world.acknowledged) - set(active(world).publisher.image.topics)
    world.run(20.0)
    assert sorted(describe(active(world))[0]) == [1, 2, 3]


def test_moved_voter_updates_its_address() -> None:
    world = World(10)
    world.run(8.0)
    moved = next(node for node in world.nodes.values() if node is not active(world))
    moved.kill()
    moved.host = "elsewhere"
    moved.start()
    world.run(5.0)
    world.calm()
    driver = active(world).driver
    assert driver is not None
    voter = next(voter for voter in driver.raft.state.voters if voter.voter_id == moved.node_id)
    assert voter.endpoints == (("CONTROLLER", "elsewhere", PORT),)


def test_the_same_seed_runs_the_same() -> None:
    def run(seed: int) -> tuple[str, int]:
        world = World(seed)
        world.run(size(4.0, 20.0), faults=True)
        return world.trace.digest(), world.loop.events

    assert run(11) == run(11)
    assert run(11) != run(12)
