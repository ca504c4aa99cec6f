"""Log lines of elections: one for each change of role, vote and set of voters, and none otherwise."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from simulation.network import ListeningProcess

from ottla.app.logging import BURST, RateLimiter
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.platform.endpoint import ListenerInfo
from ottla.protocol.messages.vote import VotePartition, VoteRequest, VoteTopic
from ottla.quorum.driver import QuorumDriver
from ottla.storage.files.names import METADATA_TOPIC

from .driver_world import CLUSTER_ID, PORT, Node, ServiceDispatcher, World, voter_of

ROLES = "unattached|follower|prospective|candidate|leader|resigned"
TRANSITION = re.compile(rf"node (\d) completed transition to (({ROLES})\(epoch=(\d+).*?\))(?: from (({ROLES})\(.*\)))?")


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla")
    return caplog


def transitions(said: pytest.LogCaptureFixture) -> list[tuple[int, str, str | None]]:
    """(node, new role, old role) in log order."""
    found = (TRANSITION.fullmatch(message) for message in said.messages)
    return [(int(match[1]), match[2], match[5]) for match in found if match]


def ask_for_vote(node: Any, candidate: int, epoch: int, *, pre_vote: bool = False) -> bool:
    """Sends a Vote request of a voter with a longer log; returns whether the vote is granted."""
    voter = voter_of(candidate)
    partition = VotePartition(
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=voter.directory_id,
        voter_directory_id=node.voter.directory_id,
        last_offset_epoch=epoch,
        last_offset=1_000_000,
        pre_vote=pre_vote,
    )
    topics = [VoteTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
    request = VoteRequest(cluster_id=CLUSTER_ID, voter_id=node.node_id, topics=topics)
    return bool(node.driver.service.vote(request).topics[0].partitions[0].vote_granted)


def leader_and_others(world: World) -> tuple[Any, list[Any]]:
    leader = world.active()
    assert leader is not None
    return leader, [node for node in world.nodes.values() if node is not leader]


def test_election_logs_each_role_change_and_vote(said: pytest.LogCaptureFixture) -> None:
    world = World(3)
    world.run(8.0)
    leader, others = leader_and_others(world)
    epoch = leader.driver.raft.state.epoch
    logged = transitions(said)
    assert [became for node, became, _ in logged if node == leader.node_id] == [
        "unattached(epoch=0)",
        "prospective(epoch=0)",
        f"candidate(epoch={epoch})",
        f"leader(epoch={epoch})",
    ]
    for follower in others:
        own = [(became, was) for node, became, was in logged if node == follower.node_id]
        assert own[0] == ("unattached(epoch=0)", None)
        assert own[-1][0] == f"follower(epoch={epoch}, leader={leader.node_id})"
        assert [was for _, was in own[1:]] == [became for became, _ in own[:-1]], "each begins where the last ended"
    granted = said.messages.count(f"vote request of node {leader.node_id} with epoch {epoch} is granted")
    assert granted == len(others)


def test_lost_leader_and_its_successor_are_logged(said: pytest.LogCaptureFixture) -> None:
    world = World(3)
    world.run(8.0)
    lost, _ = leader_and_others(world)
    epoch = lost.driver.raft.state.epoch
    said.clear()
    lost.kill()
    world.loop.run_until(world.loop.time() + 8.0, lambda: world.active() is not None)
    world.loop.run_until(world.loop.time() + 1.0)
    found, _ = leader_and_others(world)
    after = found.driver.raft.state.epoch
    (follower,) = (node for node in world.nodes.values() if node not in (lost, found))
    logged = transitions(said)
    doubt = (f"prospective(epoch={epoch})", f"follower(epoch={epoch}, leader={lost.node_id})")
    assert (found.node_id, *doubt) in logged
    assert (found.node_id, f"leader(epoch={after})", f"candidate(epoch={after})") in logged
    assert [became for node, became, _ in logged if node == follower.node_id][-1] == (
        f"follower(epoch={after}, leader={found.node_id})"
    )


def test_a_stable_cluster_says_nothing(said: pytest.LogCaptureFixture) -> None:
    world = World(1, observers=1)
    world.run(8.0)
    world.calm()
    said.clear()
    world.run(60.0)
    assert world.submitted > 500
    assert [record.getMessage() for record in said.records if record.name.startswith("ottla")] == []


def test_a_node_alone_says_nothing_of_its_elections(setup: Any, said: pytest.LogCaptureFixture) -> None:
    setup.started().close()
    setup.started().close()
    assert said.messages == []


def test_voters_are_logged_once_per_node(said: pytest.LogCaptureFixture) -> None:
    world = World(16, voters=1, observers=1, auto_join=True)
    world.run(20.0)
    logged = [message for message in said.messages if " has voters " in message]
    names = [", ".join(_name(voter_of(node_id)) for node_id in range(1, count + 1)) for count in (1, 2)]
    for node_id in (1, 2):
        own = [message for message in logged if message.startswith(f"node {node_id} has voters ")]
        assert [message.split(" has voters ")[1].split(" as of offset ")[0] for message in own] == names


def _name(voter: Any) -> str:
    _, host, port = voter.endpoints[0]
    return f"{voter.voter_id}@{host}:{port}:{uuid_to_string(voter.directory_id)}"


@pytest.mark.parametrize("pre_vote", [False, True])
def test_rejected_vote_is_logged_with_its_reason(said: pytest.LogCaptureFixture, *, pre_vote: bool) -> None:
    world = World(3)
    world.run(8.0)
    leader, (asked, other) = leader_and_others(world)
    epoch = leader.driver.raft.state.epoch
    said.clear()
    assert not ask_for_vote(asked, other.node_id, epoch - 1, pre_vote=pre_vote)
    assert not ask_for_vote(asked, other.node_id, epoch + 1, pre_vote=pre_vote)
    kind = f"{'pre-vote' if pre_vote else 'vote'} request of node {other.node_id} with epoch"
    assert said.messages == [
        f"{kind} {epoch - 1} is rejected: FENCED_LEADER_EPOCH",
        f"{kind} {epoch + 1} is rejected",
    ]


class Refusing(ServiceDispatcher):
    """A controller that rejects all other nodes, such as one without loaded ACLs."""

    def __init__(self, driver: QuorumDriver, code: ErrorCode) -> None:
        def refuse(*_: object) -> None:
            raise KafkaError(code)

        super().__init__(driver)
        self._now = dict.fromkeys(self._now, refuse)
        self._later = dict.fromkeys(self._later, refuse)


def refuse_all(world: World, node: Node, code: ErrorCode) -> None:
    assert node.process is not None
    assert node.driver is not None
    refusing = ListeningProcess(node.process, Refusing(node.driver, code), ListenerInfo("CONTROLLER", "PLAINTEXT"))
    world.network.listen((node.host, PORT), refusing)


def warnings_of(said: pytest.LogCaptureFixture) -> set[str]:
    return {record.getMessage() for record in said.records if record.levelno == logging.WARNING}


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "super.users"),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster"),
    ],
)
def test_voter_that_rejects_all_requests_is_logged_with_a_hint(
    said: pytest.LogCaptureFixture, code: ErrorCode, hint: str
) -> None:
    world = World(3)
    for node in world.nodes.values():
        refuse_all(world, node, code)
    world.run(8.0)
    assert world.active() is None
    warnings = warnings_of(said)
    assert len(warnings) == 3, "each node is named"
    assert all(code.name in warning and hint in warning for warning in warnings)


def test_controller_of_another_cluster_is_logged_by_a_broker(said: pytest.LogCaptureFixture) -> None:
    world = World(3, voters=1, observers=1)
    voter, broker = world.nodes.values()
    broker.kill()  # it is connected already
    refuse_all(world, voter, ErrorCode.INCONSISTENT_CLUSTER_ID)
    broker.start()
    world.run(8.0)
    (warning,) = warnings_of(said)
    assert f"controller {voter.host}:{PORT} rejects" in warning


def test_state_that_the_disk_refuses_is_not_logged(said: pytest.LogCaptureFixture) -> None:
    world = World(4)
    world.run(8.0)
    leader, others = leader_and_others(world)
    epoch = leader.driver.raft.state.epoch
    for node in others:
        node.disk.full = node.was_full = True
    said.clear()
    leader.kill()
    world.loop.run_until(world.loop.time() + 10.0)
    (stood,) = (node for node in others if node.process is None)
    (asked,) = (node for node in others if node.process is not None)
    with pytest.raises(KafkaError, match="no space left"):
        ask_for_vote(asked, stood.node_id, epoch + 1)
    logged = {became for _, became, _ in transitions(said)}
    assert logged == {f"prospective(epoch={epoch})", f"follower(epoch={epoch}, leader={leader.node_id})"}
    assert not [message for message in said.messages if message.startswith("vote request")]


def test_a_node_that_can_win_no_election_says_little(said: pytest.LogCaptureFixture) -> None:
    world = World(5)
    world.run(8.0)
    leader, (lone, other) = leader_and_others(world)
    for node in (leader, other):
        world.network.block(lone.host, node.host)
        world.network.block(node.host, lone.host)
    said.clear()
    world.run(120.0)
    lines = len(said.messages)
    assert 10 < lines < 120, "less than one in a second"


def test_constant_vote_requests_do_not_fill_the_log(said: pytest.LogCaptureFixture) -> None:
    world = World(7)
    world.run(8.0)
    leader, (asked, other) = leader_and_others(world)
    leader.kill()
    other.kill()
    world.loop.run_until(world.loop.time() + 10.0)
    said.clear()
    asks = 300
    for _ in range(asks):
        epoch = asked.driver.raft.state.epoch
        assert ask_for_vote(asked, other.node_id, epoch + 1)
        ask_for_vote(asked, other.node_id, epoch - 1)
    limiter = RateLimiter(lambda: 0.0)
    assert len(said.records) >= 3 * asks, "granted, rejected, and the newer epoch"
    assert sum(limiter.filter(record) for record in said.records) == 3 * BURST
