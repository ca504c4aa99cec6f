"""Clients after a fork: their threads do not exist in the child, and their connections belong to the parent.

They are closed in the child: otherwise a send would be queued forever, a close would wait for a missing thread, and
librdkafka would abort the process when it is freed. A child must create its own clients.
"""

from __future__ import annotations

import os
from typing import Any, Protocol
from weakref import WeakSet


class Client(Protocol):
    """A client that `end_in_child` closes in a child process."""

    def end_in_child(self) -> Any:
        """Mark as closed without a library call; returns the library's object, or None."""
        ...


_clients: WeakSet[Client] = WeakSet()


def ended_in_children(client: Client) -> None:
    """Register a client to be closed in child processes."""
    _clients.add(client)


def _end_all() -> None:
    if not _clients:
        return
    import ctypes  # imported in children only

    for client in tuple(_clients):
        kept = client.end_in_child()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # never freed, not even at interpreter exit


os.register_at_fork(after_in_child=_end_all)
