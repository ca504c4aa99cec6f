"""Responses on their way out: byte equality under slow readers, cold regions, bounds."""

from __future__ import annotations

import os
import random
import socket
import struct

import pytest

from ottla.app.disk import RealDisk
from ottla.net import outbound as outbound_module


def random_bytes(count: int, seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(count)


class DiskRegion:
    """A region of a real file."""

    def __init__(self, file, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.released = 0

    def read_into(self, view: memoryview, start: int) -> int:
        return self.file.read_into(view[: self.length - start], self.position + start)

    def try_read_into(self, view: memoryview, start: int) -> int:
        return self.file.try_read_into(view[: self.length - start], self.position + start)

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize("receive_buffer", [4096, 0])
@pytest.mark.parametrize("kind", ["bytes", "warm", "cold", "mixed", "short"])
def test_large_responses_arrive_unchanged(network, make_frame, memory_region, kind, receive_buffer):
    """Two connections share the scratch buffer; the second must not change what the first still has to send."""
    options = {"warm": {}, "cold": {"cold": True}, "mixed": {"cold_every": 3}, "short": {"short": 100_000}}
    data = [random_bytes(8 << 20, seed) for seed in (1, 2)]
    regions = []

    def answer(which: int):
        def parts():
            body = data[which]
            head = struct.pack(">i", len(body))
            if kind == "bytes":
                return [head + body]
            starts = range(0, len(body), 3_000_000)
            pieces = [memory_region(body[start : start + 3_000_000], **options[kind]) for start in starts]
            regions.extend(pieces)
            return [head, *pieces]

        return parts

    async def body(net):
        net.dispatcher.answers[b"0"] = answer(0)
        net.dispatcher.answers[b"1"] = answer(1)
        clients = [await net.connect(receive_buffer), await net.connect(receive_buffer)]
        for which, client in enumerate(clients):
            await net.send(client, make_frame(b"A%d" % which) + make_frame(b"Eend"))
        # Nothing is read before both responses are stuck in their sockets.
        await net.until(lambda: len(net.dispatcher.requests) >= 2)
        received = [bytearray(), bytearray()]
        step = 30_000 if receive_buffer else 1 << 20
        while any(len(got) < 4 + len(want) for got, want in zip(received, data, strict=True)):
            for which, client in enumerate(clients):
                missing = 4 + len(data[which]) - len(received[which])
                if missing:
                    received[which] += await net.receive(client, min(step, missing), step)
        for which in (0, 1):
            assert received[which][4:] == data[which]
        for client in clients:
            assert await net.response(client) == b"end"
        assert all(region.released == 1 for region in regions)

    network.run(body)


def test_regions_of_real_files(network, make_frame, tmp_path):
    data = random_bytes(5 << 20)
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([data])
    file.fsync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    ranges = [(0, 100), (4096, 1 << 20), (3 << 20, 2 << 20), (17, 70_000)]

    async def body(net):
        regions = [DiskRegion(file, position, length) for position, length in ranges]
        want = b"|".join(data[position : position + length] for position, length in ranges)
        parts = [struct.pack(">i", len(want))]
        for region in regions:
            parts += [region, b"|"]
        net.dispatcher.answers[b"x"] = lambda: parts[:-1]
        client = await net.connect()
        await net.send(client, make_frame(b"Ax"))
        assert await net.response(client) == want
        assert [region.released for region in regions] == [1, 1, 1, 1]

    network.run(body)
    file.close()


def test_no_request_is_served_while_output_waits(network, make_frame):
    big = random_bytes(6 << 20)

    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [make_frame(big)]
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Ax") * 200)
        connection = await net.only_connection()
        await net.until(lambda: connection.outbound.busy)
        # The socket's own buffer may take the first response or two as a whole.
        served = len(net.dispatcher.requests)
        assert served <= 3
        for _ in range(50):
            await net.turn()
        assert len(net.dispatcher.requests) == served
        assert connection.outbound.queued_parts <= 2
        assert connection._transport.get_write_buffer_size() <= outbound_module.MAX_COPIED_BYTES
        for _ in range(10):
            assert await net.response(client) == big

    network.run(body)


def test_copied_bytes_stay_bounded_for_a_slow_reader(network, make_frame, memory_region):
    data = random_bytes(16 << 20)

    async def body(net):
        for kind in ({}, {"cold": True}):
            region = memory_region(data, **kind)
            net.dispatcher.answers[b"x"] = lambda region=region: [struct.pack(">i", len(data)), region]
            client = await net.connect(receive_buffer=4096)
            await net.send(client, make_frame(b"Ax"))
            await net.until(lambda region=region: region.tries)
            connection = list(net.connections.connections.values())[-1]
            assert struct.unpack(">i", await net.receive(client, 4))[0] == len(data)
            received = bytearray()
            while len(received) < len(data):
                received += await net.receive(client, min(100_000, len(data) - len(received)))
                assert connection._transport.get_write_buffer_size() <= outbound_module.MAX_COPIED_BYTES
            assert received == data
            assert region.released == 1

    network.run(body)


def test_many_small_parts_and_empty_ones(network, make_frame, memory_region):
    pieces = [b"%d," % number for number in range(3000)]
    want = b"".join(pieces)

    async def body(net):
        regions = []

        def parts():
            result = [struct.pack(">i", len(want))]
            for index, piece in enumerate(pieces):
                if index % 3 == 0:
                    regions.append(memory_region(piece))
                    result.append(regions[-1])
                    regions.append(memory_region(b""))
                    result.append(regions[-1])
                else:
                    result += [piece, b""]
            return result

        net.dispatcher.answers[b"x"] = parts
        client = await net.connect()
        await net.send(client, make_frame(b"Ax") * 3)
        for _ in range(3):
            assert await net.response(client) == want
        assert all(region.released == 1 for region in regions)

    network.run(body)


def test_coalesced_responses_of_one_read_are_bounded(network, make_frame):
    """Tiny requests with large answers: only what one read asked for until the socket is full is ever held."""
    big = bytes(1_000_000)

    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [make_frame(big)]
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Ax") * 5000)
        connection = await net.only_connection()
        await net.until(lambda: connection.outbound.busy)
        assert len(net.dispatcher.requests) < 20

    network.run(body)


def test_regions_are_released_when_the_peer_goes_away(network, make_frame, memory_region):
    async def body(net):
        for kind in ({}, {"cold": True}):
            regions = [memory_region(bytes(8 << 20), **kind) for _ in range(3)]
            net.dispatcher.answers[b"x"] = lambda regions=regions: [struct.pack(">i", 24 << 20), *regions]
            client = await net.connect(receive_buffer=4096)
            await net.send(client, make_frame(b"Ax"))
            assert len(await net.receive(client, 10_000)) == 10_000
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await net.until(lambda regions=regions: all(region.released == 1 for region in regions))

    network.run(body)


def test_a_region_that_became_shorter_closes_the_connection(network, make_frame, memory_region, caplog):
    async def body(net):
        region = memory_region(bytes(1000), cold=True, gone=True)
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", 1000), region]
        client = await net.connect()
        await net.send(client, make_frame(b"Ax"))
        assert await net.receive(client, 4) == struct.pack(">i", 1000)
        assert await net.at_end(client)
        assert region.released == 1

    network.run(body)
    assert "the file is shorter" in caplog.text


def test_other_connections_go_on_while_one_reads_from_a_cold_disk(network, make_frame, memory_region):
    async def body(net):
        import threading

        gate = threading.Event()
        region = memory_region(bytes(1000), cold=True)
        read = region.read_into

        def wait_and_read(view, start):
            gate.wait(10)
            return read(view, start)

        region.read_into = wait_and_read
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", 1000), region]
        cold, hot = await net.connect(), await net.connect()
        await net.send(cold, make_frame(b"Ax") + make_frame(b"Eafter"))
        await net.until(lambda: region.tries)
        await net.send(hot, make_frame(b"Ehot"))
        assert await net.response(hot) == b"hot"
        gate.set()
        assert await net.response(cold) == bytes(1000)
        assert await net.response(cold) == b"after"

    network.run(body)
