"""`AsyncAdmin` and `AsyncSimpleConsumer`: the synchronous clients for a program with an event loop.

Each runs its calls one after the other in its own thread, so that the loop never blocks. A call that is cancelled
continues in that thread, and its result is discarded. `Asynchronous` and `in_thread` are shared with the other
asynchronous consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ottla.api.admin import Admin
from ottla.api.errors import ClientClosed
from ottla.api.settings import Config
from ottla.api.simple_consumer import READ_UNCOMMITTED, SimpleConsumer

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=AbstractContextManager[Any])


class InThread:
    """A thread that runs blocking calls in order."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call and return its result. A queued call is cancelled with its caller; a running one continues."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def run_to_end(self, call: Callable[[], T]) -> T:
        """The same for a call that must be completed, such as close, even if its caller is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._executor, call))

    def begin(self, call: Callable[[], object]) -> None:
        """Run a call without waiting for it."""
        self._executor.submit(call)

    def end(self) -> None:
        """End the thread after its queued calls."""
        self._executor.shutdown(wait=False)


class Asynchronous(Generic[C]):
    """A client with calls that run in a thread."""

    _what = "consumer"
    """Name of the client for messages."""

    def __init__(self, client: C, thread: str) -> None:
        self._client: C = client
        self._thread = InThread(thread)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(partial(self._client.__exit__, kind, error, trace))

    async def _leave(self, leave: Callable[[], object]) -> None:
        """Close the client with this call, unless it is closed."""
        if not self._closed:
            self._closed = True
            try:
                await self._thread.run_to_end(leave)
            finally:
                self._thread.end()

    async def _ask(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise ClientClosed(self._what)
        return await self._thread.run(call)


def in_thread(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of a synchronous client as a coroutine method of its asynchronous one."""

    @wraps(method)
    async def call(self: Asynchronous[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._ask(partial(method, self._client, *args, **kwargs))

    call.__qualname__ = f"Async{method.__qualname__}"  # in tracebacks and warnings
    return call


class AsyncSimpleConsumer(Asynchronous[SimpleConsumer]):
    """`SimpleConsumer`, method by method."""

    def __init__(
        self, bootstrap_servers: str, config: Config | None = None, *, isolation: str = READ_UNCOMMITTED
    ) -> None:
        super().__init__(SimpleConsumer(bootstrap_servers, config, isolation=isolation), "ottla-client")

    fetch = in_thread(SimpleConsumer.fetch)
    fetch_many = in_thread(SimpleConsumer.fetch_many)
    earliest = in_thread(SimpleConsumer.earliest)
    latest = in_thread(SimpleConsumer.latest)
    youngest = in_thread(SimpleConsumer.youngest)
    offsets_for_times = in_thread(SimpleConsumer.offsets_for_times)
    get_offsets_before = in_thread(SimpleConsumer.get_offsets_before)
    bounds = in_thread(SimpleConsumer.bounds)
    partitions = in_thread(SimpleConsumer.partitions)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._leave(self._client.close)


class AsyncAdmin(Asynchronous[Admin]):
    """`Admin`, method by method."""

    _what = Admin.what

    def __init__(self, bootstrap_servers: str, config: Config | None = None) -> None:
        super().__init__(Admin(bootstrap_servers, config), "ottla-client")

    create_topic = in_thread(Admin.create_topic)
    delete_topics = in_thread(Admin.delete_topics)
    topics = in_thread(Admin.topics)
    topic = in_thread(Admin.topic)
    create_partitions = in_thread(Admin.create_partitions)
    delete_records = in_thread(Admin.delete_records)
    topic_configs = in_thread(Admin.topic_configs)
    broker_configs = in_thread(Admin.broker_configs)
    alter_topic_configs = in_thread(Admin.alter_topic_configs)
    alter_broker_configs = in_thread(Admin.alter_broker_configs)
    groups = in_thread(Admin.groups)
    group = in_thread(Admin.group)
    group_offsets = in_thread(Admin.group_offsets)
    alter_group_offsets = in_thread(Admin.alter_group_offsets)
    delete_group_offsets = in_thread(Admin.delete_group_offsets)
    delete_group = in_thread(Admin.delete_group)
    cluster = in_thread(Admin.cluster)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._leave(self._client.close)
