"""What a fork leaves of clients: none of their threads, and connections that stay the parent's.

In the child they are closed: a send would be queued for ever, a close would wait for a thread that is not there, and
librdkafka ends the process when it is freed. A child makes clients of its own.
"""

from __future__ import annotations

import os
from typing import Any, Protocol
from weakref import WeakSet


class Client(Protocol):
    """Ended in a child by `end_in_child`."""

    def end_in_child(self) -> Any:
        """Be closed without a call of the library; gives the library's object, or None."""
        ...


_clients: WeakSet[Client] = WeakSet()


def ended_in_children(client: Client) -> None:
    """From now on."""
    _clients.add(client)


def _end_all() -> None:
    if not _clients:
        return
    import ctypes  # in the children alone

    for client in tuple(_clients):
        kept = client.end_in_child()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # nobody frees it, not even the end of the interpreter


os.register_at_fork(after_in_child=_end_all)
