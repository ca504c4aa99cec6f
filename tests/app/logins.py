"""How a node says who it is, without the other one."""

from __future__ import annotations

from ottla.common.platform.clock import BlockingPool
from ottla.net.peer import Login
from ottla.security.sasl.mechanism import ClientMechanism


def begun(login: Login) -> ClientMechanism:
    """What says it, at once. Raises ConnectionError where there is nothing to say."""
    outcomes: list[tuple[ClientMechanism | None, ConnectionError | None]] = []
    login.begin("host", lambda mechanism, error: outcomes.append((mechanism, error)))
    ((mechanism, error),) = outcomes
    if error is not None:
        raise error
    assert mechanism is not None
    return mechanism


def no_waiters() -> BlockingPool:
    """For who asks nobody."""
    raise AssertionError("nothing waits")
