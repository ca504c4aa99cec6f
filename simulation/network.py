"""In-memory connections: each delivers its frames in order, with random delays, until it is lost.

`Network` replaces the kernel and `ottla.net`: broker processes listen at addresses with a dispatcher, clients and other
brokers connect and get a `Link`. The server's end is a `Channel` as described by `common.platform.channel`, with one
request in progress at a time. Frames of different connections are not ordered.

Faults: a cut connection loses frames in flight, in each direction from some frame on; each end notices later, or only
by its own timeout. While the network is slow, delays exceed session timeouts. Between two hosts each direction can be
blocked: frames arrive once it is open again, as by TCP retransmission, unless an end closed the connection before.

Invariant: no frame is delivered after an end of its connection closed: a client that retries on another connection is
not overtaken by its earlier request. Frames that a process sent before it died do arrive.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.common.errors import InvariantError, ProtocolError
from ottla.common.kafka.acl import ANONYMOUS
from ottla.common.platform.channel import Dispatcher, Part
from ottla.common.platform.disk import Buffer
from ottla.common.platform.endpoint import ListenerInfo
from simulation.loop import Process, SimLoop
from simulation.rng import SimRng
from simulation.trace import Trace

DELAY_S = (0.0001, 0.005)
LONG_DELAY_S = (0.05, 1.5)
LONG_DELAY_CHANCE = 0.02
NOTICE_S = (0.001, 3.0)
"""Delay until an end of a cut connection notices."""
_PREFIX_BYTES = 4

Address = tuple[str, int]
"""Host and port."""
BetweenNodes = Callable[[Address, int, int, Buffer, bytes], bool]
"""Sees each request between nodes with its address, key, version, body and frame; returns whether it is forwarded."""


class ListeningProcess(NamedTuple):
    """The listening process of an address."""

    process: Process
    dispatcher: Dispatcher
    listener: ListenerInfo


class ServerChannel:
    """The broker's end. Implements `ottla.common.platform.channel.Channel`."""

    __slots__ = ("_busy", "_early", "_handling", "_link", "_waiting", "client_host", "closed", "id", "listener")

    principal = ANONYMOUS

    def __init__(self, link: Link, channel_id: int, client_host: str, listener: ListenerInfo) -> None:
        self._link = link
        self.id = channel_id
        self.client_host = client_host
        self.listener = listener
        self.closed = False
        self._busy = False
        self._handling = False
        self._early: list[Part] | None = None
        self._waiting: deque[bytes] = deque()

    def received(self, frame: bytes) -> None:
        """A frame with its size prefix arrived."""
        self._waiting.append(frame)
        self._serve()

    def respond(self, parts: list[Part]) -> None:
        """See `Channel`."""
        data = self._read(parts)
        if data is None or self.closed:
            return
        if self._handling:
            self._early = [data]
            return
        if not self._busy:
            raise InvariantError(f"channel {self.id} was answered without a parked request")
        self._busy = False
        if data:
            self._link.to_client(data)
        if self._waiting:
            self._link.process.call_soon(self._serve)

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        """Does nothing: clients here have no quota."""

    def close(self, reason: str) -> None:
        """See `Channel`."""
        if not self.closed:
            self._link.server_closes(reason)

    def _serve(self) -> None:
        while self._waiting and not self._busy and not self.closed:
            frame = self._waiting.popleft()
            # Surrounded by other bytes: a reader that leaves the frame would see them.
            buffer = bytearray(b"\x55" * 8 + frame + b"\x55" * 8)
            self._busy = self._handling = True
            try:
                parts = self._link.dispatcher.handle(self, buffer, 8 + _PREFIX_BYTES, 8 + len(frame))
            except ProtocolError as error:
                self._handling = False
                self.close(str(error))
                return
            self._handling = False
            if parts is None:
                parts, self._early = self._early, None
            if parts is not None:
                self._busy = False
                data = self._read(parts)
                if data is not None:
                    self._link.to_client(data)

    def _read(self, parts: list[Part]) -> bytes | None:
        """The bytes of a response; None, and the connection is closed, if the disk read fails."""
        try:
            return _joined(parts)
        except OSError as error:
            self.close(f"stored bytes of a response can't be read: {error}")
            return None


def _joined(parts: list[Part]) -> bytes:
    """The bytes of a response; releases its regions."""
    out = bytearray()
    for part in parts:
        if isinstance(part, Buffer):
            out += part
            continue
        copy = bytearray(part.length)
        position = 0
        with memoryview(copy) as view:
            while position < part.length:
                position += part.read_into(view[position:], position)
        part.release()
        out += copy
    return bytes(out)


