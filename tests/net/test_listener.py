"""Accepting within the limits, and without free descriptors."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket

import pytest

from ottla.net import listener as listener_module
from ottla.net.connection_set import NEWCOMER_S, ConnectionLimits
from ottla.net.listener import bind_socket
from ottla.quota.connection_rate import ConnectionRates
from ottla.quota.windows import Windows


def test_at_max_connections_new_clients_wait(network, make_frame):
    async def body(net):
        first, second = await net.connect(), await net.connect()
        for client in (first, second):  # one without a request could be closed in favour of a newer one
            await net.send(client, make_frame(b"Ehello"))
            assert await net.response(client) == b"hello"
        third = await net.connect()
        await net.send(third, make_frame(b"Ehello"))
        assert len(net.connections.connections) == 2
        first.close()
        assert await net.response(third) == b"hello"

    network.run(body, ConnectionLimits(max_connections=2))


def test_raised_limit_admits_waiting_clients(network, make_frame):
    async def body(net):
        first, second = await net.connect(), await net.connect()
        for client in (first, second):
            await net.send(client, make_frame(b"Ehello"))
        assert await net.response(first) == b"hello"
        net.connections.use_limits(ConnectionLimits(max_connections=2))
        assert await net.response(second) == b"hello"
        assert len(net.connections.connections) == 2

    network.run(body, ConnectionLimits(max_connections=1))


def test_connections_without_a_request_are_evicted(network, make_frame, caplog):
    """Thirty silent connections, two places: a client with a request soon gets one, and keeps it."""

    async def body(net):
        silent = [await net.connect() for _ in range(30)]
        honest = await net.connect()
        await net.send(honest, make_frame(b"E1"))
        assert await net.response(honest) == b"1"
        assert await net.at_end(silent[0]), "the oldest is closed first"
        assert net.connections.metrics.closed_silent.value >= 29
        await net.until(lambda: net.connections.metrics.closed_silent.value == 29)
        # A second flood does not evict the client with a request.
        silent += [await net.connect() for _ in range(10)]
        await net.until(lambda: net.connections.metrics.closed_silent.value == 39)
        await net.send(honest, make_frame(b"E2"))
        assert await net.response(honest) == b"2"

    network.run(body, ConnectionLimits(max_connections=2))
    assert "without a request" in caplog.text


def test_incomplete_request_does_not_prevent_eviction(network, make_frame):
    async def body(net):
        half = await net.connect()
        await net.send(half, make_frame(b"Ehello")[:-1])
        honest = await net.connect()
        await net.send(honest, make_frame(b"E1"))
        assert await net.response(honest) == b"1"
        assert await net.at_end(half)

    network.run(body, ConnectionLimits(max_connections=1))


def test_connection_with_a_parked_request_is_not_evicted(network, make_frame):
    async def body(net):
        parked = await net.connect()
        await net.send(parked, make_frame(b"Plater"))
        await net.until(lambda: net.dispatcher.parked)
        waiting = await net.connect()
        await net.send(waiting, make_frame(b"E1"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(net.response(waiting), 3 * NEWCOMER_S)
        channel, payload = net.dispatcher.parked.pop()
        channel.respond([make_frame(payload)])
        assert await net.response(parked) == b"later"
        assert net.connections.metrics.closed_silent.value == 0

    network.run(body, ConnectionLimits(max_connections=1))


def test_address_above_its_limit_is_refused(network, make_frame):
    async def body(net):
        clients = [await net.connect() for _ in range(5)]
        for client in clients:
            try:
                await net.send(client, make_frame(b"Ehello"))
            except ConnectionError:
                continue
        assert await net.response(clients[0]) == b"hello"
        assert await net.response(clients[1]) == b"hello"
        for client in clients[2:]:
            assert await net.at_end(client)
        assert net.connections.metrics.rejected.value == 3
        clients[0].close()
        await net.until(lambda: len(net.connections.connections) == 1)
        again = await net.connect()
        await net.send(again, make_frame(b"Ehello"))
        assert await net.response(again) == b"hello"

    network.run(body, ConnectionLimits(max_connections_per_ip=2))
    overridden = ConnectionLimits(max_connections_per_ip=100, per_ip_overrides={"127.0.0.1": 2, "127.0.0.2": 1})
    network.run(body, overridden)


def test_clients_wait_without_descriptors_while_others_progress(network, make_frame, monkeypatch, caplog):
    monkeypatch.setattr(listener_module, "ACCEPT_RETRY_S", 0.02)

    async def body(net):
        before = await net.connect()
        await net.send(before, make_frame(b"E1"))
        assert await net.response(before) == b"1"
        waiting = net.socket()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
            with pytest.raises(OSError, match="Too many open files"):
                taken.extend(iter(lambda: os.open(os.devnull, os.O_RDONLY), -1))
            await net.loop.sock_connect(waiting, net.address)
            await net.send(waiting, make_frame(b"E2"))
            await net.until(lambda: net.connections.metrics.accept_failures.value >= 2)
            await net.send(before, make_frame(b"E3"))
            assert await net.response(before) == b"3"
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await net.response(waiting) == b"2"

    network.run(body)
    assert "ulimit -n" in caplog.text


def test_closed_listener_frees_its_address_and_keeps_connections(network, make_frame):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"E1"))
        assert await net.response(client) == b"1"
        net.listener.close()
        listener_module.bind_socket(*net.address).close()
        await net.send(client, make_frame(b"E2"))
        assert await net.response(client) == b"2"

    network.run(body)


def test_address_in_use_is_reported():
    first = listener_module.bind_socket("127.0.0.1", 0)
    try:
        with pytest.raises(OSError, match="Address already in use"):
            listener_module.bind_socket(*first.getsockname())
    finally:
        first.close()


class TestRates:
    """KIP-612. Windows of an hour: a delay lasts longer than the test."""

    def rates(self, quotas=None, limit=None):
        rates = ConnectionRates(Windows(2, 3600.0))
        rates.use_quotas(quotas or {})
        rates.limit = limit or rates.limit
        return rates

    def test_connection_above_the_address_rate_is_closed_later(self, network, make_frame):
        async def body(net):
            net.connections.rates = self.rates({(("ip", None),): {"connection_creation_rate": 2 / 3600}})
            clients = [await net.connect() for _ in range(5)]
            for client in clients:
                await net.send(client, make_frame(b"Ehello"))
            assert await net.response(clients[0]) == await net.response(clients[1]) == b"hello"
            await net.until(lambda: net.connections.metrics.throttled.value == 3)
            assert len(net.connections.connections) == 2
            assert len(net.listener._leaving) == 3
            for accepted in list(net.listener._leaving):
                net.listener._leaving[accepted].cancel()
                net.listener._close_refused(accepted, "127.0.0.1")
            assert await net.at_end(clients[2])
            net.connections.rates.use_quotas({})
            again = await net.connect()
            await net.send(again, make_frame(b"E1"))
            assert await net.response(again) == b"1"

        network.run(body)

    def test_delayed_connections_of_a_flood_are_bounded(self, network, make_frame, monkeypatch):
        monkeypatch.setattr(listener_module, "MAX_LEAVING", 2)

        async def body(net):
            net.connections.rates = self.rates({(("ip", None),): {"connection_creation_rate": 1 / 3600}})
            clients = [await net.connect() for _ in range(5)]
            await net.until(lambda: net.connections.metrics.throttled.value == 4)
            assert len(net.listener._leaving) == 2
            for client in clients[3:]:
                assert await net.at_end(client)

        network.run(body, ConnectionLimits(max_connections=10))

    def test_clients_wait_while_the_broker_is_above_its_rate(self, network, make_frame):
        async def body(net):
            net.connections.rates = self.rates(limit=2 / 3600)
            clients = [await net.connect() for _ in range(4)]
            for client in clients:
                await net.send(client, make_frame(b"Ehello"))
            for client in clients[:3]:
                assert await net.response(client) == b"hello"
            for _ in range(20):
                await net.turn()
            assert len(net.connections.connections) == 3
            net.listener.start_accepting()
            assert await net.response(clients[3]) == b"hello"

        network.run(body)


@pytest.mark.parametrize("host", ["", "::"])
def test_wildcard_listener_serves_both_families_on_one_port(network, make_frame, host):
    """IPv4 clients count, and are limited, as 127.0.0.1, not as ::ffff:127.0.0.1."""

    async def body(net):
        port = net.address[1]
        for address in ("127.0.0.1", "::1", "127.0.0.1"):
            client = socket.create_connection((address, port))
            client.setblocking(False)
            net.clients.append(client)
            await net.send(client, make_frame(b"E" + address.encode()))
        assert await net.response(net.clients[0]) == b"127.0.0.1"
        assert await net.response(net.clients[1]) == b"::1"
        assert await net.at_end(net.clients[2])
        assert {channel.client_host for channel in net.dispatcher.channels} == {"127.0.0.1", "::1"}

    network.run(body, ConnectionLimits(per_ip_overrides={"127.0.0.1": 1}), host=host)


@pytest.mark.parametrize("host", ["", "::"])
def test_wildcard_listener_without_ipv6_serves_ipv4(monkeypatch, host):
    class Ipv4Socket(socket.socket):
        def __init__(self, family=-1, *arguments, **keywords):
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *arguments, **keywords)

    monkeypatch.setattr(socket, "socket", Ipv4Socket)
    with bind_socket(host, 0) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize(
    ("addresses", "bound"),
    [
        (["::1", "127.0.0.1"], "127.0.0.1"),  # as Java: IPv4 first
        (["203.0.113.7", "127.0.0.2", "127.0.0.1"], "127.0.0.2"),  # the first is of another machine
        (["203.0.113.7", "::1"], "::1"),
    ],
)
def test_name_with_several_addresses_binds_the_first_local_one(monkeypatch, addresses, bound):
    found = [entry for address in addresses for entry in socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with bind_socket("broker.example", 0) as listening:
        assert listening.getsockname()[0] == bound
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    if addresses[0].startswith("203"):
        with pytest.raises(OSError, match="assign requested address"):
            bind_socket("broker.example", 0)


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "::FFFF:7f00:1"])
def test_mapped_address_is_bound_as_ipv4(host):
    with bind_socket(host, 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
