"""Session on one part of the tree: everything below the path at the end of `zookeeper.connect`.

A client with permission creates that path (`make_root`); without it no znode is found or can be created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.errors import KafkaError, OperatorError
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Create, Operation, Znode
from ottla.protocol.znodes.session import Code, Done, SessionListener, Watch, ZooKeeperError, ZooKeeperSession


def split_connect(text: str) -> tuple[str, str]:
    """Return the servers, and the root path ("" for the whole tree). Raises OperatorError for an invalid path."""
    servers, slash, rest = text.partition("/")
    root = ""
    for step in rest.strip("/").split("/") if slash and rest.strip("/") else ():
        try:
            root = paths.child(root, step)
        except KafkaError as error:
            raise OperatorError(
                f"zookeeper.connect {text!r} ends in an invalid ZooKeeper path: use one like /kafka, or omit it"
            ) from error
    return servers, root


class RootedSession:
    """`session` below `root`. Implements `ZooKeeperSession`; all methods run on the loop."""

    __slots__ = ("_root", "_session")

    def __init__(self, session: ZooKeeperSession, root: str) -> None:
        """`root` as returned by `split_connect`; `session` is not started yet."""
        self._session = session
        self._root = root

    @property
    def trouble(self) -> str:
        """See `ZooKeeperSession`."""
        return self._session.trouble

    def make_root(self, done: Callable[[ZooKeeperError | None], None]) -> None:
        """Create the missing parts of the path, concurrently with other clients; calls `done(None)` once it exists."""
        waiting = [*paths.parents(self._root), self._root] if self._root else []

        def seen(node: Znode | None, error: ZooKeeperError | None) -> None:
            if error is not None and error.code is not Code.NO_AUTH:
                done(error)
            elif error is not None or node is not None:  # exists, or is not readable for this client
                created(None, None)
            else:
                self._session.multi([Create(waiting[0], b"")], created)

        def created(_paths: list[str] | None, error: ZooKeeperError | None) -> None:
            if error is not None and error.code is not Code.NODE_EXISTS:
                done(error)
                return
            del waiting[:1]
            look()

        def look() -> None:
            if waiting:
                self._session.get(waiting[0], seen)
            else:
                done(None)

        look()

    def start(self, listener: SessionListener) -> None:
        """See `ZooKeeperSession`."""
        self._session.start(listener)

    def get(self, path: str, done: Done[Znode], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""
        self._session.get(self._root + path, done, watch)

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""
        self._session.children(self._root + path, done, watch)

    def multi(self, operations: Sequence[Operation], done: Done[list[str]]) -> None:
        """See `ZooKeeperSession`."""
        rooted = [each._replace(path=self._root + each.path) for each in operations]
        cut = len(self._root)
        self._session.multi(
            rooted, lambda made, error: done(None if made is None else [path[cut:] for path in made], error)
        )

    def close(self, done: Callable[[], None]) -> None:
        """See `ZooKeeperSession`."""
        self._session.close(done)
