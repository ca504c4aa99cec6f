"""Output of responses: byte equality under slow readers, cold regions, bounds."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
import threading
from typing import Any

import pytest

from ottla.app.disk import RealDisk
from ottla.net.sender import MAX_COPIED_BYTES, MAX_JOBS

TIMEOUT_S = 20


def random_bytes(count: int, seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(count)


class DiskRegion:
    """A region of a real file, which is always copied."""

    by_reference = False

    def __init__(self, file, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.released = 0

    def read_into(self, view: memoryview, start: int) -> int:
        return self.file.read_into(view[: self.length - start], self.position + start)

    def try_read_into(self, view: memoryview, start: int) -> int:
        return self.file.try_read_into(view[: self.length - start], self.position + start)

    def is_cold(self, start: int, length: int) -> bool:
        return not self.file.is_cached(self.position + start, length)

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize("receive_buffer", [4096, 0])
@pytest.mark.parametrize("kind", ["bytes", "warm", "cold", "mixed", "short", "cold short"])
def test_large_responses_arrive_unchanged(network, make_frame, memory_region, kind, receive_buffer):
    """Two connections share the scratch buffer; the second must not change the unsent bytes of the first."""
    options: dict[str, dict[str, Any]] = {
        "warm": {},
        "cold": {"cold": True},
        "mixed": {"cold_every": 3},
        "short": {"short": 100_000},
    }
    options |= {"cold short": {"cold": True, "short": 100_000}}
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
    file: Any = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([data])
    file.fsync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    ranges = [(0, 100), (4096, 1 << 20), (3 << 20, 2 << 20), (17, 70_000), (8192, 4 << 20), (5, 1 << 20)]

    async def body(net):
        regions = [DiskRegion(file, position, length) for position, length in ranges]
        want = b"|".join(data[position : position + length] for position, length in ranges)
        parts: list[Any] = [struct.pack(">i", len(want))]
        for region in regions:
            parts += [region, b"|"]
        net.dispatcher.answers[b"x"] = lambda: parts[:-1]
        client = await net.connect()
        await net.send(client, make_frame(b"Ax"))
        assert await net.response(client) == want
        # A job's outcome may reach the loop after its bytes reached the client.
        await net.until(lambda: [region.released for region in regions] == [1] * len(ranges))

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
        assert connection._transport.get_write_buffer_size() <= MAX_COPIED_BYTES
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
            await net.until(lambda region=region: region.tries or region.cold_reads)
            connection = list(net.connections.connections.values())[-1]
            assert struct.unpack(">i", await net.receive(client, 4))[0] == len(data)
            received = bytearray()
            while len(received) < len(data):
                received += await net.receive(client, min(100_000, len(data) - len(received)))
                assert connection._transport.get_write_buffer_size() <= MAX_COPIED_BYTES
            assert received == data
            await net.until(lambda region=region: region.released == 1)

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
    """Tiny requests with large responses: at most the responses of one read are held when the socket is full."""
    big = bytes(1_000_000)

    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [make_frame(big)]
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Ax") * 5000)
        connection = await net.only_connection()
        await net.until(lambda: connection.outbound.busy)
        assert len(net.dispatcher.requests) < 20

    network.run(body)


@pytest.mark.parametrize("kind", ["warm", "short", "cold"])
def test_small_regions_between_buffers_arrive_for_a_slow_reader(network, make_frame, memory_region, kind):
    """The responses fill the socket: some leave by one write, one in part, the others wait."""
    kinds: dict[str, dict[str, Any]] = {"warm": {}, "short": {"short": 30_000}, "cold": {"cold": True}}
    count = 200
    data = random_bytes(60_000)

    async def body(net):
        regions = []

        def parts():
            regions.append(memory_region(data, **kinds[kind]))
            return [struct.pack(">i", len(data) + 7) + b"head", regions[-1], b"end"]

        net.dispatcher.answers[b"x"] = parts
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Ax"))
        await net.send(client, make_frame(b"Ax") * (count - 1))
        connection = await net.only_connection()
        await net.until(lambda: connection.outbound.busy)
        for _ in range(count):
            assert await net.response(client) == b"head" + data + b"end"
        await net.until(lambda: len(regions) == count and all(region.released == 1 for region in regions))

    network.run(body)


def test_queued_regions_are_released_when_the_peer_disconnects(network, make_frame, memory_region):
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


def test_truncated_region_closes_the_connection(network, make_frame, memory_region, caplog):
    async def body(net):
        for size in (1000, 1 << 20):
            region = memory_region(bytes(size), cold=True, gone=True)
            net.dispatcher.answers[b"x"] = lambda region=region: [struct.pack(">i", region.length), region]
            client = await net.connect()
            await net.send(client, make_frame(b"Ax"))
            assert await net.receive(client, 4) == struct.pack(">i", size)
            assert await net.at_end(client)
            assert region.released == 1

    network.run(body)
    assert "the file is shorter" in caplog.text


class GatedRegion:
    """A large cold region; its read completes on the test's command."""

    by_reference = False

    def __init__(self, region) -> None:
        self.region = region
        self.length = region.length
        self.gate = threading.Event()
        self.began = threading.Event()

    def is_cold(self, start: int, length: int) -> bool:
        return True

    def read_into(self, view: memoryview, start: int) -> int:
        self.began.set()
        assert self.gate.wait(TIMEOUT_S)
        return self.region.read_into(view, start)

    def release(self) -> None:
        self.region.release()

    @property
    def released(self) -> int:
        return self.region.released


