"""Ports for brokers that are to come back under the same ones."""

from __future__ import annotations

import socket
from contextlib import ExitStack

HOST = "127.0.0.1"
FIRST_PORT, END_PORT = 20_000, 32_000
"""Below those that Linux gives to clients (from 32768 on), which could take the port of a broker while it is down."""


def free_ports(count: int) -> list[int]:
    """So many different TCP ports of the loopback address on which nobody listens now.

    All are held until the last is found. Raises OSError when there are not enough.
    """
    import random  # here, since a start does without it

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
            raise OSError(f"{count} free ports between {FIRST_PORT} and {END_PORT} are not to be had")
        return found
