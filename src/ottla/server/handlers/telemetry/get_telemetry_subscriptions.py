"""GetTelemetrySubscriptions (71): version 0. The metrics that a client shall push (KIP-714).

Without a subscription the answer asks for no metrics and nothing is remembered; the client asks again after five
minutes.
"""

from __future__ import annotations

from ottla.common.config.client_metrics_configs import DEFAULT_INTERVAL_MS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from ottla.server.handlers.telemetry.context import TelemetryContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.request import Request

ACCEPTED_COMPRESSION = (ZSTD, LZ4, GZIP, SNAPPY)
"""Codecs offered to clients, the preferred one first, as in Apache Kafka; uncompressed metrics are accepted too."""


def handle(
    context: TelemetryContext, request: Request, message: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Assign an instance id to a new client, and describe its subscription."""
    instance_id = message.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = context.new_instance_id()
    response = GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=DEFAULT_INTERVAL_MS,
        telemetry_max_bytes=context.max_bytes,
    )
    receiver = context.receiver
    if receiver is None:
        return response
    now_s = context.now_s()
    instance = context.instance_of(receiver, request, instance_id, now_s)
    try:
        instance.accept_get(now_s)
    except KafkaError as error:
        receiver.count(error)
        raise
    instance.last_error = ErrorCode.NONE
    response.subscription_id, metrics, response.push_interval_ms = instance.subscription
    response.requested_metrics = list(metrics)
    return response


GET_TELEMETRY_SUBSCRIPTIONS = SchemaApi(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, handle, bare_error(GetTelemetrySubscriptionsResponse)
)
