"""Connections to the other controllers, one for each address: opened on first use and reopened after a failure.

A Fetch may wait half a second at the leader, and a connection is answered in order. So the fetcher has its own
connections, and votes never wait behind a Fetch.
"""

from __future__ import annotations

from typing import Any

from ottla.common.platform.peer import Address, PeerConnection, PeerNetwork
from ottla.net.peer_messages import MessageDone, send_message


class QuorumNetwork:
    """Requests to controllers by address."""

    __slots__ = ("_closed", "_connections", "_peers", "_under_way")

    def __init__(self, peers: PeerNetwork) -> None:
        self._peers = peers
        self._connections: dict[Address, PeerConnection] = {}
        self._under_way = 0
        self._closed = False

    def send(self, address: Address, message: object, done: MessageDone, timeout_s: float) -> None:
        """Send one request; `done` is called later, unless `close` comes first."""
        if self._closed:
            return
        connection = self._connections.get(address)
        if connection is None or connection.failed:
            connection = self._connections[address] = self._peers.connect(*address)
        self._under_way += 1

        def answered(response: Any, error: BaseException | None) -> None:
            self._under_way -= 1
            if not self._closed:
                done(response, error)

        send_message(connection, message, answered, timeout_s)

    @property
    def idle(self) -> bool:
        """Whether every request was answered."""
        return self._under_way == 0

    def drop(self, address: Address) -> None:
        """Drop the pending requests to this address: no caller waits for them."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections; pending requests are never answered."""
        self._closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
