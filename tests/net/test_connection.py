"""Connections on real sockets: framing, order, parking, closing."""

from __future__ import annotations

import gc
import socket
import struct

import pytest

from ottla.common.platform.shares import TICK_S, FairQueue
from ottla.net import connection as connection_module
from ottla.net.connection import MAX_REQUESTS_PER_TICK, Connection
from ottla.net.connection_set import RECEIVE_BYTES, ConnectionLimits
from ottla.net.connection_state import HALF_CLOSED, HELD
from ottla.net.wire import PlainWire


def test_pipelined_requests_are_answered_in_order(network, make_frame):
    async def body(net):
        client = await net.connect()
        payloads = [b"%d" % number for number in range(5000)]
        await net.send(client, b"".join(make_frame(b"E" + payload) for payload in payloads))
        for payload in payloads:
            assert await net.response(client) == payload

    network.run(body)


def test_frames_arrive_byte_by_byte(network, make_frame):
    async def body(net):
        client = await net.connect()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = make_frame(b"Efirst") + make_frame(b"N") + make_frame(b"Esecond")
        for position in range(len(stream)):
            seen = net.connections.metrics.bytes_in.value
            await net.send(client, stream[position : position + 1])
            await net.until(lambda seen=seen: net.connections.metrics.bytes_in.value == seen + 1)
        assert await net.response(client) == b"first"
        assert await net.response(client) == b"second"
        assert net.dispatcher.requests == [b"Efirst", b"N", b"Esecond"]

    network.run(body)


@pytest.mark.parametrize("step", [1000, 30_000, 65_536, 70_001, 1 << 20])
def test_frames_of_all_sizes_cut_anywhere(network, make_frame, step):
    sizes = [0, 5, 31, 32_763, 32_764, 65_531, 65_532, 65_533, 200_000, 262_144, 1 << 20, 3 << 20, 10, 100_000, 1]

    async def body(net):
        client = await net.connect()
        payloads = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
        stream = b"".join(make_frame(b"N" + payload) for payload in payloads) + make_frame(b"Eend")
        for position in range(0, len(stream), step):
            await net.send(client, stream[position : position + step])
        assert await net.response(client) == b"end"
        assert net.dispatcher.requests == [b"N" + payload for payload in payloads] + [b"Eend"]

    network.run(body)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1001])
def test_size_outside_the_limit_closes_without_allocation(network, make_frame, size, caplog):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Ebefore") + struct.pack(">i", size) + b"rest")
        assert await net.response(client) == b"before"
        assert await net.at_end(client)
        assert net.connections.metrics.protocol_errors.value == 1

    network.run(body, ConnectionLimits(socket_request_max_bytes=1000))
    assert "socket.request.max.bytes" in caplog.text


def test_own_buffer_grows_with_received_not_announced_bytes(network):
    async def body(net):
        client = await net.connect()
        await net.send(client, struct.pack(">i", 90 << 20) + bytes(1000))
        await net.until(lambda: net.connections.metrics.bytes_in.value == 1004)
        connection = await net.only_connection()
        assert len(connection._own) == 1004
        await net.send(client, bytes(1 << 20))
        await net.until(lambda: net.connections.metrics.bytes_in.value == 1004 + (1 << 20))
        assert len(connection._own) <= 4 << 20

    network.run(body)


