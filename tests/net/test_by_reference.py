"""Only committed records are sent from the page cache by sendfile; on real segments and sockets."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
from typing import Any

import pytest

from ottla.app.disk import RealDisk
from ottla.common.platform.shares import TICK_S, FairQueue
from ottla.metrics.registry import Counter
from ottla.net.connection_state import ConnectionState
from ottla.net.outbound import LARGE_REGION_BYTES, MAX_BYTES_PER_TICK, Outbound, Scratch
from ottla.net.wire import PlainWire
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.segment.data import SegmentRegion
from ottla.storage.segment.segment import Segment

DATA = random.Random(11).randbytes(6 << 20)


class WarmRegion(SegmentRegion):
    """A region that always counts as cached."""

    try_read_into = SegmentRegion.read_into

    def is_cold(self, start: int, length: int) -> bool:
        return False


class Store:
    """A segment that contains `DATA`, and the calls that sent it by reference."""

    def __init__(self, path) -> None:
        folder = Folder(Descriptors(RealDisk(), 8), str(path))
        self.segment = Segment.create(folder, 0, 0, 4096)
        self.segment.data.append(DATA, len(DATA))
        self.calls = []
        """Requested and sent bytes of each call."""

    def region(self, position: int, length: int, *, committed: bool = True):
        region = WarmRegion(self.segment.data, self.segment.data.descriptor, position, length)
        region.committed = committed
        return region

    @property
    def held(self) -> int:
        return self.segment.data.descriptor.pins

    def sendfile(self, socket, file, position, count):
        self.calls.append((count, 0))
        taken = SENDFILE(socket, file, position, count)
        self.calls[-1] = (count, taken)
        return taken


SENDFILE = os.sendfile


@pytest.fixture
def store(tmp_path, monkeypatch):
    store = Store(tmp_path)
    monkeypatch.setattr(os, "sendfile", store.sendfile)
    yield store
    store.segment.close()


@pytest.mark.parametrize("receive_buffer", [4096, 0])
def test_odd_file_ranges_between_buffers_arrive_unchanged(network, make_frame, memory_region, store, receive_buffer):
    """Two connections at once, so that unsent bytes of one meet the scratch buffer of the other."""
    ranges = [(0, 100_001), (4097, 1 << 20), (17, 70_000), (3, 1000), (8191, 3_000_003), (5, LARGE_REGION_BYTES)]
    ranges += [(len(DATA) - 65_537, 65_537), (1 << 20, 2 << 20)]
    want = b"".join(DATA[at : at + length] + b"|%d|" % at + DATA[:90_000] for at, length in ranges)

    def parts():
        made = [struct.pack(">i", len(want))]
        for at, length in ranges:
            made += [store.region(at, length), b"|%d|" % at, memory_region(DATA[:90_000])]
        return made

    async def body(net):
        net.dispatcher.answers[b"x"] = parts
        clients = [await net.connect(receive_buffer), await net.connect(receive_buffer)]
        for client in clients:
            await net.send(client, make_frame(b"Ax") + make_frame(b"Eend"))
        await net.until(lambda: len(net.dispatcher.requests) >= 2)
        received = [bytearray(), bytearray()]
        while any(len(got) < 4 + len(want) for got in received):
            for got, client in zip(received, clients, strict=True):
                missing = 4 + len(want) - len(got)
                if missing:
                    got += await net.receive(client, min(missing, 200_000))
        for got, client in zip(received, clients, strict=True):
            assert got[4:] == want
            assert await net.response(client) == b"end"
        await net.until(lambda: store.held == 0)

    network.run(body)
    assert any(taken for _, taken in store.calls)
    assert all(count >= LARGE_REGION_BYTES for count, _ in store.calls)
    if receive_buffer:
        assert any(taken < count for count, taken in store.calls), "the socket never was full"


def test_uncommitted_or_small_regions_are_copied(network, make_frame, store):
    ranges = [(0, 2 << 20, False), (7, LARGE_REGION_BYTES - 1, True), (9, 100_000, False)]
    want = b"".join(DATA[at : at + length] for at, length, _ in ranges)

    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [
            struct.pack(">i", len(want)),
            *[store.region(at, length, committed=committed) for at, length, committed in ranges],
        ]
        client = await net.connect()
        await net.send(client, make_frame(b"Ax"))
        assert await net.response(client) == want
        await net.until(lambda: store.held == 0)

    network.run(body)
    assert store.calls == []


def test_cold_regions_are_sent_from_the_pool(network, make_frame, store):
    """Uncached at first; later reads may find it in the page cache, and be sent by reference."""
    store.segment.data.descriptor.file().fsync()
    os.posix_fadvise(store.segment.data.descriptor.file().fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def parts():
        regions = [store.segment.data.region(at, 1_000_001) for at in (0, 3 << 20)]
        for region in regions:
            region.committed = True
        return [struct.pack(">i", 2_000_002), *regions]

    async def body(net):
        net.dispatcher.answers[b"x"] = parts
        client = await net.connect()
        for _ in range(2):
            await net.send(client, make_frame(b"Ax"))
            assert await net.response(client) == DATA[:1_000_001] + DATA[3 << 20 : (3 << 20) + 1_000_001]
        await net.until(lambda: store.held == 0)

    network.run(body)


def test_missing_sendfile_support_is_detected_once(network, make_frame, store, monkeypatch):
    asked = []

    def refuse(*arguments):
        asked.append(arguments)
        raise OSError(errno.EINVAL, "invalid argument")

    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", 3 << 20), store.region(5, 3 << 20)]
        client = await net.connect()
        for _ in range(2):
            await net.send(client, make_frame(b"Ax"))
            assert await net.response(client) == DATA[5 : 5 + (3 << 20)]
        await net.until(lambda: store.held == 0)

    monkeypatch.setattr(os, "sendfile", refuse)
    network.run(body)
    assert len(asked) == 1


def test_regions_are_released_when_the_peer_disconnects(network, make_frame, store):
    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [
            struct.pack(">i", 3 * len(DATA)),
            *[store.region(0, len(DATA)) for _ in range(3)],
        ]
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Ax"))
        assert await net.receive(client, 10_000) == (struct.pack(">i", 3 * len(DATA)) + DATA)[:10_000]
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await net.until(lambda: store.held == 0)

    network.run(body)
    assert store.calls


def test_truncated_file_closes_the_connection(network, make_frame, store, caplog):
    os.truncate(store.segment.data.path, 3 << 20)

    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", len(DATA)), store.region(0, len(DATA))]
        client = await net.connect()
        await net.send(client, make_frame(b"Ax"))
        received = await net.receive(client, 4 + len(DATA))
        assert received[4:] == DATA[: len(received) - 4]
        assert await net.at_end(client)
        await net.until(lambda: store.held == 0)

    network.run(body)
    assert caplog.text.count("the file is shorter") == 1


def test_truncation_under_a_sent_region_closes_the_connection(network, make_frame, store, caplog):
    async def body(net):
        net.dispatcher.answers[b"x"] = lambda: [struct.pack(">i", len(DATA)), store.region(0, len(DATA))]
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Ax"))
        assert await net.receive(client, 10_000) == (struct.pack(">i", len(DATA)) + DATA)[:10_000]
        store.segment.truncate_to_position(len(DATA) - 1, 1)
        assert len(await net.receive(client, len(DATA))) < len(DATA) - 10_000 + 4
        await net.until(lambda: store.held == 0)

    network.run(body)
    assert caplog.text.count("truncated under a read") == 1


def test_large_responses_of_many_readers_share_one_tick(network, make_frame, store, monkeypatch):
    """Each call takes 0.6 of a tick: two of eight readers are served before a small request."""
    now_s = 0.0

    def slow(*arguments):
        nonlocal now_s
        now_s += 0.6 * TICK_S
        return store.sendfile(*arguments)

    async def body(net):
        net.connections.fair_queue = FairQueue(lambda: now_s, net.loop)
        size = 100_000
        net.dispatcher.answers[b"large"] = lambda: [struct.pack(">i", size), store.region(0, size)]
        calls_before = []

        def small():
            calls_before.append(len(store.calls))
            return [make_frame(b"small")]

        net.dispatcher.answers[b"small"] = small
        readers, other = [await net.connect() for _ in range(8)], await net.connect()
        await net.until(lambda: len(net.connections.connections) == 9)
        for reader in readers:
            reader.send(make_frame(b"Alarge"))
        other.send(make_frame(b"Asmall"))
        assert await net.response(other) == b"small"
        assert calls_before[0] <= 4
        for reader in readers:
            assert await net.response(reader) == DATA[:size]
        await net.until(lambda: store.held == 0)

    monkeypatch.setattr(os, "sendfile", slow)
    network.run(body)


class Turns:
    """The loop functions used by the output: a callback is stored until the test takes it."""

    def __init__(self) -> None:
        self.due = []

    def call_soon(self, callback) -> None:
        self.due.append(callback)


class FileTarget:
    """The socket functions used by the output, writing to a file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def sendmsg(self, buffers, ancillary, flags) -> int:
        return os.writev(self._fd, buffers)


