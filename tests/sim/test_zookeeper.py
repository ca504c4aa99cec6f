"""The simulated ZooKeeper behaves like a real one: sessions, versions, watches, and atomic multi()."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.zookeeper import SimZooKeeper

from ottla.protocol.znodes.operations import Check, Create, Delete, Operation, SetData
from ottla.protocol.znodes.session import Code, Event, EventType, ZooKeeperError


@pytest.fixture
def server() -> SimZooKeeper:
    return SimZooKeeper()


@pytest.fixture
def session(server: SimZooKeeper) -> int:
    return server.connect(6000)


def fails(server: SimZooKeeper, session: int, *operations: Operation) -> tuple[Code, int]:
    with pytest.raises(ZooKeeperError) as failed:
        server.multi(session, operations)
    return failed.value.code, failed.value.position


def test_a_znode_is_made_changed_and_removed(server: SimZooKeeper, session: int) -> None:
    server.multi(session, [Create("/a", b"1")])
    server.multi(session, [SetData("/a", b"2", 0)])
    data, stat = server.get(session, "/a")
    assert (data, stat.version, stat.czxid, stat.mzxid) == (b"2", 1, 1, 2)
    server.multi(session, [Delete("/a", 1)])
    assert server.exists(session, "/a") is None
    server.multi(session, [Create("/a", b"")])
    assert server.get(session, "/a")[1][:4] == (4, 4, 4, 0)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (Create("/a", b""), Code.NODE_EXISTS),
        (Create("/x/y", b""), Code.NO_NODE),
        (Create("/e/x", b""), Code.NO_CHILDREN_FOR_EPHEMERALS),
        (Create("/a/", b""), Code.BAD_ARGUMENTS),
        (Create("/a/..", b""), Code.BAD_ARGUMENTS),
        (SetData("/a", b"", 5), Code.BAD_VERSION),
        (SetData("/x", b""), Code.NO_NODE),
        (Delete("/a"), Code.NOT_EMPTY),
        (Delete("/a/b", 1), Code.BAD_VERSION),
        (Check("/a", 0), Code.BAD_VERSION),
        (Check("/x", 0), Code.NO_NODE),
        (Create("/large", bytes(2**20)), Code.CONNECTION_LOSS),
    ],
)
def test_what_fails_changes_nothing(server: SimZooKeeper, session: int, operation: Operation, code: Code) -> None:
    server.multi(session, [Create("/a", b""), Create("/a/b", b""), Create("/e", b"", ephemeral=True)])
    before, zxid = server.tree(), server.zxid
    assert fails(server, session, SetData("/a", b"changed"), Create("/new", b""), operation)[0] is code
    assert (server.tree(), server.zxid) == (before, zxid)
    assert server.events(session) == []


def test_the_failure_says_which_operation_it_was(server: SimZooKeeper, session: int) -> None:
    assert fails(server, session, Create("/a", b""), Create("/b", b""), Check("/a", 3)) == (Code.BAD_VERSION, 2)


def test_operations_of_a_multi_see_those_before(server: SimZooKeeper, session: int) -> None:
    server.multi(
        session,
        [
            Create("/a", b""),
            Create("/a/b", b""),
            SetData("/a/b", b"1", 0),
            Check("/a/b", 1),
            Create("/c", b""),
            Delete("/c"),
        ],
    )
    assert {path: node[:3] for path, node in server.tree().items()} == {"/a": (b"", 0, 1), "/a/b": (b"1", 1, 1)}


def test_sequential_znodes_are_numbered_by_what_was_ever_made(server: SimZooKeeper, session: int) -> None:
    server.multi(session, [Create("/q", b"")])
    notice = Create("/q/n_", b"", sequential=True)
    assert server.multi(session, [notice, notice]) == ["/q/n_0000000000", "/q/n_0000000001"]
    server.multi(session, [Delete("/q/n_0000000001"), Create("/q/other", b"")])
    assert server.multi(session, [notice]) == ["/q/n_0000000003"]
    assert server.exists(session, "/q").cversion == 5


class TestSessions:
    def test_ephemeral_znodes_are_removed_with_their_session(self, server: SimZooKeeper) -> None:
        mine, other = server.connect(1000), server.connect(5000)
        server.multi(mine, [Create("/ids", b""), Create("/ids/1", b"", ephemeral=True)])
        assert server.tree()["/ids/1"].owner == mine
        server.children(other, "/ids", watch=True)
        assert server.exists(other, "/ids/1", watch=True).ephemeral_owner == mine
        assert server.advance(999) == []
        assert server.advance(1000) == [mine]
        assert server.events(other) == [
            Event(EventType.DELETED, "/ids/1"),
            Event(EventType.CHILDREN_CHANGED, "/ids"),
        ]
        assert server.children(other, "/ids") == []
        assert server.events(mine) == [Event(EventType.EXPIRED, "")]
        assert fails(server, mine, SetData("/ids", b"")) == (Code.SESSION_EXPIRED, 0)

    def test_active_session_does_not_expire(self, server: SimZooKeeper) -> None:
        session = server.connect(1000)
        for now_ms in (900, 1800, 2700):
            assert server.advance(now_ms) == []
            server.ping(session)
        assert server.advance(3700) == [session]

    def test_a_session_that_is_closed_leaves_at_once(self, server: SimZooKeeper) -> None:
        session, other = server.connect(1000), server.connect(1000)
        server.multi(session, [Create("/controller", b"1", ephemeral=True)])
        assert fails(server, other, Create("/controller", b"2", ephemeral=True))[0] is Code.NODE_EXISTS
        server.close(session)
        server.multi(other, [Create("/controller", b"2", ephemeral=True)])
        assert server.tree()["/controller"].data == b"2"

    def test_removed_ephemeral_znode_is_not_removed_again(self, server: SimZooKeeper) -> None:
        session, other = server.connect(1000), server.connect(1000)
        server.multi(session, [Create("/c", b"", ephemeral=True)])
        server.multi(other, [Delete("/c"), Create("/c", b"")])
        server.close(session)
        assert "/c" in server.tree()


class TestWatches:
    def test_watch_fires_once(self, server: SimZooKeeper, session: int) -> None:
        server.multi(session, [Create("/a", b"")])
        server.get(session, "/a", watch=True)
        server.multi(session, [SetData("/a", b"1")])
        server.multi(session, [SetData("/a", b"2")])
        assert server.events(session) == [Event(EventType.DATA_CHANGED, "/a")]
        assert server.events(session) == []

    def test_one_that_waits_for_a_znode(self, server: SimZooKeeper, session: int) -> None:
        assert server.exists(session, "/a", watch=True) is None
        server.multi(session, [Create("/a", b"")])
        assert server.events(session) == [Event(EventType.CREATED, "/a")]

    def test_data_and_child_watches_are_independent(self, server: SimZooKeeper, session: int) -> None:
        server.multi(session, [Create("/a", b""), Create("/b", b"")])
        server.get(session, "/a", watch=True)
        server.children(session, "/b", watch=True)
        server.multi(session, [Create("/a/x", b""), SetData("/b", b"1")])
        assert server.events(session) == []

    def test_removal_of_a_znode_is_reported_once(self, server: SimZooKeeper, session: int) -> None:
        server.multi(session, [Create("/a", b"")])
        server.get(session, "/a", watch=True)
        server.children(session, "/a", watch=True)
        server.multi(session, [Delete("/a")])
        assert server.events(session) == [Event(EventType.DELETED, "/a")]


NAMES = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x"])
OPERATIONS = st.one_of(
    st.builds(Create, NAMES, st.binary(max_size=1), st.booleans()),
    st.builds(SetData, NAMES, st.binary(max_size=1), st.integers(-1, 2)),
    st.builds(Delete, NAMES, st.integers(-1, 2)),
    st.builds(Check, NAMES, st.integers(0, 2)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=12))
def test_a_multi_is_its_operations_one_by_one_or_nothing(calls: list[list[Operation]]) -> None:
    """The zxid aside, which a multi has one of."""
    server = SimZooKeeper()
    session = server.connect(1000)
    taken: list[Operation] = []
    for operations in calls:
        before = server.tree()
        model = SimZooKeeper()
        alone = model.connect(1000)
        for operation in taken:
            model.multi(alone, [operation])
        expected = first_failure(model, alone, operations)
        try:
            server.multi(session, operations)
        except ZooKeeperError as error:
            failed: tuple[Code, int] | None = (error.code, error.position)
        else:
            failed = None
            taken += operations
        assert failed == expected
        assert owned(server) == owned(model) if failed is None else server.tree() == before


def first_failure(server: SimZooKeeper, session: int, operations: list[Operation]) -> tuple[Code, int] | None:
    """Which of them fails when each is a call of its own, those before it done."""
    for position, operation in enumerate(operations):
        try:
            server.multi(session, [operation])
        except ZooKeeperError as error:
            return error.code, position
    return None


def owned(server: SimZooKeeper) -> dict[str, tuple[bytes, int, int]]:
    return {path: (node.data, node.version, node.owner) for path, node in server.tree().items()}
