"""Logins of a node, without a peer."""

from __future__ import annotations

from ottla.common.platform.clock import BlockingPool
from ottla.net.peer import Login
from ottla.security.sasl.mechanism import ClientMechanism


def begun(login: Login) -> ClientMechanism:
    """The client exchange, available immediately. Raises ConnectionError if there is none."""
    outcomes: list[tuple[ClientMechanism | None, ConnectionError | None]] = []
    login.begin("host", lambda mechanism, error: outcomes.append((mechanism, error)))
    ((mechanism, error),) = outcomes
    if error is not None:
        raise error
    assert mechanism is not None
    return mechanism


def no_waiters() -> BlockingPool:
    """A fake for tests without requests."""
    raise AssertionError("nothing waits")