@pytest.mark.promise("S9")
def test_parked_request_delays_later_requests(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Ea") + make_frame(b"Pb") + make_frame(b"Ec") + make_frame(b"Pd"))
        assert await net.response(client) == b"a"
        await net.until(lambda: net.dispatcher.parked)
        assert net.dispatcher.requests == [b"Ea", b"Pb"]
        # A second read must not overtake either, and only one is read.
        await net.send(client, make_frame(b"Ee") * 10)
        net.dispatcher.finish()
        assert await net.response(client) == b"b"
        assert await net.response(client) == b"c"
        await net.until(lambda: net.dispatcher.parked)
        net.dispatcher.finish()
        assert [await net.response(client) for _ in range(11)] == [b"d"] + [b"e"] * 10

    network.run(body)


def test_parked_connections_do_not_delay_others(network, make_frame):
    async def body(net):
        first, second = await net.connect(), await net.connect()
        await net.send(first, make_frame(b"Pslow"))
        await net.until(lambda: net.dispatcher.parked)
        await net.send(second, make_frame(b"Efast"))
        assert await net.response(second) == b"fast"
        net.dispatcher.finish()
        assert await net.response(first) == b"slow"

    network.run(body)


@pytest.mark.parametrize("size", [1000, 60_000])
def test_connection_with_endless_input_yields_to_others(network, make_frame, size):
    async def body(net):
        flooding, other = await net.connect(), await net.connect()
        await net.until(lambda: len(net.connections.connections) == 2)
        # In the system's buffers before the loop turns: the broker finds both at once, and it finds this one first.
        held = fill(flooding, make_frame(b"N" + bytes(size)) * (8 * RECEIVE_BYTES // size + 8))
        other.send(make_frame(b"Eother"))
        await net.until(lambda: b"Eother" in net.dispatcher.requests)
        before = net.dispatcher.requests.index(b"Eother")
        assert held > 4 * RECEIVE_BYTES
        assert before <= max(2 * RECEIVE_BYTES // size, 1)

    network.run(body)


def test_bulk_input_is_read_in_turns_of_the_fair_queue(network, make_frame, monkeypatch):
    received = []
    receive = PlainWire.receive

    def counted(wire, view):
        received.append(receive(wire, view))
        return received[-1]

    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"N" + bytes(60_000)) * 40 + make_frame(b"Eend"))
        assert await net.response(client) == b"end"
        assert len(net.dispatcher.requests) == 41

    monkeypatch.setattr(PlainWire, "receive", counted)
    network.run(body)
    assert any(received)


def test_many_small_requests_in_one_read_yield_to_others(network, make_frame):
    async def body(net):
        flooding, other = await net.connect(), await net.connect()
        await net.until(lambda: len(net.connections.connections) == 2)
        frame = make_frame(b"Eflood")
        count = RECEIVE_BYTES // (2 * len(frame))
        flood = frame * count + make_frame(b"Elast")
        assert fill(flooding, flood) == len(flood)
        other.send(make_frame(b"Eother"))
        await net.until(lambda: b"Eother" in net.dispatcher.requests)
        assert net.dispatcher.requests.index(b"Eother") <= 2 * MAX_REQUESTS_PER_TICK < count
        assert [await net.response(flooding) for _ in range(count + 1)] == [b"flood"] * count + [b"last"]

    network.run(body)


@pytest.mark.parametrize("extra", [0, 1])
def test_half_closed_peer_gets_answers_over_several_turns(network, make_frame, extra):
    async def body(net):
        client = await net.connect()
        frames = [make_frame(b"E%d" % number) for number in range(4 * MAX_REQUESTS_PER_TICK + extra)]
        await net.send(client, b"".join(frames))
        client.shutdown(socket.SHUT_WR)
        assert [await net.response(client) for _ in frames] == [b"%d" % number for number in range(len(frames))]
        assert await net.at_end(client)

    network.run(body)


def fill(client: socket.socket, data: bytes) -> int:
    """Fill the system's buffers without a reader; returns the bytes sent."""
    sent = 0
    while sent < len(data):
        try:
            sent += client.send(memoryview(data)[sent:])
        except BlockingIOError:
            break
    return sent


def test_reading_pauses_while_frames_wait(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Px"))
        await net.until(lambda: net.dispatcher.parked)
        flood = make_frame(b"N" + bytes(1000)) * 10_000
        sender = net.loop.create_task(net.send(client, flood + make_frame(b"Eend")))
        connection = await net.only_connection()
        await net.until(lambda: connection.state.phase is HELD)
        assert len(connection._own) <= 128 * 1024
        assert len(net.dispatcher.requests) == 1
        net.dispatcher.finish()
        assert await net.response(client) == b"x"
        assert await net.response(client) == b"end"
        await sender
        assert len(net.dispatcher.requests) == 10_002

    network.run(body)


def test_response_from_inside_handle_keeps_its_place(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"E1") + make_frame(b"S2") + make_frame(b"E3"))
        assert [await net.response(client) for _ in range(3)] == [b"1", b"2", b"3"]

    network.run(body)


def test_protocol_error_closes_after_the_responses_before_it(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Eok") + make_frame(b"?") + make_frame(b"Enever"))
        assert await net.response(client) == b"ok"
        assert await net.at_end(client)
        assert net.dispatcher.requests == [b"Eok", b"?"]
        await net.until(lambda: net.dispatcher.closed)

    network.run(body)


def test_close_inside_handle_sends_earlier_responses(network, make_frame):
    async def body(net):
        client = await net.connect()
        big = bytes(3_000_000)
        net.dispatcher.answers[b"big"] = lambda: [make_frame(big)]
        await net.send(client, make_frame(b"Ea") + make_frame(b"C") + make_frame(b"Enever"))
        assert await net.response(client) == b"a"
        assert await net.at_end(client)
        # Again, while the output doesn't fit into the socket.
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Abig"))
        connection = await net.only_connection()
        await net.until(lambda: connection.outbound.busy)
        connection.close("test")
        assert await net.response(client) == big
        assert await net.at_end(client)

    network.run(body)


def test_lost_connection_is_freed_without_a_collection(network, make_frame):
    async def body(net):
        gc.collect()
        client = await net.connect()
        await net.send(client, make_frame(b"Ea"))
        assert await net.response(client) == b"a"
        gc.disable()  # a broker collects garbage rarely
        try:
            client.close()
            await net.until(lambda: net.dispatcher.closed)
            net.dispatcher.closed.clear()
            net.dispatcher.channels.clear()
            await net.turn()
            assert not [each for each in gc.get_objects() if type(each) is Connection]
        finally:
            gc.enable()

    network.run(body)


def test_close_flushes_output_to_a_half_closed_peer(network, make_frame):
    async def body(net):
        big = bytes(range(256)) * 20_000
        net.dispatcher.answers[b"big"] = lambda: [make_frame(big)]
        client = await net.connect(receive_buffer=4096)
        await net.send(client, make_frame(b"Abig"))
        connection = await net.only_connection()
        await net.until(lambda: connection.outbound.busy)
        connection.close("a test")
        client.shutdown(socket.SHUT_WR)
        assert await net.response(client) == big
        assert await net.at_end(client)

    network.run(body)


def test_unexpected_error_closes_only_that_connection(network, make_frame, caplog):
    async def body(net):
        client, other = await net.connect(), await net.connect()
        await net.send(client, make_frame(b"Eok") + make_frame(b"U"))
        assert await net.response(client) == b"ok"
        assert await net.at_end(client)
        await net.send(other, make_frame(b"Ealive"))
        assert await net.response(other) == b"alive"
        assert not net.fatal

    network.run(body)
    assert "planted" in caplog.text


def test_broken_invariant_reaches_the_owner(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"I"))
        assert await net.at_end(client)
        assert [str(error) for error in net.fatal] == ["planted"]

    network.run(body)


def test_half_closed_peer_gets_all_its_answers(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Ea") + make_frame(b"Pb") + make_frame(b"Ec"))
        client.shutdown(socket.SHUT_WR)
        assert await net.response(client) == b"a"
        await net.until(lambda: net.dispatcher.parked)
        net.dispatcher.finish()
        assert await net.response(client) == b"b"
        assert await net.response(client) == b"c"
        assert await net.at_end(client)
        await net.until(lambda: not net.connections.connections)

    network.run(body)


def test_half_closed_peer_gets_the_answer_of_its_parked_request(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Pb"))
        await net.until(lambda: net.dispatcher.parked)
        client.shutdown(socket.SHUT_WR)
        connection = await net.only_connection()
        await net.until(lambda: connection.state.phase is HALF_CLOSED)
        net.dispatcher.finish()
        assert await net.response(client) == b"b"
        assert await net.at_end(client)

    network.run(body)


def test_parked_request_of_a_half_closed_peer_times_out(network, make_frame, monkeypatch):
    monkeypatch.setattr(connection_module, "HALF_CLOSED_GRACE_S", 0.05)

    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Pb"))
        await net.until(lambda: net.dispatcher.parked)
        client.shutdown(socket.SHUT_WR)
        assert await net.at_end(client)
        await net.until(lambda: net.dispatcher.closed)

    network.run(body)


def test_half_closed_peer_reads_a_large_answer(network, make_frame):
    async def body(net):
        client = await net.connect(receive_buffer=4096)
        big = bytes(range(256)) * 20_000
        net.dispatcher.answers[b"big"] = lambda: [make_frame(big)]
        await net.send(client, make_frame(b"Abig"))
        client.shutdown(socket.SHUT_WR)
        assert await net.response(client) == big
        assert await net.at_end(client)

    network.run(body)


def test_end_of_input_in_the_middle_of_a_frame_closes(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Ea") + b"\x00\x00\x00\x10half")
        assert await net.response(client) == b"a"
        client.shutdown(socket.SHUT_WR)
        assert await net.at_end(client)
        assert net.dispatcher.requests == [b"Ea"]

    network.run(body)


def test_peer_that_resets_while_its_request_is_parked(network, make_frame, memory_region):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Pb"))
        await net.until(lambda: net.dispatcher.parked)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await net.until(lambda: net.dispatcher.closed)
        ((channel, _),) = net.dispatcher.parked
        assert channel.closed
        region = memory_region(b"late")
        channel.respond([b"\0\0\0\4", region])
        assert region.released == 1

    network.run(body)


def test_quiesced_connections_answer_only_parked_requests(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Pb") + make_frame(b"Enever"))
        await net.until(lambda: net.dispatcher.parked)
        net.connections.quiesce()
        net.dispatcher.finish()
        assert await net.response(client) == b"b"
        await net.send(client, make_frame(b"Enever"))
        await net.connections.close(5.0)
        assert await net.at_end(client)
        assert net.dispatcher.requests == [b"Pb"]

    network.run(body)


def test_idle_connections_close_and_busy_ones_stay(network, make_frame):
    async def body(net):
        idle, parked = await net.connect(), await net.connect()
        await net.send(parked, make_frame(b"Pb"))
        assert await net.at_end(idle)
        assert net.connections.metrics.closed_idle.value == 1
        net.dispatcher.finish()
        assert await net.response(parked) == b"b"

    network.run(body, ConnectionLimits(connections_max_idle_ms=100))


def test_zero_idle_time_closes_connections_without_busy_loop(network, make_frame):
    async def body(net):
        sweeps = 0
        sweep = connection_module.Connection.sweep

        def counted(connection):
            nonlocal sweeps
            sweeps += 1
            return sweep(connection)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection_module.Connection, "sweep", counted)
            client = await net.connect()
            await net.send(client, make_frame(b"Pb"))
            begin = net.loop.time()
            await net.until(lambda: net.loop.time() > begin + 0.2)
            assert sweeps < 30
            net.dispatcher.finish()
            assert await net.response(client) == b"b"
            assert await net.at_end(client)

    network.run(body, ConnectionLimits(connections_max_idle_ms=0))


def test_a_peer_that_never_reads_counts_as_idle(network, make_frame):
    async def body(net):
        client = await net.connect(receive_buffer=4096)
        net.dispatcher.answers[b"big"] = lambda: [make_frame(bytes(20_000_000))]
        await net.send(client, make_frame(b"Abig"))
        await net.until(lambda: net.dispatcher.closed)

    network.run(body, ConnectionLimits(connections_max_idle_ms=200))


def test_unused_large_buffer_is_freed(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"E" + bytes(500_000)))
        await net.response(client)
        connection = await net.only_connection()
        assert connection._own is not None
        connection.sweep()
        connection.sweep()
        assert connection._own is None
        await net.send(client, make_frame(b"E" + bytes(500_000)))
        assert len(await net.response(client)) == 500_000
        await net.send(client, make_frame(b"E" + bytes(5_000_000)))
        assert len(await net.response(client)) == 5_000_000
        assert connection._own is None

    network.run(body)


class StillClock:
    """The loop with a clock that only the test moves."""

    def __init__(self, loop):
        self._loop = loop
        self.now_s = 0.0

    def time(self):
        return self.now_s

    def __getattr__(self, name):
        return getattr(self._loop, name)


@pytest.mark.parametrize("pipelines", [1, 10])
def test_pipelines_of_slow_requests_share_one_tick(network, make_frame, pipelines):
    """Each request takes 0.6 of a tick: two are served, then one of each other connection."""

    async def body(net):
        clock = net.connections.loop = StillClock(net.loop)
        net.connections.fair_queue = FairQueue(clock.time, net.loop)

        def slow():
            clock.now_s += 0.6 * TICK_S
            return [make_frame(b"done")]

        net.dispatcher.answers[b"slow"] = slow
        slow_clients, other = [await net.connect() for _ in range(pipelines)], await net.connect()
        await net.until(lambda: len(net.connections.connections) == pipelines + 1)
        for client in slow_clients:
            fill(client, make_frame(b"Aslow") * 20)
        fill(other, make_frame(b"Eother"))
        await net.until(lambda: b"Eother" in net.dispatcher.requests)
        assert net.dispatcher.requests.index(b"Eother") <= pipelines + 3
        for client in slow_clients:
            assert [await net.response(client) for _ in range(20)] == [b"done"] * 20

    network.run(body)
