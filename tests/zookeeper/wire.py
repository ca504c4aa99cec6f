"""Connections between nodes that have a log and no listener: Fetch and FetchSnapshot reach the service of the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.common.errors import KafkaError
from ottla.common.platform.disk import Buffer
from ottla.common.platform.peer import Address, PeerDone
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.registry import API, ApiKey

if TYPE_CHECKING:
    from .nodes import Node, World

DELAY_S = (0.0002, 0.01)


class Wire:
    """All connections of a world, and the faults of their frames."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cut: set[int] = set()
        """Nodes from which nothing comes, and to which nothing goes."""
        self.lost = 0.0
        """Chance of an answer to be."""
        self.change: Callable[[Any], Any] = lambda response: response
        """The modified response; None if it is lost."""
        self.log: list[tuple[int, Any]] = []
        """Sender and request."""
        self.delay_s = DELAY_S
        self.ways: list[Way] = []

    def of(self, node: Node) -> Ways:
        return Ways(self, node)

    def node_at(self, address: Address) -> Node | None:
        return next((node for node in self.world.nodes.values() if node.address == address), None)

    def delay(self) -> float:
        return self.world.rng.uniform(*self.delay_s)


class Ways:
    """Those of one node: implements `PeerNetwork`."""

    def __init__(self, wire: Wire, node: Node) -> None:
        self.wire = wire
        self.node = node

    def connect(self, host: str, port: int) -> Way:
        way = Way(self.wire, self.node, (host, port))
        self.wire.ways.append(way)
        return way


class Way:
    """One connection: implements `PeerConnection`."""

    def __init__(self, wire: Wire, node: Node, address: Address) -> None:
        self.wire = wire
        self.node = node
        self.address = address
        self.failed = False
        self._waiting: dict[int, PeerDone] = {}
        self._sent = 0

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        number = self._sent = self._sent + 1
        self._waiting[number] = done
        spec = API[ApiKey(api_key)]
        message, _ = read_message(spec.request, api_version, body, 0, len(body))
        self.wire.log.append((self.node.node_id, message))
        other = self.wire.node_at(self.address)
        self.node.process.call_later(timeout_s, self._timed_out, number)

        def answered(response: Any) -> None:
            response = self.wire.change(response)
            if response is None or self._is_cut(other) or self.wire.world.rng.chance(self.wire.lost):
                return
            data = bytearray()
            write_message(response, api_version, data)
            read_message(spec.response, api_version, data, 0, len(data), MAX_RESPONSE_ELEMENTS)
            self.node.process.call_later(self.wire.delay(), self._arrived, number, bytes(data))

        def arrive() -> None:
            assert other is not None
            service = other.log.service
            try:
                (service.fetch if isinstance(message, FetchRequest) else service.fetch_snapshot)(message, answered)
            except KafkaError as error:
                answered(spec.response(error_code=error.code))

        if other is None or not other.process.alive:
            self.node.process.call_soon(self._fail, ConnectionError("connection refused"))
        elif not self._is_cut(other):
            other.process.call_later(self.wire.delay(), arrive)

    def _is_cut(self, other: Node | None) -> bool:
        return other is None or bool({self.node.node_id, other.node_id} & self.wire.cut)

    def _arrived(self, number: int, data: bytes) -> None:
        done = self._waiting.pop(number, None)
        if done is not None:
            done(memoryview(data), None)

    def _timed_out(self, number: int) -> None:
        if number in self._waiting:
            self._fail(TimeoutError("no answer came"))

    def _fail(self, error: Exception) -> None:
        self.failed = True
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            self.node.process.call_soon(done, None, error)

    def close(self) -> None:
        self._fail(ConnectionError("it was closed here"))
