"""APIs of the share coordinator: brokers change and read the state of share partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.metadata.image import SHARE_GROUPS_DISABLED
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.context import ShareContext
from ottla.server.requests.api import ErrorResponse, SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def state_api(
    key: ApiKey,
    response: Callable[..., object],
    topic_result: Callable[..., object],
    partition_result: Callable[..., object],
) -> SchemaApi[ShareContext]:
    """API whose response comes from the share coordinator, with an entry for each share partition."""
    error_response = state_errors(response, topic_result, partition_result)

    def handle(context: ShareContext, request: Request, message: Any) -> object | None:
        if not context.enabled:
            return error_response(message, ErrorCode.UNSUPPORTED_VERSION, SHARE_GROUPS_DISABLED)
        context.groups.coordination.coordinator.answer(message, request.answer_with)
        return None

    return SchemaApi(
        key, handle, error_response, needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    ).divided(Division(("topics",), "results", items=256, inner=(("partitions", "partitions"),)))


def state_errors(
    response: Callable[..., object], topic_result: Callable[..., object], partition_result: Callable[..., object]
) -> ErrorResponse:
    """The error for every share partition."""

    def error_response(message: Any, code: ErrorCode, text: str) -> object:
        return response(
            results=[
                topic_result(
                    topic_id=topic.topic_id,
                    partitions=[
                        partition_result(partition=each.partition, error_code=code, error_message=text or None)
                        for each in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    return error_response
