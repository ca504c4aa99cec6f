"""GetTelemetrySubscriptions (key 71): the metrics that a client shall push, and how often (KIP-714)."""

from __future__ import annotations

from ottla.common.kafka.ids import ZERO_UUID
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, f, message


@message("0-0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes = f(UUID, "0+", default=ZERO_UUID)


@message("0-0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    client_instance_id: bytes = f(UUID, "0+", default=ZERO_UUID)
    subscription_id: int = f(INT32, "0+")
    accepted_compression_types: list[int] = f(array(INT8), "0+")
    push_interval_ms: int = f(INT32, "0+")
    telemetry_max_bytes: int = f(INT32, "0+")
    delta_temporality: bool = f(BOOL, "0+")
    requested_metrics: list[str] = f(array(STRING), "0+")


SPEC = ApiSpec(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse)
