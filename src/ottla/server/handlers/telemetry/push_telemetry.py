"""PushTelemetry (72): version 0. Metrics of a client, exported at the next scrape (KIP-714).

Sizes are checked before anything is decompressed or decoded, and the work is done in short steps.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import RESERVED_UUIDS
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.registry import ApiKey
from ottla.record.compression import CODEC_NAMES
from ottla.server.handlers.telemetry.context import TelemetryContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps


def handle(context: TelemetryContext, request: Request, message: PushTelemetryRequest) -> Steps:
    """Check and store a push. Without a subscription, an error makes the client ask for one."""
    if message.client_instance_id in RESERVED_UUIDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "invalid client instance id")
    receiver = context.receiver
    if receiver is None:
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the cluster has no subscription")
    now_s = context.now_s()
    instance = context.instance_of(receiver, request, message.client_instance_id, now_s)
    try:
        try:
            instance.accept_push(now_s, message.subscription_id, terminating=message.terminating)
            _check_metrics(context, message)
        finally:
            instance.terminating = message.terminating
        if message.metrics:
            yield from receiver.store(instance, message.compression_type, bytes(message.metrics), context.max_bytes)
    except KafkaError as error:
        instance.last_error = error.code
        receiver.count(error)
        raise
    instance.last_error = ErrorCode.NONE
    if message.terminating:
        receiver.instances.end(instance, now_s)
    return PushTelemetryResponse()


def _check_metrics(context: TelemetryContext, message: PushTelemetryRequest) -> None:
    if not 0 <= message.compression_type < len(CODEC_NAMES):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {message.compression_type} is unknown")
    if len(message.metrics) > context.max_bytes:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"the metrics have more than {context.max_bytes} bytes")


PUSH_TELEMETRY = SchemaApi(ApiKey.PUSH_TELEMETRY, handle, bare_error(PushTelemetryResponse))
