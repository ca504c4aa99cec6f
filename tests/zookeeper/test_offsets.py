"""OffsetCommit 0 and OffsetFetch 0 on ZooKeeper: offsets are in its tree, next to other writers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.server.harness import Connection

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Create, Delete, SetData, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError
from ottla.zookeeper.offsets import ATTEMPTS, MAX_CALLS, ConsumerOffsets

from .brokers import Machines, World

NONE, UNKNOWN = (int(each) for each in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
LOST = int(ErrorCode.UNKNOWN_SERVER_ERROR)
PARTITIONS = 3


def commit(
    client: Connection, *offsets: int, group: str = "g", topic: str = "t", metadata: str | None = "m", version: int = 0
) -> list[int]:
    """Of the first partitions; the codes."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata=metadata)
        for number, offset in enumerate(offsets)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    response = client.ask(OffsetCommitRequest(group_id=group, topics=topics), version)
    assert [each.partition_index for each in response.topics[0].partitions] == list(range(len(offsets)))
    return [each.error_code for each in response.topics[0].partitions]


def fetch(
    client: Connection, *numbers: int, group: str = "g", topic: str = "t", version: int = 0
) -> list[tuple[int, int]]:
    """Offsets with codes."""
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(numbers))]
    response = client.ask(OffsetFetchRequest(group_id=group, topics=topics), version)
    assert [each.partition_index for each in response.topics[0].partitions] == list(numbers)
    return [(each.committed_offset, each.error_code) for each in response.topics[0].partitions]


def path(number: int) -> str:
    return paths.consumer_offset("g", "t", number)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Connection:
    connection = Machines(world).up().connect()
    connection.create_topic("t", PARTITIONS)
    return connection


def test_they_lie_in_the_tree(world: World, client: Connection) -> None:
    assert fetch(client, 0, 1) == [(-1, UNKNOWN), (-1, UNKNOWN)]
    assert commit(client, 7, 2**62) == [NONE, NONE]
    assert [world.server.tree()[path(number)].data for number in (0, 1)] == [b"7", b"4611686018427387904"]
    assert fetch(client, 1, 0, 2) == [(2**62, NONE), (7, NONE), (-1, UNKNOWN)]
    world.write(SetData(path(0), b"5"), Delete(path(1)))
    assert fetch(client, 0, 1) == [(5, NONE), (-1, UNKNOWN)]
    assert commit(client, 6, 1) == [NONE, NONE]
    assert fetch(client, 0, 1) == [(6, NONE), (1, NONE)]
    assert fetch(client, 0, group="other") == [(-1, UNKNOWN)]


def test_the_group_has_others(world: World, client: Connection) -> None:
    assert commit(client, 7) == [NONE]
    client.ask(FindCoordinatorRequest(key="g"), 0)  # creates their topic
    world.until(lambda: commit(client, 9, version=1) == [NONE])
    assert fetch(client, 0, version=1) == [(9, NONE)]
    assert fetch(client, 0) == [(7, NONE)]
    node = world.node(path(0))
    assert node is not None
    assert node.data == b"7"


def test_what_can_not_be_is_refused_and_the_rest_is_done(world: World, client: Connection) -> None:
    assert commit(client, 1, -1, 3, 4) == [NONE, int(ErrorCode.OFFSET_OUT_OF_RANGE), NONE, UNKNOWN]
    assert commit(client, 1, topic="none") == [UNKNOWN]
    assert commit(client, 9, metadata="m" * 4097) == [int(ErrorCode.OFFSET_METADATA_TOO_LARGE)]
    assert fetch(client, 0, 1, 2, 3) == [(1, NONE), (-1, UNKNOWN), (3, NONE), (-1, UNKNOWN)]
    assert fetch(client, 0, topic="none") == [(-1, UNKNOWN)]
    for group in ("..", "a/b", ""):
        assert commit(client, 1, group=group) == [int(ErrorCode.INVALID_REQUEST)]
        assert fetch(client, 0, group=group) == [(-1, int(ErrorCode.INVALID_REQUEST))]
    world.write(SetData(path(0), b"seven"))
    assert fetch(client, 0, 2) == [(-1, LOST), (3, NONE)]
    assert sorted(each for each in world.server.tree() if each.startswith("/consumers/")) == [
        "/consumers/g",
        "/consumers/g/offsets",
        "/consumers/g/offsets/t",
        path(0),
        path(2),
    ]


def test_without_a_connection_they_are_answered_at_once(world: World, client: Connection) -> None:
    session = client.server.session  # type: ignore[attr-defined]
    session.cut()
    assert commit(client, 7) == [LOST]
    assert fetch(client, 0) == [(-1, LOST)]
    world.until(lambda: commit(client, 8) == [NONE])
    assert fetch(client, 0) == [(8, NONE)]


def test_unauthorized_client_sees_and_changes_nothing(world: World) -> None:
    settings = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    life = Machines(world).begin(**settings)
    life.serves()
    client = life.connect()
    denied = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert commit(client, 7) == [denied]
    assert world.node(path(0)) is None
    assert client.ask(OffsetFetchRequest(group_id="g", topics=[]), 0).topics == []
    assert fetch(client, 0) == [(-1, denied)]


class Slow:
    """A ZooKeeper that answers on demand."""

    def __init__(self) -> None:
        self.tree: dict[str, bytes] = {}
        self.calls: deque[Callable[[], None]] = deque()
        self.gone_again: set[str] = set()

    def get(self, path: str, done: Callable[[Any, Any], None], watch: object = None) -> None:
        found = self.tree.get(path)
        self.calls.append(lambda: done(None if found is None else Znode(found, 0, 1), None))

    def multi(self, operations: Any, done: Callable[[Any, Any], None]) -> None:
        (operation,) = operations
        self.calls.append(lambda: done([""], self._refusal(operation)))

    def _refusal(self, operation: Any) -> ZooKeeperError | None:
        there = operation.path in self.tree
        if isinstance(operation, Create):
            if operation.path in self.gone_again or there:
                return ZooKeeperError(Code.NODE_EXISTS, operation.path)
        elif not there:
            return ZooKeeperError(Code.NO_NODE, operation.path)
        self.tree[operation.path] = operation.data
        return None

    def answer(self) -> int:
        """Execute pending calls; returns their number."""
        count = len(self.calls)
        for _ in range(count):
            self.calls.popleft()()
        return count


def test_calls_are_limited_and_small_requests_are_not_delayed() -> None:
    server, responses = Slow(), []
    offsets = ConsumerOffsets(server)  # type: ignore[arg-type]
    offsets.commit("large", {("t", number): number for number in range(1000)}, responses.append)
    offsets.commit("small", {("t", 0): 1}, responses.append)
    rounds = [server.answer()]
    while rounds[-1]:
        rounds.append(server.answer())
    assert max(rounds) == MAX_CALLS
    assert [len(codes) for codes in responses] == [1, 1000]
    assert {code for codes in responses for code in codes.values()} == {ErrorCode.NONE}
    read: list[object] = []
    offsets.fetch("large", [("t", 999), ("t", 999)], read.append)
    server.answer()
    assert read == [{("t", 999): 999}]


def test_a_znode_that_comes_and_goes_ends_a_write() -> None:
    server, responses = Slow(), []
    server.gone_again.add(path(0))
    offsets = ConsumerOffsets(server)  # type: ignore[arg-type]
    offsets.commit("g", {("t", 0): 1}, responses.append)
    assert [server.answer() for _ in range(2 * ATTEMPTS + 1)] == [1] * 2 * ATTEMPTS + [0]
    assert responses == [{("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}]
