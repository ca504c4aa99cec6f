"""The application of the console in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.console.application import create_application
from ottla.console.client_scrapes import ClientScrapes
from ottla.console.context import Services
from ottla.console.flow_meter import FlowMeter
from ottla.console.openid import OpenIdProvider
from ottla.console.route import Route
from ottla.console.routes import ROUTES
from ottla.console.sessions import SessionStore
from ottla.console.settings import ConsoleSettings, Transport
from ottla.console.sign_in import SignInThrottle
from ottla.console.tables import TableIndex

from .browsing import Browser, CountingRng, ManualClock, NoCluster

ANONYMOUS = Transport()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


Open = Callable[..., Browser]


@pytest.fixture
def browse(clock: ManualClock) -> Open:
    """A browser at an application with these settings and rows."""

    def open_browser(routes: Sequence[Route] = ROUTES, transport: Transport = ANONYMOUS, **settings: Any) -> Browser:
        chosen = ConsoleSettings("127.0.0.1:9092", transport, **{"tables": "/no/tables", **settings})
        openid = transport.openid
        services = Services(
            chosen,
            SessionStore(clock, CountingRng()),
            SignInThrottle(clock),
            clock,
            NoCluster,  # type: ignore[arg-type]
            FlowMeter(),
            ClientScrapes(chosen.metrics, clock),
            openid=None if openid is None else OpenIdProvider(openid, clock),
            tables=None if chosen.tables is None else TableIndex(chosen.tables, clock),
        )
        return Browser(create_application(services, routes), services)

    return open_browser
