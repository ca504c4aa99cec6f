"""PushTelemetry (key 72): metrics of a client in OpenTelemetry's encoding, compressed (KIP-714)."""

from __future__ import annotations

from ottla.common.kafka.ids import ZERO_UUID
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, UUID, f, message


@message("0-0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: bytes = f(UUID, "0+", default=ZERO_UUID)
    subscription_id: int = f(INT32, "0+")
    terminating: bool = f(BOOL, "0+")
    compression_type: int = f(INT8, "0+")
    metrics: bytes = f(BYTES, "0+")


@message("0-0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


SPEC = ApiSpec(ApiKey.PUSH_TELEMETRY, PushTelemetryRequest, PushTelemetryResponse)
