"""Simulated ZooKeeper: sessions, znodes, versions, multi() and watches as one pure state machine.

It behaves as a real ensemble seen by one reader and writer, in transaction order: a zxid for each change, ephemeral
znodes that are removed with their session, watches that fire once. `advance` sets the time; a session that was silent
for its timeout expires.

Not included: stale reads from different servers, access rights, quotas, containers and TTL nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.protocol.znodes.operations import ANY_VERSION, Create, Delete, Operation, SetData, Znode
from ottla.protocol.znodes.session import Code, Event, EventType, ZooKeeperError

MAX_REQUEST_BYTES = 0xFFFFF
"""A server closes the connection of a client that sends more (`jute.maxbuffer`)."""


class Stat(NamedTuple):
    """Metadata of a znode."""

    czxid: int
    mzxid: int
    pzxid: int
    version: int
    cversion: int
    ephemeral_owner: int
    children_count: int


@dataclass(slots=True)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    owner: int = 0
    version: int = 0
    created_children: int = 0
    """Counter for sequential znodes; it never decreases."""
    children: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Session:
    timeout_ms: int
    heard_ms: int
    ephemerals: dict[str, None] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


class SimZooKeeper:
    """The ensemble. Sessions are numbers; a call on an expired one raises ZooKeeperError SESSION_EXPIRED."""

    def __init__(self) -> None:
        self.zxid = 0
        self._now_ms = 0
        self._nodes: dict[str, _Node] = {"": _Node(b"", 0, 0, 0)}
        self._sessions: dict[int, _Session] = {}
        self._next_session = 1
        self._data_watches: dict[str, dict[int, None]] = {}
        self._child_watches: dict[str, dict[int, None]] = {}

    # -- sessions --------------------------------------------------------------------------------------------------

    def connect(self, timeout_ms: int) -> int:
        """A new session."""
        session = self._next_session
        self._next_session += 1
        self._sessions[session] = _Session(timeout_ms, self._now_ms)
        return session

    def ping(self, session: int) -> None:
        """Keep the session alive; every other call on it does so too."""
        self._heard(session)

    def close(self, session: int) -> None:
        """The client ends its session; its ephemeral znodes are removed at once."""
        self._heard(session)
        self._end(session)

    def expire(self, session: int) -> None:
        """The server expires the session, as after a silence; does nothing for an expired one."""
        if session in self._sessions:
            self._end(session)

    def advance(self, now_ms: int) -> list[int]:
        """Set the time to `now_ms`; returns the sessions that expired. Their clients notice it at the next call."""
        self._now_ms = now_ms
        expired = [each for each, known in self._sessions.items() if known.heard_ms + known.timeout_ms <= now_ms]
        for session in expired:
            self._end(session)
        return expired

    def events(self, session: int) -> list[Event]:
        """Events of the session since the last call; for an expired session its expiration."""
        known = self._sessions.get(session)
        if known is None:
            return [Event(EventType.EXPIRED, "")]
        events, known.events = known.events, []
        return events

    def _heard(self, session: int) -> _Session:
        known = self._sessions.get(session)
        if known is None:
            raise ZooKeeperError(Code.SESSION_EXPIRED, "")
        known.heard_ms = self._now_ms
        return known

    def _end(self, session: int) -> None:
        ended = self._sessions.pop(session)
        for watches in (self._data_watches, self._child_watches):
            for watchers in watches.values():
                watchers.pop(session, None)
        if ended.ephemerals:
            self.zxid += 1
            for path in ended.ephemerals:
                self._remove(path)

    # -- reads -----------------------------------------------------------------------------------------------------

    def get(self, session: int, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        """Data of a znode; the watch reports its next change or removal. Raises ZooKeeperError NO_NODE."""
        self._heard(session)
        node = self._node(path)
        if watch:
            self._data_watches.setdefault(path, {})[session] = None
        return node.data, _stat(node)

    def exists(self, session: int, path: str, *, watch: bool = False) -> Stat | None:
        """Whether the znode exists; the watch also reports its creation."""
        self._heard(session)
        if watch:
            self._data_watches.setdefault(path, {})[session] = None
        node = self._nodes.get(path)
        return None if node is None else _stat(node)

    def children(self, session: int, path: str, *, watch: bool = False) -> list[str]:
        """Names below a znode; the watch reports a created or removed child. Raises ZooKeeperError NO_NODE."""
        self._heard(session)
        node = self._node(path)
        if watch:
            self._child_watches.setdefault(path, {})[session] = None
        return list(node.children)

    def tree(self) -> dict[str, Znode]:
        """Every znode by its path, as of the last transaction."""
        return {
            path: Znode(node.data, node.version, node.czxid, node.owner, node.mzxid)
            for path, node in self._nodes.items()
            if path
        }

    # -- writes ----------------------------------------------------------------------------------------------------

    def multi(self, session: int, operations: Sequence[Operation]) -> list[str]:
        """Apply all operations as one transaction, or none; returns the created paths, "" for other operations.

        Each sees the effects of those before it. Raises ZooKeeperError for the first that fails.
        """
        self._heard(session)
        size = sum(len(each.path) + len(getattr(each, "data", b"")) for each in operations)
        if size > MAX_REQUEST_BYTES:
            raise ZooKeeperError(Code.CONNECTION_LOSS, "")
        undo: list[tuple[str, _Node | None]] = []
        try:
            for position, operation in enumerate(operations):
                self._try(session, operation, position, undo)
        finally:
            # The attempt is undone in any case: the second pass, which can't fail, also fires the watches.
            for path, node in reversed(undo):
                if node is None:
                    self._unlink(path)
                else:
                    self._link(path, node)
        self.zxid += 1
        return [self._do(session, operation) for operation in operations]

    def _try(self, session: int, operation: Operation, position: int, undo: list[tuple[str, _Node | None]]) -> None:
        path = operation.path
        if isinstance(operation, Create):
            path = self._checked_create(operation, position)
            owner = session if operation.ephemeral else 0
            self._touched(path.rpartition("/")[0], undo).created_children += 1
            undo.append((path, None))
            self._link(path, _Node(operation.data, 0, 0, 0, owner))
            return
        node = self._nodes.get(path)
        if node is None or not path:
            raise ZooKeeperError(Code.NO_NODE, path, position)
        if operation.version not in (ANY_VERSION, node.version):
            raise ZooKeeperError(Code.BAD_VERSION, path, position)
        if isinstance(operation, SetData):
            self._touched(path, undo).version += 1
        elif isinstance(operation, Delete):
            if node.children:
                raise ZooKeeperError(Code.NOT_EMPTY, path, position)
            undo.append((path, node))
            self._unlink(path)

    def _touched(self, path: str, undo: list[tuple[str, _Node | None]]) -> _Node:
        """Replace the node by a copy, so that the original can be restored."""
        node = self._nodes[path]
        undo.append((path, node))
        self._nodes[path] = copy = replace(node)
        return copy

    def _checked_create(self, operation: Create, position: int) -> str:
        parent_path = operation.path.rpartition("/")[0]
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise ZooKeeperError(Code.NO_NODE, operation.path, position)
        if parent.owner:
            raise ZooKeeperError(Code.NO_CHILDREN_FOR_EPHEMERALS, operation.path, position)
        path = self._named(operation)
        name = path.rpartition("/")[2]
        if not path.startswith("/") or name in ("", ".", "..") or "\0" in name:
            raise ZooKeeperError(Code.BAD_ARGUMENTS, operation.path, position)
        if path in self._nodes:
            raise ZooKeeperError(Code.NODE_EXISTS, path, position)
        return path

    def _named(self, operation: Create) -> str:
        if not operation.sequential:
            return operation.path
        return f"{operation.path}{self._nodes[operation.path.rpartition('/')[0]].created_children:010d}"

    def _do(self, session: int, operation: Operation) -> str:
        path = operation.path
        if isinstance(operation, Create):
            path = self._named(operation)
            parent_path = path.rpartition("/")[0]
            parent = self._nodes[parent_path]
            parent.created_children += 1
            parent.pzxid = self.zxid
            owner = session if operation.ephemeral else 0
            self._link(path, _Node(operation.data, self.zxid, self.zxid, self.zxid, owner))
            if owner:
                self._sessions[session].ephemerals[path] = None
            self._fire(self._data_watches, path, EventType.CREATED)
            self._fire(self._child_watches, parent_path, EventType.CHILDREN_CHANGED)
            return path
        if isinstance(operation, SetData):
            node = self._nodes[path]
            node.data = operation.data
            node.version += 1
            node.mzxid = self.zxid
            self._fire(self._data_watches, path, EventType.DATA_CHANGED)
        elif isinstance(operation, Delete):
            owner = self._nodes[path].owner
            if owner in self._sessions:
                self._sessions[owner].ephemerals.pop(path, None)
            self._remove(path)
        return ""

    # -- the tree --------------------------------------------------------------------------------------------------

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise ZooKeeperError(Code.NO_NODE, path)
        return node

    def _link(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        if path:
            parent, _, name = path.rpartition("/")
            self._nodes[parent].children[name] = None

    def _unlink(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        del self._nodes[path]
        del self._nodes[parent].children[name]

    def _remove(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        self._unlink(path)
        self._nodes[parent].pzxid = self.zxid
        self._fire(self._data_watches, path, EventType.DELETED)
        self._fire(self._child_watches, path, EventType.DELETED)
        self._fire(self._child_watches, parent, EventType.CHILDREN_CHANGED)

    def _fire(self, watches: dict[str, dict[int, None]], path: str, kind: EventType) -> None:
        """Fire each watch once; a session that watches data and children of one znode gets its removal once."""
        event = Event(kind, path)
        for session in watches.pop(path, ()):
            events = self._sessions[session].events
            if kind is not EventType.DELETED or event not in events[-1:]:
                events.append(event)


def _stat(node: _Node) -> Stat:
    """`cversion` counts created and removed children, as in ZooKeeper."""
    changes = 2 * node.created_children - len(node.children)
    return Stat(node.czxid, node.mzxid, node.pzxid, node.version, changes, node.owner, len(node.children))