class Link:
    """One connection with both ends; the client holds this object as its end."""

    def __init__(
        self, network: Network, number: int, client_host: str, server_host: str, listening: ListeningProcess
    ) -> None:
        self._network = network
        self._loop = network.loop
        self._rng = network.rng
        self.number = number
        self.client_host = client_host
        self.server_host = server_host
        self.process = listening.process
        self.dispatcher = listening.dispatcher
        self.channel = ServerChannel(self, number, client_host, listening.listener)
        self.on_frame: Callable[[bytes], None] = lambda frame: None
        self.on_close: Callable[[], None] = lambda: None
        self.owner: Process | None = None
        """The client's process if the client is a broker: the connection ends with it."""
        self.closed = False
        """Whether the connection is open as seen by the client."""
        self._cut = False
        self._to_server_s = 0.0
        self._to_client_s = 0.0

    # -- the client's side

    def send(self, frame: bytes) -> None:
        """Send a request, with its size prefix."""
        if not self._cut:
            self._to_server_s = self._network.arrival(self._to_server_s)
            self._loop.call_at(self._to_server_s, self._reach_server, frame)

    def close(self) -> None:
        """The client closed it, or died; the broker notices later."""
        if not self.closed:
            self.closed = True
            self._network.forget(self)
            self._loop.call_later(self._rng.uniform(*DELAY_S), self._close_server)

    def die(self) -> None:
        """The client's process died: its frames in flight still arrive, but it receives none."""
        self.on_frame = lambda frame: None
        self.on_close = lambda: None
        self._loop.call_at(self._network.arrival(self._to_server_s), self.close)

    def _reach_server(self, frame: bytes) -> None:
        if self._cut or self.closed or self.channel.closed:
            return
        if self._network.holds_back(self.client_host, self.server_host, self._reach_server, frame):
            return
        self._network.trace.count(b">%d %b" % (self.number, frame))
        self.process.run(self.channel.received, frame)

    def _close_server(self) -> None:
        if not self.channel.closed:
            self.channel.closed = True
            self.process.run(self.dispatcher.connection_closed, self.channel)

    # -- the broker's side

    def to_client(self, data: bytes) -> None:
        """The broker sends a response; it may outlive the broker."""
        if data and not self._cut:
            self._to_client_s = self._network.arrival(self._to_client_s)
            self._loop.call_at(self._to_client_s, self._reach_client, data)

    def server_closes(self, reason: str) -> None:
        """The broker closes the connection."""
        self._network.trace.note(f"link {self.number}", f"closed by the broker: {reason}")
        self.process.call_soon(self._close_server)
        self._loop.call_at(self._network.arrival(self._to_client_s), self._close_client)

    def server_died(self) -> None:
        """Responses in flight may still arrive, or not."""
        self.channel.closed = True
        if self._rng.chance(0.5):
            self._cut = True
        self._loop.call_at(self._network.arrival(self._to_client_s), self._close_client)

    def _reach_client(self, data: bytes) -> None:
        if self._cut or self.closed:
            return
        if self._network.holds_back(self.server_host, self.client_host, self._reach_client, data):
            return
        self._network.trace.count(b"<%d %b" % (self.number, data))
        self.on_frame(data)

    def _close_client(self) -> None:
        if not self.closed:
            self.closed = True
            self._network.forget(self)
            self.on_close()

    # -- faults

    def cut(self) -> None:
        """The network loses the connection; the ends notice at different times, the client perhaps never."""
        self._cut = True
        self._loop.call_later(self._rng.uniform(*NOTICE_S), self._close_server)
        if self._rng.chance(0.7):
            self._loop.call_later(self._rng.uniform(*NOTICE_S), self._close_client)


class Network:
    """All connections of a simulation."""

    def __init__(self, loop: SimLoop, rng: SimRng, trace: Trace, bootstrap: Address) -> None:
        """`bootstrap` is the address of clients that name none."""
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.slow = False
        """Increase the share of long delays."""
        self.between_nodes: BetweenNodes = lambda address, key, version, body, frame: True
        self._bootstrap = bootstrap
        self._listening: dict[Address, ListeningProcess] = {}
        self._links: dict[int, Link] = {}
        self._numbers = itertools.count(1)
        self._held: dict[tuple[str, str], list[tuple[Callable[[bytes], None], bytes]]] = {}
        """Waiting frames, in order, for each blocked direction between two hosts."""

    def listen(self, address: Address, listening: ListeningProcess) -> None:
        """From now on clients reach this broker at that address."""
        self._listening[address] = listening

    def refuse(self, process: Process) -> None:
        """The process is dead: its addresses refuse new connections, and existing ones lose that end."""
        for address in [address for address, each in self._listening.items() if each.process is process]:
            del self._listening[address]
        for link in list(self._links.values()):
            if link.process is process:
                link.server_died()
            elif link.owner is process:
                link.die()

    def connect(self, client_host: str, address: Address | None = None) -> Link | None:
        """A connection, None if it is refused."""
        address = address or self._bootstrap
        listening = self._listening.get(address)
        if listening is None or not listening.process.alive:
            return None
        link = Link(self, next(self._numbers), client_host, address[0], listening)
        self._links[link.number] = link
        return link

    def block(self, source: str, target: str) -> None:
        """Block frames from host `source` to host `target`."""
        self._held.setdefault((source, target), [])

    def unblock_all(self) -> None:
        """Open every direction; waiting frames arrive."""
        held, self._held = self._held, {}
        for frames in held.values():
            for receive, frame in frames:
                self.loop.call_soon(receive, frame)

    def holds_back(self, source: str, target: str, receive: Callable[[bytes], None], frame: bytes) -> bool:
        """Whether a frame that would arrive now has to wait until the direction is open."""
        frames = self._held.get((source, target))
        if frames is None:
            return False
        frames.append((receive, frame))
        return True

    def forget(self, link: Link) -> None:
        """The client's end is closed."""
        self._links.pop(link.number, None)

    def links(self) -> list[Link]:
        """Connections that are open at the client, oldest first."""
        return list(self._links.values())

    def arrival(self, not_before_s: float) -> float:
        """Arrival time of a frame sent now, after all frames sent before."""
        chance = 0.5 if self.slow else LONG_DELAY_CHANCE
        delay = self.rng.uniform(*(LONG_DELAY_S if self.rng.chance(chance) else DELAY_S))
        return max(not_before_s, self.loop.time() + delay)
