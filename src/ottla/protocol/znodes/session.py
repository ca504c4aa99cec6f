"""One node's session on ZooKeeper, as what stands on it sees it; `client/` has a real one, `sim/` a simulated one.

- Answers come in the order of the calls, and never before the call returns. Watches have no order with them: what a
  watch told may be older or newer than the answer that comes next, so whoever is told reads again.
- A call that fails by `CONNECTION_LOSS` or `SESSION_EXPIRED` may have happened, may happen yet, or never does. Only
  what is read afterwards says so: the owner of an ephemeral znode, a version. What is written therefore checks
  something that other writers change (`claims`, `batches`).
- When the connection is lost, all that is under way is answered, watches are forgotten, and the listener is told, in
  this order. Then the same session comes back, or it has expired and another one begins, by itself.

Left out: access rights of znodes, authentication, TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from ottla.protocol.znodes.operations import Operation, Znode

T = TypeVar("T")


class Code(Enum):
    """Why a call fails, by the names of ZooKeeper's client."""

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
    """Any other; whether it happened is not known."""


class ZooKeeperError(Exception):
    """A call failed. `position` says which operation of a multi(), of which then none happened."""

    def __init__(self, code: Code, path: str, position: int = 0) -> None:
        super().__init__(f"{code.value} for {path}")
        self.code = code
        self.position = position


class EventType(Enum):
    """What a watch tells."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA_CHANGED = "NodeDataChanged"
    CHILDREN_CHANGED = "NodeChildrenChanged"
    EXPIRED = "SessionExpired"


class Event(NamedTuple):
    """One thing that a session is told."""

    type: EventType
    path: str


Done = Callable[[T | None, ZooKeeperError | None], None]
"""Told once how a call ended: the answer, or the error."""
Watch = Callable[[], None]
"""Told once that what was read has changed, or may have; of a lost connection nothing is told here."""


class SessionListener(Protocol):
    """Whom a session tells of itself."""

    def on_connected(self, session: int) -> None:
        """Calls are taken. `session` is that of before, or a new one; it owns the ephemeral znodes made from now on."""
        ...

    def on_disconnected(self) -> None:
        """No calls are taken. The session may live, and what it owns with it."""
        ...

    def on_expired(self) -> None:
        """The session is over, and what it owned is gone; comes before the next `on_connected`, if at all."""
        ...


class ZooKeeperSession(Protocol):
    """Calls on a server, by whichever session is there. A call while there is none fails by CONNECTION_LOSS."""

    @property
    def trouble(self) -> str:
        """Why it was not connected last, for who waits in vain; "" where that is not known."""
        ...

    def start(self, listener: SessionListener) -> None:
        """Connect, again and again until that succeeds."""
        ...

    def get(self, path: str, done: Done[Znode], watch: Watch | None = None) -> None:
        """Read a znode; the answer None without an error is that there is none.

        The watch tells of its next change, its end, or its coming.
        """
        ...

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        """Names below a znode, in no order; the answer None without an error is that there is no such znode.

        The watch tells when one comes or goes, or the znode itself goes; there is none on a znode that is not there.
        """
        ...

    def multi(self, operations: Sequence[Operation], done: Done[list[str]]) -> None:
        """All operations as one transaction, or none; the paths that came to be, "" where that means nothing."""
        ...

    def close(self, done: Callable[[], None]) -> None:
        """End the session, so that what it owns goes at once; `done` when it is over, and nothing is told any more."""
        ...
