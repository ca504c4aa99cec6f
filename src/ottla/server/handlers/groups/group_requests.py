"""What the handlers of all group APIs share: who asks, and how the coordinator's answer gets back.

The coordinator answers each request once, now or later; until then the channel is parked, so requests of one connection
keep their order also behind a JoinGroup that waits for its rebalance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.coordinator.group.context import RequestContext
from ottla.server.request import Request


def request_context(request: Request) -> RequestContext:
    """The client as groups remember and describe it; the host in the form of Apache Kafka's tools."""
    channel = request.channel
    return RequestContext(
        request.client_id or "", f"/{channel.client_host}", request.api_version, channel.listener_name
    )


def answering(request: Request) -> Callable[[Any], None]:
    """A callback that finishes `request` with the response it is called with."""

    def done(response: Any) -> None:
        request.answer(lambda: response)

    return done
