"""One controller per epoch and one process per id, with any deaths, restarts and unknown outcomes of claims."""

from __future__ import annotations

import pytest
from simulation.zookeeper import SimZooKeeper

from ottla.common.errors import OperatorError, ProtocolError
from ottla.metadata.log import LeaderAndEpoch
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_controller
from ottla.protocol.znodes.migration import encode_migration
from ottla.protocol.znodes.operations import Check, Create, Operation, SetData, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError
from ottla.zookeeper.controller_election import (
    FIRST_EPOCH,
    ControllerTerm,
    QuorumTakeover,
    ZnodeOwnership,
    check_broker_id,
    claim_controller,
    standing,
    take_over,
)

TIMEOUT_MS = 6000


@pytest.fixture
def server() -> SimZooKeeper:
    server = SimZooKeeper()
    server.multi(server.connect(TIMEOUT_MS), [FIRST_EPOCH])
    return server


def claims(server: SimZooKeeper, broker_id: int) -> tuple[list[Operation], ControllerTerm]:
    return claim_controller(broker_id, 5, server.tree()[paths.CONTROLLER_EPOCH])


def refused(server: SimZooKeeper, session: int, operations: list[Operation]) -> Code:
    before = server.tree()
    with pytest.raises(ZooKeeperError) as failed:
        server.multi(session, operations)
    assert server.tree() == before
    return failed.value.code


def test_the_first_controller_has_epoch_1(server: SimZooKeeper) -> None:
    """As in Apache Kafka, where the znode then has version 1."""
    session = server.connect(TIMEOUT_MS)
    operations, reign = claims(server, 1)
    server.multi(session, operations)
    tree = server.tree()
    assert reign == (1, 1)
    assert tree[paths.CONTROLLER_EPOCH][:2] == (b"1", reign.epoch_version)
    assert tree[paths.CONTROLLER].data == b'{"version":2,"brokerid":1,"timestamp":"5","kraftControllerEpoch":-1}'
    assert standing(tree[paths.CONTROLLER], session) is ZnodeOwnership.MINE


def test_of_two_that_claim_at_once_one_is_the_controller(server: SimZooKeeper) -> None:
    first, second = server.connect(TIMEOUT_MS), server.connect(TIMEOUT_MS)
    both = [claims(server, 1)[0], claims(server, 2)[0]]
    server.multi(first, both[0])
    assert refused(server, second, both[1]) is Code.BAD_VERSION
    assert refused(server, second, claims(server, 2)[0]) is Code.NODE_EXISTS
    assert standing(server.tree()[paths.CONTROLLER], second) is ZnodeOwnership.TAKEN


def test_former_controller_can_not_write(server: SimZooKeeper) -> None:
    """Its session expired while it was paused, and it comes back with a new one."""
    old, new = server.connect(TIMEOUT_MS), server.connect(10 * TIMEOUT_MS)
    operations, reign = claims(server, 1)
    server.multi(old, operations)
    write: list[Operation] = [Check(paths.CONTROLLER_EPOCH, reign.epoch_version), Create("/written", b"")]
    assert old in server.advance(TIMEOUT_MS)
    assert standing(server.tree().get(paths.CONTROLLER), new) is ZnodeOwnership.FREE
    assert refused(server, old, write) is Code.SESSION_EXPIRED
    operations, following = claims(server, 2)
    server.multi(new, operations)
    assert following == (2, 2)
    assert refused(server, server.connect(TIMEOUT_MS), write) is Code.BAD_VERSION


def test_owner_of_the_znode_shows_the_outcome_of_a_claim(server: SimZooKeeper) -> None:
    """The response was lost; the znode was created by the broker, not at all, or by an earlier session."""
    session = server.connect(TIMEOUT_MS)
    operations, _ = claims(server, 1)
    assert standing(server.tree().get(paths.CONTROLLER), session) is ZnodeOwnership.FREE
    server.multi(session, operations)
    assert refused(server, session, operations) is Code.BAD_VERSION
    assert standing(server.tree()[paths.CONTROLLER], session) is ZnodeOwnership.MINE
    assert standing(server.tree()[paths.CONTROLLER], server.connect(TIMEOUT_MS)) is ZnodeOwnership.TAKEN


def take(server: SimZooKeeper, node_id: int, quorum_epoch: int) -> tuple[list[Operation], QuorumTakeover] | None:
    tree = server.tree()
    read = [tree.get(path) for path in (paths.CONTROLLER, paths.MIGRATION)]
    return take_over(LeaderAndEpoch(node_id, quorum_epoch), 5, read[0], tree[paths.CONTROLLER_EPOCH], read[1])


def test_quorum_takes_the_claim_from_its_owner(server: SimZooKeeper) -> None:
    """A broker's first, then that of an epoch of its own before; what that has written is known."""
    session = server.connect(TIMEOUT_MS)
    operations, reign = claims(server, 1)
    server.multi(session, operations)
    first = take(server, 101, 4)
    assert first is not None
    server.multi(server.connect(TIMEOUT_MS), first[0])
    assert refused(server, session, [Check(paths.CONTROLLER_EPOCH, reign.epoch_version)]) is Code.BAD_VERSION
    claim = server.tree()[paths.CONTROLLER]
    assert claim.owner == 0
    assert decode_controller("", claim.data)[::2] == (101, 4)
    wrote = first[1].progress._replace(metadata_offset=9, metadata_epoch=4)
    server.multi(session, [SetData(paths.MIGRATION, encode_migration(wrote), first[1].migration_version)])
    second = take(server, 102, 6)
    assert second is not None
    server.multi(session, second[0])
    assert second[1].term == ControllerTerm(first[1].term.controller_epoch + 1, first[1].term.epoch_version + 1)
    assert second[1].progress == (102, 6, 9, 4)
    assert server.tree()[paths.MIGRATION].version == second[1].migration_version


def test_an_epoch_of_a_quorum_leaves_a_later_one_the_claim(server: SimZooKeeper) -> None:
    made = take(server, 101, 5)
    assert made is not None
    server.multi(server.connect(TIMEOUT_MS), made[0])
    assert take(server, 102, 4) is None
    assert take(server, 101, 5) is not None


def test_invalid_epoch_fails_the_claim() -> None:
    with pytest.raises(ProtocolError, match="/controller_epoch"):
        claim_controller(1, 5, Znode(b"x", 0, 1))


def test_a_broker_that_was_killed_waits_for_its_old_session(server: SimZooKeeper) -> None:
    server.multi(server.connect(TIMEOUT_MS), [Create("/brokers", b""), Create(paths.BROKER_IDS, b"")])
    mine = Create(paths.broker(1), b"", ephemeral=True)
    killed, restarted = server.connect(TIMEOUT_MS), server.connect(10 * TIMEOUT_MS)
    server.multi(killed, [mine])
    assert refused(server, restarted, [mine]) is Code.NODE_EXISTS
    owner = server.tree()[paths.broker(1)].owner
    check_broker_id(1, (owner, owner), TIMEOUT_MS, TIMEOUT_MS)
    server.advance(TIMEOUT_MS)
    server.multi(restarted, [mine])
    assert standing(server.tree()[paths.broker(1)], restarted) is ZnodeOwnership.MINE


@pytest.mark.parametrize(("owners", "waited_ms"), [((7, 7), TIMEOUT_MS + 1), ((7, 8), 10)])
def test_a_second_broker_of_an_id_is_refused(owners: tuple[int, int], waited_ms: int) -> None:
    with pytest.raises(OperatorError, match=r"as broker 1; stop it, or give this one another broker\.id\.$"):
        check_broker_id(1, owners, waited_ms, TIMEOUT_MS)
