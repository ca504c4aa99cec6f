"""Reads the whole tree, znode by znode, with limits on concurrent calls and total size.

The result is not a point in time. The reader is the controller after its claim: no other controller writes any more,
and watches report changes of brokers and tools meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.common.errors import ProtocolError
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Znode
from ottla.protocol.znodes.session import ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.reading import ROOTS

MAX_ASKED = 256
"""Concurrent calls: bounds the responses held by kazoo, the server and the loop."""
MAX_ZNODES = 4_000_000

ScanDone = Callable[[dict[str, Znode] | None, Exception | None], None]


class TreeScan:
    """One pass. `done` is called once, with every znode from `ROOTS` down by its path, or ZooKeeperError or
    ProtocolError.
    """

    __slots__ = ("_asked", "_done", "_found", "_session", "_waiting")

    def __init__(self, session: ZooKeeperSession, done: ScanDone) -> None:
        self._session = session
        self._done: ScanDone | None = done
        self._found: dict[str, Znode] = {}
        self._waiting = deque([paths.CONSUMERS, *ROOTS])
        self._asked = 0
        self._continue()

    def _continue(self) -> None:
        while self._waiting and self._asked < MAX_ASKED:
            path = self._waiting.popleft()
            self._asked += 1
            self._session.get(path, partial(self._read, path))
            if path != paths.CONSUMERS:
                self._asked += 1
                self._session.children(path, partial(self._listed, path))
        if not self._asked:
            self._end(self._found, None)

    def _end(self, found: dict[str, Znode] | None, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(found, error)

    def _read(self, path: str, node: Znode | None, error: ZooKeeperError | None) -> None:
        if not self._answered(error):
            return
        if node is not None:
            self._found[path] = node
        self._continue()

    def _listed(self, path: str, names: list[str] | None, error: ZooKeeperError | None) -> None:
        if not self._answered(error):
            return
        self._waiting += (f"{path}/{name}" for name in names or ())
        if len(self._found) + len(self._waiting) > MAX_ZNODES:
            self._end(None, ProtocolError(f"znode {path} and those before it are more than {MAX_ZNODES}"))
        else:
            self._continue()

    def _answered(self, error: ZooKeeperError | None) -> bool:
        """Process a response; returns whether the scan continues."""
        self._asked -= 1
        if error is not None:
            self._end(None, error)
        return self._done is not None
