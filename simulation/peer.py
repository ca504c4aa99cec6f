"""Requests between simulated nodes: `ottla.common.platform.peer` on the simulated network.

A connection ends with its process; requests sent before may still arrive.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import NamedTuple

from ottla.common.platform.clock import TimerHandle
from ottla.common.platform.disk import Buffer
from ottla.common.platform.peer import PeerDone
from ottla.protocol.header import request_frame, response_body
from simulation.loop import Process
from simulation.network import Address, Link, Network

_PREFIX_BYTES = 4


class _PendingPeerRequest(NamedTuple):
    """A request without a response so far."""

    correlation_id: int
    api_key: int
    api_version: int
    done: PeerDone
    timer: TimerHandle


class SimPeerConnection:
    """One connection. Implements `PeerConnection`."""

    def __init__(self, network: Network, process: Process, host: str, address: Address) -> None:
        self._process = process
        self._network = network
        self._address = address
        self._host = host
        self._correlation_ids = itertools.count()
        self._waiting: deque[_PendingPeerRequest] = deque()
        self._link: Link | None = network.connect(host, address)
        self.failed = self._link is None
        if self._link is not None:
            self._link.owner = process
            self._link.on_frame = lambda data: process.run(self._received, data)
            self._link.on_close = lambda: process.run(self._fail, ConnectionError(f"{address[0]} closed"))

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        """See `PeerConnection`."""
        if self.failed or self._link is None:
            self._process.call_soon(done, None, ConnectionError(f"{self._address[0]} can't be reached"))
            return
        correlation_id = next(self._correlation_ids)
        timer = self._process.call_later(timeout_s, self._timed_out)
        self._waiting.append(_PendingPeerRequest(correlation_id, api_key, api_version, done, timer))
        frame = bytes(request_frame(api_key, api_version, correlation_id, self._host, body))
        if self._network.between_nodes(self._address, api_key, api_version, body, frame):
            self._link.send(frame)

    def close(self) -> None:
        """See `PeerConnection`."""
        self._fail(ConnectionError(f"the connection to {self._address[0]} was closed here"))

    def _timed_out(self) -> None:
        self._fail(TimeoutError(f"{self._address[0]} did not answer in time"))

    def _received(self, data: bytes) -> None:
        if self.failed or not self._waiting:
            return
        request = self._waiting.popleft()
        request.timer.cancel()
        _, start = response_body(request.api_key, request.api_version, bytearray(data), _PREFIX_BYTES, len(data))
        request.done(memoryview(data)[start:], None)

    def _fail(self, error: Exception) -> None:
        if self.failed:
            return
        self.failed = True
        link, self._link = self._link, None
        if link is not None:
            link.close()
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.timer.cancel()
            self._process.call_soon(request.done, None, error)


class SimPeerNetwork:
    """Connections of one process. Implements `PeerNetwork`."""

    def __init__(self, network: Network, process: Process, host: str) -> None:
        self._network = network
        self._process = process
        self._host = host

    def connect(self, host: str, port: int) -> SimPeerConnection:
        """See `PeerNetwork`."""
        return SimPeerConnection(self._network, self._process, self._host, (host, port))
