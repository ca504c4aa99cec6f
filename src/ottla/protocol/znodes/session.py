"""Interface of one node's ZooKeeper session; `client/` has a real one, `sim/` a simulated one.

- Responses arrive in the order of calls, and never before the call returns. Watches are not ordered with them: the
  state at a notification may be older or newer than the next response, so listeners read again.
- A call that fails with `CONNECTION_LOSS` or `SESSION_EXPIRED` may have been executed, may still be, or never is. Only
  a later read shows it: the owner of an ephemeral znode, a version. So every write checks a value
  that other writers change (`controller_election`, `batches`).
- When the connection is lost, all pending calls are answered, watches are dropped, and the listener is notified, in
  this order. Then the session reconnects, or it has expired and a new one starts automatically.

Left out: access rights of znodes, authentication, TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from ottla.protocol.znodes.operations import Operation, Znode

T = TypeVar("T")


class Code(Enum):
    """Error codes of calls, with the names of ZooKeeper's client."""

    NO_NODE = "NoNode"
    NODE_EXISTS = "NodeExists"
    BAD_VERSION = "BadVersion"
    NOT_EMPTY = "NotEmpty"
    NO_CHILDREN_FOR_EPHEMERALS = "NoChildrenForEphemerals"
    BAD_ARGUMENTS = "BadArguments"
    NO_AUTH = "NoAuth"
    SESSION_EXPIRED = "SessionExpired"
    CONNECTION_LOSS = "ConnectionLoss"
    OTHER = "SystemError"
    """Any other error; the outcome of the call is unknown."""


class ZooKeeperError(Exception):
    """A failed call. `position` is the failed operation of a multi(), none of which was executed."""

    def __init__(self, code: Code, path: str, position: int = 0) -> None:
        super().__init__(f"{code.value} for {path}")
        self.code = code
        self.position = position


class EventType(Enum):
    """Event types of a watch."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA_CHANGED = "NodeDataChanged"
    CHILDREN_CHANGED = "NodeChildrenChanged"
    EXPIRED = "SessionExpired"


class Event(NamedTuple):
    """A watch notification."""

    type: EventType
    path: str


Done = Callable[[T | None, ZooKeeperError | None], None]
"""Called once with the result of a call: the response, or the error."""
Watch = Callable[[], None]
"""Called once when the watched data may have changed; not called for a lost connection."""


class SessionListener(Protocol):
    """Listener for the state of a session."""

    def on_connected(self, session: int) -> None:
        """Calls are accepted. `session` is the previous one, or a new one; it owns ephemeral znodes created from now
        on."""
        ...

    def on_disconnected(self) -> None:
        """No calls are accepted. The session and its ephemeral znodes may still exist."""
        ...

    def on_expired(self) -> None:
        """The session is over and its ephemeral znodes are deleted; called before the next `on_connected`, if at
        all."""
        ...


class ZooKeeperSession(Protocol):
    """Calls on a server, through the current session. A call without a session fails with CONNECTION_LOSS."""

    @property
    def trouble(self) -> str:
        """Reason for the last connection failure, for operators; "" if unknown."""
        ...

    def start(self, listener: SessionListener) -> None:
        """Connect, with unlimited retries."""
        ...

    def get(self, path: str, done: Done[Znode], watch: Watch | None = None) -> None:
        """Read a znode; the response None without an error means that it does not exist.

        The watch fires at its next change, deletion or creation.
        """
        ...

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        """List the children of a znode, unordered; the response None without an error means that it does not exist.

        The watch fires when a child is created or deleted, or the znode itself is deleted; a missing znode gets no
        watch.
        """
        ...

    def multi(self, operations: Sequence[Operation], done: Done[list[str]]) -> None:
        """Execute all operations as one transaction, or none; returns the created paths, "" for other operations."""
        ...

    def close(self, done: Callable[[], None]) -> None:
        """End the session, so that its ephemeral znodes are deleted at once; `done` when it is over and callbacks
        stop."""
        ...
