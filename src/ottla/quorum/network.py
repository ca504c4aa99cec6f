"""Connections to the other controllers, one for each address: opened on first use and reopened after a failure.

A Fetch may wait half a second at the leader, and a connection is answered in order. So the fetcher has its own
connections, and votes never wait behind a Fetch.
"""

from __future__ import annotations

from typing import Any

from ottla.common.platform.disk import Buffer
from ottla.common.platform.peer import Address, PeerConnection, PeerDone, PeerNetwork
from ottla.net.peer_messages import MessageDone, send_message
from ottla.quorum.raft_types import QuorumStatistics


class CountedConnection:
    """A connection whose requests and responses are counted. Implements `PeerConnection`."""

    __slots__ = ("_connection", "_statistics")

    def __init__(self, connection: PeerConnection, statistics: QuorumStatistics) -> None:
        self._connection = connection
        self._statistics = statistics

    @property
    def failed(self) -> bool:
        """See `PeerConnection`."""
        return self._connection.failed

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        """See `PeerConnection`."""
        statistics = self._statistics
        statistics.requests += 1
        statistics.request_bytes += len(body)

        def answered(data: memoryview | None, error: BaseException | None) -> None:
            if data is not None:
                statistics.responses += 1
                statistics.response_bytes += len(data)
            done(data, error)

        self._connection.request(api_key, api_version, body, answered, timeout_s)

    def close(self) -> None:
        """See `PeerConnection`."""
        self._connection.close()


class QuorumNetwork:
    """Requests to controllers by address."""

    __slots__ = ("_closed", "_connections", "_peers", "_statistics", "_under_way")

    def __init__(self, peers: PeerNetwork, statistics: QuorumStatistics) -> None:
        """`statistics` counts the requests of all networks of one replica."""
        self._peers = peers
        self._statistics = statistics
        self._connections: dict[Address, CountedConnection] = {}
        self._under_way = 0
        self._closed = False

    def send(self, address: Address, message: object, done: MessageDone, timeout_s: float) -> None:
        """Send one request; `done` is called later, unless `close` comes first."""
        if self._closed:
            return
        connection = self._connections.get(address)
        if connection is None or connection.failed:
            connection = CountedConnection(self._peers.connect(*address), self._statistics)
            self._connections[address] = connection
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
