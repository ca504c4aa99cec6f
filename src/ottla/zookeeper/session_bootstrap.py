"""First step of a broker on ZooKeeper: read or create the cluster id (`/cluster/id`) before it joins.

A data directory belongs to one cluster, so the id is read before the directory is opened, and the directory is opened
before anything is claimed or written. Both use one session, which is first used here, and then by other components.

The path at the end of `zookeeper.connect` is created by the first broker without data, as in Apache Kafka.

Invariant: a broker with data of a cluster neither writes that id to a tree without one nor joins another cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.errors import OperatorError, ProtocolError
from ottla.common.platform.clock import Scheduler, TimerHandle
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_cluster_id, encode_cluster_id
from ottla.protocol.znodes.operations import Create, Operation, Znode
from ottla.protocol.znodes.rooted import RootedSession
from ottla.protocol.znodes.session import Code, Done, SessionListener, Watch, ZooKeeperError, ZooKeeperSession

EnterDone = Callable[[str | None, BaseException | None], None]
"""Called once, with the id of the cluster or OperatorError."""


class SessionBootstrap:
    """One node's session: `enter` starts it, `start` hands it to listeners. Implements `ZooKeeperSession` and
    `SessionListener`.

    All methods run on the loop.
    """

    __slots__ = (
        "_done",
        "_listeners",
        "_new_id",
        "_owned_by",
        "_scheduler",
        "_session",
        "_session_id",
        "_timer",
    )

    def __init__(self, session: ZooKeeperSession, root: str, scheduler: Scheduler) -> None:
        """`session` is not started yet; all paths are below `root`, which is "" for the whole tree."""
        self._session = RootedSession(session, root)
        self._scheduler = scheduler
        self._session_id = 0
        self._listeners: list[SessionListener] = []
        self._done: EnterDone | None = None
        self._timer: TimerHandle | None = None
        self._new_id: Callable[[], str] = str
        self._owned_by: str | None = None

    def enter(self, owned_by: str | None, new_id: Callable[[], str], timeout_s: float, done: EnterDone) -> None:
        """Connect and read the cluster id; the first broker creates it.

        `owned_by` is the cluster that this broker's data belongs to, if any. OperatorError if the tree has another id
        or none, if `/cluster/id` is invalid, and if no server responds within `timeout_s`.
        """
        self._owned_by = owned_by
        self._new_id = new_id
        self._done = done
        self._timer = self._scheduler.call_later(timeout_s, self._waited)
        self._session.start(self)

    # -- the session -----------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """See `ZooKeeperSession`."""
        return self._session.trouble

    def start(self, listener: SessionListener) -> None:
        """See `ZooKeeperSession`; after `enter` succeeded. Listeners are called in the order of registration."""
        self._listeners.append(listener)
        self._scheduler.call_soon(self._introduce, listener)

    def _introduce(self, listener: SessionListener) -> None:
        if listener in self._listeners and self._session_id:
            listener.on_connected(self._session_id)

    def get(self, path: str, done: Done[Znode], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""
        self._session.get(path, done, watch)

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""
        self._session.children(path, done, watch)

    def multi(self, operations: Sequence[Operation], done: Done[list[str]]) -> None:
        """See `ZooKeeperSession`."""
        self._session.multi(operations, done)

    def close(self, done: Callable[[], None]) -> None:
        """See `ZooKeeperSession`."""
        self._listeners.clear()
        self._answer(None, None)
        self._session.close(done)

    def on_connected(self, session: int) -> None:
        """See `SessionListener`."""
        self._session_id = session
        for listener in self._listeners:
            listener.on_connected(session)
        if self._done is not None:
            self._look()

    def on_disconnected(self) -> None:
        """See `SessionListener`."""
        self._session_id = 0
        for listener in self._listeners:
            listener.on_disconnected()

    def on_expired(self) -> None:
        """See `SessionListener`."""
        for listener in self._listeners:
            listener.on_expired()

    # -- the id ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._session.get(paths.CLUSTER_ID, self._seen)

    def _seen(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._failed(error)
        elif node is not None:
            self._known(node)
        elif self._owned_by is not None:
            self._refuse(
                f"zookeeper.connect names a tree without {paths.CLUSTER_ID}, and the data in log.dirs is of cluster "
                f"{self._owned_by}: connect to that cluster's ZooKeeper, or set log.dirs to an empty directory"
            )
        else:
            self._session.make_root(self._root_made)

    def _root_made(self, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._failed(error)
        else:
            self._session.multi([Create(paths.CLUSTER_FOLDER, b"")], self._folder_made)

    def _folder_made(self, _paths: list[str] | None, error: ZooKeeperError | None) -> None:
        if error is not None and error.code is not Code.NODE_EXISTS:
            self._failed(error)
        else:
            made = Create(paths.CLUSTER_ID, encode_cluster_id(self._new_id()))
            self._session.multi([made], self._made)

    def _made(self, _paths: list[str] | None, error: ZooKeeperError | None) -> None:
        if error is None or error.code is Code.NODE_EXISTS:
            self._look()  # its content is the truth, created by this session or another
        else:
            self._failed(error)

    def _known(self, node: Znode) -> None:
        try:
            cluster_id = decode_cluster_id(paths.CLUSTER_ID, node.data)
        except ProtocolError as error:
            self._refuse(f"the tree of zookeeper.connect is not a cluster: {error}; set it to the servers of a cluster")
            return
        if self._owned_by not in (None, cluster_id):
            self._refuse(
                f"zookeeper.connect names cluster {cluster_id}, and the data in log.dirs is of cluster "
                f"{self._owned_by}: connect to that cluster's ZooKeeper, or set log.dirs to another directory"
            )
            return
        self._answer(cluster_id, None)

    def _failed(self, error: ZooKeeperError) -> None:
        """A lost connection is restored by the session; the timeout continues."""
        if error.code is Code.NO_AUTH:
            self._refuse(
                f"ZooKeeper denies this broker access to the cluster's znodes ({error}): use the credentials of "
                "the other brokers (a Client section in the file of -Djava.security.auth.login.config, or "
                "zookeeper.ssl.*), or change the znodes' ACLs"
            )
        elif error.code not in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED):
            self._refuse(f"ZooKeeper rejected the read of the cluster id ({error}): check zookeeper.connect")

    def _waited(self) -> None:
        trouble = self._session.trouble
        self._refuse(
            f"no server of zookeeper.connect serves this broker ({trouble}): fix that, or set other servers"
            if trouble
            else "no server of zookeeper.connect responded within zookeeper.connection.timeout.ms: start ZooKeeper, "
            "or set the servers where it runs"
        )

    def _refuse(self, sentence: str) -> None:
        self._answer(None, OperatorError(sentence))

    def _answer(self, cluster_id: str | None, error: BaseException | None) -> None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if done is not None:
            done(cluster_id, error)
