"""Output over a wire without a socket: like an encrypting one, it sends all bytes through its transport."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

import pytest

from ottla.common.platform.channel import FileRegion
from ottla.net import listener as listener_module
from ottla.net.sender import MAX_COPIED_BYTES, Outcome, SendJob
from ottla.net.wire import PlainWire

DATA = random.Random(3).randbytes(6 << 20)


class ReadJob(SendJob):
    """Reads in the pool; the transport sends."""

    def __init__(self, parts, skip) -> None:
        super().__init__(-1, parts, skip, MAX_COPIED_BYTES)
        self.at = skip

    def begin(self) -> None:
        self.runs = True

    def run(self, scratch: memoryview) -> Outcome:
        count = self.parts[0].read_into(scratch[:MAX_COPIED_BYTES], self.at)
        return 0, bytes(scratch[:count])


class TransportWire(PlainWire):
    """Copies all bytes into the transport."""

    half_closes = False

    def __init__(self, accepted) -> None:
        super().__init__(accepted)
        self.descriptor = -1
        self.transport: Any = None
        self.regions = 0
        self.jobs = 0

    def use(self, transport) -> None:
        super().use(transport)
        self.transport = transport

    def write_pieces(self, pieces) -> int:
        assert self.transport.get_write_buffer_size() == 0
        data = b"".join(pieces)
        self.transport.write(data)
        return len(data)

    write_before_region = write_pieces

    def send_region(self, region: FileRegion, start: int, length: int) -> int:
        self.regions += 1
        data = bytearray(min(length, MAX_COPIED_BYTES))
        with memoryview(data) as view:
            count = region.try_read_into(view, start)
        self.transport.write(bytes(data[:count]))
        return count

    def job(self, parts, skip, limit) -> SendJob:
        self.jobs += 1
        return ReadJob(parts, skip)


@pytest.fixture
def wires(monkeypatch):
    """The wires created by the listener."""
    made = []

    def make(accepted) -> TransportWire:
        made.append(TransportWire(accepted))
        return made[-1]

    monkeypatch.setattr(listener_module, "PlainWire", make)
    return made


@pytest.mark.parametrize("receive_buffer", [4096, 0])
@pytest.mark.parametrize("kind", ["bytes", "small", "warm", "cold", "by reference"])
def test_responses_arrive_unchanged_and_in_order(network, make_frame, memory_region, wires, kind, receive_buffer):
    regions = []

    def answer():
        if kind == "bytes":
            return [struct.pack(">i", len(DATA)), DATA]
        step = 10_000 if kind == "small" else 1_500_000
        pieces = [memory_region(DATA[at : at + step], cold=kind == "cold") for at in range(0, len(DATA), step)]
        for piece in pieces:
            piece.by_reference = kind == "by reference"
        regions.extend(pieces)
        return [struct.pack(">i", len(DATA)), *pieces]

    async def body(net):
        net.dispatcher.answers[b"x"] = answer
        client = await net.connect(receive_buffer)
        await net.send(client, make_frame(b"Efirst") + make_frame(b"Ax") + make_frame(b"Elast"))
        assert await net.response(client) == b"first"
        assert await net.response(client) == DATA
        assert await net.response(client) == b"last"
        assert all(region.released == 1 for region in regions)
        (wire,) = wires
        assert (wire.regions > 0) is (kind == "by reference")
        assert (wire.jobs > 0) is (kind == "cold")

    network.run(body)


def test_client_that_does_not_read_is_not_served(network, make_frame, wires):
    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [make_frame(DATA)]
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Ax") * 20)
        connection = await net.only_connection()
        await net.until(lambda: connection.outbound.busy)
        served = len(net.dispatcher.requests)
        for _ in range(50):
            await net.turn()
        assert len(net.dispatcher.requests) == served
        assert served <= 3
        for _ in range(3):
            assert await net.response(client) == DATA

    network.run(body)


def test_end_of_input_closes_a_wire_without_half_close(network, make_frame, wires):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Px"))
        await net.until(lambda: net.dispatcher.parked)
        client.shutdown(socket.SHUT_WR)
        assert await net.at_end(client)
        net.dispatcher.finish()
        await net.until(lambda: net.dispatcher.closed)

    network.run(body)
