"""Base of `Admin` and `SimpleConsumer`: Ottla's own client with serialized calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ottla.api.errors import ClientClosed, as_kafka_errors
from ottla.api.forks import ended_in_children
from ottla.api.settings import Config, read_tool_settings
from ottla.client.admin.cluster import Cluster


class ToolClient:
    """A context manager that closes its connections."""

    what = "client"
    """Name of the client for messages."""

    def __init__(self, bootstrap_servers: str, config: Config | None) -> None:
        settings = read_tool_settings(bootstrap_servers, config)
        self._lock = threading.Lock()
        self._closed = False
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=settings.client_id,
            timeout_s=settings.seconds("default.api.timeout.ms"),
            security=settings.security,
        )
        ended_in_children(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; idempotent."""
        with self._lock:
            self._closed = True
            self._cluster.close()

    def end_in_child(self) -> None:
        """See `forks`."""
        self._closed = True
        self._lock = threading.Lock()  # another thread of the parent may have held it

    @contextmanager
    def _asking(self) -> Iterator[Cluster]:
        with self._lock, as_kafka_errors():
            if self._closed:
                raise ClientClosed(self.what)
            yield self._cluster