@pytest.fixture
def gated(memory_region):
    """Creates gated regions of given bytes; the gates open at the end of the test at the latest."""
    made = []

    def make(data: bytes) -> GatedRegion:
        made.append(GatedRegion(memory_region(data)))
        return made[-1]

    yield make
    for region in made:
        region.gate.set()


@pytest.mark.parametrize("cold", [False, True])
def test_loop_does_not_try_to_read_a_large_cold_region(network, make_frame, memory_region, cold):
    """A non-blocking read would also make the loop submit the disk's work."""

    async def body(net):
        region = memory_region(random_bytes(1 << 20), cold=cold)
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", (1 << 20) + 1), region, b"|"]
        client = await net.connect()
        await net.send(client, make_frame(b"Ax"))
        assert await net.response(client) == region.data + b"|"
        assert (region.tries == 0) is cold
        assert (region.cold_reads > 0) is cold

    network.run(body)


@pytest.mark.promise("S8")
def test_other_connections_progress_during_a_cold_read(network, make_frame, gated):
    async def body(net):
        region = gated(random_bytes(1 << 20))
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", 1 << 20), region]
        cold, hot = await net.connect(), await net.connect()
        await net.send(cold, make_frame(b"Ax") + make_frame(b"Eafter"))
        await net.until(region.began.is_set)
        await net.send(hot, make_frame(b"Ehot"))
        assert await net.response(hot) == b"hot"
        region.gate.set()
        assert await net.response(cold) == random_bytes(1 << 20)
        assert await net.response(cold) == b"after"

    network.run(body)


def test_cold_readers_use_a_bounded_part_of_the_pool(network, make_frame, gated):
    """Twice as many readers as may run: the waiting ones use no thread, and can be dropped."""

    async def body(net):
        regions = [gated(random_bytes(200_000, seed)) for seed in range(2 * MAX_JOBS)]
        clients = []
        for number, region in enumerate(regions):
            net.dispatcher.answers[b"%d" % number] = lambda region=region: [struct.pack(">i", 200_000), region]
            clients.append(await net.connect())
            await net.send(clients[-1], make_frame(b"A%d" % number))
            await net.until(lambda number=number: len(net.dispatcher.requests) > number)
        first, waiting = regions[:MAX_JOBS], regions[MAX_JOBS:]
        await net.until(lambda: all(region.began.is_set() for region in first))
        fsync = net.loop.create_future()
        net.pool.submit(lambda: "done", lambda result, error: fsync.set_result(result))
        assert await fsync == "done"
        list(net.connections.connections.values())[MAX_JOBS].abort("a test")
        assert waiting[0].released == 1
        for region in first:
            region.gate.set()
        await net.until(lambda: all(region.began.is_set() for region in waiting[1:]))
        assert not waiting[0].began.is_set()
        for region in waiting:
            region.gate.set()
        for number, client in enumerate(clients):
            if number != MAX_JOBS:
                assert await net.response(client) == random_bytes(200_000, number)
        await net.until(lambda: all(region.released == 1 for region in regions))

    network.run(body)


def test_closed_connection_under_a_job_keeps_its_descriptor(network, make_frame, gated):
    async def body(net):
        region = gated(b"secret" * 50_000)
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", region.length), region]
        await net.send(await net.connect(), make_frame(b"Ax"))
        await net.until(region.began.is_set)
        connection = await net.only_connection()
        number = connection._wire.descriptor
        others = [net.socket() for _ in range(3)]  # so that a connection of the broker gets the number
        connection.abort("a test")
        await net.until(lambda: not net.connections.connections)
        for other in others:
            await net.loop.sock_connect(other, net.address)
            await net.send(other, make_frame(b"Ehello"))
            assert await net.response(other) == b"hello"
        assert number in [connection._wire.descriptor for connection in net.connections.connections.values()]
        assert region.released == 0
        region.gate.set()
        await net.until(lambda: region.released == 1)
        for other in others:
            await net.send(other, make_frame(b"Eagain"))
            assert await net.response(other) == b"again"

    network.run(body)


def test_missing_descriptor_for_a_job_closes_its_connection(network, make_frame, memory_region, monkeypatch):
    async def body(net):
        region = memory_region(bytes(1 << 20), cold=True)
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", 1 << 20), region]
        client, other = await net.connect(), await net.connect()

        def refuse(fd):
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(os, "dup", refuse)
            await net.send(client, make_frame(b"Ax"))
            assert len(await net.receive(client, 5)) == 4, "the header, and then the end"
        assert region.released == 1
        await net.send(other, make_frame(b"Eon"))
        assert await net.response(other) == b"on"

    network.run(body)
