"""The first that a broker asks of ZooKeeper: which cluster this is (`/cluster/id`); only then does it take part in it.

A data directory belongs to one cluster, so the id has to be known before the directory is opened, and the directory
before anything is claimed or written. Both go by one session, which first this one follows, and then others.

The path at the end of `zookeeper.connect` is made by the first broker that comes without data, as in Apache Kafka.

Invariant: a broker whose data belongs to a cluster neither gives that id to a tree without one nor enters another.
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
"""Told once: the id of the cluster, or OperatorError."""


class SessionBootstrap:
    """One node's session: `enter` begins it, `start` hands it on. Implements `ZooKeeperSession` and `SessionListener`.

    All methods belong to the loop.
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
        """`session` is not started yet; all lies below `root`, which is "" for the whole tree."""
        self._session = RootedSession(session, root)
        self._scheduler = scheduler
        self._session_id = 0
        self._listeners: list[SessionListener] = []
        self._done: EnterDone | None = None
        self._timer: TimerHandle | None = None
        self._new_id: Callable[[], str] = str
        self._owned_by: str | None = None

    def enter(self, owned_by: str | None, new_id: Callable[[], str], timeout_s: float, done: EnterDone) -> None:
        """Connect, and find out which cluster this is, or give the id of a new one, the first broker's.

        `owned_by` is the cluster that this broker's data belongs to, if any. OperatorError where that is another one or
        the tree has none, where what lies there is no id, and where no server answers within `timeout_s`.
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
        """See `ZooKeeperSession`; after `enter` succeeded. There may be several, told in the order of their coming."""
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
                f"zookeeper.connect leads to a tree without {paths.CLUSTER_ID}, and the data in log.dirs is of cluster "
                f"{self._owned_by}: connect to that cluster's ZooKeeper, or name an empty directory"
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
            self._look()  # which is the truth, whoever made it
        else:
            self._failed(error)

    def _known(self, node: Znode) -> None:
        try:
            cluster_id = decode_cluster_id(paths.CLUSTER_ID, node.data)
        except ProtocolError as error:
            self._refuse(f"zookeeper.connect leads to what is no cluster: {error}; name the servers of another one")
            return
        if self._owned_by not in (None, cluster_id):
            self._refuse(
                f"zookeeper.connect leads to cluster {cluster_id}, and the data in log.dirs is of cluster "
                f"{self._owned_by}: connect to that cluster's ZooKeeper, or name another directory"
            )
            return
        self._answer(cluster_id, None)

    def _failed(self, error: ZooKeeperError) -> None:
        """A lost connection comes again, by itself; until then the time runs."""
        if error.code is Code.NO_AUTH:
            self._refuse(
                f"ZooKeeper gives this broker no right to read or make what it needs ({error}): give it the user of "
                "the others (a Client section in the file of -Djava.security.auth.login.config, or zookeeper.ssl.*), "
                "or change the ACLs there"
            )
        elif error.code not in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED):
            self._refuse(f"ZooKeeper refuses to say which cluster it keeps ({error}): see to zookeeper.connect")

    def _waited(self) -> None:
        trouble = self._session.trouble
        self._refuse(
            f"no server of zookeeper.connect serves this broker ({trouble}): see to that, or name other servers"
            if trouble
            else "no server of zookeeper.connect has answered within zookeeper.connection.timeout.ms: start ZooKeeper, "
            "or name the servers where it runs"
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
