"""Fixtures: a real broker without sockets, and a client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.common.platform.clock import Clock
from ottla.coordinator.runtime import runtime

from .harness import ANSWER_TIMEOUT_S, Connection, Server


@pytest.fixture(autouse=True)
def coordinators_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as any response may take: on a slow disk an earlier response would make a client retry."""
    monkeypatch.setattr(runtime, "LOAD_WAIT_S", ANSWER_TIMEOUT_S)


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def make(*, clock: Clock | None = None, receives_telemetry: bool = False, **settings: str) -> Server:
        server = Server(tmp_path / str(len(servers)), clock=clock, receives_telemetry=receives_telemetry, **settings)
        servers.append(server)
        return server

    yield make
    for server in servers:
        if not server.loop.is_closed():
            server.stop()
            server.loop.close()


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    return make_server()


@pytest.fixture
def client(server: Server) -> Connection:
    return server.connect()
