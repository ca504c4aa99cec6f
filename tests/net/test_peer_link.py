"""Link to one node: when its connection is reused, and when it is replaced."""

from __future__ import annotations

import pytest

from ottla.common.platform.peer import Address
from ottla.net.peer_link import PeerLink

HERE = ("a", 1)
THERE = ("b", 1)


class Connection:
    def __init__(self, address: Address) -> None:
        self.address = address
        self.failed = False

    def request(self, *_: object) -> None:
        raise AssertionError("a link sends nothing")

    def close(self) -> None:
        self.failed = True


class World:
    """A network that records connections, and a link on it."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.link = PeerLink(self)

    def connect(self, host: str, port: int) -> Connection:
        self.connections.append(Connection((host, port)))
        return self.connections[-1]

    def state(self) -> list[tuple[Address, bool]]:
        """Each connection: its target, and whether it is open."""
        return [(connection.address, not connection.failed) for connection in self.connections]


@pytest.fixture
def world() -> World:
    return World()


def test_link_connects_on_first_use(world: World) -> None:
    world.link.leave_unless(HERE)
    world.link.close()
    assert world.state() == []


def test_open_connection_is_reused(world: World) -> None:
    assert world.link.to(HERE) is world.link.to(HERE)
    assert world.state() == [(HERE, True)]


def test_failed_connection_is_replaced(world: World) -> None:
    world.link.to(HERE).close()
    assert not world.link.to(HERE).failed
    assert world.state() == [(HERE, False), (HERE, True)]


def test_connection_to_an_old_address_is_closed(world: World) -> None:
    world.link.to(HERE)
    assert not world.link.to(THERE).failed
    assert world.state() == [(HERE, False), (THERE, True)]


@pytest.mark.parametrize("elsewhere", [THERE, None])
def test_old_address_is_closed_before_the_next_use(world: World, elsewhere: Address | None) -> None:
    world.link.to(HERE)
    world.link.leave_unless(HERE)
    assert world.state() == [(HERE, True)]
    world.link.leave_unless(elsewhere)
    assert world.state() == [(HERE, False)]


def test_use_after_close_opens_a_new_connection(world: World) -> None:
    world.link.to(HERE)
    world.link.close()
    assert not world.link.to(HERE).failed
    assert world.state() == [(HERE, False), (HERE, True)]
