"""API table of this package: served where a receiver of client metrics exists."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.telemetry.context import TelemetryContext
from ottla.server.requests.api import ApiRow

TELEMETRY_APIS: tuple[ApiRow[TelemetryContext], ...] = (
    ApiRow(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "ottla.server.handlers.telemetry.get_telemetry_subscriptions"),
    ApiRow(ApiKey.PUSH_TELEMETRY, "ottla.server.handlers.telemetry.push_telemetry"),
)
