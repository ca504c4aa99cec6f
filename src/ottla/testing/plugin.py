"""The pytest plugin, found by its entry point: fixtures with a real broker.

    def test_mine(ottla_broker):
        client = Client(ottla_broker.bootstrap_servers)

The plugin is loaded by every pytest run of an environment with Ottla, so it defers expensive imports until a fixture is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


@pytest.fixture(scope="session")
def ottla_broker() -> Iterator[Broker]:
    """One broker for the test session; use separate topics in each test."""
    from ottla.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def ottla_broker_factory() -> Iterator[Callable[..., Broker]]:
    """A function that starts a broker (arguments of `ottla.testing.Broker`); all brokers are stopped after the test."""
    from ottla.testing.broker import Broker

    with ExitStack() as stack:

        def start_broker(**arguments: Any) -> Broker:
            broker = Broker(**arguments)
            stack.callback(broker.close)
            return broker.start()

        yield start_broker
