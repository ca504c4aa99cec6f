"""Pacing: remote connections use the system's algorithm, local ones are not paced."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from ottla.app.process import bind_listeners
from ottla.common.config.broker_configs import BrokerConfig
from ottla.net import congestion
from ottla.net.listener import bind_socket

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


@pytest.fixture
def pacing(monkeypatch) -> bytes:
    """The system's algorithm, declared as pacing, so that the test runs on every Linux."""
    if not ALLOWED.exists():
        pytest.skip("this system does not report its congestion controls")
    with socket.socket() as probe:
        default = congestion.algorithm(probe)
    others = set(ALLOWED.read_bytes().split()) - {default}
    if not others:
        pytest.skip("this system has one congestion control only")
    monkeypatch.setattr(congestion, "PACING", default)
    monkeypatch.setattr(congestion, "UNPACED", others.pop())
    return default


async def algorithm_of_broker(net) -> bytes:
    """The congestion control on the broker's side of a new connection."""
    await net.connect()
    return congestion.algorithm((await net.only_connection())._wire._socket)


def test_local_connections_are_not_paced(pacing, network):
    async def body(net):
        assert await algorithm_of_broker(net) == congestion.UNPACED

    network.run(body)


def test_remote_connections_use_the_systems_pacing(pacing, network, monkeypatch):
    monkeypatch.setattr(congestion, "is_local", lambda accepted, host: False)

    async def body(net):
        assert await algorithm_of_broker(net) == pacing

    network.run(body)


def test_algorithm_without_pacing_is_kept(pacing, monkeypatch):
    monkeypatch.setattr(congestion, "PACING", b"no such algorithm")
    with closing(bind_socket("127.0.0.1", 0)) as listening:
        assert congestion.begin_unpaced(listening) is None
        assert congestion.algorithm(listening) == pacing


def test_unknown_algorithm_is_kept(monkeypatch):
    monkeypatch.setattr(congestion, "_OPTION", -1)
    with closing(bind_socket("127.0.0.1", 0)) as listening:
        assert congestion.algorithm(listening) == b""
        assert congestion.begin_unpaced(listening) is None


def test_listeners_start_unpaced_and_keep_the_systems_pacing(pacing, tmp_path):
    config, _ = BrokerConfig.parse({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    (bound,) = bind_listeners(config, backlog=1)
    with closing(bound.listening):
        assert bound.pacing == pacing
        assert congestion.algorithm(bound.listening) == congestion.UNPACED


def test_own_addresses_are_local():
    with closing(bind_socket("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            own = accepted.getsockname()[0]
            assert client.getpeername()[0] == own
            for host in (own, "127.0.0.2", "::1"):
                assert congestion.is_local(accepted, host)
            for host in ("192.0.2.7", "2001:db8::1", "12.7.0.1"):
                assert not congestion.is_local(accepted, host)


def test_own_ipv4_address_on_a_socket_of_both_families_is_local():
    class Accepted(socket.socket):
        def getsockname(self):
            return "::ffff:192.0.2.2", 9092, 0, 0

    with Accepted() as accepted:
        assert congestion.is_local(accepted, "192.0.2.2")
        assert not congestion.is_local(accepted, "192.0.2.3")
