"""Free ports for brokers that restart on the same port."""

from __future__ import annotations

import socket
from contextlib import ExitStack

HOST = "127.0.0.1"
FIRST_PORT, END_PORT = 20_000, 32_000
"""Below Linux's ephemeral range (from 32768), where a client could take the port of a stopped broker."""


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports of the loopback address that are free now.

    All are bound until the last one is found. Raises OSError if there are not enough.
    """
    import random  # imported here: not needed by a start

    with ExitStack() as held:
        found: list[int] = []
        for port in random.sample(range(FIRST_PORT, END_PORT), END_PORT - FIRST_PORT):
            if len(found) == count:
                break
            try:
                held.enter_context(socket.create_server((HOST, port)))
            except OSError:
                continue
            found.append(port)
        if len(found) < count:
            raise OSError(f"{count} free ports are not available between {FIRST_PORT} and {END_PORT}")
        return found