def test_other_connections_get_a_turn_after_about_a_mib(store, tmp_path):
    """Into a file, which never blocks: only the output's own limit ends the turn."""
    loop: Any = Turns()
    idle = []
    target = os.open(tmp_path / "received", os.O_CREAT | os.O_WRONLY)
    wire: Any = FileTarget(target)
    make: Any = Outbound  # duck-typed collaborators are enough here
    outbound = make(
        None,
        PlainWire(wire),
        ConnectionState(),
        Scratch(),
        None,
        FairQueue(lambda: 0.0, loop),
        Counter(),
        lambda: idle.append(True),
        pytest.fail,
    )
    outbound.send([b"head", *[store.region(at, 300_000) for at in range(0, 4_500_000, 300_000)], b"tail"])
    turns = 1
    sent = os.fstat(target).st_size
    while loop.due:
        assert not idle
        assert outbound.busy
        turns += 1
        loop.due.pop()()
        now = os.fstat(target).st_size
        assert 0 < now - sent < MAX_BYTES_PER_TICK + 300_000
        sent = now
    assert turns >= 4
    assert idle
    assert not outbound.busy
    os.close(target)
    assert (tmp_path / "received").read_bytes() == b"head" + DATA[:4_500_000] + b"tail"
    assert sum(taken for _, taken in store.calls) == 4_500_000
    assert store.held == 0
