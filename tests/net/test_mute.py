"""A muted connection: no reads, no served requests, and no lost data."""

from __future__ import annotations

import socket

from ottla.net.connection_set import ConnectionLimits
from ottla.net.connection_state import HALF_CLOSED_MUTED, MUTED, PARKED, READING, RESTING

MUTE_S = 0.2
ABOUT_S = MUTE_S - 0.01
"""Tolerance for a clock in milliseconds."""


async def muted_connection(net, make_frame, duration_s: float = MUTE_S):
    """A client with one served request, and the broker's side of its connection, muted."""
    client = await net.connect()
    await net.send(client, make_frame(b"Efirst"))
    assert await net.response(client) == b"first"
    connection = await net.only_connection()
    connection.mute(duration_s)
    return client, connection


def test_mute_pauses_reads_and_serves_then_keeps_the_order(network, make_frame):
    async def body(net):
        begin = net.loop.time()
        client, connection = await muted_connection(net, make_frame)
        await net.send(client, b"".join(make_frame(b"E%d" % number) for number in range(100)))
        read = net.connections.metrics.bytes_in.value
        for _ in range(20):
            await net.turn()
        assert connection.state.phase is MUTED
        assert net.connections.metrics.bytes_in.value == read
        assert net.dispatcher.requests == [b"Efirst"]
        assert [await net.response(client) for _ in range(100)] == [b"%d" % number for number in range(100)]
        assert net.loop.time() >= begin + ABOUT_S
        assert connection.state.phase is READING

    network.run(body)


def test_mute_inside_a_request_delays_only_later_requests(network, make_frame):
    async def body(net):
        def muting():
            net.dispatcher.channels[0].mute(MUTE_S)
            return [make_frame(b"2")]

        net.dispatcher.answers[b"mute"] = muting
        client = await net.connect()
        begin = net.loop.time()
        await net.send(client, make_frame(b"E1") + make_frame(b"Amute") + make_frame(b"E3") + make_frame(b"E4"))
        assert [await net.response(client) for _ in range(2)] == [b"1", b"2"]
        assert net.dispatcher.requests == [b"E1", b"Amute"]
        assert [await net.response(client) for _ in range(2)] == [b"3", b"4"]
        assert net.loop.time() >= begin + ABOUT_S

    network.run(body)


def test_parked_request_is_answered_during_a_mute(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Pa") + make_frame(b"Eb"))
        await net.until(lambda: net.dispatcher.parked)
        connection = await net.only_connection()
        connection.mute(MUTE_S)
        net.dispatcher.finish()
        assert await net.response(client) == b"a"
        assert net.dispatcher.requests == [b"Pa"]
        assert connection.state.phase is MUTED
        assert await net.response(client) == b"b"

    network.run(body)


def test_request_stays_parked_beyond_the_mute(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Pa") + make_frame(b"Eb"))
        await net.until(lambda: net.dispatcher.parked)
        connection = await net.only_connection()
        connection.mute(0.01)
        await net.until(lambda: connection.state.phase not in RESTING)
        assert connection.state.request is PARKED
        net.dispatcher.finish()
        assert [await net.response(client) for _ in range(2)] == [b"a", b"b"]

    network.run(body)


def test_longest_mute_applies(network, make_frame):
    async def body(net):
        begin = net.loop.time()
        client, connection = await muted_connection(net, make_frame)
        connection.mute(0.001)
        await net.send(client, make_frame(b"Esecond"))
        assert await net.response(client) == b"second"
        assert net.loop.time() >= begin + ABOUT_S
        connection.mute(0.001)
        begin = net.loop.time()
        connection.mute(MUTE_S)
        await net.send(client, make_frame(b"Ethird"))
        assert await net.response(client) == b"third"
        assert net.loop.time() >= begin + ABOUT_S

    network.run(body)


def test_disconnect_during_a_mute_is_detected_at_its_end(network, make_frame):
    async def body(net):
        client, connection = await muted_connection(net, make_frame)
        await net.send(client, make_frame(b"Elast"))
        client.close()
        for _ in range(10):
            await net.turn()
        assert connection.state.phase is MUTED
        await net.until(lambda: net.dispatcher.closed)
        assert net.dispatcher.requests[-1] == b"Elast"

    network.run(body)


def test_half_closed_peer_waits_for_the_end_of_its_mute(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Pa") + b"\0")
        client.shutdown(socket.SHUT_WR)
        connection = await net.only_connection()
        await net.until(lambda: net.dispatcher.parked)
        connection.eof_received()  # the loop does not read behind the half frame, so it would call this only later
        connection.mute(MUTE_S)
        net.dispatcher.finish()
        assert await net.response(client) == b"a"
        assert connection.state.phase is HALF_CLOSED_MUTED
        assert await net.at_end(client)

    network.run(body)


def test_muted_connection_closes_on_request(network, make_frame):
    async def body(net):
        client, connection = await muted_connection(net, make_frame, 60.0)
        connection.close("a test")
        assert await net.at_end(client)
        client, connection = await muted_connection(net, make_frame, 60.0)
        net.connections.quiesce()
        connection.mute(60.0)
        await net.connections.close(5.0)
        assert await net.at_end(client)

    network.run(body)


def test_a_muted_connection_is_not_idle(network, make_frame):
    async def body(net):
        client, _ = await muted_connection(net, make_frame, 0.5)
        await net.send(client, make_frame(b"Esecond"))
        assert await net.response(client) == b"second"
        assert await net.at_end(client)
        assert net.connections.metrics.closed_idle.value == 1

    network.run(body, ConnectionLimits(connections_max_idle_ms=100))


def test_replaced_mute_may_be_shorter_or_over(network, make_frame):
    async def body(net):
        client, connection = await muted_connection(net, make_frame, 3600.0)
        connection.mute(1800.0)
        await net.send(client, make_frame(b"E1"))
        await net.turn()
        assert connection.state.phase is MUTED
        connection.mute(0.0, restart=True)
        assert await net.response(client) == b"1"
        connection.mute(3600.0, restart=True)
        assert connection.state.phase is READING, "without a current mute there is none to replace"

    network.run(body)


def test_mute_is_extended_by_the_callback(network, make_frame):
    async def body(net):
        said = [MUTE_S, MUTE_S, 0.0]
        begin = net.loop.time()
        client, connection = await muted_connection(net, make_frame)
        connection.mute(2 * MUTE_S, more=lambda: said.pop(0))
        await net.send(client, make_frame(b"Esecond"))
        assert await net.response(client) == b"second"
        assert net.loop.time() >= begin + 4 * MUTE_S - 0.03
        assert not said
        connection.mute(0.001)
        await net.send(client, make_frame(b"Ethird"))
        assert await net.response(client) == b"third", "the next mute has no callback"
        connection.mute(0.001, more=lambda: 60.0)
        await net.until(lambda: connection.state.phase is MUTED)
        connection.close("a test")
        assert await net.at_end(client)

    network.run(body)
