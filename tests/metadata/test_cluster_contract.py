"""Life of a cluster, by the same requests on a quorum and on ZooKeeper: same answers, and same images on all nodes.

Each script runs twice: with a new controller after every other step, and with a restart of all nodes after the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.elections import PREFERRED, UNCLEAN
from ottla.metadata.image import NO_LEADER

from .cluster_requests import Requests, cluster_state
from .log_world import NODES, LogWorld, content
from .quorum_log_world import QuorumLogWorld
from .zookeeper_log_world import ZooKeeperLogWorld

OK = ErrorCode.NONE
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
UPGRADE, SAFE_DOWNGRADE = 1, 2

Script = Callable[[Requests], Iterator[object]]


def topics(requests: Requests) -> Iterator[object]:
    """Creation, growth and deletion."""
    yield requests.create("t", (4, 5, 6), (5, 6, 4), retention_ms="5"), OK
    yield requests.create("t", (4, 5, 6)), ErrorCode.TOPIC_ALREADY_EXISTS
    yield requests.create("placed", partitions=4, factor=2), OK
    yield requests.create("absent", (4, 99)), ErrorCode.INVALID_REPLICA_ASSIGNMENT
    yield requests.create("huge", partitions=1, factor=99), ErrorCode.INVALID_REPLICATION_FACTOR
    yield requests.grow("t", 4, (6, 4), (4, 5)), ErrorCode.INVALID_REPLICA_ASSIGNMENT
    yield requests.grow("t", 4, (6, 4, 5), (4, 5, 6)), OK
    yield requests.delete("t"), OK
    yield requests.delete("t"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    yield requests.create("t", (7,)), OK
    assert sorted(requests.image.topics) == ["placed", "t"]


def configs(requests: Requests) -> Iterator[object]:
    """Settings of topics, brokers and groups."""
    yield requests.create("t", (4, 5), retention_ms="5"), OK
    yield requests.configure(TOPIC, "t", retention_ms="7", cleanup_policy="compact"), OK
    yield requests.configure(TOPIC, "t", retention_ms=None), OK
    yield requests.configure(TOPIC, "t", cleanup_policy="no such policy"), ErrorCode.INVALID_CONFIG
    yield requests.configure(TOPIC, "never", retention_ms="7"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    yield requests.configure(BROKER, "", num_io_threads="3"), OK
    yield requests.configure(BROKER, "5", num_io_threads="4"), OK
    yield requests.configure(BROKER, "", num_io_threads=None), OK
    yield requests.configure(GROUP, "g", consumer_session_timeout_ms="50000"), OK
    assert dict(requests.image.topic_configs("t")) == {"cleanup.policy": "compact"}
    yield requests.delete("t"), OK
    assert not requests.image.topic_configs("t")


def reassignments(requests: Requests) -> Iterator[object]:
    """Reassignments that end, are replaced and are cancelled."""
    yield requests.create("t", (4, 5), (5, 4)), OK
    yield requests.reassign("t", 0, (6, 5)), OK
    assert requests.partition("t").adding_replicas == (6,)
    yield requests.in_sync("t", (4, 5, 6)), ErrorCode.NEW_LEADER_ELECTED
    assert (requests.partition("t").replicas, requests.partition("t").leader) == ((6, 5), 6)
    yield requests.reassign("t", 1, (6, 7)), OK
    yield requests.reassign("t", 1, None), OK
    assert requests.partition("t", 1).replicas == (5, 4)
    yield requests.reassign("t", 1, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    yield requests.reassign("t", 1, (5, 99)), ErrorCode.INVALID_REPLICA_ASSIGNMENT
    yield requests.reassign("t", 0, (4, 5)), OK
    yield requests.reassign("t", 0, (7, 5)), OK
    yield requests.leave(6), OK
    yield requests.in_sync("t", (5, 7)), OK
    assert requests.partition("t").replicas == (7, 5)


def isr(requests: Requests) -> Iterator[object]:
    """ISR changes, and the epochs that fence old leaders."""
    yield requests.create("t", (4, 5, 6)), OK
    yield requests.in_sync("t", (4, 6)), OK
    yield requests.in_sync("t", (4, 5, 6), age=1), ErrorCode.INVALID_UPDATE_VERSION
    yield requests.in_sync("t", (4, 5, 6), incarnation_age=1), ErrorCode.STALE_BROKER_EPOCH
    yield requests.in_sync("t", (5, 6)), ErrorCode.INVALID_REQUEST
    yield requests.in_sync("t", (4, 7)), ErrorCode.INVALID_REQUEST
    yield requests.leave(5), OK
    yield requests.in_sync("t", (4, 5, 6)), ErrorCode.INELIGIBLE_REPLICA
    yield requests.join(5), OK
    yield requests.in_sync("t", (4, 5, 6)), OK
    assert requests.partition("t").isr == (4, 5, 6)


def elections(requests: Requests) -> Iterator[object]:
    """Leaders after the loss and the return of brokers, by request, and unclean."""
    yield requests.create("t", (4, 5, 6)), OK
    yield requests.elect(PREFERRED, "t"), ErrorCode.ELECTION_NOT_NEEDED
    yield requests.leave(4), OK
    assert requests.partition("t").leader == 5
    yield requests.elect(PREFERRED, "t"), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    yield requests.join(4), OK
    yield requests.elect(PREFERRED, "t"), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    yield requests.in_sync("t", (4, 5, 6)), OK
    yield requests.elect(PREFERRED, "t"), OK
    assert requests.partition("t").leader == 4
    yield requests.in_sync("t", (4,)), OK
    yield requests.leave(4), OK
    assert (requests.partition("t").leader, requests.partition("t").isr) == (NO_LEADER, (4,))
    yield requests.elect(UNCLEAN, "t"), OK
    assert (requests.partition("t").leader, requests.partition("t").leader_recovery_state) == (5, 1)
    yield requests.elect(UNCLEAN, "t"), ErrorCode.ELECTION_NOT_NEEDED


def losses(requests: Requests) -> Iterator[object]:
    """Brokers that die, one after the other and together, and return."""
    yield requests.create("t", (4, 5, 6), (5, 6, 4), (6, 4, 5)), OK
    yield requests.create("alone", (5,)), OK
    yield requests.leave(5), OK
    assert [requests.partition("t", index).leader for index in range(3)] == [4, 6, 6]
    yield requests.leave(6), OK
    yield requests.join(6, 5), OK
    assert requests.partition("alone").leader == 5
    yield requests.leave(4, 7), OK
    assert requests.partition("t").leader == NO_LEADER
    yield requests.create("v", partitions=3, factor=2), OK
    yield requests.join(4), OK
    assert [requests.partition("t", index).leader for index in range(3)] == [4, 4, 4]


def shutdowns(requests: Requests) -> Iterator[object]:
    """Brokers that stop: their leaderships move first."""
    yield requests.create("t", (4, 5, 6), (5, 6, 4)), OK
    yield requests.shut_down(4), OK
    assert requests.partition("t").leader == 5
    assert 4 not in requests.partition("t").isr
    yield requests.join(4), OK
    yield requests.in_sync("t", (4, 5, 6)), OK
    yield requests.shut_down(5), OK
    yield requests.join(5), OK


def principals(requests: Requests) -> Iterator[object]:
    """Quotas, credentials, ACLs and delegation tokens."""
    yield requests.quota("user", "ann", "producer_byte_rate", 1024.0), OK
    yield requests.quota("client-id", None, "request_percentage", 7.5), OK
    yield requests.quota("user", "ann", "no such quota", 1.0), ErrorCode.INVALID_REQUEST
    yield requests.quota("user", "ann", "producer_byte_rate", None), OK
    yield requests.credential("ann", b"salt"), OK
    yield requests.credential("bob", b"salt", 2), OK
    yield requests.credential("ann", None), OK
    yield requests.credential("ann", None), ErrorCode.RESOURCE_NOT_FOUND
    yield requests.allow("User:ann", "t"), OK
    yield requests.allow("User:bob", "t"), OK
    yield requests.forbid("User:ann"), 1
    yield requests.issue_token("User:ann"), OK
    yield requests.issue_token("User:bob"), OK
    yield requests.expire_token("User:bob"), OK
    image = requests.image
    assert (len(image.acls), len(image.scram_credentials), len(image.delegation_tokens)) == (1, 1, 1)


def numbers(requests: Requests) -> Iterator[object]:
    """Blocks of producer ids, and levels of features."""
    yield requests.producer_ids(4), 0
    yield requests.producer_ids(5), 1000
    yield requests.finalize("transaction.version", 1, SAFE_DOWNGRADE), OK
    yield requests.finalize("transaction.version", 2, UPGRADE), OK
    yield requests.finalize("transaction.version", 99, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION
    yield requests.producer_ids(4), 2000


def failover(world: LogWorld) -> None:
    """The controller dies, and returns as a follower."""
    killed = world.settled()
    world.kill(killed.node_id)
    assert world.settled() is not killed
    world.start(killed.node_id)


def restart(world: LogWorld) -> None:
    """All nodes die: only logs and the tree remain."""
    for node_id in NODES:
        world.kill(node_id)
    world.start(*NODES)


def state_of(world: LogWorld) -> dict[str, object]:
    """The state that all nodes agree on."""
    world.together()
    world.run(0.5)  # elections that follow a change
    active = world.together()
    for member in world.running:
        assert content(member.image) == content(active.image)
    return cluster_state(active.image)


@pytest.mark.parametrize(("disturb", "parity"), [(failover, 0), (restart, 1)], ids=["failover", "restart"])
@pytest.mark.parametrize(
    "script", [topics, configs, reassignments, isr, elections, losses, shutdowns, principals, numbers]
)
def test_requests_have_the_same_effect_on_both(
    script: Script, disturb: Callable[[LogWorld], None], parity: int
) -> None:
    worlds: list[LogWorld] = [QuorumLogWorld(), ZooKeeperLogWorld()]
    for world in worlds:
        world.together()
    for number, steps in enumerate(zip(*(script(Requests(world)) for world in worlds), strict=True)):
        for answer, expected in steps:
            assert answer == expected, f"step {number}"
        on_quorum, on_zookeeper = map(state_of, worlds)
        assert on_quorum == on_zookeeper, f"after step {number}"
        if number % 2 == parity:
            for world in worlds:
                disturb(world)
                assert state_of(world) == on_quorum, f"after step {number}"
