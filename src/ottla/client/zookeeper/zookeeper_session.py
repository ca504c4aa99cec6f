"""A session on a real ZooKeeper, based on kazoo (the extra `zookeeper`).

kazoo has its own threads: its callbacks are forwarded to the loop, where everything else runs. Differences from
`ottla.protocol.znodes.session`:

- kazoo keeps calls that it cannot send, and sends them after a reconnect, perhaps in another session. A call is
  therefore failed when the loop learns that the connection is lost, and its later result is dropped: as with any lost
  response, the call may still be executed.
- `commit()` of a transaction returns errors as results; the failed operation is the one that was not rolled back.
- Only `exists` can set a watch on a missing znode, so it is sent before `get`. The server responds to a session in the
  order of its calls.
- Stopping kazoo joins its threads, so that is done in the pool.
- kazoo only creates TLS contexts from PEM files, and waits for data that OpenSSL has already read. Its handler is
  therefore replaced.
- kazoo connects before it authenticates, and gives up permanently when that fails, even if the server has just died.
  Another client then resumes the session after a pause.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from ssl import SSLSocket
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.zookeeper.zookeeper_access import ZooKeeperAccess
from ottla.common.errors import OperatorError
from ottla.common.platform.clock import BlockingPool
from ottla.protocol.znodes.operations import Check, Create, Delete, Operation, SetData, Znode
from ottla.protocol.znodes.rights import Rights, rights_of
from ottla.protocol.znodes.rooted import RootedSession, split_connect
from ottla.protocol.znodes.session import Code, Done, SessionListener, Watch, ZooKeeperError, ZooKeeperSession

if TYPE_CHECKING:
    import ssl

    from kazoo.client import KazooClient

T = TypeVar("T")

logger = logging.getLogger(__name__)

UNSECURED = ZooKeeperAccess()
RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}
"""Pauses between connection attempts, without a limit: at most two seconds (kazoo's default is an hour)."""

AGAIN_S = 1.0
"""Pause after a failed authentication, before the next server is tried."""

_CODES = {code.value: code for code in Code}


def session_below(
    connect: str,
    timeout_ms: int,
    *,
    post: Callable[..., object],
    pool: BlockingPool,
    access: ZooKeeperAccess = UNSECURED,
) -> ZooKeeperSession:
    """A session on `zookeeper.connect` that sees the tree below its path; see `KazooSession`."""
    _servers, root = split_connect(connect)
    return RootedSession(KazooSession(connect, timeout_ms, post=post, pool=pool, access=access), root)


class KazooSession:
    """The sessions of one node on the servers of `zookeeper.connect`. All methods must be called on the loop."""

    def __init__(
        self,
        connect: str,
        timeout_ms: int,
        *,
        post: Callable[..., object],
        pool: BlockingPool,
        access: ZooKeeperAccess = UNSECURED,
    ) -> None:
        """`connect` is `host:port,host:port/path`, with a path that `RootedSession` handles; `post` runs a callback on
        the loop and may be called by any thread (`call_soon_threadsafe`). Raises OperatorError without kazoo, and for
        invalid servers."""
        try:
            import kazoo.client  # noqa: F401 - an extra

            if access.login is not None:
                import puresasl  # noqa: F401 - of the same extra
        except ImportError as error:
            package = "kazoo" if error.name is None else error.name.partition(".")[0]
            raise OperatorError(
                f"zookeeper.connect needs the package {package}: install the extra, as in pip install "
                "'ottla[zookeeper]'"
            ) from error
        servers, self._root = split_connect(connect)
        self._access = access
        self._make = partial(self._new_client, servers, timeout_ms / 1000)
        self.trouble = ""
        """See `ZooKeeperSession`."""
        try:
            self._client = self._make(None)
        except ValueError as error:
            raise OperatorError(f"zookeeper.connect {connect!r} contains no servers: {error}") from error
        self._session: tuple[int, bytes] | None = None
        self._again: threading.Timer | None = None
        self._post = post
        self._pool = pool
        self._listener: SessionListener | None = None
        self._connected = False
        self._connection = 0
        self._waiting: dict[int, Callable[[ZooKeeperError], None]] = {}
        self._calls = 0

    def _new_client(self, servers: str, timeout_s: float, session: tuple[int, bytes] | None) -> KazooClient:
        from kazoo.client import KazooClient

        login, context = self._access.login, self._access.context
        digest = None
        if login is not None:
            digest = {"mechanism": "DIGEST-MD5", "username": login.user, "password": login.password}
        return KazooClient(
            servers,
            timeout=timeout_s,
            client_id=session,
            connection_retry=dict(RETRY),
            handler=None if context is None else _tls_handler(context, self._has_trouble),
            sasl_options=digest,
        )

    def start(self, listener: SessionListener) -> None:
        """See `ZooKeeperSession`."""
        self._listener = listener
        self._begin()

    def _begin(self) -> None:
        self._client.add_listener(partial(self._state_changed, self._client))
        self._client.start_async()

    def close(self, done: Callable[[], None]) -> None:
        """See `ZooKeeperSession`."""
        self._listener = None
        if self._again is not None:
            self._again.cancel()
        self._fail_all()
        self._pool.submit(partial(_stop, self._client), lambda _result, _error: done())

    # -- connections -----------------------------------------------------------------------------------------------

    def _state_changed(self, client: KazooClient, state: str) -> None:
        """Called in a thread of kazoo."""
        session = client.client_id if state == "CONNECTED" else None
        self._post(self._follow, client, client.client_state if state == "LOST" else state, session)

    def _has_trouble(self, reason: str) -> None:
        """Called in a thread of kazoo."""
        self.trouble = reason

    def _follow(self, client: KazooClient, state: str, session: tuple[int, bytes] | None) -> None:
        listener = self._listener
        if listener is None or client is not self._client:
            return
        if session is not None:
            self._connected = True
            self._session = session
            listener.on_connected(session[0])
            return
        was_connected, self._connected = self._connected, False
        if was_connected:
            self._fail_all()
            listener.on_disconnected()
        if state == "AUTH_FAILED":
            self._refused()
        elif state != "SUSPENDED":
            self._session = None
            listener.on_expired()

    def _refused(self) -> None:
        """Handle a failed authentication, or a server that died during one."""
        login = self._access.login
        self.trouble = f"ZooKeeper rejected the user {login.user if login else ''!r} of the JAAS file"
        logger.warning("%s, or the connection broke: retrying", self.trouble)
        self._again = threading.Timer(AGAIN_S, self._post, (self._resume,))
        self._again.daemon = True
        self._again.start()

    def _resume(self) -> None:
        """Resume the session, if it has not expired."""
        if self._listener is not None:
            refused, self._client = self._client, self._make(self._session)
            self._pool.submit(partial(_stop, refused), lambda _result, _error: None)
            self._begin()

    def _fail_all(self) -> None:
        self._connected = False
        self._connection += 1
        waiting, self._waiting = self._waiting, {}
        for fail in waiting.values():
            fail(ZooKeeperError(Code.CONNECTION_LOSS, ""))

    # -- calls -----------------------------------------------------------------------------------------------------

    def get(self, path: str, done: Done[Znode], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""

        def send(client: KazooClient) -> Any:
            if watch is not None:
                client.exists_async(path, watch=self._watcher(watch))
            return client.get_async(path)

        self._call(path, send, _znode, done)

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""
        watcher = None if watch is None else self._watcher(watch)
        self._call(path, lambda client: client.get_children_async(path, watch=watcher), list, done)

    def multi(self, operations: Sequence[Operation], done: Done[list[str]]) -> None:
        """See `ZooKeeperSession`."""

        def send(client: KazooClient) -> Any:
            transaction = client.transaction()
            for operation in operations:
                self._add(transaction, operation)
            return transaction.commit_async()

        self._call(operations[0].path, send, partial(_results, operations), done)

    def _call(self, path: str, send: Callable[[KazooClient], Any], read: Callable[[Any], T], done: Done[T]) -> None:
        """Send a call; `read` converts kazoo's result, or raises ZooKeeperError."""
        number = self._calls = self._calls + 1
        self._waiting[number] = lambda error: done(None, error)
        if self._connected:
            send(self._client).rawlink(partial(self._post, self._answered, number, path, read, done))
        else:
            self._post(self._refuse, number)

    def _refuse(self, number: int) -> None:
        fail = self._waiting.pop(number, None)
        if fail is not None:
            fail(ZooKeeperError(Code.CONNECTION_LOSS, ""))

    def _answered(self, number: int, path: str, read: Callable[[Any], T], done: Done[T], result: Any) -> None:
        if self._waiting.pop(number, None) is None:
            return
        answer: T | None = None
        error: ZooKeeperError | None = None
        if result.exception is None:
            try:
                answer = read(result.value)
            except ZooKeeperError as failure:
                error = failure
        else:
            error = ZooKeeperError(_code(result.exception), path)
            if error.code is Code.NO_NODE:  # of a read: errors of a transaction are among its results
                error = None
        done(answer, error)

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = operation.path
        if isinstance(operation, Create):
            transaction.create(
                path, operation.data, self._rights(path), ephemeral=operation.ephemeral, sequence=operation.sequential
            )
        elif isinstance(operation, SetData):
            transaction.set_data(path, operation.data, operation.version)
        elif isinstance(operation, Delete):
            transaction.delete(path, operation.version)
        elif isinstance(operation, Check):
            transaction.check(path, operation.version)

    def _rights(self, path: str) -> Any:
        """ACLs of a new znode for kazoo; None for an open one."""
        if not self._access.secures:
            return None
        from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

        rights = rights_of(path.removeprefix(self._root))
        if rights is Rights.OPEN:
            return None
        return CREATOR_ALL_ACL if rights is Rights.SECRET else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def _watcher(self, watch: Watch) -> Callable[[object], None]:
        """A watch callback for kazoo's thread; ignored after a lost connection."""
        connection = self._connection

        def fire() -> None:
            if connection == self._connection:
                watch()

        def fired(_event: object) -> None:
            self._post(fire)

        return fired


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()


def _tls_handler(context: ssl.SSLContext, has_trouble: Callable[[str], None]) -> Any:
    """A kazoo handler for TLS; `has_trouble` is called, in a thread, with the reason of a failed handshake."""
    from kazoo.handlers.threading import SequentialThreadingHandler

    class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
        def create_connection(self, *, address: tuple[str, int], hostname: str, timeout: float, **_: object) -> Any:
            plain = socket.create_connection(address, timeout)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return context.wrap_socket(plain, server_hostname=hostname)
            except OSError as error:
                plain.close()
                has_trouble(f"TLS with {hostname}:{address[1]} fails: {getattr(error, 'verify_message', '') or error}")
                raise

        def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: Any = None) -> Any:
            decrypted = [each for each in rlist if isinstance(each, SSLSocket) and each.pending()]
            return (decrypted, [], []) if decrypted else super().select(rlist, wlist, xlist, timeout)

    return TlsHandler()


def _code(error: BaseException) -> Code:
    return _CODES.get(type(error).__name__.removesuffix("Error"), Code.OTHER)


def _znode(found: tuple[bytes, Any]) -> Znode:
    data, stat = found
    return Znode(data, stat.version, stat.czxid, stat.ephemeralOwner, stat.mzxid)


def _results(operations: Sequence[Operation], results: Sequence[Any]) -> list[str]:
    """The paths; raises ZooKeeperError for the failed operation, with which all others were rolled back."""
    for position, result in enumerate(results):
        if isinstance(result, Exception) and type(result).__name__ not in ("RolledBackError", "RuntimeInconsistency"):
            raise ZooKeeperError(_code(result), operations[position].path, position)
    if any(isinstance(result, Exception) for result in results):
        raise ZooKeeperError(Code.OTHER, operations[0].path)
    return [result if isinstance(result, str) else "" for result in results]
