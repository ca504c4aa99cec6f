"""A session on a real ZooKeeper, by kazoo (the extra `zookeeper`).

kazoo has threads of its own: its callbacks are brought to the loop here, and all else happens there. It differs from
what `ottla.protocol.znodes.session` says in these:

- It keeps calls that it can't send, and sends them once it is connected again, perhaps by another session. So a call is
  answered when the loop hears that the connection is lost, and what comes of it later is nobody's: as with any call
  whose answer was lost, it may happen yet.
- `commit()` of a transaction returns errors in place of results; what failed is the one that was not rolled back.
- A watch on a znode that is not there is set by `exists` only, so that goes before `get`. The server answers a session
  in the order of its calls.
- Stopping joins its threads, so that is done in the pool.

Left out: access rights of znodes, authentication, TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.common.clock import BlockingPool
from ottla.common.errors import OperatorError
from ottla.protocol.znodes.operations import Check, Create, Delete, Operation, SetData, Znode
from ottla.protocol.znodes.session import Code, Done, SessionListener, Watch, ZooKeeperError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}
"""Of connections: again without an end, at most two seconds apart (kazoo's own longest pause is an hour)."""

_CODES = {code.value: code for code in Code}


class KazooSession:
    """One node's sessions on `zookeeper.connect`. All methods belong to the loop."""

    def __init__(self, servers: str, timeout_ms: int, *, post: Callable[..., object], pool: BlockingPool) -> None:
        """`servers` as `host:port,host:port/chroot`; `post` runs a callback on the loop and may be called by any
        thread (`call_soon_threadsafe`). Raises OperatorError without kazoo, and for servers that can't be."""
        try:
            from kazoo.client import KazooClient
        except ImportError as error:
            raise OperatorError(
                "zookeeper.connect needs the package kazoo: install the extra, as in pip install 'ottla[zookeeper]'"
            ) from error
        try:
            self._client = KazooClient(servers, timeout=timeout_ms / 1000, connection_retry=dict(RETRY))
        except ValueError as error:
            raise OperatorError(f"zookeeper.connect {servers!r} names no servers: {error}") from error
        self._post = post
        self._pool = pool
        self._listener: SessionListener | None = None
        self._connected = False
        self._connection = 0
        self._waiting: dict[int, Callable[[ZooKeeperError], None]] = {}
        self._calls = 0

    def start(self, listener: SessionListener) -> None:
        """See `ZooKeeperSession`."""
        self._listener = listener
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    def close(self, done: Callable[[], None]) -> None:
        """See `ZooKeeperSession`."""
        self._listener = None
        self._fail_all()
        self._pool.submit(partial(_stop, self._client), lambda _result, _error: done())

    # -- connections -----------------------------------------------------------------------------------------------

    def _state_changed(self, state: str) -> None:
        """Called by a thread of kazoo."""
        session = self._client.client_id[0] if state == "CONNECTED" else 0
        self._post(self._follow, state, session)

    def _follow(self, state: str, session: int) -> None:
        listener = self._listener
        if listener is None:
            return
        if state == "CONNECTED":
            self._connected = True
            listener.on_connected(session)
            return
        was_connected, self._connected = self._connected, False
        if was_connected:
            self._fail_all()
            listener.on_disconnected()
        if state == "LOST":
            listener.on_expired()

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
                _add(transaction, operation)
            return transaction.commit_async()

        self._call(operations[0].path, send, partial(_results, operations), done)

    def _call(self, path: str, send: Callable[[KazooClient], Any], read: Callable[[Any], T], done: Done[T]) -> None:
        """`read` makes the answer of what kazoo gives, or raises ZooKeeperError."""
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
            if error.code is Code.NO_NODE:  # of a read: a transaction has its errors among its results
                error = None
        done(answer, error)

    def _watcher(self, watch: Watch) -> Callable[[object], None]:
        """What kazoo calls in a thread of its own; of a connection that is lost nothing is told."""
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


def _code(error: BaseException) -> Code:
    return _CODES.get(type(error).__name__.removesuffix("Error"), Code.OTHER)


def _znode(found: tuple[bytes, Any]) -> Znode:
    data, stat = found
    return Znode(data, stat.version, stat.czxid, stat.ephemeralOwner, stat.mzxid)


def _add(transaction: Any, operation: Operation) -> None:
    if isinstance(operation, Create):
        transaction.create(operation.path, operation.data, ephemeral=operation.ephemeral, sequence=operation.sequential)
    elif isinstance(operation, SetData):
        transaction.set_data(operation.path, operation.data, operation.version)
    elif isinstance(operation, Delete):
        transaction.delete(operation.path, operation.version)
    elif isinstance(operation, Check):
        transaction.check(operation.path, operation.version)


def _results(operations: Sequence[Operation], results: Sequence[Any]) -> list[str]:
    """The paths; raises ZooKeeperError for the operation that failed, those before it were rolled back."""
    for position, result in enumerate(results):
        if isinstance(result, Exception) and type(result).__name__ not in ("RolledBackError", "RuntimeInconsistency"):
            raise ZooKeeperError(_code(result), operations[position].path, position)
    if any(isinstance(result, Exception) for result in results):
        raise ZooKeeperError(Code.OTHER, operations[0].path)
    return [result if isinstance(result, str) else "" for result in results]
